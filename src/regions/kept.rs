//! What live blocks of sleeping pools hold, in memory of the host.
//!
//! Going, all is copied at once, in order, by one stream, and an event stands behind every so many
//! bytes: a piece of the pool is unmapped as soon as what it holds has been copied, while the copies of
//! the next ones go on. Coming, what a piece held is copied as soon as the piece is mapped, while the next
//! ones are mapped. What the host has stays as it is until all has come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::host::{HostMemory, Span};
use super::{Backup, Regions};
use crate::driver::{DriverError, HostPlace, StreamHandle, Transfer};
use crate::engine::{Contents, Engine, PoolId, PoolLabel};
use crate::error::Error;
use crate::graphs::Event;
use crate::heap::Keeper;

/// At most so many bytes are copied between two events.
const CHUNK: u64 = 32 << 20;

/// A part of a pool with its place on the host.
#[derive(Clone, Copy, Debug)]
struct HostCopy {
    address: u64,
    bytes: u64,
    place: HostPlace,
}

impl HostCopy {
    fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// What one pool's live blocks held.
#[derive(Debug, Default)]
pub(super) struct PoolContents {
    /// Ascending and apart.
    chunks: Vec<HostCopy>,
    spans: Vec<Span>,
}

impl PoolContents {
    /// Divides runs of live blocks among spans, which have room for them.
    fn new(live: &[(u64, u64)], spans: Vec<Span>) -> Self {
        let mut chunks = Vec::with_capacity(live.len());
        let mut free = spans.iter().copied();
        let mut here = free.next();
        for &(mut address, mut bytes) in live {
            while let (Some(span), true) = (&mut here, bytes > 0) {
                let (place, part) = span.take(bytes.min(CHUNK));
                if part == 0 {
                    here = free.next();
                    continue;
                }
                chunks.push(HostCopy { address, bytes: part, place });
                (address, bytes) = (address + part, bytes - part);
            }
        }
        Self { chunks, spans }
    }

    /// The chunks that lie in a piece, as far as they do.
    fn within(&self, address: u64, bytes: u64) -> impl Iterator<Item = HostCopy> + '_ {
        let end = address + bytes;
        let first = self.chunks.partition_point(|chunk| chunk.end() <= address);
        let here = self.chunks[first..].iter().take_while(move |chunk| chunk.address < end);
        here.map(move |chunk| {
            let from = chunk.address.max(address);
            let place = chunk.place.after(from - chunk.address);
            HostCopy { address: from, bytes: chunk.end().min(end) - from, place }
        })
    }

