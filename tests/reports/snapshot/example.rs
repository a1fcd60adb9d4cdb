//! A snapshot with one of everything.

use regraph::snapshot::{
    Action, Annotation, AnnotationStage, BlockState, Frame, Segment, SegmentBlock, SegmentType,
    Setting, Snapshot, TraceEntry, Waiting,
};

pub const MIB: u64 = 1 << 20;
/// Where the small segment lies: as on a GPU, above 2^32.
pub const BASE: u64 = 0x7f00_0000_0000;
/// Where the expandable segment lies.
const LARGE: u64 = 0x7f10_0000_0000;
/// More than 2^32 bytes.
const HUGE: u64 = 6 << 30;
/// Raw handles are addresses too.
const STREAM: u64 = 0x5555_0000_1000;
const MARKER: u64 = 0x5555_0000_2000;
/// Writers batch by 1000: one trace is longer, the other exactly as long.
const BATCH: u64 = 1000;

pub fn example() -> Snapshot {
    let settings = [
        ("PYTORCH_CUDA_ALLOC_CONF", Setting::from("")),
        ("expandable_segments", Setting::from(true)),
        ("garbage_collection_threshold", Setting::from(0.75)),
        ("max_split_size", Setting::from(-1)),
        ("limit", Setting::from(1 << 40)),
        ("device", Setting::Nothing),
        (
            "roundup_power2_divisions",
            Setting::Map([("1".to_owned(), 0.into()), ("2".to_owned(), 4.into())].into()),
        ),
    ];
    Snapshot {
        segments: vec![small(), large()],
        device_traces: vec![trace(), full_batch()],
        allocator_settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        external_annotations: vec![
            Annotation::capture(7, AnnotationStage::Start, 0, 1),
            Annotation::capture(7, AnnotationStage::End, 0, 4000),
        ],
    }
}

fn block(address: u64, size: u64, requested_size: u64, state: BlockState) -> SegmentBlock {
    SegmentBlock {
        address,
        size,
        requested_size,
        state,
        frames: Vec::new(),
        context: None,
        waiting: None,
    }
}

fn waiting(stream: Option<u64>, marker: Option<u64>, reason: &str) -> Waiting {
    Waiting { stream, marker, reason: reason.to_owned() }
}

fn small() -> Segment {
    let forward =
        Frame { filename: "src/モデル.rs".to_owned(), line: 12, name: "forward".to_owned() };
    let mut live = block(BASE, 1024, 1000, BlockState::ActiveAllocated);
    live.frames.push(forward);
    let mut pending = block(BASE + 1024, 1024, 1000, BlockState::ActivePendingFree);
    pending.waiting = Some(vec![
        waiting(Some(STREAM), Some(MARKER), "marker is not proven"),
        waiting(None, None, &"a long reason ".repeat(30)),
    ]);
    let free = block(BASE + 2048, 2 * MIB - 2048, 0, BlockState::Inactive);
    Segment {
        device: 0,
        address: BASE,
        total_size: 2 * MIB,
        allocated_size: 1024,
        active_size: 2048,
        requested_size: 2000,
        stream: 0,
        segment_type: SegmentType::Small,
        segment_pool_id: (0, 1),
        is_expandable: false,
        frames: Vec::new(),
        context: None,
        blocks: vec![live, pending, free],
    }
}

fn large() -> Segment {
    let mut free = block(LARGE + HUGE, 4 * MIB, 0, BlockState::Inactive);
    free.waiting = Some(vec![waiting(Some(STREAM), None, "only its own stream may take it")]);
    Segment {
        device: 0,
        address: LARGE,
        total_size: HUGE + 4 * MIB,
        allocated_size: HUGE,
        active_size: HUGE,
        requested_size: HUGE - 100,
        stream: STREAM,
        segment_type: SegmentType::Large,
        segment_pool_id: (STREAM, 0),
        is_expandable: true,
        frames: Vec::new(),
        context: None,
        blocks: vec![block(LARGE, HUGE, HUGE - 100, BlockState::ActiveAllocated), free],
    }
}

/// Leads to the segments. The largest block is older than the oldest entry.
fn trace() -> Vec<TraceEntry> {
    let free = BASE + 2048;
    let piece = LARGE + HUGE;
    let mut events = vec![
        (Action::SegmentAlloc, BASE, 2 * MIB, 0),
        (Action::Alloc, BASE, 1000, 0),
        (Action::Alloc, BASE + 1024, 1000, 0),
        (Action::SegmentMap, piece, 8 * MIB, STREAM),
        (Action::SegmentUnmap, piece + 4 * MIB, 4 * MIB, STREAM),
        (Action::SegmentAlloc, BASE + 16 * MIB, 2 * MIB, 0),
        (Action::SegmentFree, BASE + 16 * MIB, 2 * MIB, 0),
        // A block that lies across what were two.
        (Action::Alloc, free, 512, STREAM),
        (Action::Alloc, free + 512, 512, STREAM),
        (Action::FreeRequested, free, 512, STREAM),
        (Action::FreeRequested, free + 512, 512, STREAM),
        (Action::FreeCompleted, free + 512, 512, STREAM),
        (Action::FreeCompleted, free, 512, STREAM),
        (Action::Alloc, free, 1024, STREAM),
        (Action::FreeRequested, free, 1024, STREAM),
        (Action::FreeCompleted, free, 1024, STREAM),
    ];
    for _ in 0..BATCH {
        events.push((Action::Alloc, free, 700, STREAM));
        events.push((Action::FreeRequested, free, 700, STREAM));
        events.push((Action::FreeCompleted, free, 700, STREAM));
    }
    events.push((Action::FreeRequested, BASE + 1024, 1000, 0));
    events.push((Action::Snapshot, 0, 0, 0));
    let mut time_us = 0;
    let mut trace: Vec<TraceEntry> = events
        .into_iter()
        .map(|(action, addr, size, stream)| {
            time_us += 1;
            let entry = TraceEntry::new(action, addr, size, stream, time_us);
            TraceEntry { pool_id: (0, 1), ..entry }
        })
        .collect();
    trace.push(TraceEntry::oom(HUGE, 3 * MIB, STREAM, 1_700_000_000_000_000));
    trace
}

fn full_batch() -> Vec<TraceEntry> {
    let entry = TraceEntry::new(Action::Snapshot, 0, 0, 0, 0);
    vec![TraceEntry { category: Some("unknown".to_owned()), ..entry }; BATCH as usize]
}
