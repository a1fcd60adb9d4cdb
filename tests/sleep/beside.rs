//! What other threads do while regions go to sleep or wake: they wait for nothing, and what they take away goes when
//! nothing is copied any more.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;

use regraph::driver::{CaptureMode, ErrorKind, HostApi};
use regraph::engine::{Config, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Pool, PoolRefusal};
use regraph::regions::{Backup, Regions, Tags};
use regraph_plugin::{Plugin, PoolKey};
use regraph_sim::{Call, SimConfig, SimDriver};

use super::model::{Block, Device, Model};
use crate::common::{once, while_it_waits, MIB};

/// What sleeps, and a pool of no region with a graph.
struct Bench {
    model: Model,
    other: (Pool<Device>, Graph<Device>),
    acted: Arc<AtomicUsize>,
}

impl Deref for Bench {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Model {
        &mut self.model
    }
}

/// Has another thread do something in the next call of a name, and counts that once the thread has come to its end.
fn in_next(
    device: &SimDriver,
    call: &'static str,
    acted: &Arc<AtomicUsize>,
    act: impl FnOnce() + Send + 'static,
) {
    let acted = acted.clone();
    let act = move || _ = acted.fetch_add(usize::from(while_it_waits(act)), Ordering::SeqCst);
    device.before(call, once(act));
}

fn panic_in_next(device: &SimDriver, call: &'static str) {
    device.before(call, once(|| panic!("as the test asked for")));
}

impl Bench {
    fn new() -> Self {
        let model = Model::on(SimConfig::default(), 70 * MIB);
        let pool = Pool::new(&model.engine, PoolConfig::default());
        let (graph, _) = model.capture(&pool, 30);
        Self { model, other: (pool, graph), acted: Arc::default() }
    }

    fn in_next(&self, call: &'static str, act: impl FnOnce() + Send + 'static) {
        in_next(&self.driver, call, &self.acted, act);
    }

    /// The other thread has come to its end so often.
    fn acted(&self) -> usize {
        self.acted.swap(0, Ordering::SeqCst)
    }
}

fn is_asleep<R>(answer: Result<R, Error>) -> bool {
    matches!(answer, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. }))
}

/// What a thread does that shares nothing with the regions but the engine, and what it is refused of them.
fn others(b: &Bench) -> impl FnOnce() + Send + 'static {
    let (engine, regions, device) = (b.engine.clone(), b.regions.clone(), b.driver.clone());
    let (weights, other) = (b.weights.clone(), b.other.0.clone());
    let graphs = [0, 1].map(|row| b.graphs[row].1.clone());
    move || {
        let mine = device.create_stream().unwrap();
        // What is awake.
        for bytes in [512, 24 * MIB] {
            drop(other.allocate(bytes, mine).unwrap());
        }
        engine.statistics().unwrap();
        engine.snapshot().unwrap();
        engine.host().verify().unwrap();
        let body = |capture: &Capture<Device>| {
            drop(capture.allocate(MIB, mine)?);
            Ok::<_, Error>(())
        };
        engine.capture(mine, &other, CaptureMode::Relaxed, body).unwrap();
        // Of what moves.
        let report = regions.report();
        assert_eq!(report.len(), 2);
        assert!(["weights", "graphs"].iter().all(|tag| regions.is_asleep(tag).unwrap()));
        regions.set_backup("more", Backup::None);
        regions.forget("more");
        regions.host_bytes();
        assert!(is_asleep(weights.allocate(512, mine)));
        assert!(is_asleep(weights.follow(mine)));
        assert!(is_asleep(engine.capture(mine, &weights, CaptureMode::Relaxed, body)));
        for pool in &graphs {
            assert!(pool.is_suspended() && is_asleep(pool.lend(mine)));
        }
        let made = Pool::new(&engine, PoolConfig::default().tag("weights"));
        assert!(is_asleep(made.allocate(512, mine)));
        assert!(weights.suspend_discarding_all().is_err() && weights.resume().is_err());
        for pool in [&weights, &graphs[0]] {
            let why = engine.destroy_pool(pool.id()).unwrap_err();
            assert!(matches!(why, Error::Pool { why: PoolRefusal::InUse { .. }, .. }), "{why}");
        }
        engine.empty_cache().unwrap();
        engine.retire_stream(mine).unwrap();
    }
}

