//! Regions: memory by tag that sleeps and wakes.

use std::ffi::c_char;
use std::path::Path;
use std::ptr::null as no_text;

use regraph::regions::{Backup, Moved, Region};

use crate::arguments::{give, null, text};
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{Failure, Fallible};
use crate::rows::Rows;

/// What live blocks of a region hold is kept in page-locked memory of the host while it sleeps.
pub const REGRAPH_BACKUP_HOST: i32 = 0;
/// What live blocks of a region hold is lost: they hold anything when the region wakes.
pub const REGRAPH_BACKUP_NONE: i32 = 1;
/// What live blocks of a region hold stays on the device: the region does not sleep.
pub const REGRAPH_BACKUP_DEVICE: i32 = 2;
/// What live blocks of a region hold is kept in a file (regraph_regions_set_file_backup() alone sets this).
pub const REGRAPH_BACKUP_FILE: i32 = 3;
/// What live blocks of a region hold is kept in a shared file (regraph_regions_set_shared_backup() alone sets this).
pub const REGRAPH_BACKUP_SHARED: i32 = 4;

fn backup(backup: i32) -> Fallible<Backup> {
    match backup {
        REGRAPH_BACKUP_HOST => Ok(Backup::Host),
        REGRAPH_BACKUP_NONE => Ok(Backup::None),
        REGRAPH_BACKUP_DEVICE => Ok(Backup::Device),
        other => {
            let known = "a REGRAPH_BACKUP constant, from 0 to 2 (for files there are regraph_regions_set_file_backup() and \
                         regraph_regions_set_shared_backup())";
            Err(Failure::argument("backup", other, known))
        }
    }
}

/// The tags of regions; none stands for all regions.
///
/// # Safety
/// `tags` is null, or points to `count` texts.
unsafe fn named<'a>(tags: *const *const c_char, count: usize) -> Fallible<Option<Vec<&'a str>>> {
    if tags.is_null() && count == 0 {
        return Ok(None);
    }
    if tags.is_null() {
        return Err(null("tags"));
    }
    // SAFETY: as the caller promised.
    let tags = unsafe { std::slice::from_raw_parts(tags, count) };
    let named = |(index, &tag): (usize, &*const c_char)| {
        // SAFETY: as the caller promised.
        let text = unsafe { text(tag, "tags") };
        text.map_err(|failure| match failure {
            Failure::Null(argument) => Failure::NullIn { argument, index },
            failure => failure,
        })
    };
    tags.iter().enumerate().map(named).collect::<Fallible<_>>().map(Some)
}

/// Says what becomes of what live blocks of a region hold from its next sleep on: REGRAPH_BACKUP_HOST,
/// REGRAPH_BACKUP_NONE or REGRAPH_BACKUP_DEVICE. A region is all pools that regraph_pool_create_in_region() made with one tag;
/// without this call it has REGRAPH_BACKUP_HOST. `tag` is UTF-8 and is copied. What is said stays until
/// regraph_regions_forget(), also while the region has no pools.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_ARGUMENT, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_set_backup(
    engine: *const regraph_engine,
    tag: *const c_char,
    backup: i32,
) -> regraph_error {
    call!(engine, {
        let tag = text(tag, "tag")?;
        engine.regions().set_backup(tag, self::backup(backup)?)
    })
}

/// Has what live blocks of a region hold kept in a file in the folder `folder` from its next sleep on
/// (REGRAPH_BACKUP_FILE): all is there before any device memory goes. Of the host's memory a sleep and a wake lock at most
/// 4 MiB for each of up to 16 threads. Each sleep of the region makes a file for this user alone. It has no name for other
/// processes to find, and goes when all that it keeps is awake or the process ends, however it ends. In a folder of a
/// tmpfs, such as /dev/shm, contents are kept in memory that is not locked. `tag` and `folder` are UTF-8 and are copied;
/// whether the folder can be written to is seen when the region goes to sleep.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_set_file_backup(
    engine: *const regraph_engine,
    tag: *const c_char,
    folder: *const c_char,
) -> regraph_error {
    call!(engine, {
        let folder = Path::new(text(folder, "folder")?);
        engine.regions().set_backup(text(tag, "tag")?, Backup::File(folder.into()))
    })
}

