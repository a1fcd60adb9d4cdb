//! A plug-in tells of memory as it comes and goes, and its figures as numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use regraph::driver::{HostApi, Source};
use regraph::engine::{Config, HistoryOptions};
use regraph::settings::Settings;
use regraph::snapshot::Action;
use regraph_plugin::{Happening, FIGURES};
use regraph_testing::Given;
use serde_json::Value;

use super::host::{host_with, Host};

const MIB: u64 = 1 << 20;

fn host(settings: &str) -> Host {
    host_with(Config::default().settings(Settings::parse(settings).unwrap()))
}

/// What happens from now on, each time since the last.
fn watch(host: &Host) -> impl Fn() -> Vec<Happening> {
    let told: Arc<Mutex<Vec<Happening>>> = Arc::default();
    let sink = Arc::clone(&told);
    host.plugin.watch(Arc::new(move |it: &Happening| sink.lock().unwrap().push(*it)));
    move || std::mem::take(&mut *told.lock().unwrap())
}

#[test]
fn what_comes_goes_under_the_same_address_and_size() {
    for settings in ["", "expandable_segments:False", "caching:False"] {
        let host = host(settings);
        let told = watch(&host);
        let streams = [(); 2].map(|()| host.driver.create_stream().unwrap());
        let mut random = fastrand::Rng::with_seed(7);
        let mut live = Vec::new();
        let mut segments: BTreeMap<u64, u64> = BTreeMap::new();
        let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
        for step in 0..600 {
            let bytes = 1 + random.u64(..8 * MIB);
            let mut asked = None;
            if live.is_empty() || random.bool() {
                let stream = streams[random.usize(..2)];
                live.push(host.plugin.allocate(bytes, 0, stream).unwrap());
                asked = Some(stream);
            } else {
                let block = live.swap_remove(random.usize(..live.len()));
                host.plugin.free(block, 0).unwrap();
            }
            if step % 100 == 99 {
                host.empty();
            }
            for it in told() {
                assert_eq!((it.device, it.key), (0, (0, 0)));
                match it.action {
                    Action::SegmentAlloc | Action::SegmentMap => {
                        assert_eq!(Some(it.stream), asked);
                        assert_eq!(
                            it.action == Action::SegmentAlloc,
                            settings.contains("False"),
                            "{settings}"
                        );
                        assert_eq!(segments.insert(it.address, it.bytes), None);
                    }
                    Action::SegmentFree | Action::SegmentUnmap => {
                        assert_eq!(segments.remove(&it.address), Some(it.bytes));
                    }
                    Action::Alloc => {
                        assert_eq!(it.bytes, bytes);
                        assert_eq!(blocks.insert(it.address, it.bytes), None);
                    }
                    Action::FreeRequested => {
                        assert_eq!(blocks.get(&it.address), Some(&it.bytes));
                    }
                    Action::FreeCompleted => {
                        assert_eq!(blocks.remove(&it.address), Some(it.bytes));
                    }
                    other => panic!("{other:?}"),
                }
            }
            let figures = host.plugin.engine(0).unwrap().statistics().unwrap().all;
            assert_eq!(segments.len() as u64, figures.segment.current);
            // Without caching the driver is asked for the exact bytes.
            if !settings.contains("caching") {
                assert_eq!(segments.values().sum::<u64>(), figures.reserved_bytes.current);
            }
            assert_eq!(blocks.values().sum::<u64>(), figures.requested_bytes.current);
        }
        live.drain(..).for_each(|block| host.plugin.free(block, 0).unwrap());
        host.empty();
        for it in told() {
            if let Action::SegmentFree | Action::SegmentUnmap = it.action {
                assert_eq!(segments.remove(&it.address), Some(it.bytes));
            }
        }
        assert!(segments.is_empty());
    }
}

#[test]
fn memory_goes_after_it_was_told_and_comes_before() {
    let (host, [stream]) = host("expandable_segments:False").with_streams();
    // What was there before is told when it goes.
    let early = host.plugin.allocate(30 * MIB, 0, stream).unwrap();
    let driver = Arc::clone(&host.driver);
    let free = move || regraph::driver::Driver::memory_info(&*driver).unwrap().free;
    let seen: Arc<Mutex<Vec<(Action, u64)>>> = Arc::default();
    let (sink, ask) = (Arc::clone(&seen), free.clone());
    host.plugin
        .watch(Arc::new(move |it: &Happening| sink.lock().unwrap().push((it.action, ask()))));
    let before = free();
    let block = host.plugin.allocate(40 * MIB, 0, stream).unwrap();
    let during = free();
    assert!(during < before);
    for block in [early, block] {
        host.plugin.free(block, 0).unwrap();
    }
    host.empty();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0], (Action::SegmentAlloc, during));
    let gone: Vec<_> = seen.iter().filter(|(action, _)| *action == Action::SegmentFree).collect();
    assert_eq!(gone.len(), 2, "{seen:?}");
    assert_eq!(gone[0].1, during, "it is still there when it is told to go");
}