    /// Where the parts of a range are, in order, if all of it is kept.
    pub(super) fn places(&self, address: u64, bytes: u64) -> Option<Vec<(HostPlace, u64)>> {
        let mut next = address;
        let mut parts = Vec::new();
        for chunk in self.within(address, bytes) {
            if chunk.address != next {
                return None;
            }
            next = chunk.end();
            parts.push((chunk.place, chunk.bytes));
        }
        (next == address + bytes).then_some(parts)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Gives up where it is kept.
    fn take_spans(&mut self) -> Vec<Span> {
        self.chunks.clear();
        std::mem::take(&mut self.spans)
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
    /// Behind the copies to the host that may be under way: each with the pool and the address up to which
    /// that is copied then.
    under_way: VecDeque<(PoolId, u64, Arc<Event<D>>)>,
    /// Whether copies to the device may be under way.
    coming: bool,
}

impl<D: Transfer> HostCopies<D> {
    pub(super) fn new() -> Self {
        Self {
            kept: BTreeMap::new(),
            retained: BTreeMap::new(),
            host: HostMemory::default(),
            stream: None,
            under_way: VecDeque::new(),
            coming: false,
        }
    }

    pub(super) fn kept(&self, pool: PoolId) -> Option<&PoolContents> {
        self.kept.get(&pool)
    }

    pub(super) fn retained(&self, pool: PoolId) -> Option<&PoolContents> {
        self.retained.get(&pool)
    }

    pub(super) fn host(&mut self) -> &mut HostMemory {
        &mut self.host
    }

    /// Retains what is kept of pools that woke.
    pub(super) fn retain(&mut self, woke: &[PoolId]) {
        let woken = woke.iter().filter_map(|pool| Some((*pool, self.kept.remove(pool)?)));
        self.retained.extend(woken);
    }

    /// Gives up what is kept of the pools that `kept` tells, which nothing copies from or to, and what is retained of
    /// those that `retained` tells.
    pub(super) fn give_up(
        &mut self,
        kept: impl Fn(PoolId) -> bool,
        retained: impl Fn(PoolId) -> bool,
    ) {
        let mut spans = Vec::new();
        let mut stays = |contents: &mut PoolContents, goes: bool| {
            if goes {
                spans.append(&mut contents.take_spans());
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

    pub(super) fn wait(&mut self, engine: &Arc<Engine<D>>) -> Result<(), DriverError> {
        let Some(stream) = self.stream else { return Ok(()) };
        Event::behind(engine, stream)?.synchronize()?;
        self.under_way.clear();
        self.coming = false;
        Ok(())
    }

    /// Takes the stream that copies, with which it is at its end.
    pub(super) fn take_stream(&mut self) -> Option<StreamHandle> {
        self.stream.take()
    }
}

/// Pools on their way.
pub(super) struct Moving<'a, D: Transfer> {
    regions: &'a Regions<D>,
    call: &'static str,
    /// Whose pieces go and come at present.
    pool: Option<PoolId>,
    stream: StreamHandle,
    copies: &'a mut HostCopies<D>,
    /// What is to be done about the pools' contents.
    backups: BTreeMap<PoolId, Backup>,
}

impl<'a, D: Transfer> Moving<'a, D> {
    pub(super) fn new(
        regions: &'a Regions<D>,
        (copies, stream): (&'a mut HostCopies<D>, StreamHandle),
        backups: BTreeMap<PoolId, Backup>,
        call: &'static str,
    ) -> Self {
        Self { regions, call, pool: None, stream, copies, backups }
    }

    /// Copies what a pool's live blocks hold to the host.
    fn copy(&mut self, pool: &PoolLabel, live: &[(u64, u64)]) -> Result<(), Error> {
        let driver = self.regions.engine().driver();
        if let Some(mut old) = self.copies.kept.remove(&pool.id) {
            // Of a call that failed. What it still copies there comes first on the same stream.
            self.copies.under_way.retain(|&(of, ..)| of != pool.id);
            self.copies.host.put_back(old.take_spans());
        }
        let bytes = live.iter().map(|(_, bytes)| bytes).sum();
        // Rarely more than is locked by now: what was allocated since.
        let spans = self.copies.host.take(driver, bytes);
        let spans = spans.map_err(|short| short.told(self.call, Some(pool.clone())))?;
        // From here on the spans go with what is kept in them, also if copies fail.
        let kept = self.copies.kept.entry(pool.id).or_default();
        *kept = PoolContents::new(live, spans);
        let (mut behind, last) = (0, kept.chunks.len());
        for (number, chunk) in kept.chunks.iter().enumerate() {
            driver.copy_to_host(chunk.place, chunk.address, chunk.bytes, self.stream)?;
            behind += chunk.bytes;
            if behind >= CHUNK || number + 1 == last {
                let event = Event::behind(self.regions.engine(), self.stream)?;
                self.copies.under_way.push_back((pool.id, chunk.end(), event));
                behind = 0;
            }
        }
        Ok(())
    }
}

impl<D: Transfer> Contents for Moving<'_, D> {
    fn number(&self) -> u64 {
        self.regions.number
    }

    fn turn_to(&mut self, pool: PoolId) {
        self.pool = Some(pool);
    }

    fn begin(&mut self, pool: &PoolLabel, live: &[(u64, u64)]) -> Result<(), Error> {
        match self.backups.get(&pool.id) {
            Some(Backup::None) => Ok(()),
            _ => self.copy(pool, live),
        }
    }

    fn finish(&mut self) -> Result<(), DriverError> {
        match self.copies.coming || !self.copies.under_way.is_empty() {
            true => self.copies.wait(self.regions.engine()),
            false => Ok(()),
        }
    }
}

impl<D: Transfer> Keeper for Moving<'_, D> {
    fn leaving(&mut self, address: u64, bytes: u64) -> Result<(), DriverError> {
        if self.copies.coming {
            self.finish()?;
        }
        let Some((pool, kept)) =
            self.pool.and_then(|pool| Some((pool, self.copies.kept.get(&pool)?)))
        else {
            return Ok(());
        };
        let Some(last) = kept.within(address, bytes).last() else { return Ok(()) };
        let up_to = last.end();
        let copied = |(of, to, _): &(PoolId, u64, _)| *of == pool && *to >= up_to;
        let Some(which) = self.copies.under_way.iter().position(copied) else { return Ok(()) };
        self.copies.under_way[which].2.synchronize()?;
        self.copies.under_way.drain(..=which);
        Ok(())
    }

    fn came(&mut self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let driver = self.regions.engine().driver();
        let kept = self.pool.and_then(|pool| self.copies.kept.get(&pool));
        for chunk in kept.into_iter().flat_map(|kept| kept.within(address, bytes)) {
            self.copies.coming = true;
            driver.copy_to_device(chunk.address, chunk.place, chunk.bytes, self.stream)?;
        }
        Ok(())
    }
}
