//! What live blocks of sleeping pools hold, in memory of the host or in files (design/sleep-and-lend.md, "Copies").
//!
//! One stream copies to memory of the host, in order, and an event stands behind every so many bytes: a piece is
//! unmapped as soon as what it holds has been copied. What is kept stays as it is until all has come.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::Arc;

use super::files::{BackupFile, Draft, Loads, Toward, Turn};
use super::host::{HostMemory, Span};
use super::Backup;
use crate::driver::{DriverError, HostPlace, StreamHandle, Transfer};
use crate::engine::{Contents, Engine, Held, PoolId};
use crate::error::Error;
use crate::graphs::Event;
use crate::heap::Keeper;
use crate::logging::Level;

/// At most so many bytes are copied between two events.
const CHUNK: u64 = 32 << 20;

/// A part of a pool that is kept.
#[derive(Clone, Copy, Debug)]
struct KeptPart {
    address: u64,
    bytes: u64,
    /// Where it is: the host's address, or how far behind the beginning of the pool's file.
    at: u64,
}

impl KeptPart {
    fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// What one pool's live blocks held.
#[derive(Debug, Default)]
struct PoolContents {
    /// Ascending and apart.
    chunks: Vec<KeptPart>,
    /// The file that they are in; none where they are in memory of the host.
    file: Option<Arc<BackupFile>>,
    /// Of that memory.
    spans: Vec<Span>,
}

impl PoolContents {
    /// The chunks that lie in a piece, as far as they do.
    fn within(&self, address: u64, bytes: u64) -> impl Iterator<Item = KeptPart> + '_ {
        let end = address + bytes;
        let first = self.chunks.partition_point(|chunk| chunk.end() <= address);
        let here = self.chunks[first..].iter().take_while(move |chunk| chunk.address < end);
        here.map(move |chunk| {
            let from = chunk.address.max(address);
            let at = chunk.at + (from - chunk.address);
            KeptPart { address: from, bytes: chunk.end().min(end) - from, at }
        })
    }

    /// The parts of a range that are in memory of the host, with their addresses and sizes; those in a file go to `loads`.
    fn sort<'a>(
        &'a self,
        (address, bytes): (u64, u64),
        loads: &mut Loads<'a>,
    ) -> Vec<(HostPlace, (u64, u64))> {
        let mut here = Vec::new();
        for KeptPart { address, bytes, at } in self.within(address, bytes) {
            match &self.file {
                Some(file) => loads.add(file, at, (address, bytes)),
                None => here.push((HostPlace(at as usize), (address, bytes))),
            }
        }
        here
    }

    /// Whether all of a range is kept.
    fn has(&self, (address, bytes): (u64, u64)) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut parts = self.within(address, bytes);
        let follows = |next, part: KeptPart| (part.address == next).then(|| part.end());
        parts.try_fold(address, follows) == Some(end)
    }
}

/// What the host keeps of pools, and the copies that it comes and goes by.
pub(super) struct HostCopies<D: Transfer> {
    kept: BTreeMap<PoolId, PoolContents>,
    /// What was kept of pools that are awake: no copy to the device ever reads it.
    retained: BTreeMap<PoolId, PoolContents>,
    host: HostMemory,
    /// Copies and nothing else; made with the first sleep.
    stream: Option<StreamHandle>,
    /// Behind the copies to the host that may be under way, in order: each with the pool, and the address from which on
    /// that is copied since the one before it.
    under_way: VecDeque<(PoolId, u64, Arc<Event<D>>)>,
}

impl<D: Transfer> HostCopies<D> {
    pub(super) fn new() -> Self {
        Self {
            kept: BTreeMap::new(),
            retained: BTreeMap::new(),
            host: HostMemory::default(),
            stream: None,
            under_way: VecDeque::new(),
        }
    }