/// Has what live blocks of a region hold kept in the file `file` from its next sleep on (REGRAPH_BACKUP_SHARED). Other
/// processes may name the file too, so that workers with the same weights keep them once. A process that goes to sleep
/// compares what its blocks hold with the file, byte by byte. If all is the same, the process writes nothing. If not,
/// or if there is no file, the process writes one and puts it in the other's place, which does not concern processes
/// that keep that. While another process writes, this one waits, for up to a minute and a second for each 128 MiB, and
/// compares with the new file; if that differs too, this process keeps its contents in a file without a name. Only a
/// backup of this user's is replaced: what else has the name stays as it is, and the process keeps its contents in a file
/// without a name and warns. In a folder of a tmpfs, such as /dev/shm, the file is memory that processes share. It stays
/// until the caller removes it, as an empty file `.NAME.lock` beside it does, and nothing else may write to it. Each
/// region of a process needs a file of its own. `tag` and `file` are UTF-8 and are copied; whether the file can be
/// written is seen when the region goes to sleep.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_set_shared_backup(
    engine: *const regraph_engine,
    tag: *const c_char,
    file: *const c_char,
) -> regraph_error {
    call!(engine, {
        let file = Path::new(text(file, "file")?);
        engine.regions().set_backup(text(tag, "tag")?, Backup::Shared(file.into()))
    })
}

/// Forgets what was said of a region; does nothing where nothing was. One that has pools has REGRAPH_BACKUP_HOST from
/// now on. One that has none is unknown from now on and does not sleep: pools that are made of its tag later are awake.
/// For hosts that go through many tags: a region that has no pools and of which nothing was said is forgotten by itself.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_forget(
    engine: *const regraph_engine,
    tag: *const c_char,
) -> regraph_error {
    call!(engine, engine.regions().forget(text(tag, "tag")?))
}

/// Gives the device memory of regions back to the driver and keeps addresses, blocks and graphs, until
/// regraph_regions_wake(). `tags` names `count` regions; NULL with a count of 0 means all. `bytes` gets the bytes that were
/// given back; it may be NULL. Regions that sleep stay as they are. Contents of live blocks are kept, those of
/// regraph_pool_borrow() included, and those of graphs' outputs that were freed. Those of blocks that a capture both
/// allocated and freed are not: each launch is taken to write them anew, so what only the run of the capture wrote
/// there is lost.
///
/// Waits for the device first. From the call until the regions are awake no work may be submitted that uses
/// their memory: allocations from them, captures into them and launches by regraph_launch_graph() and
/// regraph_launch_executable() are refused (REGRAPH_ERROR_POOL_SUSPENDED), other work the engine does not see.
/// Blocks can be freed, and graphs released. Other processes may not have the memory mapped.
///
/// Threads: any. Contents are copied at some 55 GB a second; where too few pages of the host are locked, that comes
/// first (see regraph_regions_reserve_host()). Other calls on the engine go on meanwhile; those that have regions of it
/// sleep or wake, or change their memory of the host, take turns.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_REGION; REGRAPH_ERROR_INVALID_TEXT; REGRAPH_ERROR_DEVICE_CAPTURES while a stream of the
/// device captures; REGRAPH_ERROR_POOL_BUSY; REGRAPH_ERROR_CANNOT_SUSPEND; REGRAPH_ERROR_HOST_OUT_OF_MEMORY;
/// REGRAPH_ERROR_IO where a file cannot be made or written; REGRAPH_ERROR_ORDER_LOST: nothing has changed, but that
/// locked pages may stay for the next sleep. After REGRAPH_ERROR_DRIVER the regions may sleep in part: another call goes
/// on, and regraph_regions_wake() brings all back with its contents.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_sleep(
    engine: *const regraph_engine,
    tags: *const *const c_char,
    count: usize,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, Some(bytes) = engine.regions().sleep(named(tags, count)?.as_deref())?)
}