#[test]
fn others_go_on_while_a_region_goes_to_sleep_and_wakes() {
    let b = Bench::new();
    for call in ["cuMemHostAlloc", "cuMemcpyDtoHAsync"] {
        b.in_next(call, others(&b));
        assert!(b.regions.sleep(Tags::All).unwrap() >= 110 * MIB);
        assert_eq!(b.acted(), 1, "{call}");
        assert!(b.regions.report().iter().all(|region| region.awake_bytes == 0));
        b.in_next("cuMemcpyHtoDAsync", others(&b));
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1, "{call}");
        b.is_whole();
    }
}

/// A launch that comes while its pool is shut is refused, and waits for nothing.
#[test]
fn no_graph_is_launched_while_its_pool_moves() {
    let mut b = Bench::new();
    for call in ["cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let (graph, pool) = b.graphs.remove(0);
        let (send, receive) = channel();
        let (stream, awake) = (b.driver.create_stream().unwrap(), b.other.0.clone());
        b.in_next(call, move || {
            assert!(is_asleep(graph.launch(stream)));
            awake.follow(stream).unwrap();
            send.send(graph).unwrap();
        });
        b.regions.sleep(Tags::All).unwrap();
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1, "{call}");
        b.graphs.push((receive.recv().unwrap(), pool));
        b.is_whole();
    }
}

#[test]
fn a_block_that_is_freed_while_its_pool_moves_is_free_afterwards() {
    for call in ["cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let mut b = Bench::new();
        let (block, _) = b.blocks.remove(2);
        let address = block.address();
        b.in_next(call, move || drop(block));
        b.regions.sleep(Tags::All).unwrap();
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1);
        b.is_whole();
        let again = b.weights.allocate(70 * MIB, b.stream).unwrap();
        assert_eq!(again.address(), address);
    }
}

/// All that is in a pool, and the pool, is given up while its memory is copied.
#[test]
fn a_pool_that_is_given_up_while_it_moves_goes_afterwards() {
    for call in ["cuMemHostAlloc", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let mut b = Bench::new();
        let blocks: Vec<Block> = b.blocks.drain(..3).collect();
        let other = b.other.0.clone();
        let weights = std::mem::replace(&mut b.weights, other);
        let (engine, id) = (b.engine.clone(), weights.id());
        b.in_next(call, move || {
            drop((blocks, weights));
            engine.empty_cache().unwrap();
            assert!(
                engine.host().has_blocks_beside(id).is_ok(),
                "it is there, as long as it is copied"
            );
        });
        b.regions.sleep(Tags::All).unwrap();
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1);
        assert!(b.engine.host().has_blocks_beside(id).is_err(), "{call}");
        b.is_whole();
    }
}

/// A pool that was only named: nothing but the engine keeps it.
#[test]
fn a_pool_is_not_destroyed_while_it_moves() {
    for call in ["cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let b = Bench::new();
        let pool = b.engine.create_pool(PoolConfig::default().tag("weights"));
        let block = b.engine.allocate(pool, 8 * MIB, b.stream).unwrap();
        b.engine.free(block.id).unwrap();
        let engine = b.engine.clone();
        b.in_next(call, move || {
            drop(Regions::new(&engine));
            let why = engine.destroy_pool(pool).unwrap_err();
            let in_use = |why: &Error| {
                matches!(
                    why,
                    Error::Pool { why: PoolRefusal::InUse { blocks: 0, graphs: 0, .. }, .. }
                )
            };
            assert!(in_use(&why), "{why}");
        });
        b.regions.sleep(Tags::All).unwrap();
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1, "{call}");
        b.is_whole();
        b.driver.complete_all();
        b.engine.destroy_pool(pool).unwrap();
    }
}