#[test]
fn what_is_at_hand_is_told_too() {
    let (host, [stream]) = host("").with_streams();
    let allocate = || host.plugin.allocate_on((), MIB, 0, stream).unwrap();
    (0..3).for_each(|_| host.plugin.free(allocate(), 0).unwrap());
    let told = watch(&host);
    let address = allocate();
    assert!(told().iter().any(|it| (it.action, it.address) == (Action::Alloc, address)));
}

#[test]
fn a_live_block_is_found_by_its_address() {
    let (host, [stream]) = host("").with_streams();
    let address = host.plugin.allocate(1000, 0, stream).unwrap();
    let block = host.plugin.live_block(address).unwrap();
    assert_eq!((block.device, block.requested, block.bytes), (0, 1000, 1024));
    assert_eq!((block.stream, block.key), (stream, (0, 0)));
    host.plugin.free(address, 0).unwrap();
    assert!(host.plugin.live_block(address).is_err());
}

#[test]
fn figures_as_numbers_are_those_by_name() {
    const NAMES: [&str; 9] = [
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    ];
    let (host, [stream]) = host("").with_streams();
    let blocks = [1000, 3 * MIB, 900, 30 * MIB].map(|it| host.plugin.allocate(it, 0, stream));
    for block in &blocks[..2] {
        host.plugin.free(*block.as_ref().unwrap(), 0).unwrap();
    }
    assert!(host.plugin.allocate(1 << 50, 0, stream).is_err());
    let named = host.plugin.statistics(0).unwrap();
    let mut expected = Vec::new();
    for name in NAMES {
        for kind in ["all", "small_pool", "large_pool"] {
            for part in ["current", "peak", "allocated", "freed"] {
                expected.push(named[name][kind][part].as_i64().unwrap());
            }
        }
    }
    for name in ["oversize_allocations", "oversize_segments"] {
        let parts = ["current", "peak", "allocated", "freed"];
        expected.extend(parts.map(|part| named[name][part].as_i64().unwrap()));
    }
    for name in [
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
    ] {
        let number: &Value = &named[name];
        expected.push(number.as_i64().unwrap());
    }
    let numbers = host.plugin.figures(0).unwrap();
    assert_eq!(numbers.len(), FIGURES);
    assert_eq!(numbers[..], expected);
    assert!(numbers.iter().filter(|&&number| number > 0).count() > 30);
}

#[test]
fn a_device_that_comes_later_keeps_the_history_that_was_asked_for() {
    let host = host("");
    host.plugin
        .keep_history(HistoryOptions::latest(100).skipped(vec![Action::SegmentMap]))
        .unwrap();
    let stream = host.driver.create_stream().unwrap();
    host.plugin.allocate(1000, 0, stream).unwrap();
    let actions: Vec<_> =
        host.plugin.snapshot().unwrap().device_traces[0].iter().map(|it| it.action).collect();
    assert_eq!(actions, [Action::Alloc]);
}

#[test]
fn memory_is_numbered_as_it_comes() {
    let (host, [stream]) = host("expandable_segments:False").with_streams();
    let key = (0, 7);
    let source: Arc<dyn Source> = Arc::new(Given::new(Arc::clone(&host.driver)));
    host.plugin.create_or_incref_pool(0, key, Some(source)).unwrap();
    let told = watch(&host);
    let first = host.plugin.allocate(30 * MIB, 0, stream).unwrap();
    host.plugin.begin_thread_pool(0, key).unwrap();
    let second = host.plugin.allocate(30 * MIB, 0, stream).unwrap();
    host.plugin.end_pool(0, key).unwrap();
    let third = host.plugin.allocate(40 * MIB, 0, stream).unwrap();
    let arrivals = [first, second, third].map(|address| host.plugin.arrival(0, address));
    assert_eq!(arrivals, [Some(0), Some(1), Some(2)]);
    let told: Vec<_> = told().into_iter().filter(|it| it.action == Action::SegmentAlloc).collect();
    assert_eq!(told.iter().map(|it| it.key).collect::<Vec<_>>(), [(0, 0), key, (0, 0)]);
    // Each segment of a snapshot has come at some time.
    for segment in host.plugin.snapshot().unwrap().segments {
        assert!(host.plugin.arrival(0, segment.address).is_some());
    }
    assert_eq!(host.plugin.arrival(1, first), None);
    host.plugin.free(first, 0).unwrap();
    host.empty();
    assert_eq!(host.plugin.arrival(0, first), None);
}