/// Like regraph_regions_sleep(), but does not wait for work that was submitted. What uses live blocks of the
/// regions must have completed; launches that the library made, and work on freed blocks, are looked at. The
/// copies are waited for.
///
/// Threads: any.
///
/// Errors: as regraph_regions_sleep(); REGRAPH_ERROR_POOL_RUNS while a graph of the regions may be running.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_try_sleep(
    engine: *const regraph_engine,
    tags: *const *const c_char,
    count: usize,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, Some(bytes) = engine.regions().try_sleep(named(tags, count)?.as_deref())?)
}

/// Brings the device memory of sleeping regions back at the same addresses, and what their live blocks held
/// where that was kept. `tags` names `count` regions; NULL with a count of 0 means all. `bytes` gets the bytes that came; it may
/// be NULL. When the call returns any stream may use the memory. Where memory is short, what is free in other
/// pools is given back for it.
///
/// Threads: any. Other calls on the engine go on meanwhile; those that have regions of it sleep or wake take turns.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_REGION, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_RESUME_OUT_OF_MEMORY,
/// REGRAPH_ERROR_DRIVER; REGRAPH_ERROR_IO where a file cannot be read, REGRAPH_ERROR_HOST_OUT_OF_MEMORY where no memory
/// can be locked for that. All that was asked for sleeps then, and what is kept is untouched: another call, for fewer
/// regions, goes on.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_wake(
    engine: *const regraph_engine,
    tags: *const *const c_char,
    count: usize,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, Some(bytes) = engine.regions().wake(named(tags, count)?.as_deref())?)
}

/// Whether a region sleeps, or a part of it.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_REGION, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_is_asleep(
    engine: *const regraph_engine,
    tag: *const c_char,
    asleep: *mut bool,
) -> regraph_error {
    call!(engine, asleep = engine.regions().is_asleep(text(tag, "tag")?)?)
}

/// Page-locked memory of the host that the engine's regions hold, in bytes: what sleeping regions keep
/// there, and what earlier sleeps needed. Files are not counted.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_get_host_bytes(
    engine: *const regraph_engine,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, bytes = engine.regions().host_bytes())
}

/// Locks pages of the host ahead of a sleep, until `bytes` bytes of them keep nothing: a sleep that keeps no more locks
/// none. Takes some 45 us a MiB where the process has 16 processors, all of which lock pages, and 330 us where it has one.
/// `locked` gets the bytes that were locked; it may be NULL.
///
/// Threads: any. Calls on the engine go on meanwhile; those on its regions wait.
///
/// Errors: REGRAPH_ERROR_HOST_OUT_OF_MEMORY, which gives back what was locked, and locks nothing where the engine's
/// regions would hold more than the host has for this process (its memory, or the least limit of its memory cgroups);
/// REGRAPH_ERROR_DRIVER, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_reserve_host(
    engine: *const regraph_engine,
    bytes: u64,
    locked: *mut u64,
) -> regraph_error {
    call!(engine, Some(locked) = engine.regions().reserve_host(bytes)?)
}

/// Gives page-locked memory that keeps nothing at present back to the host. `bytes` gets the bytes that were
/// given back; it may be NULL. The next sleep locks pages anew, which takes longer than a copy.
///
/// Threads: any. No other call waits while the memory goes.
///
/// Errors: REGRAPH_ERROR_DRIVER, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_free_host(
    engine: *const regraph_engine,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, Some(bytes) = engine.regions().free_host()?)
}

