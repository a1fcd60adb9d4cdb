//! Regions whose contents are kept in files.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use log::Level;
use regraph::driver::{
    self, CaptureMode, Driver, ErrorKind, HostApi, HostPlace, StreamHandle, Transfer,
};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Error, Memory, Pool};
use regraph::regions::{Backup, Region, Regions, Tags};
use regraph::BackupRefusal;
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

use super::is_out_of_host_memory;
use crate::common::deref;
use crate::common::messages::messages_of;
use crate::common::{once, while_it_waits, MIB};

/// What goes wrong with files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// There is room for so many writes.
    Full(u64),
    /// What was written is not kept, which is told at the end alone.
    Late,
    /// So many reads succeed.
    Unread(u64),
    /// The file has lost its end.
    Truncated,
}

/// A device with files that fail.
struct Device {
    sim: SimDriver,
    fault: Mutex<Fault>,
    written: AtomicU64,
}

impl Device {
    fn fault(&self) -> Fault {
        *self.fault.lock().unwrap()
    }

    /// Counts what may still succeed.
    fn may(&self, left: u64, fault: fn(u64) -> Fault) -> bool {
        *self.fault.lock().unwrap() = fault(left.saturating_sub(1));
        left > 0
    }
}

deref!(Device.sim as SimDriver);

impl Driver for Device {
    regraph::forward_driver!();
}

impl HostApi for Device {
    regraph::forward_host_api!();
}

