//! Locks in one order, by all paths that take several of them.

use std::sync::Arc;
use std::thread;

use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::Config;
use regraph::regions::{Regions, Tags};
use regraph::sync::{Driver, Hold, Mutex, Rank};
use regraph::{Engine, Error, Pool, PoolConfig, PoolRefusal};
use regraph_sim::{Launch, SimConfig, SimDriver};

use crate::common::MIB;

/// The rows of the page's table, which are numbered.
fn rows() -> Vec<Vec<&'static str>> {
    let page = include_str!("../../design/architecture.md").lines();
    let rows = page.map(|line| line.trim_matches('|').split('|').map(str::trim).collect());
    rows.filter(|row: &Vec<&str>| row.len() > 1 && row[0].parse::<u32>().is_ok()).collect()
}

/// The page's table is the code's.
#[test]
fn the_page_has_the_locks_in_their_order() {
    let rows = rows();
    assert_eq!(rows.len(), Rank::ALL.len());
    for (number, (row, (rank, guards, held, driver))) in rows.iter().zip(Rank::ALL).enumerate() {
        let at_once = if *held == Hold::Ascending { "several" } else { "one" };
        let called = if *driver == Driver::Called { "yes" } else { "no" };
        let [number, rank] = [format!("{}", number + 1), format!("`{rank:?}`")];
        let [is_number, is_rank, _, is_guards, is_at_once, is_called] = row[..] else {
            panic!("{row:?}");
        };
        assert_eq!(
            [is_number, is_rank, is_guards, is_at_once, is_called],
            [&*number, &*rank, guards.trim(), at_once, called]
        );
    }
}

/// Every place that the page names is there.
#[test]
fn the_page_says_where_the_locks_are() {
    let root = std::path::Path::new(crate::ROOT);
    for row in rows() {
        for place in row[2].split(',') {
            let place = root.join(place.trim().trim_matches('`'));
            assert!(place.exists(), "{}", place.display());
        }
    }
}

/// What a thread's panic says.
#[cfg(debug_assertions)]
fn refusal(run: impl FnOnce() + Send + 'static) -> String {
    let panic = thread::spawn(run).join().expect_err("locks out of order");
    panic.downcast_ref::<String>().unwrap().clone()
}

#[cfg(debug_assertions)]
#[test]
fn locks_out_of_order_are_named_with_their_places() {
    let message = refusal(|| {
        let (engine, order) = (Mutex::new(Rank::Engine, ()), Mutex::new(Rank::Order, ()));
        let _engine = engine.lock();
        let _order = order.lock();
    });
    assert!(message.contains("Order (") && message.contains("Engine ("), "{message}");
    assert_eq!(message.matches("locks.rs:").count(), 2, "{message}");
}

#[cfg(debug_assertions)]
#[test]
fn of_one_rank_a_thread_takes_locks_in_their_order_or_one() {
    let twice = || Mutex::new(Rank::Engine, ());
    refusal(move || {
        let (first, second) = (twice(), twice());
        let _first = first.lock();
        let _second = second.lock();
    });
    let numbered = |number| Mutex::numbered(Rank::DevicePools, number, ());
    refusal(move || {
        let (first, second) = (numbered(0), numbered(1));
        let _second = second.lock();
        let _first = first.lock();
    });
    let (first, second) = (numbered(0), numbered(1));
    let (_first, _second) = (first.lock(), second.lock());
}

#[cfg(debug_assertions)]
#[test]
fn what_a_thread_has_let_go_of_is_forgotten() {
    let (engine, order) = (Mutex::new(Rank::Engine, ()), Mutex::new(Rank::Order, ()));
    drop(engine.lock());
    let first = order.lock();
    let second = engine.lock();
    drop(first);
    drop(second);
    // One that is not waited for may come in any order.
    let _engine = engine.lock();
    assert!(order.try_lock().is_some());
}

#[cfg(debug_assertions)]
#[test]
fn the_driver_is_called_with_no_lock_held_that_says_so() {
    refusal(|| {
        let peaks = Mutex::new(Rank::Peaks, ());
        let driver = SimDriver::new(SimConfig::default());
        let _peaks = peaks.lock();
        let _ = driver.create_stream();
    });
}

/// A thread captures into a pool of a region while another puts the region to sleep and wakes it: no call of
/// either waits for ever, and each succeeds or says what is in its way.
#[test]
fn a_capture_begins_while_its_region_goes_to_sleep() {
    const ROUNDS: usize = 300;
    let driver = SimDriver::new(SimConfig::default());
    let engine = Arc::new(Engine::new(driver, Config::default()));
    let regions = Regions::new(&engine);
    let pool = Pool::new(&engine, PoolConfig::default().tag("weights"));
    let stream = engine.driver().create_stream().unwrap();
    let weights = pool.allocate(8 * MIB, stream).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = engine.driver().create_stream().unwrap();
            for _ in 0..ROUNDS {
                let captured = engine.capture(stream, &pool, CaptureMode::Relaxed, |capture| {
                    let block = capture.allocate(4 * MIB, stream)?;
                    engine.driver().launch_kernel(stream, Launch::default())?;
                    drop(block);
                    Ok::<_, Error>(())
                });
                match captured.and_then(|(graph, ())| graph.launch(stream)) {
                    Ok(()) | Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        for round in 0..ROUNDS {
            let slept = if round % 2 == 0 {
                regions.sleep(Tags::All)
            } else {
                regions.try_sleep(Tags::All)
            };
            match slept {
                Ok(_) => {}
                Err(
                    Error::DeviceCaptures { .. }
                    | Error::Pool { why: PoolRefusal::Busy { .. }, .. }
                    | Error::Pool { why: PoolRefusal::Runs, .. },
                ) => {}
                Err(error) => panic!("{error}"),
            }
            regions.wake(Tags::All).unwrap();
        }
    });
    drop(weights);
    regions.wake(Tags::All).unwrap();
}