    /// Shows what is kept of a range of a pool that is asleep, or retained of one that is awake, part by part; false where
    /// that is not all of it.
    pub(super) fn show(
        &mut self,
        driver: &D,
        (pool, asleep): (PoolId, bool),
        range: (u64, u64),
        mut show: impl FnMut(HostPlace, u64),
    ) -> Result<bool, Error> {
        let contents = if asleep { &self.kept } else { &self.retained }.get(&pool);
        let Some(contents) = contents.filter(|contents| contents.has(range)) else {
            return Ok(false);
        };
        let mut loads = Loads::new(Toward::Device);
        let here = contents.sort(range, &mut loads);
        here.into_iter().for_each(|(place, (_, bytes))| show(place, bytes));
        loads.show(driver, &mut self.host, "show_kept", show)?;
        Ok(true)
    }

    /// What is kept and retained of each pool in memory of the host, and in files, in bytes.
    pub(super) fn bytes(&self) -> BTreeMap<PoolId, (u64, u64)> {
        let mut all: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        for (&pool, contents) in self.kept.iter().chain(&self.retained) {
            let (host, files) = all.entry(pool).or_default();
            let sum = if contents.file.is_some() { files } else { host };
            *sum += contents.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>();
        }
        all
    }

    pub(super) fn host(&mut self) -> &mut HostMemory {
        &mut self.host
    }

    /// Retains what is kept of pools that woke.
    pub(super) fn retain(&mut self, woke: &[PoolId]) {
        let woken = woke.iter().filter_map(|pool| Some((*pool, self.kept.remove(pool)?)));
        self.retained.extend(woken);
    }

    /// Gives up what is kept of the pools that `kept` tells, and what is retained of those that `retained` tells. Nothing
    /// copies from or to that; or it comes first on the same stream, where a call that failed has kept it.
    pub(super) fn give_up(
        &mut self,
        kept: impl Fn(PoolId) -> bool,
        retained: impl Fn(PoolId) -> bool,
    ) {
        let mut spans = Vec::new();
        let mut stays = |contents: &mut PoolContents, goes: bool| {
            if goes {
                spans.append(&mut contents.spans);
            }
            !goes
        };
        self.kept.retain(|&pool, contents| stays(contents, kept(pool)));
        self.retained.retain(|&pool, contents| stays(contents, retained(pool)));
        self.host.put_back(spans);
    }

    pub(super) fn stream(&mut self, driver: &D) -> Result<StreamHandle, DriverError> {
        match self.stream {
            Some(stream) => Ok(stream),
            None => Ok(*self.stream.insert(driver.create_stream()?)),
        }
    }

    /// Waits for all copies that were begun.
    pub(super) fn wait(&mut self, engine: &Arc<Engine<D>>) -> Result<(), DriverError> {
        let Some(stream) = self.stream else { return Ok(()) };
        Event::behind(engine, stream)?.synchronize()?;
        self.under_way.clear();
        Ok(())
    }

    /// Takes the stream that copies, with which it is at its end.
    pub(super) fn take_stream(&mut self) -> Option<StreamHandle> {
        self.stream.take()
    }
}

/// What has no place on the host yet, in order: of which pool it is, its address, and its size in bytes.
type Unplaced<'a> = VecDeque<(&'a Held, u64, u64)>;

/// The first pool of which something has no place, with how many bytes that is.
fn first_of<'a>(unplaced: &Unplaced<'a>) -> Option<(&'a Held, u64)> {
    let &(first, ..) = unplaced.front()?;
    let of_first = unplaced.iter().take_while(|(held, ..)| ptr::eq(*held, first));
    Some((first, of_first.map(|(.., bytes)| bytes).sum()))
}

/// What goes into a file of a region.
struct Filed<'a> {
    backup: &'a Backup,
    /// How much it is, in bytes.
    end: u64,
    kept: Vec<(PoolId, PoolContents)>,
}

/// Pools that move.
pub(super) struct Moving<'a, D: Transfer> {
    engine: &'a Arc<Engine<D>>,
    /// Whose pieces go and come at present.
    pool: Option<PoolId>,
    stream: StreamHandle,
    copies: &'a mut HostCopies<D>,
    /// In whose name errors are told.
    call: &'static str,
    /// How many of the copies that are under way the next piece goes after.
    awaited: usize,
    /// Pieces that came, and that nothing was copied to yet.
    came: Vec<(PoolId, u64, u64)>,
}

