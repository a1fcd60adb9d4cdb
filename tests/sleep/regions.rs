//! Regions of a host that knows memory by its address: what a thread asks for in one, and the pools that it
//! makes there, sleep and wake with it.

use std::sync::{Arc, Mutex};

use regraph::driver::{CaptureMode, ErrorKind, GraphHandle, HostApi, StreamHandle};
use regraph::engine::{self, Config};
use regraph::regions::Backup;
use regraph_plugin::{Error, Plugin, PoolKey};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};
use regraph_testing::Given;

use crate::common::{deref, MIB};
use crate::plugin::host;

const GRAPHS: PoolKey = (1, 0);
const NAMED: PoolKey = (0, 1);

struct Host {
    host: host::Host,
    drivers: [Arc<SimDriver>; 2],
    stream: StreamHandle,
}

deref!(Host.host as host::Host);

/// Memory that is live, with what it holds.
type Held = Vec<(u64, u64, u64)>;

impl Host {
    fn new() -> Self {
        Self::on(SimConfig::default())
    }

    fn on(device: SimConfig) -> Self {
        let first = SimDriver::new(device);
        let second = first.add_device(device);
        let drivers = [first, second].map(Arc::new);
        let shared = drivers.clone();
        let config = Config::default().check(true);
        let plugin = Plugin::new(config, move |device| Ok(shared[device as usize].clone()));
        let stream = drivers[0].create_stream().unwrap();
        let host = host::Host { driver: drivers[0].clone(), plugin };
        Self { host, drivers, stream }
    }

    /// The tag of the region that a pool belongs to.
    fn region_of(&self, key: PoolKey) -> Option<String> {
        let pool = self.plugin.pools(0).unwrap().into_iter().find(|it| it.key == key)?.pool;
        let regions = self.plugin.regions(0).into_iter();
        regions.filter(|it| it.pools.contains(&pool)).map(|it| it.tag.to_string()).next()
    }

    fn within<R>(&self, tag: &str, run: impl FnOnce() -> R) -> R {
        let number = self.plugin.enter_region(Some(tag));
        let result = run();
        self.plugin.leave_region(number).unwrap();
        result
    }

    fn allocate(&self, mebibytes: u64) -> u64 {
        self.plugin.allocate(mebibytes * MIB, 0, self.stream).unwrap()
    }

    /// A block that holds a tag.
    fn write(&self, held: &mut Held, mebibytes: u64, tag: u64) -> u64 {
        let address = self.allocate(mebibytes);
        submit(&self.drivers[0], self.stream, &[], &[(address, mebibytes * MIB, tag)]);
        held.push((address, mebibytes * MIB, tag));
        address
    }

    /// Everything holds what it held.
    fn is_whole(&self, held: &Held) {
        submit(&self.drivers[0], self.stream, held, &[]);
        self.drivers[0].synchronize().unwrap();
        assert_eq!(self.drivers[0].take_wrong_tags().unwrap(), 0);
    }

    /// Captures as PyTorch does: an input goes to an output through temporary memory.
    fn capture(&self, key: PoolKey, input: (u64, u64, u64), tag: u64) -> (GraphHandle, u64) {
        let (driver, stream) = (&self.drivers[0], self.stream);
        self.announce(stream, key, true);
        let inner = self.allocate(4);
        submit(driver, stream, &[input], &[(inner, 4 * MIB, tag + 1)]);
        let output = self.allocate(2);
        submit(driver, stream, &[(inner, 4 * MIB, tag + 1)], &[(output, 2 * MIB, tag)]);
        self.free(inner);
        (self.finish(stream, key), output)
    }

    fn replay(&self, graph: GraphHandle) {
        let executable = self.drivers[0].instantiate(graph).unwrap();
        self.drivers[0].replay(executable, self.stream).unwrap();
    }

    /// What a region holds and has given back, in MiB.
    fn figures(&self, tag: &str) -> (u64, u64) {
        let regions = self.plugin.regions(0);
        let region = regions.into_iter().find(|region| *region.tag == *tag).unwrap();
        (region.awake_bytes / MIB, region.asleep_bytes / MIB)
    }
}

fn submit(
    driver: &Arc<SimDriver>,
    stream: StreamHandle,
    inputs: &[(u64, u64, u64)],
    outputs: &[(u64, u64, u64)],
) {
    let tagged = |ranges: &[(u64, u64, u64)]| -> Vec<Tagged> {
        ranges.iter().map(|&(address, bytes, tag)| Tagged { address, bytes, tag }).collect()
    };
    let (inputs, outputs) = (tagged(inputs), tagged(outputs));
    let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
    driver.launch(stream, work, false).unwrap();
}

