//! Regions that sleep and wake while calls fail, memory is short, or something else goes on.

use std::env::temp_dir;

use regraph::driver::{CaptureMode, ErrorKind, HostApi};
use regraph::engine::PoolConfig;
use regraph::graphs::{Error, Pool, PoolRefusal, Unknown};
use regraph::regions::{Backup, Regions, Tags};
use regraph_sim::{Call, SimConfig, SimDriver};

use super::is_out_of_host_memory;
use super::model::{range, Device, Model};
use crate::cases::cases;
use crate::common::{once, MIB};

fn model() -> Model {
    Model::on(SimConfig::default(), 3 * MIB)
}

fn ends_whole(model: Model) {
    model.is_whole();
    model.close();
}

fn wakes_whole(model: Model) {
    model.wakes_whole();
    model.close();
}

/// Sleeps and wakes with calls that fail, and where it fails sleeps again first or not; whether any did.
fn survives(fail: impl Fn(&SimDriver)) -> bool {
    [false, true].map(|again| survives_with(&Backup::Host, again, &fail)).contains(&true)
}

/// And regions of which the weights have a backup.
fn survives_with(weights: &Backup, again: bool, fail: impl Fn(&SimDriver)) -> bool {
    let model = model();
    model.regions.set_backup("weights", weights.clone());
    fail(&model.driver);
    let slept = model.regions.sleep(Tags::All);
    if slept.is_err() && again {
        let _ = model.regions.sleep(Tags::All);
    }
    let woken = model.regions.wake(Tags::All);
    let failed = slept.is_err() || woken.is_err();
    model.driver.forget_failures();
    if woken.is_err() {
        // What sleeps cannot be used.
        let asleep = ["weights", "graphs"].map(|tag| model.regions.is_asleep(tag).unwrap());
        assert!(asleep.contains(&true));
        assert_eq!(model.weights.allocate(512, model.stream).is_err(), asleep[0]);
        assert_eq!(model.graphs[0].0.launch(model.stream).is_err(), asleep[1]);
    }
    if woken.is_err() && again {
        model.regions.sleep(Tags::All).unwrap();
    }
    model.regions.wake(Tags::All).unwrap();
    assert!(model.regions.report().iter().all(|region| region.asleep_bytes == 0));
    model.is_whole();
    // Nothing that failed stands in the way of another time.
    model.regions.sleep(Tags::All).unwrap();
    wakes_whole(model);
    failed
}

#[test]
fn every_call_may_fail_once() {
    let shared = temp_dir().join(format!("regraph-faults-{}", std::process::id()));
    let files = [Backup::File(temp_dir().into()), Backup::Shared(shared.as_path().into())];
    for weights in [Backup::Host].into_iter().chain(files) {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::NotSupported] {
            for n in 0.. {
                // Now there is a file to share, and now there is none.
                if n % 2 == 0 {
                    let _ = std::fs::remove_file(&shared);
                }
                let engine = survives_with(&weights, true, |it| it.fail_any_nth(n, kind.clone()));
                let host = survives_with(&weights, false, |it| it.fail_host_nth(n, kind.clone()));
                if !engine && !host && n > 200 {
                    break;
                }
            }
        }
    }
    let _ = std::fs::remove_file(&shared);
}

/// Each call says that the driver failed, or that what it needs is away; what is left goes without a word.
#[test]
fn of_a_lost_device_each_call_says_what_happened() {
    let told = |result: Result<u64, Error>| match result {
        Ok(_) => {}
        Err(Error::OrderLost { .. }) => {}
        Err(Error::Pool { why: PoolRefusal::Suspended { .. } | PoolRefusal::Runs, .. }) => {}
        Err(error) => assert!(error.to_string().contains("the device is lost"), "{error}"),
    };
    let (mut lost, mut sleeping) = (0, 0);
    for n in 0.. {
        let Model { driver, engine, regions, stream, weights, blocks, graphs } = model();
        driver.lose_device_at(n, ErrorKind::Other("the device is lost".into()));
        let (slept, woken) = (regions.sleep(Tags::All), regions.wake(Tags::All));
        if slept.is_ok() && woken.is_ok() {
            break;
        }
        lost += 1;
        let asleep = ["weights", "graphs"].map(|tag| regions.is_asleep(tag).unwrap());
        sleeping += usize::from(asleep.contains(&true));
        assert!(woken.is_err() || !asleep.contains(&true), "{n}: awake, and nothing woke it");
        told(slept);
        told(woken);
        told(regions.try_sleep(Tags::All));
        told(regions.wake(Tags::All));
        told(weights.compact());
        for (graph, _) in &graphs {
            assert!(graph.launch(stream).map_err(|error| told(Err(error))).is_err(), "{n}");
        }
        assert!(weights.allocate(64 * MIB, stream).map_err(|error| told(Err(error))).is_err());
        assert_eq!(["weights", "graphs"].map(|tag| regions.is_asleep(tag).unwrap()), asleep);
        engine.host().verify().unwrap();
        drop((blocks, graphs, weights, regions, engine));
    }
    assert!(lost > 50 && sleeping > 10, "{lost} lost, {sleeping} asleep");
}