/// Its output was freed before, and is copied: it may be read by another graph.
#[test]
fn a_graph_that_is_released_while_its_pool_moves_goes_afterwards() {
    for (call, row) in [
        ("cuMemcpyDtoHAsync", 0),
        ("cuMemcpyDtoHAsync", 1),
        ("cuMemcpyHtoDAsync", 0),
        ("cuMemcpyHtoDAsync", 1),
    ] {
        let mut b = Bench::new();
        drop(b.blocks.remove(3 + row));
        let (graph, pool) = b.graphs.remove(row);
        let engine = b.engine.clone();
        b.in_next(call, move || {
            drop(graph);
            engine.empty_cache().unwrap();
        });
        b.regions.sleep(Tags::All).unwrap();
        b.driver.synchronize().unwrap();
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1);
        b.is_whole();
        // What was planned goes when it moves no more.
        assert!(row == 0 || pool.reserved().unwrap() == 0, "{call}");
        b.driver.complete_all();
        b.engine.empty_cache().unwrap();
        assert_eq!(pool.reserved().unwrap(), 0, "{call}");
    }
}

/// A pool of the region that gets its first memory while the device is waited for sleeps with the others.
#[test]
fn a_pool_that_gets_memory_before_its_region_is_shut_sleeps_too() {
    let b = Bench::new();
    let late = Pool::new(&b.engine, PoolConfig::default().tag("weights"));
    let (pool, stream) = (late.clone(), b.driver.create_stream().unwrap());
    let (send, block) = channel();
    b.in_next("cuCtxSynchronize", move || send.send(pool.allocate(MIB, stream).unwrap()).unwrap());
    b.regions.sleep(Tags::All).unwrap();
    assert_eq!(b.acted(), 1);
    assert!(late.is_suspended() && is_asleep(late.allocate(MIB, stream)));
    drop(block.recv().unwrap());
    b.wakes_whole();
}

/// A pool of the region that is destroyed by its name while the device is waited for is gone, and the others sleep.
#[test]
fn a_pool_that_is_destroyed_before_its_region_is_shut_does_not_keep_the_others_awake() {
    let b = Bench::new();
    let gone = Pool::new(&b.engine, PoolConfig::default().tag("weights"));
    drop(gone.allocate(MIB, b.stream).unwrap());
    b.driver.synchronize().unwrap();
    let (engine, pool) = (b.engine.clone(), gone.id());
    b.in_next("cuCtxSynchronize", move || engine.destroy_pool(pool).unwrap());
    b.regions.sleep(Tags::All).unwrap();
    assert_eq!(b.acted(), 1);
    b.wakes_whole();
}

/// What is set for regions while they move does not wait for copies.
#[test]
fn copies_are_retained_or_not_from_the_next_call_on_whatever_moves() {
    let b = Bench::new();
    let regions = b.regions.clone();
    b.in_next("cuMemcpyDtoHAsync", move || regions.retain(true));
    b.regions.sleep(Tags::All).unwrap();
    assert_eq!(b.acted(), 1);
    b.regions.wake(Tags::All).unwrap();
    let kept: u64 = b.regions.report().iter().map(|region| region.host_bytes).sum();
    assert!(kept > 0);
    b.is_whole();
}

/// A piece that was unmapped and that the driver has not taken back keeps its pool shut, and waking brings it.
#[test]
fn a_pool_with_memory_that_is_not_mapped_wakes_with_its_region() {
    let b = Bench::new();
    b.driver.fail_nth(Call::Release, 0, ErrorKind::NotSupported);
    b.regions.sleep(Tags::All).unwrap_err();
    b.wakes_whole();
    // Without its region nothing brings back what it held.
    b.driver.fail_nth(Call::Release, 0, ErrorKind::NotSupported);
    b.regions.sleep(Tags::All).unwrap_err();
    let Model { weights, regions, .. } = b.model;
    drop(regions);
    assert!(weights.is_suspended() && weights.resume().is_err());
}