#[test]
fn what_a_thread_asks_for_in_a_region_sleeps_and_wakes_with_its_contents() {
    let h = Host::new();
    let mut held = Held::new();
    h.write(&mut held, 8, 1);
    let weights = h.within("weights", || {
        let mut weights = Held::new();
        for tag in 10..20 {
            h.write(&mut weights, 4, tag);
        }
        weights
    });
    h.write(&mut held, 8, 2);
    assert_eq!(h.figures("weights"), (40, 0));
    let used = h.drivers[0].used_bytes();
    assert_eq!(h.plugin.sleep(None).unwrap(), 40 * MIB);
    assert_eq!((h.figures("weights"), h.drivers[0].used_bytes()), ((0, 40), used - 40 * MIB));
    assert!(h.plugin.is_asleep("weights").unwrap());
    let told = h.plugin.statistics(0).unwrap()["regions"]["weights"].clone();
    assert!(told["host_bytes"] == 40 * MIB && told["file_bytes"] == 0);
    // What is outside goes on, in memory that is not the region's.
    h.write(&mut held, 16, 3);
    h.is_whole(&held);
    assert_eq!(h.plugin.wake(None).unwrap(), 40 * MIB);
    assert_eq!(h.figures("weights"), (40, 0));
    h.is_whole(&weights);
    h.is_whole(&held);
    assert!(!h.plugin.is_asleep("weights").unwrap());
    assert_eq!(h.plugin.region_host_bytes(), h.plugin.free_region_host().unwrap());
    for (address, ..) in weights {
        h.plugin.free(address, 0).unwrap();
    }
    h.plugin.empty_cache().unwrap();
    assert_eq!(h.figures("weights"), (0, 0));
}

#[test]
fn what_is_at_hand_is_the_regions_too() {
    let h = Host::new();
    let ask = || h.plugin.allocate_on((), MIB, 0, h.stream).unwrap();
    let within = h.within("weights", || {
        let first = ask();
        h.plugin.free_on((), first, Some(h.stream)).unwrap();
        assert_eq!(ask(), first);
        first
    });
    h.plugin.free_on((), within, Some(h.stream)).unwrap();
    let outside = [ask(), ask()];
    assert!(!outside.contains(&within));
    h.plugin.sleep(None).unwrap();
    let refused = h.within("weights", || h.plugin.allocate_on((), MIB, 0, h.stream));
    assert!(refused.unwrap_err().to_string().contains("region \"weights\""));
}

#[test]
fn the_region_that_was_entered_last_counts_and_that_of_another_thread_does_not() {
    let h = Host::new();
    h.within("outer", || {
        h.allocate(2);
        h.within("inner", || h.allocate(4));
        h.allocate(8);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let other = h.drivers[0].create_stream().unwrap();
                h.plugin.allocate(64 * MIB, 0, other).unwrap();
            });
        });
    });
    h.allocate(16);
    assert_eq!((h.figures("outer").0, h.figures("inner").0), (10, 4));
    // In none for a while, the pools that are made included.
    h.within("outer", || {
        let outside = h.plugin.enter_region(None);
        h.allocate(64);
        h.plugin.create_or_incref_pool(0, NAMED, None).unwrap();
        h.plugin.leave_region(outside).unwrap();
    });
    assert_eq!((h.figures("outer").0, h.region_of(NAMED)), (10, None));
    // In any order, and each once.
    let (first, second) =
        (h.plugin.enter_region(Some("outer")), h.plugin.enter_region(Some("inner")));
    h.plugin.leave_region(first).unwrap();
    h.allocate(2);
    assert_eq!(h.figures("inner").0, 6);
    assert!(matches!(h.plugin.leave_region(first), Err(Error::NotEntered)));
    // On any thread: as where a generator that has entered it is collected.
    std::thread::scope(|scope| {
        scope.spawn(|| h.within("outer", || h.plugin.leave_region(second).unwrap()));
    });
    assert!(matches!(h.plugin.leave_region(second), Err(Error::NotEntered)));
    h.allocate(32);
    h.plugin.create_or_incref_pool(0, GRAPHS, None).unwrap();
    assert_eq!((h.figures("outer").0, h.figures("inner").0), (10, 6));
    assert_eq!(h.region_of(GRAPHS), None);
}

#[test]
fn named_pools_belong_to_the_region_that_they_were_made_in() {
    let h = Host::new();
    let held = |key: PoolKey| -> u64 {
        let pools = h.plugin.pools(0).unwrap();
        pools.iter().filter(|pool| pool.key == key).map(|pool| pool.reserved / MIB).sum()
    };
    let use_pool = |key: PoolKey, run: &dyn Fn()| {
        h.plugin.begin_thread_pool(0, key).unwrap();
        run();
        h.plugin.end_pool(0, key).unwrap();
        h.plugin.release_pool(0, key).unwrap();
    };
    h.within("weights", || h.plugin.create_or_incref_pool(0, NAMED, None).unwrap());
    assert_eq!(h.region_of(NAMED).as_deref(), Some("weights"));
    use_pool(NAMED, &|| {
        h.allocate(4);
        // A region that was entered later counts, and after it the pool again.
        h.within("cache", || h.allocate(8));
        h.allocate(16);
    });
    assert_eq!((held(NAMED), h.figures("weights").0, h.figures("cache").0), (20, 20, 8));
    // One that was made outside stays there.
    let outside = (0, 2);
    h.plugin.create_or_incref_pool(0, outside, None).unwrap();
    h.within("cache", || use_pool(outside, &|| assert_ne!(h.allocate(32), 0)));
    assert_eq!((held(outside), h.figures("cache").0), (32, 8));
    assert_eq!(h.region_of(outside), None);
    assert_eq!(h.plugin.sleep(Some(&["weights"])).unwrap(), 20 * MIB);
    let asleep = h.plugin.begin_launch(NAMED, "replay").err().unwrap().to_string();
    assert!(asleep.starts_with("replay: ") && asleep.contains("region \"weights\""), "{asleep}");
    h.plugin.begin_launch(outside, "replay").unwrap();
    // Its host lets go of it: what is free in it is no others', or it could not sleep.
    h.plugin.wake(None).unwrap();
    h.plugin.release_pool(0, NAMED).unwrap();
    h.allocate(8);
    h.plugin.sleep(Some(&["weights"])).unwrap();
}