impl Transfer for Device {
    fn write_file(&self, file: &File, offset: u64, from: HostPlace, bytes: u64) -> io::Result<()> {
        if let Fault::Full(left) = self.fault() {
            if !self.may(left, Fault::Full) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.written.fetch_add(bytes, Ordering::SeqCst);
        self.sim.write_file(file, offset, from, bytes)
    }

    fn read_file(&self, mut file: &File, offset: u64, to: HostPlace, bytes: u64) -> io::Result<()> {
        match self.fault() {
            Fault::Unread(left) if !self.may(left, Fault::Unread) => {
                Err(io::Error::other("the disk is gone"))
            }
            Fault::Truncated => {
                let _one_at_a_time = self.fault.lock().unwrap();
                let mut held = Vec::new();
                file.rewind()?;
                file.read_to_end(&mut held)?;
                file.set_len(held.len() as u64 - 1)?;
                let read = self.sim.read_file(file, offset, to, bytes);
                file.rewind()?;
                file.write_all(&held)?;
                read
            }
            _ => self.sim.read_file(file, offset, to, bytes),
        }
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        match self.fault() {
            Fault::Late => Err(io::ErrorKind::QuotaExceeded.into()),
            _ => self.sim.sync_file(file),
        }
    }

    regraph::forward! {
        holds_same(one: HostPlace, other: HostPlace, bytes: u64) -> bool;
        host_memory() -> Option<u64>;
        host_threads() -> usize;
        allocate_host(bytes: u64) -> driver::Result<HostPlace>;
        free_host(place: HostPlace) -> driver::Result<()>;
        copy_to_host(to: HostPlace, address: u64, bytes: u64, stream: StreamHandle) -> driver::Result<()>;
        copy_to_device(address: u64, from: HostPlace, bytes: u64, stream: StreamHandle) -> driver::Result<()>;
    }
}

/// A folder that goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        let path =
            std::env::temp_dir().join(format!("regraph-files-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// What lies there, but for the locks that stay.
    fn names(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.extension().is_none_or(|it| it != "lock")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Weights in three pools and a cache, with blocks between which others were freed.
struct Bench {
    engine: Arc<Engine<Device>>,
    regions: Regions<Device>,
    stream: StreamHandle,
    blocks: Vec<(Memory<Device>, u64)>,
    folder: Folder,
}

impl Bench {
    fn new(threads: usize) -> Self {
        let sim = SimDriver::new(SimConfig::default());
        sim.set_host(1 << 40, threads);
        let device = Device { sim, fault: Mutex::default(), written: AtomicU64::new(0) };
        let engine = Arc::new(Engine::new(device, Config::default()));
        let stream = engine.driver().create_stream().unwrap();
        let (regions, folder) = (Regions::new(&engine), Folder::new());
        let mut bench = Self { engine, regions, stream, blocks: Vec::new(), folder };
        let sizes = [5 * MIB, 2 * MIB, 3 * MIB, 4 * MIB, 5 * MIB, 2 * MIB, 7 * MIB + 1536];
        for tag in ["weights", "cache", "weights", "weights"] {
            let pool = Pool::new(&bench.engine, PoolConfig::default().tag(tag));
            let blocks: Vec<_> =
                sizes.iter().map(|&bytes| pool.allocate(bytes, stream).unwrap()).collect();
            // Every other one goes: what lives is not one run.
            for block in blocks.into_iter().step_by(2) {
                let number = bench.blocks.len() as u64 + 1;
                bench.write(&block, number);
                bench.blocks.push((block, number));
            }
        }
        bench.regions.set_backup("weights", Backup::File(bench.folder.0.as_path().into()));
        bench
    }

    fn device(&self) -> &Device {
        self.engine.driver()
    }

    fn fail(&self, fault: Fault) {
        *self.device().fault.lock().unwrap() = fault;
    }

    fn write(&self, block: &Memory<Device>, tag: u64) {
        self.submit(&[], &[Tagged { address: block.address(), bytes: block.bytes(), tag }]);
    }

    fn submit(&self, inputs: &[Tagged], outputs: &[Tagged]) {
        let work = Work { inputs, outputs, ..Work::default() };
        self.device().sim.launch(self.stream, work, false).unwrap();
    }

    /// All blocks but those that do not count hold what they held, and nothing sleeps.
    fn is_whole_but(&self, dropped: &str) {
        for (block, tag) in &self.blocks {
            let region = self.region_of(block);
            assert!(!self.regions.is_asleep(&region).unwrap());
            if region != dropped {
                let held = Tagged { address: block.address(), bytes: block.bytes(), tag: *tag };
                self.submit(&[held], &[]);
            }
        }
        self.device().synchronize().unwrap();
        assert_eq!(self.device().take_wrong_tags().unwrap(), 0);
    }

    fn is_whole(&self) {
        self.is_whole_but("");
    }

    fn wakes_whole(&self) {
        self.regions.wake(Tags::All).unwrap();
        self.is_whole();
    }

    fn region_of(&self, block: &Memory<Device>) -> String {
        let tagged = self.engine.host().tagged_pools();
        let of = tagged.iter().find(|(_, pool)| *pool == block.pool().id());
        of.unwrap().0.to_string()
    }

    fn region(&self, tag: &str) -> Region {
        self.regions.report().into_iter().find(|region| *region.tag == *tag).unwrap()
    }

    fn live(&self, tag: &str) -> u64 {
        let of = self.blocks.iter().filter(|(block, _)| self.region_of(block) == tag);
        of.map(|(block, _)| block.bytes()).sum()
    }
}

/// What a call says of a file.
fn told(refused: Result<u64, Error>, folder: &Path) -> (String, &'static str) {
    let refused = refused.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains(folder.to_str().unwrap()) && text.contains("\"weights\""), "{text}");
    let Error::Backup { why: BackupRefusal::File { act, .. }, .. } = refused else {
        panic!("{text}")
    };
    (text, act)
}

#[test]
fn contents_are_kept_in_files_through_a_few_locked_pages() {
    for threads in [1, 2, 5] {
        let bench = Bench::new(threads);
        for turn in 0..3 {
            bench.regions.sleep(&["weights"]).unwrap();
            let (weights, live) = (bench.region("weights"), bench.live("weights"));
            assert_eq!((weights.host_bytes, weights.file_bytes), (0, live), "{threads} {turn}");
            assert_eq!(weights.slept.unwrap().copied_bytes, live);
            assert_eq!(bench.device().written.swap(0, Ordering::SeqCst), live);
            let ring = threads as u64 * 4 * MIB;
            assert!(bench.regions.host_bytes() <= ring.next_multiple_of(8 * MIB));
            assert_eq!(bench.folder.names(), Vec::<PathBuf>::new());
            bench.regions.wake(Tags::All).unwrap();
            assert_eq!(bench.region("weights").file_bytes, 0);
            assert_eq!(bench.region("weights").woke.unwrap().copied_bytes, live);
            bench.is_whole();
        }
        bench.regions.free_host().unwrap();
        assert_eq!(bench.device().host_bytes(), 0);
    }
}

/// Regions that are kept in files, in memory and not at all sleep and wake in one call, and apart.
#[test]
fn regions_of_every_backup_sleep_together() {
    let folder = Folder::new();
    let file = Backup::File(folder.0.as_path().into());
    for cache in [Backup::Host, Backup::None, Backup::Device, file] {
        let mut bench = Bench::new(2);
        bench.regions.set_backup("cache", cache.clone());
        let dropped = if cache == Backup::None { "cache" } else { "" };
        bench.regions.sleep(Tags::All).unwrap();
        bench.regions.wake(Tags::All).unwrap();
        bench.is_whole_but(dropped);
        bench.regions.sleep(Tags::All).unwrap();
        // A pool goes whose contents lie in the middle of a file.
        bench.blocks.drain(8..12);
        // What is said of a region that sleeps changes nothing of what is kept of it.
        bench.regions.set_backup("weights", Backup::None);
        let kept = bench.region("cache").host_bytes;
        assert_eq!(kept, if cache == Backup::Host { bench.live("cache") } else { 0 });
        bench.regions.wake(&["weights"]).unwrap();
        bench.regions.wake(&["cache"]).unwrap();
        bench.is_whole_but(dropped);
        bench.regions.forget("weights");
        bench.regions.sleep(&["weights"]).unwrap();
        assert_eq!(bench.region("weights").host_bytes, bench.live("weights"));
        bench.regions.retain(true);
        bench.regions.wake(Tags::All).unwrap();
        bench.is_whole_but(dropped);
        // What stays of pools goes with them.
        bench.blocks.clear();
        bench.regions.free_host().unwrap();
        assert_eq!(bench.device().host_bytes(), 0);
    }
}

#[test]
fn a_file_that_cannot_be_written_leaves_all_awake() {
    let bench = Bench::new(1);
    let before = bench.device().used_bytes();
    for fault in [Fault::Full(0), Fault::Full(1), Fault::Full(5), Fault::Late] {
        bench.fail(fault);
        let (text, act) = told(bench.regions.sleep(Tags::All), &bench.folder.0);
        let system = if fault == Fault::Late { "quota" } else { "storage" };
        assert!(act == "written" && text.contains(system), "{text}");
        assert_eq!(bench.device().used_bytes(), before, "{fault:?}");
        assert_eq!(bench.region("weights").file_bytes, 0);
        bench.is_whole();
    }
    let gone: Arc<Path> = bench.folder.0.join("gone").into();
    bench.fail(Fault::None);
    bench.regions.set_backup("weights", Backup::File(gone.clone()));
    let (text, act) = told(bench.regions.sleep(Tags::All), &gone);
    assert!(act == "made" && text.contains("No such file"), "{text}");
    bench.is_whole();
    fs::create_dir(&gone).unwrap();
    bench.regions.sleep(Tags::All).unwrap();
    bench.wakes_whole();
}

#[test]
fn a_file_that_cannot_be_read_leaves_its_region_asleep() {
    for fault in [Fault::Unread(0), Fault::Unread(1), Fault::Unread(4), Fault::Truncated] {
        for threads in [1, 3] {
            let bench = Bench::new(threads);
            bench.regions.sleep(Tags::All).unwrap();
            let live = bench.live("weights");
            for _ in 0..2 {
                bench.fail(fault);
                let (text, act) = told(bench.regions.wake(Tags::All), &bench.folder.0);
                let system = if fault == Fault::Truncated { "fill" } else { "the disk is gone" };
                assert!(act == "read" && text.contains(system), "{text}");
                assert_eq!(bench.device().used_bytes(), 0, "{fault:?}");
                assert!(bench.regions.is_asleep("weights").unwrap());
                assert_eq!(bench.region("weights").file_bytes, live);
            }
            bench.fail(Fault::None);
            bench.wakes_whole();
        }
    }
}

/// The host has room for what contents go through, or for a part of it, or for none.
#[test]
fn little_memory_of_the_host_will_do() {
    let bench = Bench::new(4);
    bench.regions.set_backup("cache", Backup::None);
    bench.device().set_host_bytes(3 * MIB);
    let refused = bench.regions.sleep(Tags::All).unwrap_err();
    assert!(is_out_of_host_memory(&refused), "{refused}");
    bench.is_whole();
    bench.device().set_host_bytes(8 * MIB);
    bench.regions.sleep(Tags::All).unwrap();
    assert_eq!(bench.regions.host_bytes(), 8 * MIB);
    bench.regions.free_host().unwrap();
    // As much as that is needed on the way back.
    bench.device().set_host_bytes(0);
    bench.regions.wake(Tags::All).unwrap_err();
    assert!(bench.regions.is_asleep("weights").unwrap());
    bench.device().set_host_bytes(8 * MIB);
    bench.regions.wake(Tags::All).unwrap();
    bench.is_whole_but("cache");
}

#[test]
fn what_a_file_keeps_can_be_read_while_its_region_sleeps_and_when_it_wakes() {
    let bench = Bench::new(2);
    // What a process of this number that was killed has left.
    let left = |n| bench.folder.0.join(format!("regraph-{}-{n}", std::process::id()));
    (0..99).for_each(|n| fs::write(left(n), "").unwrap());
    let shown = |block: &Memory<Device>, from: u64, bytes: u64| {
        let mut sum = 0;
        let range = (block.address() + from, bytes);
        let whole = bench.regions.show_kept(block.pool().id(), range, |_, part| sum += part);
        whole.map(|whole| whole.then_some(sum))
    };
    bench.regions.retain(true);
    for retained in [false, true] {
        if retained {
            bench.wakes_whole();
        } else {
            bench.regions.sleep(Tags::All).unwrap();
        }
        for (block, _) in &bench.blocks {
            assert_eq!(shown(block, 0, block.bytes()).unwrap(), Some(block.bytes()));
            assert_eq!(shown(block, 0, u64::MAX).unwrap(), None);
            let half = block.bytes() / 1024 * 512;
            assert_eq!(shown(block, half, 512).unwrap(), Some(512));
        }
        let (first, _) = &bench.blocks[0];
        let of_first = bench.blocks.iter().map(|(block, _)| block);
        let of_first = of_first.filter(|block| block.pool().id() == first.pool().id());
        let lowest = of_first.clone().min_by_key(|block| block.address()).unwrap();
        let last = of_first.max_by_key(|block| block.address()).unwrap();
        assert_eq!(shown(last, 0, last.bytes() + 512).unwrap(), None);
        let with_gaps = last.address() + last.bytes() - lowest.address();
        assert_eq!(shown(lowest, 0, with_gaps).unwrap(), None);
        assert_eq!(bench.region("weights").file_bytes, bench.live("weights"));
        bench.fail(Fault::Unread(0));
        let refused = shown(first, 0, 512).map(|_| 0);
        assert_eq!(told(refused, &bench.folder.0).1, "read");
        bench.fail(Fault::None);
    }
    // A sleep that is refused leaves them.
    bench.device().begin_capture(bench.stream, CaptureMode::Relaxed).unwrap();
    let refused = bench.regions.sleep(Tags::All).unwrap_err();
    assert!(matches!(refused, Error::DeviceCaptures { .. }), "{refused}");
    bench.device().end_capture(bench.stream).unwrap();
    for (block, _) in &bench.blocks {
        assert_eq!(shown(block, 0, block.bytes()).unwrap(), Some(block.bytes()));
    }
    bench.regions.retain(false);
    assert_eq!(bench.region("weights").file_bytes, 0);
    assert_eq!(shown(&bench.blocks[0].0, 0, 512).unwrap(), None);
}

/// What a call that failed has left under way comes into nothing that is read from a file.
#[test]
fn what_a_failed_sleep_still_copies_harms_nothing() {
    let bench = Bench::new(1);
    bench.regions.set_backup("cache", Backup::File(bench.folder.0.as_path().into()));
    bench.regions.sleep(&["weights"]).unwrap();
    // Behind the next copy to the host, and all that follows of this call and at the beginning of the next, no event can
    // be recorded.
    let engine = bench.engine.clone();
    let unmark = move || {
        for _ in 0..4 {
            engine.driver().fail_nth(Call::RecordEvent, 0, ErrorKind::NotSupported);
        }
    };
    bench.device().before("cuMemcpyDtoHAsync", once(unmark));
    bench.regions.sleep(&["cache"]).unwrap_err();
    assert!(bench.regions.is_asleep("cache").unwrap(), "copies may be under way");
    bench.regions.wake(&["weights"]).unwrap();
    bench.regions.wake(&["cache"]).unwrap();
    bench.is_whole();
}

/// Workers whose regions share a file, in a folder of theirs.
fn workers<const N: usize>(threads: usize) -> (Folder, PathBuf, [Bench; N]) {
    let folder = Folder::new();
    let path = folder.0.join("weights");
    let benches = std::array::from_fn(|_| {
        let bench = Bench::new(threads);
        bench.regions.set_backup("weights", Backup::Shared(path.as_path().into()));
        bench
    });
    (folder, path, benches)
}

/// How many bytes a worker has written since it was asked last.
fn written(bench: &Bench) -> u64 {
    bench.device().written.swap(0, Ordering::SeqCst)
}

#[test]
fn workers_that_hold_the_same_keep_one_file() {
    for threads in [1, 3] {
        let (folder, path, benches) = workers::<3>(threads);
        let live = benches[0].live("weights");
        for turn in 0..3 {
            // The second time the file is there already, the third time the host has removed it.
            if turn == 2 {
                fs::remove_file(&path).unwrap();
            }
            for (at, bench) in benches.iter().enumerate() {
                bench.regions.sleep(&["weights"]).unwrap();
                let expected = if turn != 1 && at == 0 { live } else { 0 };
                assert_eq!(written(bench), expected, "{threads} {turn} {at}");
                assert_eq!(folder.names(), std::slice::from_ref(&path));
                let weights = bench.region("weights");
                assert_eq!((weights.host_bytes, weights.file_bytes), (0, live));
                assert_eq!(weights.slept.unwrap().copied_bytes, live);
                assert!(
                    bench.regions.host_bytes()
                        <= (threads as u64 * 4 * MIB).next_multiple_of(8 * MIB)
                );
            }
            if turn == 1 {
                // What is open stays.
                fs::remove_file(&path).unwrap();
                fs::write(&path, "something else").unwrap();
            }
            for bench in &benches {
                bench.wakes_whole();
            }
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// What has the name and is no backup stays as it is, and nothing is shared then.
#[test]
fn what_is_no_backup_is_not_replaced() {
    let (folder, path, [first, second]) = workers(1);
    let elsewhere = folder.0.join("elsewhere");
    first.regions.set_backup("weights", Backup::Shared(elsewhere.as_path().into()));
    first.regions.sleep(&["weights"]).unwrap();
    let (live, held) = (written(&first), fs::read(&elsewhere).unwrap());
    let others: [(&str, &dyn Fn()); 7] = [
        ("it is a host's", &|| fs::write(&path, "my only copy").unwrap()),
        ("it is empty", &|| fs::write(&path, "").unwrap()),
        ("it is a backup of which a part is gone", &|| {
            fs::write(&path, &held[..held.len() - 8]).unwrap();
        }),
        ("it is a link to one", &|| symlink(&elsewhere, &path).unwrap()),
        ("it is a folder", &|| fs::create_dir(&path).unwrap()),
        ("it is a pipe", &|| {
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        }),
        // Where this process may do that.
        ("it is another user's", &|| {
            fs::copy(&elsewhere, &path).unwrap();
            if chown(&path, Some(1), None).is_err() {
                fs::write(&path, "").unwrap();
            }
        }),
    ];
    let look = || {
        let it = fs::symlink_metadata(&path).unwrap();
        (it.file_type(), it.ino(), it.len(), it.mtime_nsec())
    };
    for (what, put) in others {
        put();
        let there = look();
        let messages = messages_of(|| {
            second.regions.sleep(&["weights"]).unwrap();
        });
        let (_, text) = messages.iter().find(|(level, _)| *level == Level::Warn).expect(what);
        assert!(text.contains("region weights shares no file"), "{what}: {text}");
        assert!(what != "it is empty" || text.contains("it is no backup"), "{text}");
        assert_eq!(written(&second), live, "{what}");
        assert!(look() == there && !folder.0.join(".weights.lock").exists(), "{what}");
        second.wakes_whole();
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
    }
    second.regions.sleep(&["weights"]).unwrap();
    second.regions.wake(Tags::All).unwrap();
    assert_eq!(written(&second), live, "nothing is there");
    // Others could change it behind the comparison, so it is written anew.
    set_mode(&path, 0o602);
    second.regions.sleep(&["weights"]).unwrap();
    assert_eq!(written(&second), live, "others may write to it");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    second.regions.wake(Tags::All).unwrap();
    second.regions.sleep(&["weights"]).unwrap();
    assert_eq!(written(&second), 0, "it is its own");
}

/// Any user can lock the folder, and make a file there; where the turn cannot be had the file is not shared.
#[test]
fn the_turn_to_write_is_held_up_by_no_other_user() {
    let (folder, path, [first, second]) = workers(1);
    let all = File::open(&folder.0).unwrap();
    all.lock().unwrap();
    first.regions.sleep(&["weights"]).unwrap();
    assert_eq!(folder.names(), std::slice::from_ref(&path));
    let lock = folder.0.join(".weights.lock");
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&path).unwrap();
    set_mode(&lock, 0o666);
    let messages = messages_of(|| {
        second.regions.sleep(&["weights"]).unwrap();
    });
    let told = messages.iter().find(|(level, _)| *level == Level::Warn);
    assert!(told.is_some_and(|(_, text)| text.contains("region weights shares no file")));
    assert_eq!((written(&second), folder.names()), (second.live("weights"), Vec::new()));
    for bench in [&first, &second] {
        bench.wakes_whole();
    }
}

#[test]
fn workers_that_hold_something_else_keep_it_apart() {
    let (folder, path, [first, second]) = workers(2);
    for turn in 0..4 {
        // A number in the middle of a block, then the last one of all.
        let block = if turn % 2 == 0 { 0 } else { second.blocks.len() / 3 * 2 };
        let (block, tag) = (&second.blocks[block].0, 1000 + turn);
        let at = if turn < 2 { 0 } else { block.bytes() - 512 };
        first.regions.sleep(Tags::All).unwrap();
        assert!(turn > 0 || written(&first) > 0);
        second.submit(&[], &[Tagged { address: block.address() + at, bytes: 512, tag }]);
        second.regions.sleep(Tags::All).unwrap();
        assert_eq!(written(&second), second.live("weights"), "{turn}");
        assert_eq!(folder.names(), std::slice::from_ref(&path));
        second.regions.wake(Tags::All).unwrap();
        second.regions.sleep(Tags::All).unwrap();
        assert_eq!(written(&second), 0, "what it has written is what others find");
        for bench in [&first, &second] {
            bench.regions.wake(Tags::All).unwrap();
        }
        first.is_whole();
        second.submit(&[Tagged { address: block.address() + at, bytes: 512, tag }], &[]);
        second.device().synchronize().unwrap();
        assert_eq!(second.device().take_wrong_tags().unwrap(), 0, "{turn}");
        // As the first one has it again.
        for (block, tag) in &second.blocks {
            second.write(block, *tag);
        }
        second.is_whole();
        second.regions.sleep(&["weights"]).unwrap();
        second.regions.wake(&["weights"]).unwrap();
        written(&second);
    }
}

/// Each would write it anew at each sleep.
#[test]
fn what_another_has_written_meanwhile_is_not_replaced() {
    let (_folder, _, [first, second, third]) = workers(1);
    for (bench, tag) in [(&second, 77), (&third, 78)] {
        bench.write(&bench.blocks[0].0, tag);
    }
    first.regions.sleep(&["weights"]).unwrap();
    let third = Arc::new(third);
    let other = third.clone();
    let write = move || _ = other.regions.sleep(&["weights"]).unwrap();
    second.device().before("cuMemcpyDtoHAsync", once(move || assert!(while_it_waits(write))));
    second.regions.sleep(&["weights"]).unwrap();
    assert_eq!(
        (written(&second), written(&third)),
        (second.live("weights"), third.live("weights"))
    );
    third.regions.wake(&["weights"]).unwrap();
    third.regions.sleep(&["weights"]).unwrap();
    assert_eq!(written(&third), 0, "it finds what it has written");
}

/// Some of the workers hold something else, and all go to sleep at once.
#[test]
fn workers_that_go_to_sleep_at_once_write_what_they_share_once() {
    for others in [0, 2] {
        let (folder, path, benches) = workers::<6>(1);
        let live = benches[0].live("weights");
        for bench in &benches[..others] {
            bench.write(&bench.blocks[0].0, 77);
        }
        let all_there = std::sync::Barrier::new(benches.len());
        std::thread::scope(|scope| {
            for bench in &benches {
                scope.spawn(|| {
                    all_there.wait();
                    bench.regions.sleep(Tags::All).unwrap();
                });
            }
        });
        let writes: Vec<u64> = benches.iter().map(written).collect();
        assert!(writes.iter().all(|&bytes| bytes == 0 || bytes == live), "{writes:?}");
        let wrote = writes.iter().filter(|&&bytes| bytes > 0).count();
        // A worker that finds the other kind's file puts its own in its place, and one that finds that only after its turn
        // has come writes for itself: of two kinds each may write.
        assert!(if others == 0 { wrote == 1 } else { wrote >= 2 }, "{writes:?}");
        assert_eq!(folder.names(), std::slice::from_ref(&path));
        for (at, bench) in benches.iter().enumerate() {
            bench.regions.wake(Tags::All).unwrap();
            if at >= others {
                bench.is_whole();
                continue;
            }
            let block = &bench.blocks[0].0;
            bench
                .submit(&[Tagged { address: block.address(), bytes: block.bytes(), tag: 77 }], &[]);
            bench.device().synchronize().unwrap();
            assert_eq!(bench.device().take_wrong_tags().unwrap(), 0);
        }
    }
}

#[test]
fn a_shared_file_that_cannot_be_read_or_written_harms_nothing() {
    let (folder, path, [mut first, mut second]) = workers(1);
    for bench in [&mut first, &mut second] {
        // All parts of the file hold the same, so that what was read before would do for what is not read.
        bench.blocks.iter_mut().for_each(|(_, tag)| *tag = 5);
        bench.blocks.iter().for_each(|(block, tag)| bench.write(block, *tag));
    }
    first.regions.sleep(Tags::All).unwrap();
    let live = written(&first);
    // What cannot be compared is written anew, under the name.
    for unread in 0..6 {
        second.fail(Fault::Unread(unread));
        second.regions.sleep(&["weights"]).unwrap();
        assert_eq!(written(&second), live, "{unread}");
        second.fail(Fault::None);
        second.wakes_whole();
    }
    for fault in [Fault::Full(1), Fault::Late] {
        fs::remove_file(&path).unwrap();
        second.fail(fault);
        let (_, act) = told(second.regions.sleep(Tags::All), &path);
        assert_eq!((act, folder.names()), ("written", Vec::new()), "{fault:?}");
        second.is_whole();
        second.fail(Fault::None);
        fs::write(&path, "").unwrap();
    }
    fs::remove_file(&path).unwrap();
    first.wakes_whole();
    let gone: PathBuf = folder.0.join("no such folder").join("weights");
    second.regions.set_backup("weights", Backup::Shared(gone.as_path().into()));
    assert_eq!(told(second.regions.sleep(Tags::All), &gone).1, "made");
    second.is_whole();
}