/// Memory that sleeps cannot be marked as exported: it is exchanged.
#[test]
fn no_memory_that_moves_is_said_to_stay() {
    let b = Bench::new();
    let pool = &b.graphs[1].1;
    let body = |_: &Capture<Device>| b.engine.allocate_fixed(pool.id(), 4 * MIB, b.stream);
    let (graph, fixed) = b.engine.capture(b.stream, pool, CaptureMode::ThreadLocal, body).unwrap();
    let (engine, address) = (b.engine.clone(), fixed.address);
    b.in_next("cuMemcpyDtoHAsync", move || {
        let refused = engine.sharing().keep_exported(address, MIB).unwrap_err();
        assert!(matches!(refused, Error::NotKept { .. }), "{refused}");
    });
    b.regions.sleep(Tags::All).unwrap();
    assert_eq!(b.acted(), 1);
    b.regions.wake(Tags::All).unwrap();
    assert!(b.engine.sharing().keep_exported(address, MIB).unwrap());
    b.is_whole();
    b.engine.free(fixed.id).unwrap();
    drop(graph);
}

/// The regions of one engine are another's neither while they move.
#[test]
fn no_other_moves_what_moves() {
    let b = Bench::new();
    let theirs = Arc::new(Regions::new(&b.engine));
    for call in ["cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let theirs = theirs.clone();
        b.in_next(call, move || {
            for refused in [theirs.sleep(Tags::All), theirs.wake(Tags::All)] {
                let why = refused.unwrap_err();
                assert!(matches!(why, Error::Pool { why: PoolRefusal::Asleep, .. }), "{why}");
            }
        });
        b.regions.sleep(Tags::All).unwrap();
        b.regions.wake(Tags::All).unwrap();
        assert_eq!(b.acted(), 1);
        b.is_whole();
    }
}

/// The driver panics in the middle: what moved is asleep, whole, and wakes.
#[test]
fn a_panic_loses_nothing() {
    for call in ["cuMemHostAlloc", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let b = Bench::new();
        let expect_panic = |run: &dyn Fn()| {
            panic_in_next(&b.driver, call);
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        };
        let sleep = || assert!(b.regions.sleep(Tags::All).unwrap() > 0);
        match call {
            "cuMemcpyHtoDAsync" => {
                sleep();
                expect_panic(&|| drop(b.regions.wake(Tags::All)));
            }
            _ => expect_panic(&|| drop(b.regions.sleep(Tags::All))),
        }
        b.engine.host().verify().unwrap();
        assert!(b.regions.is_asleep("weights").unwrap());
        assert!(is_asleep(b.weights.allocate(512, b.stream)));
        assert!(is_asleep(b.graphs[0].0.launch(b.stream)));
        b.wakes_whole();
        sleep();
        b.wakes_whole();
    }
}

/// Regions that end where a panic has left pools moving let these be destroyed.
#[test]
fn what_a_panic_left_goes_with_its_regions() {
    let Bench { model, other, .. } = Bench::new();
    let Model { driver: device, engine, regions, weights, blocks, graphs, .. } = model;
    panic_in_next(&device, "cuMemcpyDtoHAsync");
    assert!(catch_unwind(AssertUnwindSafe(|| drop(regions.sleep(Tags::All)))).is_err());
    drop((blocks, graphs, weights, other));
    device.complete_all();
    engine.empty_cache().unwrap();
    assert!(device.used_bytes() > 0);
    drop(regions);
    engine.empty_cache().unwrap();
    assert_eq!((device.used_bytes(), device.host_bytes()), (0, 0));
}

/// Copies that cannot be waited for may be under way: nothing is opened, and waking brings all back.
#[test]
fn what_cannot_be_waited_for_stays_shut() {
    let b = Bench::new();
    b.regions.reserve_host(200 * MIB).unwrap();
    // From the first copy on no event is waited for.
    let device = b.driver.clone();
    b.in_next("cuMemcpyDtoHAsync", move || {
        (0..2).for_each(|_| device.fail_nth(Call::SynchronizeEvent, 0, ErrorKind::NotSupported));
    });
    b.regions.sleep(Tags::All).unwrap_err();
    assert_eq!(b.acted(), 1);
    assert!(is_asleep(b.weights.allocate(512, b.stream)));
    assert!(is_asleep(b.graphs[1].0.launch(b.stream)));
    assert!(b.regions.is_asleep("weights").unwrap());
    b.driver.forget_failures();
    b.wakes_whole();
}