#[test]
fn graphs_that_are_captured_in_a_region_sleep_and_replay_when_they_wake() {
    let h = Host::new();
    let mut weights = Held::new();
    h.within("weights", || h.write(&mut weights, 4, 7));
    let capture = || h.capture(GRAPHS, weights[0], 20);
    let (graph, output) = h.within("graphs", capture);
    h.replay(graph);
    let held = vec![(output, 2 * MIB, 20)];
    h.is_whole(&held);
    let reserved = h.figures("graphs").0;
    assert!(reserved >= 4);
    for _ in 0..10 {
        h.plugin.sleep(None).unwrap();
        assert_eq!(h.figures("graphs"), (0, reserved));
        h.plugin.wake(Some(&["graphs"])).unwrap();
        h.is_whole(&held);
        h.plugin.wake(Some(&["weights"])).unwrap();
        h.replay(graph);
        h.is_whole(&[held.clone(), weights.clone()].concat());
    }
    // One that was captured with no route is a pool of its own.
    h.within("strays", || {
        h.drivers[0].begin_capture(h.stream, CaptureMode::Global).unwrap();
        h.allocate(8);
        h.drivers[0].end_capture(h.stream).unwrap();
        h.allocate(2);
    });
    assert_eq!(h.figures("strays").0, 10);
}

#[test]
fn graphs_can_have_a_region_of_their_own() {
    let h = Host::new();
    let mut input = Held::new();
    h.plugin.put_graphs_into(Some("graphs"));
    h.write(&mut input, 4, 1);
    h.capture(GRAPHS, input[0], 2);
    h.within("other", || h.capture((2, 0), input[0], 4));
    let outside = h.plugin.enter_region(None);
    h.capture((3, 0), input[0], 6);
    h.plugin.leave_region(outside).unwrap();
    h.plugin.create_or_incref_pool(0, NAMED, None).unwrap();
    h.plugin.put_graphs_into(None);
    h.capture((4, 0), input[0], 8);
    let region = |key: PoolKey| h.region_of(key);
    assert_eq!(region(GRAPHS).as_deref(), Some("graphs"));
    assert_eq!(region((2, 0)).as_deref(), Some("other"));
    assert_eq!([(3, 0), NAMED, (4, 0)].map(region), [None, None, None]);
    assert_eq!(h.plugin.regions(0).len(), 2);
}

/// What a host keeps for all its captures, such as the state of PyTorch's generators, is made as the first one
/// begins. It is not to sleep with that one's region.
#[test]
fn what_the_host_asks_for_as_a_capture_begins_lies_in_no_region() {
    let h = Host::new();
    h.within("graphs", || {
        h.plugin.capture_beginning(0, h.stream).unwrap();
        h.allocate(2);
        h.plugin.capture_failed(0, h.stream).unwrap();
        h.allocate(4);
        h.plugin.capture_beginning(0, h.stream).unwrap();
        h.allocate(2);
        h.capture(GRAPHS, (h.allocate(4), 4 * MIB, 0), 2);
        h.allocate(8);
    });
    assert_eq!(h.region_of(GRAPHS).as_deref(), Some("graphs"));
    // What was asked for before and behind, and the graph's.
    assert_eq!(h.figures("graphs").0, 4 + 8 + 6);
}

#[test]
fn what_sleeps_is_refused_by_name() {
    let h = Host::new();
    let mut weights = Held::new();
    h.within("weights", || h.write(&mut weights, 4, 1));
    h.within("graphs", || h.capture(GRAPHS, weights[0], 2));
    h.plugin.sleep(None).unwrap();
    let asleep = h.within("weights", || h.plugin.allocate(MIB, 0, h.stream)).unwrap_err();
    assert!(asleep.out_of_memory().is_none());
    assert!(asleep.to_string().contains("region \"weights\""), "{asleep}");
    let (filter, _) = host::filter(&h.drivers[0]);
    let route = h.plugin.begin_pool(0, GRAPHS, filter).unwrap();
    h.drivers[0].begin_capture(h.stream, CaptureMode::Global).unwrap();
    let refused = h.plugin.capture_begun(0, h.stream, route, true).unwrap_err().to_string();
    assert!(refused.contains("region \"graphs\""), "{refused}");
    h.drivers[0].end_capture(h.stream).unwrap();
    h.plugin.begin_failed(0, route).unwrap();
    // What is there can be freed.
    h.plugin.free(weights[0].0, 0).unwrap();
    h.plugin.wake(None).unwrap();
    assert!(h.within("weights", || h.plugin.allocate(MIB, 0, h.stream)).is_ok());
}

