//! What sleeping regions hold in files.
//!
//! Between the device and a file all goes through a few locked spans of [`SLOT`] bytes, each of which a thread has for
//! itself: it is filled, and emptied before it is filled again. A file has no name, so that no other process finds it,
//! and the system takes its room back when it is closed, also where the process is killed.

use std::fs::{remove_file, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::host::{HostMemory, SLOT};
use super::workers;
use crate::driver::{HostPlace, StreamHandle, Transfer};
use crate::engine::Engine;
use crate::error::{BackupRefusal, Error};
use crate::graphs::Event;

/// A file that keeps what pools of a region held when they went to sleep.
#[derive(Debug)]
pub(super) struct BackupFile {
    file: File,
    folder: Arc<Path>,
    region: Arc<str>,
}

impl BackupFile {
    /// Makes an empty one in a folder, in the name of a call.
    pub(super) fn new(
        folder: &Arc<Path>,
        region: &Arc<str>,
        call: &'static str,
    ) -> Result<Self, Error> {
        let file = unnamed(folder);
        let file = file.map_err(|source| refused(call, "made", (folder, region), source))?;
        Ok(Self { file, folder: folder.clone(), region: region.clone() })
    }

    /// Has the system refuse nothing later of what was written.
    pub(super) fn finish(&self, driver: &impl Transfer, call: &'static str) -> Result<(), Error> {
        self.told(driver.sync_file(&self.file), "written", call)
    }

    fn told(
        &self,
        done: io::Result<()>,
        act: &'static str,
        call: &'static str,
    ) -> Result<(), Error> {
        done.map_err(|source| refused(call, act, (&self.folder, &self.region), source))
    }
}

fn refused(
    call: &'static str,
    act: &'static str,
    (folder, region): (&Arc<Path>, &Arc<str>),
    source: io::Error,
) -> Error {
    let (folder, region) = (folder.clone(), region.clone());
    Error::Backup { call, why: BackupRefusal::File { region, folder, act, source } }
}

/// A new file in a folder, which has no name when this returns, for this user alone.
fn unnamed(folder: &Path) -> io::Result<File> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("regraph-{}-{number}", std::process::id()));
        match options.open(&path) {
            // Another machine's process of this number, or one that was killed between these two calls.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.and_then(|file| remove_file(path).map(|()| file)),
        }
    }
}

/// Where contents go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    File,
    Device,
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
#[derive(Debug, Default)]
pub(super) struct Loads<'a>(Vec<Load<'a>>);

impl<'a> Loads<'a> {
    /// Adds a part of the device's memory, and from where on it lies in a file.
    pub(super) fn add(
        &mut self,
        file: &'a BackupFile,
        mut offset: u64,
        (mut address, mut left): (u64, u64),
    ) {
        while left > 0 {
            let part = left.min(SLOT - offset % SLOT);
            let follows = |load: &&mut Load<'_>| {
                std::ptr::eq(load.file, file) && load.offset + load.bytes == offset
            };
            match self.0.last_mut().filter(follows) {
                Some(load) if !offset.is_multiple_of(SLOT) => {
                    load.parts.push((address, part));
                    load.bytes += part;
                }
                _ => self.0.push(Load { file, offset, bytes: part, parts: vec![(address, part)] }),
            }
            (offset, address, left) = (offset + part, address + part, left - part);
        }
    }

    /// Copies all, one way, by as many threads as the driver says, and waits for that. After an error no more is written or
    /// read, and what was given to the stream may be under way.
    pub(super) fn copy<D: Transfer>(
        &self,
        engine: &Arc<Engine<D>>,
        stream: StreamHandle,
        host: &mut HostMemory,
        (toward, call): (Toward, &'static str),
    ) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let threads = engine.driver().host_threads().clamp(1, self.0.len());
        let slots = host.slots(engine.driver(), threads);
        let mut slots = slots.map_err(|short| short.told(call, None))?;
        let copy = |slot: &mut HostPlace, number| {
            self.0[number as usize].copy(engine, stream, *slot, (toward, call))
        };
        let mut copied = Ok(());
        workers::each(&mut slots, self.0.len() as u64, copy, |done| {
            if copied.is_ok() {
                copied = done;
            }
            copied.is_ok()
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
        if self.0.is_empty() {
            return Ok(());
        }
        let slots = host.slots(driver, 1).map_err(|short| short.told(call, None))?;
        for (load, &slot) in self.0.iter().zip(slots.iter().cycle()) {
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

    /// Goes one way through a place, where nothing is under way before or after.
    fn copy<D: Transfer>(
        &self,
        engine: &Arc<Engine<D>>,
        stream: StreamHandle,
        place: HostPlace,
        (toward, call): (Toward, &'static str),
    ) -> Result<(), Error> {
        let driver = engine.driver();
        if toward == Toward::Device {
            self.read(driver, place, call)?;
        }
        let mut at = place;
        for &(address, bytes) in &self.parts {
            match toward {
                Toward::File => driver.copy_to_host(at, address, bytes, stream)?,
                Toward::Device => driver.copy_to_device(address, at, bytes, stream)?,
            }
            at = at.after(bytes);
        }
        Event::behind(engine, stream)?.synchronize()?;
        if toward == Toward::File {
            let written = driver.write_file(&self.file.file, self.offset, place, self.bytes);
            self.file.told(written, "written", call)?;
        }
        Ok(())
    }
}