/// What was copied, and what was not.
#[test]
fn the_report_tells_what_was_copied_and_what_was_dropped() {
    let b = Bench::new();
    let report = || -> BTreeMap<String, _> {
        let regions = b.regions.report().into_iter();
        regions.map(|it| (it.tag.to_string(), (it.slept, it.woke))).collect()
    };
    assert!(report().values().all(|moved| *moved == (None, None)));
    b.regions.set_backup("graphs", Backup::None);
    for _ in 0..2 {
        b.regions.sleep(Tags::All).unwrap();
        let told = report();
        let [weights, graphs] = ["weights", "graphs"].map(|tag| told[tag].0.unwrap());
        assert_eq!(weights.copied_bytes, 110 * MIB + 512);
        assert_eq!(weights.bytes, weights.copied_bytes + weights.dropped_bytes);
        assert_eq!(weights.bytes, 112 * MIB);
        // Two outputs of 2 MiB and temporary memory of 4.
        assert_eq!((graphs.copied_bytes, graphs.dropped_bytes), (0, graphs.bytes));
        assert!(graphs.bytes >= 8 * MIB && !graphs.time.is_zero());
        b.regions.wake(Tags::All).unwrap();
        let told = report();
        for (tag, went) in [("weights", weights), ("graphs", graphs)] {
            let came = told[tag].1.unwrap();
            assert_eq!(
                (came.bytes, came.copied_bytes, came.dropped_bytes),
                (went.bytes, went.copied_bytes, went.dropped_bytes)
            );
            assert_eq!(told[tag].0, Some(went));
        }
    }
    // What graphs keep is copied, and what they write anew is not.
    b.regions.set_backup("graphs", Backup::Host);
    b.graphs.iter().for_each(|(graph, _)| graph.launch(b.stream).unwrap());
    b.regions.sleep(&["graphs"]).unwrap();
    let graphs = report()["graphs"].0.unwrap();
    assert_eq!(graphs.copied_bytes, 4 * MIB);
    assert!(graphs.dropped_bytes >= 4 * MIB);
    b.wakes_whole();
    // Another region has the tag once this one is forgotten.
    let Model { engine, regions, weights, blocks, .. } = b.model;
    drop((blocks, weights));
    regions.forget("weights");
    let _other = Pool::new(&engine, PoolConfig::default().tag("weights"));
    let other = regions.report().into_iter().find(|it| &*it.tag == "weights").unwrap();
    assert_eq!((other.slept, other.woke), (None, None));
}

/// A host that knows memory by its address: only its launches and captures of what sleeps are held up.
#[test]
fn a_plug_ins_threads_go_on_while_its_regions_go_to_sleep_and_wake() {
    const OTHER: PoolKey = (0, 1);
    let device = Arc::new(SimDriver::new(SimConfig::default()));
    let (shared, acted) = (device.clone(), Arc::default());
    let plugin = Arc::new(Plugin::new(Config::default(), move |_| Ok(shared.clone())));
    let stream = device.create_stream().unwrap();
    plugin.create_or_incref_pool(0, OTHER, None).unwrap();
    let number = plugin.enter_region(Some("weights"));
    plugin.allocate(40 * MIB, 0, stream).unwrap();
    plugin.leave_region(number).unwrap();
    for call in ["cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"] {
        let (shared, driver) = (plugin.clone(), device.clone());
        in_next(&device, call, &acted, move || {
            let mine = driver.create_stream().unwrap();
            drop(shared.begin_launch(OTHER, "replay").unwrap());
            let address = shared.allocate(24 * MIB, 0, mine).unwrap();
            shared.free(address, 0).unwrap();
            shared.pools(0).unwrap();
            shared.begin_thread_pool(0, OTHER).unwrap();
            shared.allocate(2 * MIB, 0, mine).unwrap();
            shared.end_pool(0, OTHER).unwrap();
            shared.statistics(0).unwrap();
            assert!(shared.is_asleep("weights").is_ok());
        });
        match call {
            "cuMemcpyHtoDAsync" => assert_eq!(plugin.wake(None).unwrap(), 40 * MIB),
            _ => assert_eq!(plugin.sleep(None).unwrap(), 40 * MIB),
        }
        assert_eq!(acted.swap(0, Ordering::SeqCst), 1, "{call}: another thread had to wait");
    }
}
