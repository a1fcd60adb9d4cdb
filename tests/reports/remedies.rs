//! What an error tells to do helps, and observers of errors may make any call.

use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use regraph::driver::{ErrorKind, HostApi};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Error, Pool, PoolRefusal};
use regraph::regions::Regions;
use regraph_sim::{Call, SimConfig, SimDriver};

use super::{engine, graph, Device};
use crate::common::MIB;

/// Far longer than any call takes.
const LONG: Duration = Duration::from_secs(60);

/// Runs what may wait for ever on a thread of its own.
fn ends<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = channel();
    thread::spawn(move || send.send(run()));
    receive.recv_timeout(LONG).expect("it waits for itself")
}

#[test]
fn observers_of_a_region_that_cannot_wake_may_put_another_to_sleep() {
    let (engine, stream) = engine(100, Config::default());
    let [weights, cache] =
        ["weights", "cache"].map(|tag| Pool::new(&engine, PoolConfig::default().tag(tag)));
    let _held = weights.allocate(60 * MIB, stream).unwrap();
    let regions = Arc::new(Regions::new(&engine));
    regions.sleep(&["weights"]).unwrap();
    let _keys = cache.allocate(60 * MIB, stream).unwrap();
    let (observing, pool) = (Arc::downgrade(&regions), weights.clone());
    engine.observe_out_of_memory(move |report| {
        let regions: Arc<Regions<Device>> = observing.upgrade().unwrap();
        assert_eq!((report.pool.id, pool.is_suspended()), (pool.id(), true));
        pool.collect();
        assert_eq!(regions.report().len(), 2);
        regions.sleep(&["cache"]).unwrap();
    });
    ends(move || {
        let refused = regions.wake(&["weights"]).unwrap_err();
        assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
        assert_eq!(regions.wake(&["weights"]).unwrap(), 60 * MIB);
    });
    assert_eq!(engine.statistics().unwrap().counts.num_ooms, 1);
}

#[test]
fn observers_of_a_pool_that_cannot_be_resumed_may_call_it() {
    let (engine, stream) = engine(100, Config::default());
    let pool = Pool::new(&engine, PoolConfig::default());
    let _held = pool.allocate(60 * MIB, stream).unwrap();
    pool.suspend_discarding_all().unwrap();
    let other = Pool::new(&engine, PoolConfig::default());
    let big = Arc::new(other.allocate(60 * MIB, stream).unwrap());
    let observed = pool.clone();
    engine.observe_out_of_memory(move |_| {
        observed.collect();
        assert!(observed.is_suspended());
    });
    let resumed = pool.clone();
    ends(move || assert!(matches!(resumed.resume(), Err(Error::OutOfMemory(_)))));
    drop(big);
    assert_eq!(pool.resume().unwrap(), 60 * MIB);
    assert_eq!(engine.statistics().unwrap().counts.num_ooms, 1);
}

/// By the engine's own calls a pool's memory would go while the pool goes on to launch graphs there.
#[test]
fn only_its_owner_suspends_resumes_and_compacts_a_pool() {
    let (engine, stream) = engine(1000, Config::default());
    let driver = engine.driver();
    let pool = Pool::new(&engine, PoolConfig::default());
    let graph = graph(&engine, &pool, stream);
    let held = pool.reserved().unwrap();
    let refused = |result: Result<u64, Error>| {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Pool { why: PoolRefusal::Owned, .. }), "{text}");
        assert!(
            text.contains("Pool::suspend_discarding_outputs") && text.contains("Pool::resume"),
            "{text}"
        );
    };
    refused(engine.host().suspend_discarding_outputs(pool.id()));
    refused(engine.host().suspend_discarding_all(pool.id()));
    refused(engine.host().compact_pool(pool.id()));
    assert_eq!(driver.used_bytes(), held);
    graph.launch(stream).unwrap();
    pool.suspend_discarding_outputs().unwrap();
    refused(engine.host().resume_pool(pool.id()));
    assert_eq!((driver.used_bytes(), pool.is_suspended()), (0, true));
    pool.resume().unwrap();
    graph.launch(stream).unwrap();
}

/// Each call is named as it was made, and with it the call that helps.
#[test]
fn what_stands_in_the_way_of_a_suspension_is_told_with_what_helps() {
    let (engine, stream) = engine(1000, Config::default());
    let pool = Pool::new(&engine, PoolConfig::default());
    let graph = graph(&engine, &pool, stream);
    let _block = pool.allocate(MIB, stream).unwrap();
    let text = pool.suspend_discarding_outputs().unwrap_err().to_string();
    assert!(
        text.starts_with("suspend_discarding_outputs: ")
            && text.contains("Pool::suspend_discarding_all: 1 MiB at"),
        "{text}"
    );
    pool.suspend_discarding_all().unwrap();
    for error in [graph.launch(stream).unwrap_err(), pool.allocate(1, stream).err().unwrap()] {
        let text = error.to_string();
        assert!(text.contains("(Pool::resume)"), "{text}");
    }
    pool.resume().unwrap();
    graph.launch(stream).unwrap();
    // And by its name.
    let named = engine.create_pool(PoolConfig::default());
    let block = engine.allocate(named, MIB, stream).unwrap();
    let text = engine.host().suspend_discarding_outputs(named).unwrap_err().to_string();
    let remedy = "HostCalls::suspend_discarding_all";
    assert!(text.starts_with("suspend_discarding_outputs: ") && text.contains(remedy), "{text}");
    engine.host().suspend_discarding_all(named).unwrap();
    let text = engine.allocate(named, 1, stream).unwrap_err().to_string();
    assert!(text.contains("(HostCalls::resume_pool)"), "{text}");
    engine.host().resume_pool(named).unwrap();
    engine.free(block.id).unwrap();
}

/// Once lost the order stays so, and only another pool helps.
#[test]
fn where_the_order_is_lost_another_pool_launches() {
    let first = SimDriver::new(SimConfig::default());
    let second = first.add_device(SimConfig::default());
    let driver = Arc::new(first);
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let stream = driver.create_stream().unwrap();
    let pool = Pool::new(&engine, PoolConfig::default());
    let lost = graph(&engine, &pool, stream);
    let elsewhere = second.create_stream().unwrap();
    driver.fail_nth(Call::CreateEvent, 0, ErrorKind::OutOfMemory);
    lost.launch(elsewhere).unwrap_err();
    driver.synchronize().unwrap();
    let error = lost.launch(stream).unwrap_err();
    assert!(matches!(error, Error::OrderLost { .. }), "{error}");
    assert!(error.to_string().contains("make another pool and capture there"), "{error}");
    // Graphs of this one are never released, nor is what is captured anew ever launched.
    drop(lost);
    assert!(graph(&engine, &pool, stream).launch(stream).is_err());
    assert!(engine.host().graph_count(pool.id()).unwrap() > 0);
    let other = Pool::new(&engine, PoolConfig::default());
    graph(&engine, &other, stream).launch(stream).unwrap();
}