impl<'a, D: Transfer> Moving<'a, D> {
    pub(super) fn new(
        engine: &'a Arc<Engine<D>>,
        copies: &'a mut HostCopies<D>,
        stream: StreamHandle,
        call: &'static str,
    ) -> Self {
        Self { engine, pool: None, stream, copies, call, awaited: 0, came: Vec::new() }
    }

    /// Copies what pools hold into files, as the backups beside them say, one file for a region; returns when all is there.
    /// After an error copies may be under way.
    pub(super) fn file(&mut self, pools: &[(Held, Backup)]) -> Result<(), Error> {
        let mut regions: BTreeMap<Arc<str>, Filed<'_>> = BTreeMap::new();
        self.copies.give_up(|pool| pools.iter().any(|(held, _)| held.pool().id == pool), |_| false);
        for (held, backup) in pools.iter().filter(|(held, _)| !held.runs().is_empty()) {
            let region = held.pool().tag.clone().unwrap_or_default();
            let filed =
                regions.entry(region).or_insert_with(|| Filed { backup, end: 0, kept: Vec::new() });
            let mut contents = PoolContents::default();
            for &(address, bytes) in held.runs() {
                contents.chunks.push(KeptPart { address, bytes, at: filed.end });
                filed.end += bytes;
            }
            filed.kept.push((held.pool().id, contents));
        }
        let mut kept = Vec::with_capacity(pools.len());
        for (region, mut filed) in regions {
            self.file_region(&region, &mut filed)?;
            kept.append(&mut filed.kept);
        }
        self.copies.kept.extend(kept);
        Ok(())
    }

    /// Copies what pools of one region hold into a file, or has another process's file keep it, which holds the same.
    fn file_region(&mut self, region: &Arc<str>, filed: &mut Filed<'_>) -> Result<(), Error> {
        let backup = filed.backup;
        let mut found = BackupFile::shared(backup, region).map(Arc::new);
        if let Some(found) = &found {
            if self.pass(filed, found, Toward::Nowhere)? {
                return Ok(());
            }
        }
        // One process at a time writes; what it has written meanwhile may be what this one would.
        let mut turn = match backup {
            Backup::Shared(path) => Turn::wait(path, filed.end)
                .inspect_err(|why| {
                    self.engine.tell(Level::Warn, || {
                        let path = path.display();
                        format!("region {region} shares no file: no turn to write {path} was had: {why}")
                    });
                })
                .ok(),
            _ => None,
        };
        let latest = BackupFile::shared(backup, region)
            .filter(|latest| found.as_ref().is_none_or(|found| !latest.is(found)));
        if let Some(latest) = latest {
            turn = None;
            let latest = found.insert(Arc::new(latest));
            if self.pass(filed, latest, Toward::Nowhere)? {
                return Ok(());
            }
        }
        let draft = Draft::new(backup, region, turn.is_some(), self.call)?;
        self.pass(filed, draft.file(), Toward::File)?;
        draft.finish(self.engine.driver(), self.call)
    }

    /// Has a file keep what pools hold, and writes it there, or compares both. Whether it holds that then.
    fn pass(
        &mut self,
        filed: &mut Filed<'_>,
        file: &Arc<BackupFile>,
        toward: Toward,
    ) -> Result<bool, Error> {
        let mut loads = Loads::new(toward);
        filed.kept.iter_mut().for_each(|(_, contents)| contents.file = Some(file.clone()));
        for (_, contents) in &filed.kept {
            contents.sort((0, u64::MAX), &mut loads);
        }
        loads.copy(self.engine, self.stream, &mut self.copies.host, self.call)
    }

