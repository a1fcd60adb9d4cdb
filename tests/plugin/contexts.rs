//! What a host gives with its calls comes back in snapshots, and is dropped exactly once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{
    set_host_context, with_context, with_frames, Config, Engine, HistoryOptions, HostFrame,
    PoolConfig, PoolId,
};
use regraph::settings::Settings;
use regraph::snapshot::{Action, BlockState, HostContext, SegmentBlock, Snapshot, TraceEntry};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

const BYTES: u64 = 3 << 20;

/// A context that counts how often it is dropped.
struct Counted {
    name: u32,
    drops: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

struct Bench {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    stream: StreamHandle,
    drops: Arc<AtomicUsize>,
}

fn bench(settings: &str) -> Bench {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let config = Config::default().settings(Settings::parse(settings).unwrap());
    let engine = Engine::new(Arc::clone(&driver), config.report_leaks(false));
    let pool = engine.create_pool(PoolConfig::default());
    let stream = driver.create_stream().unwrap();
    Bench { driver, engine, pool, stream, drops: Arc::default() }
}

impl Bench {
    fn context(&self, name: u32) -> HostContext {
        HostContext::new(Counted { name, drops: Arc::clone(&self.drops) })
    }

    fn keep(&self, options: HistoryOptions) {
        self.engine.keep_history(&options).unwrap();
    }

    fn allocate(&self, name: u32) -> regraph::Block {
        with_context(self.context(name), || {
            self.engine.allocate(self.pool, BYTES, self.stream).unwrap()
        })
    }

    fn trace(&self) -> Vec<TraceEntry> {
        self.engine.snapshot().unwrap().device_traces.remove(0)
    }

    fn shown(&self) -> Vec<(Action, Option<u32>)> {
        self.trace().iter().map(|entry| (entry.action, name(entry.context.as_ref()))).collect()
    }

    fn dropped(&self) -> usize {
        self.drops.load(Ordering::SeqCst)
    }
}

fn name(context: Option<&HostContext>) -> Option<u32> {
    context.map(|context| context.get::<Counted>().expect("it is what was given").name)
}

fn blocks(snapshot: &Snapshot) -> impl Iterator<Item = &SegmentBlock> {
    snapshot.segments.iter().flat_map(|segment| &segment.blocks)
}

#[test]
fn contexts_come_back_with_events_blocks_and_segments() {
    let b = bench("history:100");
    let block = b.allocate(1);
    let snapshot = b.engine.snapshot().unwrap();
    let live = blocks(&snapshot).find(|it| it.address == block.address).unwrap();
    assert_eq!(name(live.context.as_ref()), Some(1));
    assert!(live.frames.is_empty());
    assert_eq!(name(snapshot.segments[0].context.as_ref()), Some(1));
    drop(snapshot);
    b.engine.free(block.id).unwrap();
    // From the stream's cache, by another caller; freed by a third.
    let block = b.allocate(2);
    with_context(b.context(3), || b.engine.free(block.id).unwrap());
    assert_eq!(
        b.shown(),
        [
            (Action::SegmentMap, Some(1)),
            (Action::Alloc, Some(1)),
            (Action::FreeRequested, Some(1)),
            (Action::FreeCompleted, Some(1)),
            (Action::Alloc, Some(2)),
            (Action::FreeRequested, Some(3)),
            (Action::FreeCompleted, Some(3)),
        ]
    );
    let snapshot = b.engine.snapshot().unwrap();
    assert!(blocks(&snapshot).all(|block| block.context.is_none()));
    // Files leave them out, and a snapshot that was read back has none.
    let mut file = Vec::new();
    snapshot.write_json(&mut file).unwrap();
    let read = Snapshot::read_json(file.as_slice()).unwrap();
    assert!(read.device_traces[0].iter().all(|entry| entry.context.is_none()));
    drop(snapshot);
    assert_eq!(b.dropped(), 0);
    let drops = Arc::clone(&b.drops);
    drop(b);
    assert_eq!(drops.load(Ordering::SeqCst), 3);
}

#[test]
fn a_ring_that_overflows_drops_what_it_forgets() {
    let b = bench("history:4");
    for name in 0..100 {
        let block = b.allocate(name);
        b.engine.free(block.id).unwrap();
    }
    assert!(b.trace().len() <= 4);
    assert_eq!(name(b.trace()[3].context.as_ref()), Some(99));
    // The segment's, and those of a few events in either ring.
    assert!(b.dropped() >= 100 - 9, "{}", b.dropped());
    b.engine.keep_history(&HistoryOptions::latest(0)).unwrap();
    assert_eq!(b.dropped(), 99, "the segment's own stays");
    assert!(b.engine.snapshot().unwrap().device_traces[0].is_empty());
    b.driver.complete_all();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.dropped(), 100);
}

