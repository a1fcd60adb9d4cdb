//! The plug-in, called as hosts other than PyTorch call it: memory for hosts that name no stream, frees in
//! a stream's order, and captures that are announced by the stream alone.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use log::Level;

use super::host::{host_on_two, host_with, Host};
use crate::cases::cases;
use crate::common::messages::messages_of;
use crate::common::remove_last_edge;
use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{self, Config};
use regraph::settings::Settings;
use regraph::snapshot::Action;
use regraph_plugin::{Error, HostLock, Plugin, PoolKey};
use regraph_sim::Call;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;
const LEGACY: StreamHandle = StreamHandle::from_bits(0);
const PER_THREAD: StreamHandle = StreamHandle::from_bits(2);

fn host() -> Host {
    host_with(Config::default().check(true))
}

impl Host {
    fn unordered(&self) -> u64 {
        self.plugin.allocate_unordered(SIZE, 0).unwrap()
    }

    /// Begins a capture that its stream alone announces.
    fn start(&self, stream: StreamHandle, key: PoolKey) {
        self.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        self.plugin.capture_started(0, stream, key, false).unwrap();
    }

    fn stop(&self, stream: StreamHandle, key: PoolKey) {
        self.plugin.capture_ending(0, stream, |_, _| ()).unwrap();
        self.driver.end_capture(stream).unwrap();
        self.plugin.capture_finished(0, stream, key).unwrap();
    }

    /// A pool that goes with its last graph.
    fn goes(&self, key: PoolKey) {
        self.plugin.release_pool(0, key).unwrap();
        self.empty();
        assert_eq!(self.held_by(key), 0);
    }
}

#[test]
fn unordered_memory_waits_for_all_blocking_streams() {
    let h = host();
    assert_eq!(h.plugin.allocate_unordered(0, 0).unwrap(), 0);
    // Made at the first request; nothing of it is asked for here.
    let busy = h.driver.create_blocking_stream();
    let other = h.stream();
    let block = h.unordered();
    h.launch_and_free(busy, block);
    // The kernel may still use it: neither a stream's request nor one without a stream gets it.
    let beside = [h.unordered(), h.allocate(busy), h.allocate(other), h.allocate(LEGACY)];
    assert!(!beside.contains(&block));
    h.driver.complete_all();
    for address in beside {
        h.free(address);
    }
    h.driver.complete_all();
    // Once all has completed it comes back.
    let again: Vec<u64> = (0..8).map(|_| h.unordered()).collect();
    assert!(again.contains(&block), "{block:#x} is not in {again:#x?}");
}

#[test]
fn unordered_memory_takes_nothing_by_the_order_of_streams() {
    let h = host();
    let stream = h.driver.create_blocking_stream();
    let block = h.used(stream);
    // Its own stream may have it at once, one without order only when the kernel has completed.
    assert_ne!(h.unordered(), block);
    let first = h.unordered();
    h.free(first);
    assert_ne!(h.unordered(), first, "the free marker waits for the kernel");
    assert_eq!(h.allocate(stream), block);
}

#[test]
fn another_stream_that_is_recorded_counts() {
    let (h, [side]) = host().with_streams();
    let block = h.unordered();
    h.plugin.record_stream(block, side).unwrap();
    h.launch_and_free(side, block);
    // All that blocking streams were given has completed; the kernel on the other stream has not.
    h.driver.complete(LEGACY).unwrap();
    let beside: Vec<u64> = (0..4).map(|_| h.unordered()).collect();
    assert!(!beside.contains(&block));
}

#[test]
fn a_free_beside_a_capture_of_a_blocking_stream_waits_for_its_end() {
    let h = host();
    let (capturing, block) = (h.driver.create_blocking_stream(), h.unordered());
    let key = h.plugin.name_pool();
    h.start(capturing, key);
    h.launch_and_free(capturing, block);
    let beside = h.unordered();
    assert_ne!(beside, block);
    h.stop(capturing, key);
    h.driver.complete_all();
    let again: Vec<u64> = (0..8).map(|_| h.unordered()).collect();
    h.driver.complete_all();
    let then: Vec<u64> = (0..8).map(|_| h.unordered()).collect();
    assert!(again.contains(&block) || then.contains(&block));
}

