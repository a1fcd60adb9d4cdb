//! What sleeping regions hold in files (design/sleep-and-lend.md, "Files" and "A file that processes share").
//!
//! Between the device and a file all goes through a few locked spans of [`SLOT`] bytes, each of which a thread has for
//! itself. A file that processes share ([`Backup::Shared`]) ends with a [`MARK`]: whatever else has the name stays.

use std::ffi::OsString;
use std::fs::{remove_file, rename, symlink_metadata, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::host::{HostMemory, SLOT};
use super::{workers, Backup};
use crate::driver::{HostPlace, StreamHandle, Transfer};
use crate::engine::Engine;
use crate::error::{BackupRefusal, Error};
use crate::graphs::Event;

/// A file that keeps what pools of a region held when they went to sleep.
#[derive(Debug)]
pub(super) struct BackupFile {
    file: File,
    /// The folder that the host has named, or the file that processes share.
    path: Arc<Path>,
    region: Arc<str>,
}

/// A file that is being written. Dropped before it is finished, it is gone.
#[derive(Debug)]
pub(super) struct Draft {
    made: Arc<BackupFile>,
    /// Its name until it is finished, where it will be shared.
    name: Option<PathBuf>,
}

impl BackupFile {
    /// The file that processes share, as it is now; none where the backup is no such file, or none that this user alone
    /// may have written is there.
    pub(super) fn shared(backup: &Backup, region: &Arc<str>) -> Option<Self> {
        let Backup::Shared(path) = backup else { return None };
        let file = open_alone(File::options().read(true), path).ok()?;
        let marked = is_marked(&file).ok()?;
        marked.then(|| Self { file, path: path.clone(), region: region.clone() })
    }

    /// Whether both are one file: neither is written to, so they hold the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        let number = |it: &Self| it.file.metadata().ok().and_then(|it| number_of(&it));
        number(self).is_some_and(|own| number(other) == Some(own))
    }

    fn told(
        &self,
        done: io::Result<()>,
        act: &'static str,
        call: &'static str,
    ) -> Result<(), Error> {
        done.map_err(|source| refused(call, act, (&self.path, &self.region), source))
    }
}

impl Draft {
    /// An empty file for what a region holds, in the name of a call. With `named` it is to be the shared one, where the
    /// backup is one.
    pub(super) fn new(
        backup: &Backup,
        region: &Arc<str>,
        named: bool,
        call: &'static str,
    ) -> Result<Self, Error> {
        let (path, folder, named) = match backup {
            Backup::Shared(path) => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                (path, folder.unwrap_or(Path::new(".")), named)
            }
            Backup::File(folder) => (folder, &**folder, false),
            Backup::Host | Backup::None | Backup::Device => unreachable!("kept in no file"),
        };
        let made = create(folder).and_then(|(file, name)| match named {
            true => Ok((file, Some(name))),
            false => remove_file(name).map(|()| (file, None)),
        });
        let (file, name) = made.map_err(|source| refused(call, "made", (path, region), source))?;
        let made = BackupFile { file, path: path.clone(), region: region.clone() };
        Ok(Self { made: Arc::new(made), name })
    }

    pub(super) fn file(&self) -> &Arc<BackupFile> {
        &self.made
    }

    /// Has the system refuse nothing later of what was written, and others find it who share it: in place of the backup
    /// that they have found so far.
    pub(super) fn finish(
        mut self,
        driver: &impl Transfer,
        call: &'static str,
    ) -> Result<(), Error> {
        let mut file = &self.made.file;
        let marked = match self.name {
            Some(_) => file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(MARK)),
            None => Ok(()),
        };
        let written = marked.and_then(|()| driver.sync_file(file));
        self.made.told(written, "written", call)?;
        let Some(name) = self.name.take() else { return Ok(()) };
        let renamed =
            must_be_a_backup(&self.made.path).and_then(|()| rename(&name, &self.made.path));
        if renamed.is_err() {
            self.name = Some(name);
        }
        self.made.told(renamed, "named", call)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // There is no caller for the system's errors.
            let _ = remove_file(name);
        }
    }
}

fn refused(
    call: &'static str,
    act: &'static str,
    (path, region): (&Arc<Path>, &Arc<str>),
    source: io::Error,
) -> Error {
    let (region, path) = (region.clone(), path.clone());
    Error::Backup { call, why: BackupRefusal::File { region, path, act, source } }
}