/// A region sleeps whether it has memory or not, on every device, those included that are first used then.
#[test]
fn what_sleeps_is_refused_where_it_had_no_memory() {
    let h = Host::new();
    h.within("weights", || ());
    let ask = |device: u32| {
        let stream = h.drivers[device as usize].create_stream().unwrap();
        h.within("weights", || h.plugin.allocate(MIB, device, stream))
    };
    let refused = |device| {
        let asleep = ask(device).unwrap_err().to_string();
        assert!(asleep.contains("region \"weights\""), "{asleep}");
    };
    // Before there is a device, and after that; a pool without memory, and one that is made then.
    assert_eq!(h.plugin.sleep(None).unwrap(), 0);
    refused(0);
    h.within("weights", || h.plugin.create_or_incref_pool(0, NAMED, None).unwrap());
    h.plugin.begin_thread_pool(0, NAMED).unwrap();
    assert!(h.plugin.allocate(MIB, 0, h.stream).is_err());
    h.plugin.end_pool(0, NAMED).unwrap();
    refused(1);
    assert!(h.plugin.is_asleep("weights").unwrap());
    assert_eq!(h.plugin.wake(None).unwrap(), 0);
    assert!(!h.plugin.is_asleep("weights").unwrap());
    h.plugin.begin_thread_pool(0, NAMED).unwrap();
    h.allocate(2);
    h.plugin.end_pool(0, NAMED).unwrap();
    assert!(ask(0).is_ok() && ask(1).is_ok());
    assert_eq!(h.figures("weights").0, 4);
    // One that stays where all sleep does not sleep, and wakes again where it is said of later.
    h.plugin.set_region_backup("stays", Backup::Device);
    h.plugin.sleep(None).unwrap();
    assert!(h.within("stays", || h.plugin.allocate(MIB, 0, h.stream)).is_ok());
    h.plugin.set_region_backup("weights", Backup::Device);
    h.plugin.wake(None).unwrap();
    assert!(ask(0).is_ok() && !h.plugin.is_asleep("weights").unwrap());
}

#[test]
fn what_is_kept_can_be_read_while_it_sleeps() {
    let h = Host::new();
    let (mut kept, mut lost) = (Held::new(), Held::new());
    h.plugin.set_region_backup("lost", Backup::None);
    for tag in 0..3 {
        h.within("kept", || h.write(&mut kept, 40, tag));
    }
    h.within("lost", || h.write(&mut lost, 4, 9));
    let address = kept[1].0;
    let read = |address: u64, part: (u64, u64)| {
        let mut parts = Vec::new();
        let read = h.plugin.show_kept(address, part, |place, bytes| parts.push((place, bytes)));
        (read.unwrap(), parts)
    };
    assert_eq!(read(address, (0, MIB)), (false, Vec::new()), "it is awake");
    let (device, awaited) = (h.drivers[0].clone(), Arc::new(Mutex::new(Vec::new())));
    let unmapped = (device.clone(), awaited.clone());
    let note = move || unmapped.1.lock().unwrap().push(unmapped.0.calls(Call::SynchronizeEvent));
    device.before("cuMemUnmap", note);
    h.plugin.sleep(None).unwrap();
    // Pieces go while what later ones hold is copied.
    let awaited = awaited.lock().unwrap();
    assert!(awaited.first() < awaited.last(), "{awaited:?}");
    let (all, parts) = read(address, (0, 40 * MIB));
    assert!(all && parts.len() > 1);
    assert_eq!(parts.iter().map(|(_, bytes)| bytes).sum::<u64>(), 40 * MIB);
    let (part, inner) = read(address, (4096, 512));
    assert!(part && inner == [(parts[0].0.after(4096), 512)]);
    assert_eq!(read(address, (39 * MIB, 2 * MIB)), (false, Vec::new()), "it is another block's");
    assert_eq!(read(lost[0].0, (0, MIB)), (false, Vec::new()));
    assert!(h.plugin.show_kept(address + 512, (0, 512), |_, _| ()).is_err());
    h.plugin.wake(None).unwrap();
    assert!(!read(address, (0, MIB)).0);
    h.is_whole(&kept);
}