    /// Copies what pools hold to memory of the host, each as soon as there is a place: while pages are locked, what has
    /// one is copied. Waits for no copy; after an error copies may be under way.
    pub(super) fn copy(&mut self, pools: &[Held]) -> Result<(), Error> {
        let (engine, stream, call) = (self.engine, self.stream, self.call);
        let driver = engine.driver();
        self.copies.give_up(|pool| pools.iter().any(|held| held.pool().id == pool), |_| false);
        let HostCopies { kept, host, under_way, .. } = &mut *self.copies;
        let runs = |held| Held::runs(held).iter().map(move |&(at, bytes)| (held, at, bytes));
        let mut unplaced: Unplaced<'_> = pools.iter().flat_map(runs).collect();
        // Begins the copies of all that has a place by now.
        let mut fill = |host: &mut HostMemory, unplaced: &mut Unplaced<'_>| {
            while let Some((held, mut left)) = first_of(unplaced) {
                let Some(mut span) = host.take(left) else { break };
                // From here on the span goes with what is kept in it, also if copies fail.
                let contents = kept.entry(held.pool().id).or_default();
                contents.spans.push(span);
                let (mut from, mut behind) = (0, 0);
                while left > 0 && !span.is_empty() {
                    let Some((_, next, rest)) = unplaced.front_mut() else { break };
                    let (place, bytes) = span.take((*rest).min(CHUNK));
                    let chunk = KeptPart { address: *next, bytes, at: place.0 as u64 };
                    driver.copy_to_host(place, chunk.address, bytes, stream)?;
                    contents.chunks.push(chunk);
                    from = if behind == 0 { chunk.address } else { from };
                    (*next, *rest) = (*next + bytes, *rest - bytes);
                    if *rest == 0 {
                        unplaced.pop_front();
                    }
                    (left, behind) = (left - bytes, behind + bytes);
                    if behind >= CHUNK || span.is_empty() || left == 0 {
                        let event = Event::behind(engine, stream)?;
                        under_way.push_back((held.pool().id, from, event));
                        behind = 0;
                    }
                }
            }
            Ok::<(), DriverError>(())
        };
        fill(host, &mut unplaced)?;
        let pools =
            unplaced.make_contiguous().chunk_by(|(one, ..), (next, ..)| ptr::eq(*one, *next));
        let missing =
            pools.map(|runs| HostMemory::needed(runs.iter().map(|run| run.2).sum())).sum();
        if missing == 0 {
            return Ok(());
        }
        let mut copied = Ok(());
        let locked = host.allocate(driver, missing, |host| {
            // Slabs that other threads had begun come behind an error too, which stands.
            if copied.is_ok() {
                copied = fill(host, &mut unplaced);
            }
            copied.is_ok()
        });
        copied?;
        locked.map_err(|short| {
            short.told(call, first_of(&unplaced).map(|(held, _)| held.pool().clone()))
        })?;
        debug_assert!(unplaced.is_empty(), "all has a place");
        Ok(())
    }
}

impl<D: Transfer> Contents for Moving<'_, D> {
    fn turn_to(&mut self, pool: PoolId) {
        self.pool = Some(pool);
    }

    fn advance(&mut self) -> Result<(), Error> {
        if let Some(last) = std::mem::take(&mut self.awaited).checked_sub(1) {
            self.copies.under_way[last].2.synchronize()?;
            self.copies.under_way.drain(..=last);
        }
        let driver = self.engine.driver();
        let HostCopies { kept, host, .. } = &mut *self.copies;
        let mut loads = Loads::new(Toward::Device);
        for (pool, address, bytes) in self.came.drain(..) {
            let Some(kept) = kept.get(&pool) else { continue };
            for (place, (address, bytes)) in kept.sort((address, bytes), &mut loads) {
                driver.copy_to_device(address, place, bytes, self.stream)?;
            }
        }
        loads.copy(self.engine, self.stream, host, self.call).map(|_| ())
    }

    fn finish(&mut self) -> Result<(), DriverError> {
        self.copies.wait(self.engine)
    }
}

impl<D: Transfer> Keeper for Moving<'_, D> {
    fn may_leave(&mut self, address: u64, bytes: u64) -> bool {
        let kept = self.pool.and_then(|pool| Some((pool, self.copies.kept.get(&pool)?)));
        let Some((pool, kept)) = kept else { return true };
        let Some(last) = kept.within(address, bytes).last() else { return true };
        let reads = |(of, from, _): &(PoolId, u64, _)| *of == pool && *from < last.end();
        self.awaited = self.copies.under_way.iter().rposition(reads).map_or(0, |last| last + 1);
        self.awaited == 0
    }

    fn came(&mut self, address: u64, bytes: u64) {
        self.came.extend(self.pool.map(|pool| (pool, address, bytes)));
    }
}