#[test]
fn the_per_thread_default_stream_gets_memory_without_order() {
    let (h, [own]) = host().with_streams();
    let block = h.plugin.allocate(SIZE, 0, PER_THREAD).unwrap();
    h.launch(PER_THREAD);
    h.plugin.free_on((), block, Some(PER_THREAD)).unwrap();
    assert_ne!(h.plugin.allocate_on((), SIZE, 0, PER_THREAD).unwrap(), block);
    for record in [Plugin::record_stream, Plugin::record_use] {
        let block = h.allocate(own);
        h.launch(PER_THREAD);
        record(&h.plugin, block, PER_THREAD).unwrap();
        h.free(block);
        assert_ne!(h.allocate(own), block, "the kernel may still use it");
    }
    let key = h.plugin.name_pool();
    h.start(own, key);
    let block = h.allocate(own);
    h.driver.wait(PER_THREAD, own).unwrap();
    h.launch(PER_THREAD);
    h.plugin.record_stream(block, PER_THREAD).unwrap();
    assert!(matches!(
        h.plugin.allocate_on((), SIZE, 0, PER_THREAD),
        Err(Error::Engine(engine::Error::Stream { why: engine::StreamRefusal::PerThread, .. }))
    ));
    h.free(block);
    assert_ne!(h.allocate(own), block, "the graph's kernel is not ordered before what follows");
    h.driver.wait(own, PER_THREAD).unwrap();
    h.stop(own, key);
    let (stream, other) = (h.stream(), h.stream());
    let block = h.plugin.allocate_on((), SIZE, 0, stream).unwrap();
    h.launch(stream);
    h.plugin.free_on((), block, Some(stream)).unwrap();
    assert_eq!(h.plugin.allocate_on((), SIZE, 0, stream).unwrap(), block);
    assert_ne!(h.plugin.allocate_on((), SIZE, 0, other).unwrap(), block);
}

#[test]
fn a_free_on_another_stream_is_a_use_there() {
    let (h, [own, other]) = host().with_streams();
    h.plugin.free_on((), 0, Some(other)).unwrap();
    let block = h.allocate(own);
    h.launch(other);
    h.plugin.free_on((), block, Some(other)).unwrap();
    assert_ne!(h.allocate(own), block);
    assert_ne!(h.allocate(other), block);
    assert!(matches!(h.plugin.free_on((), block, Some(own)), Err(Error::UnknownAddress { .. })));
}

#[test]
fn captures_that_are_announced_by_their_streams_are_judged_and_keep_their_memory() {
    let h = host();
    let (stream, key) = (h.stream(), h.plugin.name_pool());
    assert_ne!(key, h.plugin.name_pool());
    let places = [1, 2].map(|graphs| {
        h.start(stream, key);
        let first = h.used(stream);
        // Proven to be free behind the kernel.
        assert_eq!(h.allocate(stream), first);
        h.launch_and_free(stream, first);
        h.stop(stream, key);
        assert_eq!(h.plugin.captures(0).len(), graphs);
        first
    });
    assert_eq!(places[0], places[1], "graphs share their pool");
    assert_ne!(h.allocate(stream), places[0]);
    h.plugin.release_pool(0, key).unwrap();
    h.empty();
    assert!(h.held_by(key) >= SIZE, "the other graph may run");
    h.goes(key);
}

#[test]
fn a_capture_that_cannot_be_announced_leaves_nothing() {
    let h = host();
    let (stream, key) = (h.stream(), h.plugin.name_pool());
    assert!(matches!(
        h.plugin.capture_started(0, stream, key, false),
        Err(Error::Engine(engine::Error::Stream { why: engine::StreamRefusal::NotCapturing, .. }))
    ));
    assert!(h.plugin.pools(0).unwrap().iter().all(|pool| pool.key != key));
}