#[test]
fn what_is_kept_can_stay_when_it_wakes() {
    let h = Host::new();
    let mut held = Held::new();
    h.plugin.retain_backups(true);
    let address = h.within("kept", || h.write(&mut held, 40, 1));
    let read = || {
        let mut parts = Vec::new();
        let read =
            h.plugin.show_kept(address, (0, 40 * MIB), |place, bytes| parts.push((place, bytes)));
        (read.unwrap(), parts)
    };
    let mut host = None;
    for tag in 2..5 {
        assert_eq!(h.plugin.sleep(None).unwrap(), 40 * MIB);
        let asleep = read();
        assert!(asleep.0);
        h.plugin.wake(None).unwrap();
        assert_eq!(read(), asleep);
        // The next sleep takes the same memory of the host, and keeps what the block holds by then.
        let locked = h.plugin.region_host_bytes();
        assert_eq!(*host.get_or_insert(locked), locked);
        assert_eq!(h.plugin.regions(0)[0].host_bytes, 40 * MIB);
        assert_eq!(h.plugin.free_region_host().unwrap(), 0);
        h.is_whole(&held);
        held[0].2 = tag;
        submit(&h.drivers[0], h.stream, &[], &held);
    }
    // Of a sleep without a backup nothing is read, nor written to the device.
    h.plugin.set_region_backup("kept", Backup::None);
    h.plugin.sleep(None).unwrap();
    h.plugin.wake(None).unwrap();
    assert!(!read().0);
    h.plugin.set_region_backup("kept", Backup::Host);
    h.plugin.sleep(None).unwrap();
    h.plugin.wake(None).unwrap();
    assert!(read().0);
    h.plugin.retain_backups(false);
    assert!(!read().0);
    assert!(h.plugin.free_region_host().unwrap() > 0);
    assert_eq!(h.plugin.region_host_bytes(), 0);
}

#[test]
fn names_that_were_never_used_are_refused_and_those_without_memory_are_not() {
    let h = Host::new();
    for call in [Plugin::sleep, Plugin::try_sleep, Plugin::wake] {
        let unknown = call(&h.plugin, Some(&["weight"])).unwrap_err();
        assert!(matches!(unknown, Error::UnknownRegion { .. }));
        assert!(unknown.to_string().contains("\"weight\""), "{unknown}");
    }
    assert!(h.plugin.is_asleep("weight").is_err());
    h.plugin.set_region_backup("weight", Backup::None);
    h.within("cache", || ());
    let both: Option<&[&str]> = Some(&["weight", "cache"]);
    // Before there is a device, and after that.
    assert_eq!(h.plugin.sleep(both).unwrap() + h.plugin.wake(both).unwrap(), 0);
    h.allocate(1);
    assert_eq!(h.plugin.sleep(both).unwrap() + h.plugin.wake(both).unwrap(), 0);
    assert_eq!(h.plugin.region_tags().len(), 2);
    h.within("weight", || h.allocate(2));
    h.plugin.sleep(both).unwrap();
    assert_eq!(h.plugin.regions(0)[0].host_bytes, 0, "as was said before the device was made");
}

#[test]
fn contents_are_kept_or_not_and_a_region_can_stay() {
    let h = Host::new();
    let (mut kept, mut lost, mut stays) = (Held::new(), Held::new(), Held::new());
    h.plugin.set_region_backup("lost", Backup::None);
    h.plugin.set_region_backup("stays", Backup::Device);
    h.within("kept", || h.write(&mut kept, 4, 1));
    h.within("lost", || h.write(&mut lost, 4, 2));
    h.within("stays", || h.write(&mut stays, 4, 3));
    assert_eq!(h.plugin.sleep(None).unwrap(), 8 * MIB);
    assert!(!h.plugin.is_asleep("stays").unwrap());
    h.is_whole(&stays);
    assert_eq!(h.plugin.region_host_bytes() / MIB, 4);
    h.plugin.wake(None).unwrap();
    h.is_whole(&[kept, stays].concat());
    submit(&h.drivers[0], h.stream, &lost, &[]);
    h.drivers[0].synchronize().unwrap();
    assert!(h.drivers[0].take_wrong_tags().unwrap() > 0);
}

#[test]
fn nothing_sleeps_beside_a_capture_and_none_is_ruined() {
    let h = Host::new();
    h.within("weights", || h.allocate(4));
    let (filter, _) = host::filter(&h.drivers[0]);
    let route = h.plugin.begin_pool(0, GRAPHS, filter).unwrap();
    let refused = |result: Result<u64, Error>| {
        assert!(matches!(result, Err(Error::Engine(engine::Error::DeviceCaptures { .. }))));
    };
    // It may begin any time.
    refused(h.plugin.sleep(None));
    h.drivers[0].begin_capture(h.stream, CaptureMode::Global).unwrap();
    h.plugin.capture_begun(0, h.stream, route, true).unwrap();
    refused(h.plugin.sleep(None));
    refused(h.plugin.try_sleep(None));
    assert_eq!(h.plugin.wake(None).unwrap(), 0);
    h.plugin.capture_ending(0, h.stream, |_, _| ()).unwrap();
    h.drivers[0].end_capture(h.stream).unwrap();
    h.plugin.end_pool(0, GRAPHS).unwrap();
    h.plugin.capture_ended(0, h.stream).unwrap();
    assert_eq!(h.plugin.sleep(None).unwrap(), 4 * MIB);
}