#[test]
fn every_two_calls_near_each_other_may_fail() {
    for n in (0..160).step_by(7) {
        for gap in [0, 1, 2, 5, 9] {
            survives(|driver| {
                driver.fail_any_nth(n, ErrorKind::NotSupported);
                driver.fail_any_nth(n + gap, ErrorKind::NotSupported);
            });
            survives(|driver| {
                driver.fail_host_nth(n % 20, ErrorKind::NotSupported);
                driver.fail_any_nth(n + gap, ErrorKind::OutOfMemory);
            });
        }
    }
}

#[test]
fn what_is_kept_is_of_a_pool_and_not_of_its_addresses() {
    let model = model();
    model.driver.give_addresses_again();
    let (first, second) = {
        let pool = |tag: &str| Pool::new(&model.engine, PoolConfig::default().tag(tag));
        let old = pool("gone");
        let block = (old.allocate(64 * MIB, model.stream).unwrap(), 100);
        model.write(&block);
        model.regions.sleep(&["gone"]).unwrap();
        let address = block.0.address();
        drop((block, old));
        model.driver.complete_all();
        model.engine.empty_cache().unwrap();
        let new = pool("swapped");
        let block = (new.allocate(64 * MIB, model.stream).unwrap(), 200);
        model.write(&block);
        assert_eq!(block.0.address(), address);
        (new, block)
    };
    for _ in 0..2 {
        assert!(model.regions.sleep(&["swapped"]).unwrap() > 0);
        model.regions.wake(&["swapped"]).unwrap();
        model.submit(&[range(&second)], &[]);
        model.is_whole();
    }
    drop((second, first));
    model.close();
}

#[test]
fn only_who_put_pools_to_sleep_wakes_them() {
    let model = model();
    let empty = Pool::new(&model.engine, PoolConfig::default().tag("weights"));
    model.regions.sleep(Tags::All).unwrap();
    let others = Regions::new(&model.engine);
    for refused in
        [others.wake(Tags::All), others.sleep(Tags::All), model.weights.suspend_discarding_all()]
    {
        let refused = refused.map_or_else(
            |error| matches!(error, Error::Pool { why: PoolRefusal::Asleep, .. }),
            |went| went == 0,
        );
        assert!(refused);
    }
    assert!(matches!(others.wake(Tags::All), Err(Error::Pool { why: PoolRefusal::Asleep, .. })));
    drop(others);
    assert!(empty.resume().is_err() && empty.allocate(512, model.stream).is_err());
    model.wakes_whole();
    drop(empty);
    model.close();
}

#[test]
fn nothing_is_copied_any_more_when_a_sleep_has_failed() {
    let mut model = model();
    // The weights are being copied when the graphs' outputs find no room.
    model.driver.set_host_bytes(44 * MIB);
    assert!(model.regions.sleep(Tags::All).is_err());
    let (block, _) = model.blocks.remove(0);
    drop(block);
    model.engine.empty_cache().unwrap();
    model.driver.synchronize().unwrap();
    ends_whole(model);
}

/// Events behind what a call copied that failed tell nothing of what the next one copies. What copies may be under way to
/// is not read, and stays when the regions end.
#[test]
fn what_a_failed_sleep_copied_counts_for_nothing() {
    for (again, last) in [(true, 8), (false, 9)] {
        let model = Model::on(SimConfig::default(), 70 * MIB);
        let driver = model.driver.clone();
        // The fifth event behind copies, and those that the next waits are for.
        let fail = move |n| driver.fail_nth(Call::RecordEvent, n, ErrorKind::NotSupported);
        let fail = once(move || (4..last).for_each(fail));
        model.driver.before("cuMemcpyDtoHAsync", fail);
        model.regions.sleep(Tags::All).unwrap_err();
        assert!(model.regions.is_asleep("weights").unwrap(), "copies may be under way");
        if again {
            model.regions.sleep(Tags::All).unwrap();
            wakes_whole(model);
        } else {
            let (pool, range) = (model.weights.id(), (model.blocks[0].0.address(), 512));
            assert!(model.regions.show_kept(pool, range, |_, _| ()).is_err());
            let host = model.driver.host_bytes();
            drop(model.regions);
            assert_eq!(model.driver.host_bytes(), host);
        }
    }
}