#[test]
fn a_capture_that_fails_or_is_refused_gives_its_pool_back() {
    let h = host();
    let (stream, key) = (h.stream(), h.plugin.name_pool());
    for refused in [false, true] {
        h.start(stream, key);
        for _ in 0..2 {
            h.used(stream);
        }
        if refused {
            remove_last_edge(&h.driver, stream);
            // Small captures are judged before their end.
            let judged = h.plugin.capture_ending(0, stream, |_, _| ());
            let is_refusal = matches!(judged, Err(Error::Engine(engine::Error::Refused(_))));
            assert!(is_refusal, "{judged:?}");
        } else {
            h.driver.invalidate(stream).unwrap();
        }
        assert_eq!(h.driver.end_capture(stream).is_ok(), refused);
        h.plugin.capture_failed(0, stream).unwrap();
        h.empty();
        assert_eq!(h.held_by(key), 0);
    }
}

#[test]
fn a_paused_capture_keeps_its_memory_and_is_not_judged() {
    let h = host();
    let (stream, key) = (h.stream(), h.plugin.name_pool());
    h.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let capture = h.plugin.capture_started(0, stream, key, false).unwrap();
    let block = h.allocate(stream);
    h.launch(stream);
    h.driver.end_capture(stream).unwrap();
    h.plugin.capture_paused(0, stream, key, capture).unwrap();
    h.free(block);
    // What comes after it on the stream belongs to eager work.
    assert_ne!(h.allocate(stream), block);
    h.empty();
    assert!(h.held_by(key) >= SIZE);
    h.goes(key);
}

#[test]
fn a_capture_whose_end_is_not_told_is_forgotten_with_its_stream() {
    let h = host();
    let (stream, key) = (h.stream(), h.plugin.name_pool());
    h.start(stream, key);
    h.used(stream);
    h.driver.end_capture(stream).unwrap();
    h.plugin.release_pool(0, key).unwrap();
    h.empty();
    assert!(h.held_by(key) >= SIZE, "a capture may be under way");
    h.plugin.retire_stream(stream).unwrap();
    h.empty();
    assert_eq!(h.held_by(key), 0);
}

/// A block of the other device was used on the stream and lives: the stream goes on, and its own blocks wait for it.
#[test]
fn no_device_forgets_a_stream_that_another_one_asks_about() {
    let (h, second) = host_on_two(Config::default());
    let [stream, other] = [h.stream(), h.stream()];
    let block = h.allocate(stream);
    let elsewhere = second.create_stream().unwrap();
    let there = h.plugin.allocate(SIZE, 1, elsewhere).unwrap();
    h.plugin.record_stream(there, stream).unwrap();
    h.plugin.retire_stream(stream).unwrap_err();
    h.launch_and_free(stream, block);
    assert_ne!(h.allocate(other), block, "its stream still uses it");
    h.plugin.free(there, 1).unwrap();
    h.driver.complete_all();
    h.plugin.retire_stream(stream).unwrap();
    assert_eq!(h.allocate(other), block);
}

/// An event that another thread records where a capture may have begun could crash the driver.
#[test]
fn before_a_capture_begins_no_device_s_blocks_have_other_threads_record_on_its_stream() {
    let (h, second) = host_on_two(Config::default());
    let stream = h.stream();
    h.allocate(stream);
    let elsewhere = second.create_stream().unwrap();
    let block = h.plugin.allocate(SIZE, 1, elsewhere).unwrap();
    h.plugin.record_stream(block, stream).unwrap();
    h.plugin.capture_beginning(0, stream).unwrap();
    let recorded = || [&h.driver, &second].map(|driver| driver.calls(Call::RecordEvent));
    let before = recorded();
    std::thread::scope(|scope| {
        scope.spawn(|| h.plugin.free(block, 1).unwrap());
    });
    assert_eq!(recorded(), before);
}