#[test]
fn a_capture_that_nothing_was_told_of_is_not_ruined_either() {
    let h = Host::new();
    h.within("weights", || h.allocate(4));
    h.drivers[0].begin_capture(h.stream, CaptureMode::Global).unwrap();
    for call in [Plugin::sleep, Plugin::try_sleep] {
        let refused = call(&h.plugin, None);
        assert!(matches!(refused, Err(Error::Engine(engine::Error::DeviceCaptures { .. }))));
    }
    h.drivers[0].end_capture(h.stream).unwrap();
    assert_eq!(h.plugin.try_sleep(None).unwrap(), 4 * MIB);
    // Nor does its end have to be told.
    h.plugin.wake(None).unwrap();
    h.drivers[0].begin_capture(h.stream, CaptureMode::Global).unwrap();
    h.allocate(2);
    h.drivers[0].end_capture(h.stream).unwrap();
    assert_eq!(h.plugin.sleep(None).unwrap(), 4 * MIB);
}

#[test]
fn trying_waits_for_nothing_and_refuses_while_anything_runs() {
    let h = Host::new();
    let mut weights = Held::new();
    h.within("weights", || h.write(&mut weights, 4, 1));
    h.drivers[0].synchronize().unwrap();
    // On a stream that never asked for memory.
    let other = h.drivers[0].create_stream().unwrap();
    submit(&h.drivers[0], other, &weights, &[]);
    assert!(matches!(h.plugin.try_sleep(None), Err(Error::DeviceRuns { device: 0 })));
    assert!(!h.drivers[0].is_idle().unwrap(), "it was not waited for");
    // What another thread's stream has freed is known to be free then.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let theirs = h.drivers[0].create_stream().unwrap();
            let freed = h.within("weights", || h.plugin.allocate(4 * MIB, 0, theirs).unwrap());
            submit(&h.drivers[0], theirs, &[], &[(freed, 4 * MIB, 9)]);
            h.plugin.record_stream(freed, other).unwrap();
            h.plugin.free(freed, 0).unwrap();
        });
    });
    assert!(matches!(h.plugin.try_sleep(None), Err(Error::DeviceRuns { device: 0 })));
    h.drivers[0].synchronize().unwrap();
    assert_eq!(h.plugin.try_sleep(None).unwrap(), 8 * MIB);
    h.plugin.wake(None).unwrap();
    submit(&h.drivers[0], other, &weights, &[]);
    assert_eq!(h.plugin.sleep(None).unwrap(), 8 * MIB);
    h.plugin.wake(None).unwrap();
    h.is_whole(&weights);
}

/// A region of 4 MiB on each device.
fn on_both(h: &Host) {
    let streams = h.drivers.clone().map(|driver| driver.create_stream().unwrap());
    let ask = |device: usize| {
        h.plugin.allocate(4 * MIB, device as u32, streams[device]).unwrap();
    };
    h.within("weights", || (0..2).for_each(ask));
}

/// How often the driver is asked to unmap where both sleep.
fn unmaps(h: &Host) -> u64 {
    let before = h.drivers[0].calls(Call::Unmap);
    h.plugin.sleep(None).unwrap();
    h.plugin.wake(None).unwrap();
    h.drivers[0].calls(Call::Unmap) - before
}

#[test]
fn regions_of_all_devices_sleep_or_none() {
    let h = Host::new();
    on_both(&h);
    let stream = h.drivers[1].create_stream().unwrap();
    h.plugin.free(h.plugin.allocate(MIB, 1, stream).unwrap(), 1).unwrap();
    let used = || h.drivers.clone().map(|driver| driver.used_bytes());
    let before = used();
    // The second device captures.
    h.drivers[1].begin_capture(stream, CaptureMode::Global).unwrap();
    for call in [Plugin::sleep, Plugin::try_sleep] {
        let refused = call(&h.plugin, None);
        assert!(matches!(refused, Err(Error::Engine(engine::Error::DeviceCaptures { .. }))));
        assert_eq!(used(), before, "the first device is as it was");
        assert!(!h.plugin.is_asleep("weights").unwrap());
    }
    h.drivers[1].end_capture(stream).unwrap();
    // Its driver refuses to take the memory back, when the first device's has gone.
    h.drivers[1].fail_nth(Call::Unmap, unmaps(&h) / 2, ErrorKind::NotPermitted);
    assert!(matches!(h.plugin.sleep(None), Err(Error::Engine(engine::Error::Driver(_)))));
    assert!(!h.plugin.is_asleep("weights").unwrap());
    assert_eq!(used(), before);
    assert_eq!(h.plugin.sleep(None).unwrap(), 8 * MIB);
    // What slept before does so still.
    h.within("more", || h.plugin.allocate(MIB, 1, stream).unwrap());
    h.drivers[1].begin_capture(stream, CaptureMode::Global).unwrap();
    assert!(h.plugin.sleep(None).is_err() && h.plugin.is_asleep("weights").unwrap());
    h.drivers[1].end_capture(stream).unwrap();
    h.plugin.wake(None).unwrap();
}