/// Regions sleep and wake, all or one, while calls of one kind fail from one on, or single ones. Nothing that live blocks
/// hold is lost.
#[test]
fn whatever_fails_meanwhile_nothing_is_lost() {
    use Call::*;
    let regions: [Tags<'_>; 3] = [Tags::All, (&["weights"]).into(), (&["graphs"]).into()];
    let calls = [Create, Map, SetAccess, Unmap, Release, RecordEvent, SynchronizeEvent];
    cases(400, 32..=96, |u| {
        let model = model();
        let Model { driver, regions: all, .. } = &model;
        all.retain(u.arbitrary()?);
        if u.ratio(1, 4)? {
            all.set_backup("weights", Backup::File(temp_dir().into()));
        }
        for _ in 0..u.int_in_range(2..=8)? {
            match u.int_in_range(0..=5)? {
                0 | 1 => {
                    let (call, first) = (*u.choose(&calls)?, u.int_in_range(0..=6)?);
                    let fail = |n| driver.fail_nth(call, n, ErrorKind::NotSupported);
                    (first..first + 90).for_each(fail);
                }
                2 => driver.fail_any_nth(u.int_in_range(0..=60)?, ErrorKind::OutOfMemory),
                3 => driver.fail_host_nth(u.int_in_range(0..=20)?, ErrorKind::NotSupported),
                _ => driver.forget_failures(),
            }
            let tags = *u.choose(&regions)?;
            let _ = match u.int_in_range(0..=6)? {
                0 | 1 => all.sleep(tags),
                2 => driver.complete(model.stream).map_or(Ok(0), |()| all.try_sleep(tags)),
                3 | 4 => all.wake(tags),
                5 => all.shut(tags, true).map(|_| 0),
                _ => all.free_host(),
            };
        }
        driver.forget_failures();
        if u.arbitrary()? {
            all.sleep(Tags::All).unwrap();
        }
        all.wake(Tags::All).unwrap();
        ends_whole(model);
        Ok(())
    });
}

/// What sleeps, when a wake has failed at a piece of memory and left what had come: the driver did not take it back.
fn woken_up_to(piece: u64) -> (Model, bool) {
    let model = model();
    model.regions.sleep(Tags::All).unwrap();
    model.driver.fail_nth(Call::Create, piece, ErrorKind::NotSupported);
    (0..90).for_each(|n| model.driver.fail_nth(Call::Unmap, n, ErrorKind::NotSupported));
    let woken = model.regions.wake(Tags::All).is_ok();
    assert!(!woken || piece > 3);
    (model, woken)
}

/// It holds nothing of what is kept: no sleep reads it, whatever the driver takes back then. Nor is it opened when the
/// regions end, with which what it held is lost; a pool without memory has lost nothing.
#[test]
fn what_a_failed_wake_left_is_never_kept() {
    for piece in 0..12 {
        let (model, _) = woken_up_to(piece);
        let _ = model.regions.sleep(Tags::All);
        model.driver.forget_failures();
        model.regions.sleep(Tags::All).unwrap();
        wakes_whole(model);
        let (Model { driver, engine, regions, weights, graphs, .. }, woken) = woken_up_to(piece);
        driver.forget_failures();
        let empty = Pool::new(&engine, PoolConfig::default().tag("weights"));
        drop(regions);
        let pools = [&weights, &graphs[0].1, &graphs[1].1];
        assert!(pools.iter().all(|pool| pool.is_suspended() != woken), "{piece}");
        assert!(!empty.is_suspended());
    }
}

/// What the host still keeps of pools that woke, since nothing could be waited for, comes never again.
#[test]
fn what_was_kept_of_what_is_awake_does_not_come() {
    let mut shut = 0;
    for n in 0..8 {
        let mut model = model();
        model.regions.sleep(Tags::All).unwrap();
        let fail = |n| model.driver.fail_nth(Call::RecordEvent, n, ErrorKind::NotSupported);
        (n..n + 90).for_each(fail);
        if model.regions.wake(Tags::All).is_err() {
            continue;
        }
        model.blocks[0].1 = 7;
        model.write(&model.blocks[0]);
        drop(model.regions.shut(Tags::All, true));
        shut += u8::from(model.regions.is_asleep("weights").unwrap());
        model.driver.forget_failures();
        wakes_whole(model);
    }
    assert!(shut > 0);
}

/// A pool that is suspended by itself is resumed by itself; one of a region without memory goes on with its capture.
#[test]
fn a_region_neither_resumes_nor_stops_what_it_does_not_keep() {
    let model = model();
    let (_, suspended) = &model.graphs[0];
    assert!(suspended.suspend_discarding_all().unwrap() > 0);
    model.regions.sleep(Tags::All).unwrap();
    model.regions.wake(Tags::All).unwrap();
    assert!(suspended.is_suspended() && suspended.resume().unwrap() > 0);
    let empty = Pool::new(&model.engine, PoolConfig::default().tag("weights"));
    model.driver.synchronize().unwrap();
    let body = |capture: &regraph::graphs::Capture<Device>| {
        assert!(model.regions.try_sleep(&["weights"])? > 0);
        capture.allocate(MIB, model.stream).map(drop)
    };
    model.engine.capture(model.stream, &empty, CaptureMode::Relaxed, body).unwrap();
    // Regions that end leave none asleep, also one whose pools went before.
    let pool = || Pool::new(&model.engine, PoolConfig::default().tag("gone"));
    let gone = pool();
    model.regions.sleep(&["gone"]).unwrap();
    drop(gone);
    assert!(pool().is_suspended());
    drop(model.regions);
    assert!(!pool().is_suspended());
}

/// A wake that cannot wait for its copies leaves them under way: no memory goes meanwhile, also where nothing else is
/// waited for.
#[test]
fn no_memory_goes_that_a_failed_wake_copies_to() {
    let calls = [Call::CreateEvent, Call::RecordEvent, Call::SynchronizeEvent];
    for (call, piece) in calls.into_iter().flat_map(|call| [(call, 8), (call, 90)]) {
        let model = Model::on(SimConfig::default(), 70 * MIB);
        model.regions.sleep(Tags::All).unwrap();
        // It may fail at a piece too.
        model.driver.fail_nth(Call::Create, piece, ErrorKind::NotSupported);
        let driver = model.driver.clone();
        let fail = move |n| driver.fail_nth(call, n, ErrorKind::NotSupported);
        model.driver.before("cuMemcpyHtoDAsync", once(move || (0..90).for_each(fail)));
        model.regions.wake(Tags::All).unwrap_err();
        model.regions.try_sleep(Tags::All).unwrap_err();
        model.driver.forget_failures();
        model.regions.try_sleep(Tags::All).unwrap();
        wakes_whole(model);
    }
}

#[test]
fn what_has_lost_nothing_when_a_sleep_fails_is_awake() {
    let model = model();
    model.regions.set_backup("before", Backup::Host);
    model.regions.sleep(&["before"]).unwrap();
    model.driver.fail_nth(Call::Unmap, 0, ErrorKind::NotSupported);
    assert!(model.regions.sleep(Tags::All).is_err());
    assert!(model.regions.is_asleep("before").unwrap(), "it slept before");
    assert!(["weights", "graphs"].iter().all(|tag| !model.regions.is_asleep(tag).unwrap()));
    ends_whole(model);
}

#[test]
fn without_host_memory_nothing_sleeps() {
    let model = model();
    model.driver.set_host_bytes(44 * MIB);
    let refused = model.regions.sleep(Tags::All).unwrap_err();
    assert!(is_out_of_host_memory(&refused), "{refused}");
    assert!(refused.to_string().contains("weights") || refused.to_string().contains("graphs"));
    model.is_whole();
    // What needs less sleeps, and so does what keeps nothing.
    assert!(model.regions.sleep(&["graphs"]).unwrap() > 0);
    model.regions.set_backup("weights", Backup::None);
    assert!(model.regions.sleep(&["weights"]).unwrap() >= 43 * MIB);
    assert_eq!(model.driver.used_bytes(), 0);
    model.regions.wake(Tags::All).unwrap();
    for block in &model.blocks[..3] {
        model.write(block);
    }
    ends_whole(model);
}

#[test]
fn without_device_memory_all_sleeps_on() {
    let model = Model::on(SimConfig { total_bytes: 100 * MIB, ..SimConfig::default() }, 3 * MIB);
    let held = model.driver.used_bytes();
    assert_eq!(model.regions.sleep(Tags::All).unwrap(), held);
    let other = model.engine.create_pool(PoolConfig::default());
    let big = model.engine.allocate(other, 100 * MIB - held + 2 * MIB, model.stream).unwrap();
    let refused = model.regions.wake(Tags::All).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
    for region in model.regions.report() {
        assert_eq!(region.awake_bytes, 0, "{region:?}");
        assert!(model.regions.is_asleep(&region.tag).unwrap());
    }
    // One of both fits.
    model.regions.wake(&["graphs"]).unwrap();
    assert!(model.regions.is_asleep("weights").unwrap());
    model.engine.free(big.id).unwrap();
    model.wakes_whole();
    model.engine.destroy_pool(other).unwrap();
    model.close();
}

#[test]
fn what_sleeps_says_so() {
    let model = model();
    model.regions.sleep(&["weights"]).unwrap();
    let says = |error: Error| {
        let text = error.to_string();
        assert!(text.contains("\"weights\""), "{text}");
    };
    says(model.weights.allocate(512, model.stream).unwrap_err());
    says(model.weights.follow(model.stream).unwrap_err());
    says(model.engine.host().resume_pool(model.weights.id()).unwrap_err());
    says(model.weights.resume().unwrap_err());
    let body = |_: &regraph::graphs::Capture<Device>| Ok::<_, Error>(());
    let captured =
        model.engine.capture(model.stream, &model.weights, CaptureMode::ThreadLocal, body);
    says(captured.err().unwrap());
    let unknown = model.regions.wake(&["cache"]).unwrap_err();
    assert!(
        matches!(&unknown, Error::Unknown { what: Unknown::Region(tag), .. } if tag == "cache"),
        "{unknown}"
    );
    // Sleeping twice, and waking what is awake, does nothing.
    assert_eq!(model.regions.sleep(&["weights"]).unwrap(), 0);
    assert_eq!(model.regions.wake(&["graphs"]).unwrap(), 0);
    wakes_whole(model);
}

#[test]
fn captures_and_launches_are_not_slept_over() {
    let model = model();
    model.driver.complete_all();
    model.graphs[0].0.launch(model.stream).unwrap();
    let runs = model.regions.try_sleep(Tags::All).unwrap_err();
    assert!(matches!(runs, Error::Pool { why: PoolRefusal::Runs, .. }), "{runs}");
    let other = model.driver.create_stream().unwrap();
    let pool = Pool::new(&model.engine, PoolConfig::default());
    let body = |_: &regraph::graphs::Capture<Device>| {
        let refused = model.regions.sleep(Tags::All).unwrap_err();
        assert!(matches!(refused, Error::DeviceCaptures { .. }), "{refused}");
        Ok::<_, Error>(())
    };
    model.engine.capture(other, &pool, CaptureMode::Relaxed, body).unwrap();
    model.is_whole();
    model.driver.complete_all();
    assert!(model.regions.try_sleep(Tags::All).unwrap() > 0);
    model.wakes_whole();
    drop(pool);
    model.close();
}

#[test]
fn blocks_that_are_freed_asleep_are_free_awake() {
    let mut model = model();
    model.regions.sleep(Tags::All).unwrap();
    let (block, _) = model.blocks.remove(0);
    let address = block.address();
    drop(block);
    model.regions.wake(Tags::All).unwrap();
    let block = (model.weights.allocate(40 * MIB, model.stream).unwrap(), 1);
    assert_eq!(block.0.address(), address);
    model.write(&block);
    model.blocks.push(block);
    ends_whole(model);
}

#[test]
fn pools_can_go_while_they_sleep() {
    let mut model = model();
    model.regions.sleep(Tags::All).unwrap();
    model.graphs.clear();
    model.blocks.truncate(3);
    model.driver.complete_all();
    model.engine.empty_cache().unwrap();
    model.regions.wake(Tags::All).unwrap();
    let regions = model.regions.report();
    assert_eq!(regions.len(), 1, "{regions:?}");
    assert_eq!(regions[0].host_bytes, 0);
    ends_whole(model);
}

/// A file that takes the name while what is shared is written stays as it is.
#[test]
fn what_takes_the_name_of_a_shared_file_meanwhile_is_not_replaced() {
    let name = format!("regraph-taken-{}", std::process::id());
    let [path, lock] = [name.clone(), format!(".{name}.lock")].map(|it| temp_dir().join(it));
    let model = model();
    model.regions.set_backup("weights", Backup::Shared(path.as_path().into()));
    let taken = path.clone();
    model.driver.before("fdatasync", once(move || std::fs::write(taken, "another's").unwrap()));
    model.regions.sleep(Tags::All).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"another's");
    ends_whole(model);
    [path, lock].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}