#[test]
fn without_a_history_live_blocks_alone_keep_contexts() {
    let b = bench("");
    let (first, second) = (b.allocate(1), b.allocate(2));
    let snapshot = b.engine.snapshot().unwrap();
    let names: Vec<_> = blocks(&snapshot).filter_map(|it| name(it.context.as_ref())).collect();
    assert_eq!(names, [1, 2]);
    drop(snapshot);
    // They live on when a history begins.
    b.keep(HistoryOptions::latest(100));
    b.engine.free(first.id).unwrap();
    assert_eq!(b.shown(), [(Action::FreeRequested, Some(1)), (Action::FreeCompleted, Some(1))]);
    b.keep(HistoryOptions::latest(0));
    b.engine.free(second.id).unwrap();
    b.driver.complete_all();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.dropped(), 2);
}

#[test]
fn events_may_leave_origins_out() {
    let b = bench("");
    b.keep(HistoryOptions::latest(100).origins(false));
    let block = b.allocate(1);
    assert!(b.shown().iter().all(|(_, context)| context.is_none()));
    let snapshot = b.engine.snapshot().unwrap();
    let live = blocks(&snapshot).find(|it| it.address == block.address).unwrap();
    assert_eq!(name(live.context.as_ref()), Some(1));
}

#[test]
fn a_block_that_waits_keeps_its_context_until_it_is_free() {
    let b = bench("history:100");
    let other = b.driver.create_stream().unwrap();
    let block = b.allocate(1);
    b.driver.launch(other, Work::default(), false).unwrap();
    b.engine.record_stream(block.id, other).unwrap();
    with_context(b.context(2), || b.engine.free(block.id).unwrap());
    let snapshot = b.engine.snapshot().unwrap();
    let waiting = blocks(&snapshot).find(|it| it.state == BlockState::ActivePendingFree).unwrap();
    assert_eq!(name(waiting.context.as_ref()), Some(1));
    drop(snapshot);
    b.driver.complete_all();
    b.engine.empty_cache().unwrap();
    let shown = b.shown();
    let shown: Vec<_> =
        shown.iter().filter(|(action, _)| *action != Action::SegmentUnmap).collect();
    assert_eq!(shown[2..], [&(Action::FreeRequested, Some(2)), &(Action::FreeCompleted, Some(1))]);
    let completed = b.trace().into_iter().find(|it| it.action == Action::FreeCompleted).unwrap();
    assert_eq!(completed.stream, b.stream.bits() as u64);
}

#[test]
fn a_block_of_a_capture_keeps_its_context() {
    let b = bench("history:100");
    b.driver.begin_capture(b.stream, CaptureMode::Relaxed).unwrap();
    let capture = b.engine.begin_capture(b.pool, b.stream).unwrap();
    let block = b.allocate(1);
    b.driver.launch(b.stream, Work::default(), false).unwrap();
    let outside = b.driver.create_stream().unwrap();
    b.driver.launch(outside, Work::default(), false).unwrap();
    b.engine.record_stream(block.id, outside).unwrap();
    b.engine.free(block.id).unwrap();
    let snapshot = b.engine.snapshot().unwrap();
    let held = blocks(&snapshot).find(|it| it.state == BlockState::ActivePendingFree).unwrap();
    assert_eq!(name(held.context.as_ref()), Some(1));
    let graph = b.driver.end_capture(b.stream).unwrap();
    b.engine.end_capture(capture, graph).unwrap();
}