/// A new file in a folder, for this user alone, and its name.
fn create(folder: &Path) -> io::Result<(File, PathBuf)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("regraph-{}-{number}", std::process::id()));
        match options.open(&path) {
            // Another machine's process of this number, or one that was killed before its file had no name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (file, path)),
        }
    }
}

/// With which a file ends that processes share.
const MARK: &[u8; 16] = b"regraph: backup\n";

/// Whether a file ends as those do that processes share.
fn is_marked(mut file: &File) -> io::Result<bool> {
    let mut end = [0; MARK.len()];
    let long = file.seek(SeekFrom::End(0))? >= MARK.len() as u64;
    if long {
        file.seek(SeekFrom::End(-(MARK.len() as i64)))?;
        file.read_exact(&mut end)?;
    }
    Ok(end == *MARK)
}

/// Fails where a name is taken by anything but a file of this user's that processes share: that is not replaced.
fn must_be_a_backup(path: &Path) -> io::Result<()> {
    let is_file = match symlink_metadata(path) {
        Ok(there) => there.is_file(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match is_file && is_marked(&open_own(File::options().read(true), path)?)? {
        true => Ok(()),
        false => Err(io::Error::other("it is no backup; remove it, or name another file")),
    }
}

/// Opens a regular file of this user's, made for this user alone where it is new. Whatever else has the name, a pipe or a
/// link included, is refused without a wait, and so is a file of a system without such rights.
#[cfg(unix)]
fn open_own(options: &mut std::fs::OpenOptions, path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = options.mode(0o600).custom_flags(flags.bits() as i32).open(path)?;
    let it = file.metadata()?;
    match it.is_file() && it.uid() == rustix::process::geteuid().as_raw() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file of this user's; name another one")),
    }
}

/// Opens such a file that no other user can write to.
fn open_alone(options: &mut std::fs::OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_own(options, path)?;
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::mode(&file.metadata()?) & 0o022 != 0 {
        return Err(io::Error::other("others may write to it"));
    }
    Ok(file)
}

#[cfg(not(unix))]
fn open_own(options: &mut std::fs::OpenOptions, path: &Path) -> io::Result<File> {
    options.open(path)
}

/// What tells a file from all others of the system while it is open.
fn number_of(file: &std::fs::Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    return Some((
        std::os::unix::fs::MetadataExt::dev(file),
        std::os::unix::fs::MetadataExt::ino(file),
    ));
    #[cfg(not(unix))]
    {
        let _ = file;
        None
    }
}

/// The right to write a file that processes share: a lock on a file beside it, which stays. It goes with the value, or with
/// the process.
#[derive(Debug)]
pub(super) struct Turn(#[allow(dead_code, reason = "it is unlocked when it is closed")] File);

impl Turn {
    /// Waits until no other process writes there, as long as that may take for so many bytes. Fails where it takes longer,
    /// no lock can be had there, or the name is something else's: then what is written is shared with none.
    pub(super) fn wait(path: &Path, bytes: u64) -> io::Result<Self> {
        must_be_a_backup(path)?;
        // A lock on the folder, or on a file of another user's, could be held by that one for ever.
        // `.NAME.lock` beside it.
        let name = path.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
        let mut lock = OsString::from(".");
        lock.push(name);
        lock.push(".lock");
        let lock = path.with_file_name(lock);
        let file = open_alone(File::options().write(true).create(true), &lock)?;
        let patience = PATIENCE + Duration::from_secs(bytes / SLOWEST);
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() < patience => {
                    thread::sleep(PAUSE);
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(io::ErrorKind::TimedOut.into())
                }
                Err(std::fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// So long a process waits for another to write what both may keep,
const PATIENCE: Duration = Duration::from_secs(60);
/// and a second more for so many bytes.
const SLOWEST: u64 = 128 << 20;
/// It looks so often.
const PAUSE: Duration = Duration::from_millis(2);

/// Where contents go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    File,
    Device,
    /// Nowhere: what the device holds is compared with what a file holds.
    Nowhere,
}

/// What goes through a span at once: parts of the device's memory, which lie in a file one behind the other.
#[derive(Debug)]
struct Load<'a> {
    file: &'a BackupFile,
    offset: u64,
    bytes: u64,
    /// Each an address and a size in bytes.
    parts: Vec<(u64, u64)>,
}

/// What goes between the device and files.
#[derive(Debug)]
pub(super) struct Loads<'a> {
    loads: Vec<Load<'a>>,
    toward: Toward,
}

impl<'a> Loads<'a> {
    pub(super) fn new(toward: Toward) -> Self {
        Self { loads: Vec::new(), toward }
    }

    /// The most that goes through a span at once: what is compared needs two places there.
    fn most(&self) -> u64 {
        match self.toward {
            Toward::File | Toward::Device => SLOT,
            Toward::Nowhere => SLOT / 2,
        }
    }

    /// Adds a part of the device's memory, and from where on it lies in a file.
    pub(super) fn add(
        &mut self,
        file: &'a BackupFile,
        mut offset: u64,
        (mut address, mut left): (u64, u64),
    ) {
        while left > 0 {
            let most = self.most();
            let part = left.min(most - offset % most);
            let follows = |load: &&mut Load<'_>| {
                std::ptr::eq(load.file, file) && load.offset + load.bytes == offset
            };
            match self.loads.last_mut().filter(follows) {
                Some(load) if !offset.is_multiple_of(most) => {
                    load.parts.push((address, part));
                    load.bytes += part;
                }
                _ => self.loads.push(Load {
                    file,
                    offset,
                    bytes: part,
                    parts: vec![(address, part)],
                }),
            }
            (offset, address, left) = (offset + part, address + part, left - part);
        }
    }

    /// Copies all, one way, by as many threads as the driver says, and waits for that; false where what is compared differs,
    /// or cannot be read. After that and after an error no more is written or read, and what was given to the stream may be
    /// under way.
    pub(super) fn copy<D: Transfer>(
        &self,
        engine: &Arc<Engine<D>>,
        stream: StreamHandle,
        host: &mut HostMemory,
        call: &'static str,
    ) -> Result<bool, Error> {
        if self.loads.is_empty() {
            return Ok(true);
        }
        let threads = engine.driver().host_threads().clamp(1, self.loads.len());
        let slots = host.slots(engine.driver(), threads);
        let mut slots = slots.map_err(|short| short.told(call, None))?;
        let copy = |slot: &mut HostPlace, number| {
            self.loads[number as usize].copy(engine, stream, *slot, (self.toward, call))
        };
        let mut copied = Ok(true);
        workers::each(&mut slots, self.loads.len() as u64, copy, |done| {
            if matches!(copied, Ok(true)) {
                copied = done;
            }
            matches!(copied, Ok(true))
        });
        copied
    }

    /// Shows what the files hold, part by part and in order: where a part is while `show` runs, and its size.
    pub(super) fn show(
        &self,
        driver: &impl Transfer,
        host: &mut HostMemory,
        call: &'static str,
        mut show: impl FnMut(HostPlace, u64),
    ) -> Result<(), Error> {
        if self.loads.is_empty() {
            return Ok(());
        }
        let slots = host.slots(driver, 1).map_err(|short| short.told(call, None))?;
        for (load, &slot) in self.loads.iter().zip(slots.iter().cycle()) {
            load.read(driver, slot, call)?;
            show(slot, load.bytes);
        }
        Ok(())
    }
}

impl Load<'_> {
    fn read(&self, driver: &impl Transfer, to: HostPlace, call: &'static str) -> Result<(), Error> {
        let read = driver.read_file(&self.file.file, self.offset, to, self.bytes);
        self.file.told(read, "read", call)
    }

    /// Goes one way through a place, where nothing is under way before or after; false where what is compared differs.
    fn copy<D: Transfer>(
        &self,
        engine: &Arc<Engine<D>>,
        stream: StreamHandle,
        place: HostPlace,
        (toward, call): (Toward, &'static str),
    ) -> Result<bool, Error> {
        let driver = engine.driver();
        if toward == Toward::Device {
            self.read(driver, place, call)?;
        }
        let mut at = place;
        for &(address, bytes) in &self.parts {
            match toward {
                Toward::File | Toward::Nowhere => {
                    driver.copy_to_host(at, address, bytes, stream)?;
                }
                Toward::Device => driver.copy_to_device(address, at, bytes, stream)?,
            }
            at = at.after(bytes);
        }
        Event::behind(engine, stream)?.synchronize()?;
        match toward {
            Toward::File => {
                let written = driver.write_file(&self.file.file, self.offset, place, self.bytes);
                self.file.told(written, "written", call)?;
            }
            Toward::Device => {}
            Toward::Nowhere => {
                let there = place.after(SLOT / 2);
                return Ok(self.read(driver, there, call).is_ok()
                    && driver.holds_same(place, there, self.bytes));
            }
        }
        Ok(true)
    }
}