/// What sleeps where waking fails too is said by name.
#[test]
fn what_sleeps_in_spite_of_an_error_is_said() {
    let h = Host::new();
    on_both(&h);
    h.drivers[1].fail_nth(Call::Unmap, unmaps(&h) / 2, ErrorKind::NotPermitted);
    // The first device's memory is another process's as soon as it goes.
    (0..8).for_each(|n| h.drivers[0].fail_nth(Call::Create, n, ErrorKind::OutOfMemory));
    let failed = h.plugin.sleep(None).unwrap_err();
    let Error::SleepsInPart { asleep, .. } = &failed else { panic!("{failed}") };
    assert!(matches!(&asleep[..], [(0, tag)] if **tag == *"weights"));
    assert!(failed.to_string().contains("\"weights\" (device 0)"), "{failed}");
    h.drivers[0].forget_failures();
    h.plugin.wake(None).unwrap();
    assert!(!h.plugin.is_asleep("weights").unwrap());
}

/// Between the question whether a graph may be launched and its launch nothing goes to sleep.
#[test]
fn a_sleep_waits_for_launches_that_have_begun() {
    let h = Host::new();
    let mut weights = Held::new();
    h.within("weights", || h.write(&mut weights, 4, 1));
    let (graph, output) = h.within("graphs", || h.capture(GRAPHS, weights[0], 2));
    h.drivers[0].synchronize().unwrap();
    let launch = h.plugin.begin_launch(GRAPHS, "replay").unwrap();
    // This thread would wait for itself.
    assert!(matches!(h.plugin.sleep(None), Err(Error::Launching { .. })));
    std::thread::scope(|scope| {
        let plugin = &h.plugin;
        let tried = scope.spawn(|| plugin.try_sleep(None));
        assert!(matches!(tried.join().unwrap(), Err(Error::Launching { .. })));
        let sleeper = scope.spawn(|| plugin.sleep(None).unwrap());
        // Time in which it would be done.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!sleeper.is_finished() && !h.plugin.is_asleep("graphs").unwrap());
        // That call waits for this thread's launch, which no other call of this thread waits for, nor one that waits for
        // no work.
        assert!(matches!(h.plugin.sleep(None), Err(Error::Launching { .. })));
        assert!(matches!(h.plugin.wake(None), Err(Error::Launching { .. })));
        let tried = scope.spawn(|| plugin.try_sleep(None));
        assert!(matches!(tried.join().unwrap(), Err(Error::Launching { .. })));
        h.replay(graph);
        drop(launch);
        assert!(sleeper.join().unwrap() > 0);
    });
    assert!(h.plugin.begin_launch(GRAPHS, "replay").is_err());
    h.plugin.wake(None).unwrap();
    h.is_whole(&[vec![(output, 2 * MIB, 2)], weights].concat());
}

/// Threads launch while regions go and come: none is launched whose memory is not there.
#[test]
fn threads_launch_while_regions_sleep_and_wake() {
    let h = Host::new();
    let mut weights = Held::new();
    h.write(&mut weights, 4, 1);
    let (graph, _) = h.within("graphs", || h.capture(GRAPHS, weights[0], 2));
    let executable = h.drivers[0].instantiate(graph).unwrap();
    std::thread::scope(|scope| {
        let launches = || {
            let stream = h.drivers[0].create_stream().unwrap();
            for _ in 0..200 {
                if let Ok(_launch) = h.plugin.begin_launch(GRAPHS, "replay") {
                    std::thread::yield_now();
                    assert!(!h.plugin.is_asleep("graphs").unwrap());
                    let regions = h.plugin.regions(0);
                    let graphs = regions.iter().find(|it| &*it.tag == "graphs").unwrap();
                    assert_eq!(graphs.asleep_bytes, 0);
                    h.drivers[0].replay(executable, stream).unwrap();
                }
            }
        };
        let threads = [(); 3].map(|()| scope.spawn(launches));
        // Also where one has failed: the scope tells of it.
        while !threads.iter().all(|thread| thread.is_finished()) {
            h.plugin.sleep(None).unwrap();
            h.plugin.wake(None).unwrap();
        }
    });
    h.is_whole(&weights);
}