/// How a region went to sleep or woke: all 0 where it did not yet, or without memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_region_moved {
    /// Device memory that went or came, in bytes.
    pub bytes: u64,
    /// What was copied to the host, or to a file, or from there, in bytes: what live blocks held, and outputs of graphs.
    pub copied_bytes: u64,
    /// What went or came without its contents, in bytes: free memory, temporary memory of graphs, and all of a region
    /// whose contents are not kept.
    pub dropped_bytes: u64,
    /// What the call took for all its regions, a wait for the device and for other calls of the regions included, in
    /// nanoseconds.
    pub nanoseconds: u64,
}

impl regraph_region_moved {
    fn new(moved: Option<Moved>) -> Self {
        let Moved { bytes, copied_bytes, dropped_bytes, time, .. } = moved.unwrap_or_default();
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { bytes, copied_bytes, dropped_bytes, nanoseconds }
    }
}

/// A region's figures, all in bytes. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_region {
    /// Its tag. Lives as long as the list.
    pub tag: *const c_char,
    /// Device memory that it holds.
    pub awake_bytes: u64,
    /// Device memory that it had and gave back: it asks for this again when it wakes.
    pub asleep_bytes: u64,
    /// What is kept of it in memory of the host.
    pub host_bytes: u64,
    /// How many pools it has.
    pub pools: usize,
    /// One of the REGRAPH_BACKUP constants.
    pub backup: i32,
    /// Its latest sleep.
    pub slept: regraph_region_moved,
    /// Its latest wake.
    pub woke: regraph_region_moved,
    /// What is kept of it in files.
    pub file_bytes: u64,
    /// The folder of its files, with the backup REGRAPH_BACKUP_FILE, or the file, with REGRAPH_BACKUP_SHARED; NULL
    /// otherwise. Lives as long as the list.
    pub folder: *const c_char,
}

/// The regions at one time, in the order of their tags.
#[derive(Debug)]
pub struct regraph_region_list(Rows<regraph_region>);

impl regraph_region_list {
    fn new(regions: Vec<Region>) -> Self {
        let mut list = Rows::new();
        for region in regions {
            let tag = list.text(region.tag.to_string());
            let (backup, folder) = match region.backup {
                Backup::Host => (REGRAPH_BACKUP_HOST, no_text()),
                Backup::None => (REGRAPH_BACKUP_NONE, no_text()),
                Backup::Device => (REGRAPH_BACKUP_DEVICE, no_text()),
                Backup::File(folder) => {
                    (REGRAPH_BACKUP_FILE, list.text(folder.display().to_string()))
                }
                Backup::Shared(file) => {
                    (REGRAPH_BACKUP_SHARED, list.text(file.display().to_string()))
                }
            };
            list.push(regraph_region {
                tag,
                awake_bytes: region.awake_bytes,
                asleep_bytes: region.asleep_bytes,
                host_bytes: region.host_bytes,
                pools: region.pools.len(),
                backup,
                slept: regraph_region_moved::new(region.slept),
                woke: regraph_region_moved::new(region.woke),
                file_bytes: region.file_bytes,
                folder,
            });
        }
        Self(list)
    }
}

/// Lists the regions that have pools. `regions` gets a list to be destroyed with regraph_region_list_destroy().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_regions_report(
    engine: *const regraph_engine,
    regions: *mut *mut regraph_region_list,
) -> regraph_error {
    call!(engine, regions = give(regraph_region_list::new(engine.regions().report())))
}

/// The number of regions of a list; 0 for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_region_list_count(regions: *const regraph_region_list) -> usize {
    count!(regions)
}

/// One region of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_region_list_get(
    regions: *const regraph_region_list,
    index: usize,
) -> *const regraph_region {
    row!(regions, index)
}

/// Destroys a list. Does nothing for NULL.
///
/// Threads: any, while no other call uses the list.
#[no_mangle]
pub unsafe extern "C" fn regraph_region_list_destroy(regions: *mut regraph_region_list) {
    destroy!(regions)
}