/// Another context of the device is current, whose default stream cannot be named: the device is waited for, and where it
/// cannot be, the block is live still.
#[test]
fn a_free_on_another_context_s_default_stream_loses_no_block() {
    const LEAST: u64 = 20 << 20;
    let settings = Settings::default().max_split_bytes(Some(LEAST));
    let (h, [s, captures]) = host_with(Config::default().settings(settings)).with_streams();
    let allocate = || h.plugin.allocate(LEAST, 0, s).unwrap();
    let oversize =
        || h.plugin.statistics(0).unwrap()["oversize_allocations"]["current"].as_u64().unwrap();
    let block = allocate();
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    h.plugin.watch(Arc::new(move |it| {
        count.fetch_add(usize::from(it.action == Action::FreeRequested), Ordering::SeqCst);
    }));
    h.driver.set_elsewhere(true);
    h.begin(captures, (1, 0));
    let refused = h.plugin.free_on((), block, Some(LEGACY));
    assert!(matches!(refused, Err(Error::Engine(engine::Error::DeviceCaptures { .. }))));
    assert_eq!((oversize(), told.load(Ordering::SeqCst)), (1, 0));
    h.end(captures, (1, 0));
    h.plugin.free_on((), block, Some(LEGACY)).unwrap();
    assert_eq!((oversize(), told.load(Ordering::SeqCst)), (0, 1));
    h.driver.set_elsewhere(false);
    h.driver.complete_all();
    assert_eq!(allocate(), block);
}

#[test]
fn a_stream_ends_when_nothing_asks_about_it_any_more() {
    let (h, [own, side]) = host().with_streams();
    h.plugin.retire_stream(own).unwrap();
    let (kept, freed) = (h.allocate(own), h.allocate(own));
    h.plugin.retire_unused(own).unwrap_err();
    h.plugin.record_stream(kept, side).unwrap();
    h.launch_and_free(own, freed);
    // It was recorded for a block that is live.
    assert!(matches!(
        h.plugin.retire_stream(side),
        Err(Error::Engine(engine::Error::Stream { why: engine::StreamRefusal::InUse, .. }))
    ));
    h.plugin.retire_stream(own).unwrap();
    h.driver.destroy_stream(own).unwrap();
    // Nothing is asked about it from now on, and its work is waited for.
    h.free(kept);
    h.plugin.retire_unused(side).unwrap();
    h.driver.destroy_stream(side).unwrap();
    let other = h.stream();
    let beside = [h.allocate(other), h.allocate(other)];
    assert!(!beside.contains(&kept) && !beside.contains(&freed));
    h.empty();
}

/// A lock of the host's, which counts how often it was let go.
#[derive(Clone, Copy)]
struct Lock<'a>(&'a Cell<u32>);

impl HostLock for Lock<'_> {
    fn unlocked<R: Send>(self, call: impl FnOnce() -> R + Send) -> R {
        self.0.set(self.0.get() + 1);
        call()
    }
}

#[test]
fn a_hosts_lock_is_let_go_for_all_but_what_is_at_hand() {
    let (h, [own, other]) = host().with_streams();
    let count = Cell::new(0);
    let let_go = || count.replace(0);
    let allocate = |stream| h.plugin.allocate_on(Lock(&count), SIZE, 0, stream).unwrap();
    let free = |block, stream| h.plugin.free_on(Lock(&count), block, stream).unwrap();
    // The device's first request; then peaks of what is cached and handed out are made exact.
    let block = allocate(own);
    free(block, None);
    free(allocate(own), None);
    assert!((2..=4).contains(&let_go()));
    for from in [None, Some(own)] {
        assert_eq!(allocate(own), block);
        free(block, from);
        assert_eq!(let_go(), 0);
    }
    // Another stream's use needs an event; another stream's request a place.
    assert_eq!(allocate(own), block);
    h.launch(other);
    free(block, Some(other));
    allocate(other);
    assert_eq!(let_go(), 2);
    // A block goes before a capture and comes back in it, and the other way.
    let (key, before) = (h.plugin.name_pool(), allocate(own));
    free(allocate(own), None);
    let_go();
    h.start(own, key);
    free(before, None);
    let inside = allocate(own);
    assert_eq!(let_go(), 2);
    h.stop(own, key);
    free(inside, None);
    assert_eq!(let_go(), 1);
    h.plugin.release_pool(0, key).unwrap();
    let refused = h.plugin.free_on(Lock(&count), inside, None);
    assert!(matches!(refused, Err(Error::UnknownAddress { .. })));
    // A region's pool may have to be made.
    let region = h.plugin.enter_region(Some("weights"));
    for _ in 0..3 {
        let_go();
        free(allocate(own), None);
    }
    assert_eq!(let_go(), 1);
    h.plugin.leave_region(region).unwrap();
}