#[test]
fn what_graphs_have_let_go_of_goes_for_what_wakes() {
    let h = Host::on(SimConfig { total_bytes: 46 * MIB, ..SimConfig::default() });
    let mut weights = Held::new();
    h.within("weights", || h.write(&mut weights, 40, 1));
    h.plugin.sleep(None).unwrap();
    let mut input = Held::new();
    h.write(&mut input, 2, 5);
    let (_, output) = h.capture(GRAPHS, input[0], 6);
    let more = (2, 0);
    h.plugin.begin_thread_pool(0, more).unwrap();
    let large = h.allocate(32);
    h.plugin.end_pool(0, more).unwrap();
    let short = h.plugin.wake(None).unwrap_err().to_string();
    assert!(short.contains("weights"), "{short}");
    // So does what it has of a device that is first asked for memory now.
    let there = h.drivers[1].create_stream().unwrap();
    assert!(h.within("weights", || h.plugin.allocate(MIB, 1, there)).is_err());
    h.plugin.free(output, 0).unwrap();
    h.plugin.free(large, 0).unwrap();
    h.plugin.release_pool(0, GRAPHS).unwrap();
    h.plugin.release_pool(0, more).unwrap();
    assert_eq!(h.plugin.wake(None).unwrap(), 40 * MIB);
    h.is_whole(&weights);
}

#[test]
fn memory_from_elsewhere_cannot_sleep_and_says_so() {
    let h = Host::new();
    h.within("weights", || {
        h.plugin
            .create_or_incref_pool(0, NAMED, Some(Arc::new(Given::new(h.drivers[0].clone()))))
            .unwrap()
    });
    h.plugin.begin_thread_pool(0, NAMED).unwrap();
    h.allocate(2);
    h.plugin.end_pool(0, NAMED).unwrap();
    let refused = h.plugin.sleep(None).unwrap_err().to_string();
    assert!(refused.contains("region \"weights\""), "{refused}");
}

/// What keeps a region, by the error of [`Plugin::forget_region`]: threads, captures of no region, pools, live blocks.
fn keeps(h: &Host, tag: &str) -> (usize, bool, usize, usize) {
    match h.plugin.forget_region(tag).unwrap_err() {
        Error::RegionInUse { threads, graphs, pools, blocks, .. } => {
            (threads, graphs, pools, blocks)
        }
        error => panic!("{error}"),
    }
}

#[test]
fn a_region_is_forgotten_when_nothing_is_in_it() {
    let h = Host::new();
    h.plugin.forget_region("weights").unwrap();
    h.plugin.set_region_backup("weights", Backup::Device);
    let mut held = Held::new();
    let number = h.plugin.enter_region(Some("weights"));
    let block = h.write(&mut held, 4, 1);
    assert_eq!(keeps(&h, "weights"), (1, false, 0, 0));
    h.plugin.leave_region(number).unwrap();
    assert_eq!(keeps(&h, "weights"), (0, false, 0, 1));
    h.is_whole(&held);
    h.plugin.put_graphs_into(Some("weights"));
    assert_eq!(keeps(&h, "weights"), (0, true, 0, 1));
    let (graph, output) = h.capture(GRAPHS, held[0], 2);
    h.plugin.put_graphs_into(None);
    assert_eq!(keeps(&h, "weights"), (0, false, 1, 1));
    assert_eq!(h.figures("weights").0, 10);
    // Nothing of it has changed.
    h.replay(graph);
    h.is_whole(&vec![held[0], (output, 2 * MIB, 2)]);
    assert_eq!(h.plugin.regions(0)[0].backup, Backup::Device);

    h.plugin.free(output, 0).unwrap();
    h.plugin.release_pool(0, GRAPHS).unwrap();
    h.drivers[0].destroy_graph(graph).unwrap();
    h.plugin.free(block, 0).unwrap();
    // Work that was not waited for.
    submit(&h.drivers[0], h.stream, &[], &[]);
    h.plugin.forget_region("weights").unwrap();
    assert!(h.plugin.region_tags().is_empty() && h.plugin.regions(0).is_empty());
    assert_eq!(h.plugin.engine(0).unwrap().statistics().unwrap().all.reserved_bytes.current, 0);
    let unknown = h.plugin.sleep(Some(&["weights"]));
    assert!(matches!(unknown, Err(Error::UnknownRegion { .. })), "{unknown:?}");

    // A region of this name is a new one.
    h.within("weights", || h.write(&mut Held::new(), 4, 3));
    assert_eq!(h.plugin.regions(0)[0].backup, Backup::Host);
}

#[test]
fn a_region_that_sleeps_is_forgotten_and_its_name_is_awake() {
    let h = Host::new();
    let block = h.within("weights", || {
        h.plugin.create_or_incref_pool(0, NAMED, None).unwrap();
        h.allocate(4)
    });
    h.plugin.sleep(None).unwrap();
    assert_eq!(keeps(&h, "weights"), (0, false, 1, 1));
    h.plugin.release_pool(0, NAMED).unwrap();
    assert_eq!(keeps(&h, "weights"), (0, false, 0, 1));
    h.plugin.free(block, 0).unwrap();
    h.plugin.forget_region("weights").unwrap();
    let block = h.within("weights", || h.allocate(4));
    assert!(!h.plugin.is_asleep("weights").unwrap());
    // Work that uses nothing else of the region's is waited for.
    let other = h.stream();
    h.plugin.record_stream(block, other).unwrap();
    submit(&h.drivers[0], other, &[], &[(block, 4 * MIB, 1)]);
    h.plugin.free(block, 0).unwrap();
    h.plugin.forget_region("weights").unwrap();
}