#[test]
fn a_history_goes_on_with_other_room_and_other_events() {
    let b = bench("");
    b.keep(HistoryOptions::latest(3));
    for name in 0..4 {
        let block = b.allocate(name);
        b.engine.free(block.id).unwrap();
    }
    let before = b.shown();
    assert_eq!(before.len(), 3);
    // The ring has turned: with more room its events are still in order.
    b.keep(HistoryOptions::latest(100).clear(false).skipped(vec![Action::FreeRequested]));
    let block = b.allocate(9);
    b.engine.free(block.id).unwrap();
    let shown = b.shown();
    assert!(shown.ends_with(&[(Action::Alloc, Some(9)), (Action::FreeCompleted, Some(9))]));
    assert_eq!(shown[shown.len() - 5..shown.len() - 2], before);
    b.keep(HistoryOptions::latest(1).clear(false));
    assert_eq!(b.shown(), [(Action::FreeCompleted, Some(9))]);
    b.keep(HistoryOptions::latest(100).skipped(vec![Action::FreeRequested, Action::FreeCompleted]));
    let block = b.allocate(10);
    b.engine.free(block.id).unwrap();
    assert_eq!(b.shown(), [(Action::Alloc, Some(10))]);
    b.keep(HistoryOptions::latest(100).skipped(vec![Action::FreeCompleted]));
    let block = b.allocate(11);
    b.engine.free(block.id).unwrap();
    assert_eq!(b.shown(), [(Action::Alloc, Some(11)), (Action::FreeRequested, Some(11))]);
}

#[test]
fn snapshots_may_be_events() {
    let b = bench("");
    b.keep(HistoryOptions::latest(100).snapshots(true));
    assert!(b.shown().is_empty());
    assert_eq!(b.shown(), [(Action::Snapshot, None)]);
    b.keep(HistoryOptions::latest(100));
    b.shown();
    assert!(b.shown().is_empty());
}

#[test]
fn a_context_that_was_set_holds_until_it_is_taken_away() {
    let b = bench("history:100");
    set_host_context(Some(b.context(1)));
    let first = b.engine.allocate(b.pool, BYTES, b.stream).unwrap();
    // Frames that are given with a call are remembered beside it.
    let frame = HostFrame { name: "inner".to_owned(), ..HostFrame::default() };
    let second = with_frames(vec![frame], || b.engine.allocate(b.pool, BYTES, b.stream).unwrap());
    b.engine.free(first.id).unwrap();
    set_host_context(None);
    b.engine.free(second.id).unwrap();
    let shown = b.shown().into_iter().filter(|(action, _)| *action != Action::SegmentMap);
    let shown: Vec<_> = shown.map(|(_, context)| context).collect();
    assert_eq!(shown[shown.len() - 6..], [Some(1); 6][..]);
    assert_eq!(b.trace().last().unwrap().frames[0].name, "inner");
    // Of another thread it is nothing.
    set_host_context(Some(b.context(2)));
    std::thread::scope(|scope| {
        scope.spawn(|| b.engine.allocate(b.pool, BYTES, b.stream).unwrap());
    });
    assert_eq!(b.shown().last().unwrap(), &(Action::Alloc, None));
    set_host_context(None);
}

#[test]
fn a_live_block_is_described() {
    let b = bench("");
    let block = b.engine.allocate(b.pool, 1000, b.stream).unwrap();
    let report = b.engine.host().block_report(block.id).unwrap();
    assert_eq!((report.pool, report.address, report.stream), (b.pool, block.address, b.stream));
    assert_eq!((report.requested, report.bytes), (1000, 1024));
    b.engine.free(block.id).unwrap();
    assert!(b.engine.host().block_report(block.id).is_err());
    let again = b.engine.allocate(b.pool, 600, b.stream).unwrap();
    assert_eq!(b.engine.host().block_report(again.id).unwrap().requested, 600);
    b.driver.begin_capture(b.stream, CaptureMode::Relaxed).unwrap();
    let captured = b.engine.allocate(b.pool, 600, b.stream).unwrap();
    assert_eq!(b.engine.host().block_report(captured.id).unwrap().address, captured.address);
    b.engine.free(captured.id).unwrap();
    assert!(b.engine.host().block_report(captured.id).is_err());
    b.driver.end_capture(b.stream).unwrap();
}