#[test]
fn figures_count_what_is_done_with_a_hosts_lock_held() {
    cases(80, 32..=4_096, |u| {
        let h = host();
        let streams = [h.stream(), h.stream()];
        let (count, mut calls) = (Cell::new(0), 0);
        let (mut live, mut now, mut peak) = (Vec::new(), 0, 0);
        while !u.is_empty() && calls < 200 {
            calls += 1;
            let stream = *u.choose(&streams)?;
            if live.is_empty() || u.ratio(1, 2)? {
                let bytes = *u.choose(&[512, 4096, 3 * MIB])?;
                let block = h.plugin.allocate_on(Lock(&count), bytes, 0, stream).unwrap();
                live.push((block, bytes, stream));
                now += bytes;
                peak = peak.max(now);
            } else {
                let (block, bytes, own) = live.swap_remove(u.choose_index(live.len())?);
                let from = *u.choose(&[None, Some(own), Some(stream)])?;
                h.plugin.free_on(Lock(&count), block, from).unwrap();
                now -= bytes;
            }
            if u.ratio(1, 8)? {
                h.driver.complete_all();
            }
        }
        if calls > 0 {
            let told = h.plugin.statistics(0).unwrap();
            let told = &told["requested_bytes"]["all"];
            assert_eq!((told["current"].as_u64(), told["peak"].as_u64()), (Some(now), Some(peak)));
        }
        Ok(())
    });
}

#[test]
fn a_thread_that_asks_a_pool_gets_nothing_that_is_at_hand() {
    let h = host();
    let (own, key, count) = (h.stream(), h.plugin.name_pool(), Cell::new(0));
    let allocate = || h.plugin.allocate_on(Lock(&count), SIZE, 0, own).unwrap();
    let at_hand = [(); 3].map(|()| {
        let block = allocate();
        h.free(block);
        block
    });
    h.plugin.begin_thread_pool(0, key).unwrap();
    assert!(!at_hand.contains(&allocate()) && h.held_by(key) == SIZE);
    h.plugin.end_pool(0, key).unwrap();
}

#[test]
fn a_pool_that_work_still_uses_goes_with_the_cache_beside_a_capture() {
    let (h, [own, other]) = host().with_streams();
    let [key, captured] = [(); 2].map(|()| h.plugin.name_pool());
    h.plugin.begin_thread_pool(0, key).unwrap();
    h.used(own);
    h.plugin.end_pool(0, key).unwrap();
    h.start(other, captured);
    h.allocate(other);
    h.plugin.release_pool(0, key).unwrap();
    h.plugin.empty_cache().unwrap();
    assert!(h.plugin.pools(0).unwrap().iter().all(|pool| pool.key != key));
    h.stop(other, captured);
}

/// One that no announcement was made of.
#[test]
fn a_capture_that_cannot_be_taken_up_leaves_no_pool() {
    let pools = |n| {
        let (h, [stream]) = host().with_streams();
        h.used(stream);
        h.driver.complete_all();
        h.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        h.driver.fail_nth(Call::CaptureStatus, n, ErrorKind::NotSupported);
        let _ = h.plugin.allocate(SIZE, 0, stream);
        let engine = h.plugin.engine(0).unwrap();
        // Beside that of eager work, and that of the capture where it is known.
        engine.pools().unwrap().len() - 1 - usize::from(engine.host().is_recording())
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(pools), [0; 8]);
}

#[test]
fn that_a_capture_was_not_judged_is_told_where_captures_are() {
    for judges in [true, false] {
        let h = host_with(Config::default().check(judges));
        let (stream, key) = (h.stream(), h.plugin.name_pool());
        let messages = messages_of(|| {
            h.begin(stream, key);
            h.allocate(stream);
            h.end(stream, key);
        });
        let is_told = |it: &(Level, String)| it.0 == Level::Warn && it.1.contains("was not judged");
        assert_eq!(messages.iter().any(is_told), judges);
    }
}
