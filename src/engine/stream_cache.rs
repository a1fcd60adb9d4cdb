//! Stream caches: blocks that a stream gets back at once, without the engine's lock. What is freed goes on the list of
//! its exact size, and is handed out again from there under a new name. This is the one rule, and it asks for no more:
//!
//! 1. the block was handed out to this stream, and no other was recorded for it;
//! 2. the stream did not capture when the block was freed, so no graph holds its use;
//! 3. the stream does not capture now, so the new work is submitted, not recorded.
//!
//! A stream cache *leases* places from the engine's tables: there a leased block stays allocated, under
//! one number, until the stream cache gives it back.

use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(debug_assertions)]
use super::figures::Amounts;
use super::figures::{cached, class, live, Counters, Peaks, SPLIT, SPLIT_BYTES};
use super::heard::{Hearing, Numbers};
use super::history::{Asked, EventKind, Frames, Ring};
use super::names::{BlockId, PoolId};
use super::report::Block;
use super::streams::this_thread;
use crate::driver::{Driver, StreamHandle};
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, times, Verdict};
use crate::heap::{is_small, reach};
use crate::index::{Map, Table};
use crate::layout::Demand;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Rank};

/// What blocks must have in common to stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    stream: StreamHandle,
    pool: PoolId,
    bytes: u64,
}

impl Key {
    /// The class that its blocks are counted in.
    #[inline(always)]
    fn class(&self) -> usize {
        class(is_small(self.bytes))
    }
}

/// The blocks of one key.
#[derive(Debug)]
struct Bucket {
    key: Key,
    /// Rows that can be handed out.
    cached: Vec<u32>,
    /// How many rows are of this key.
    members: usize,
    /// Whether it stands among those touched.
    touched: bool,
    /// The thread that the stream belongs to: the last that named it to the engine.
    thread: usize,
}

#[derive(Debug, Default)]
struct PoolBuckets {
    all: Vec<u32>,
    /// Those that had something to hand out since leases were last taken back.
    touched: Vec<u32>,
}

/// So many sizes are kept: their tables are at hand when the size is asked for again.
const KEPT_SIZES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowState {
    Vacant,
    Cached,
    Live,
    /// Live, and not to be handed out again from here: its pool was suspended.
    Barred,
    /// Live, and not to be handed out again from here: its stream was retired, and the key may name another one.
    Retired,
}

/// A leased place.
#[derive(Debug)]
struct LeaseRow {
    state: RowState,
    /// Tells uses of the place apart.
    number: u64,
    address: u64,
    bucket: u32,
    lease: CacheLease,
}

impl LeaseRow {
    fn is_live(&self) -> bool {
        matches!(self.state, RowState::Live | RowState::Barred | RowState::Retired)
    }
}

/// A lease, with what was asked for under it and which streams use that.
#[derive(Debug)]
pub(super) struct CacheLease {
    /// The engine's row of the block.
    pub(super) row: u32,
    /// What was asked for last.
    pub(super) asked: Asked,
    /// Streams that were recorded for it.
    pub(super) uses: SmallVec<[StreamHandle; 2]>,
}

/// The leases of some streams.
#[derive(Debug)]
pub(super) struct StreamCache {
    engine: u32,
    number: u32,
    rows: Table<LeaseRow>,
    buckets: Table<Bucket>,
    by_key: Map<Key, u32>,
    /// Where there are more sizes than this, those are searched for that nothing is left of.
    most_sizes: usize,
    /// By the row of their pool.
    by_pool: Vec<PoolBuckets>,
    /// The bucket that was used last.
    latest: u32,
    counted: Counters,
    next: u64,
    hearing: Hearing,
    pub(super) history: Option<Box<Ring>>,
}

/// What became of a block that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// It can be handed out again; of a pool with this row the allowance is exceeded, if of any.
    Done { over: Option<usize> },
    /// It is not for the stream cache to decide.
    Undecided,
    /// There is no such live block.
    Unknown,
}

/// What a stream cache gives up at a time of what it had cached, by the engine's rows: mostly one block.
pub(super) type Leases = SmallVec<[u32; 4]>;

impl StreamCache {
    fn new(engine: u32, number: u32, hearing: Hearing) -> Self {
        Self {
            engine,
            number,
            rows: Table::default(),
            buckets: Table::default(),
            by_key: Map::default(),
            most_sizes: KEPT_SIZES,
            by_pool: Vec::new(),
            latest: 0,
            counted: Counters::default(),
            next: 0,
            hearing,
            history: None,
        }
    }

    read!(number: u32);

    /// Hands out a block of so many bytes that the stream gave back, if there is one. Says of a pool with which row the
    /// allowance is exceeded by that, if of any. With `within` only what exceeds none.
    #[inline]
    pub(super) fn take(
        &mut self,
        driver: &impl Driver,
        (pool, bytes): (PoolId, u64),
        asked: &mut Asked,
        within: bool,
    ) -> Option<(Block, Option<usize>)> {
        let Asked { requested, stream, .. } = *asked;
        let key = Key { stream, pool, bytes };
        let number = self.bucket(key)?;
        let bucket = &mut self.buckets[number as usize];
        let slot = *bucket.cached.last()?;
        if bucket.thread != this_thread() {
            // The engine notes that the stream has passed to another thread.
            return None;
        }
        let class = key.class();
        if within && !self.counted.get(pool.row()).can_add(class, live(bytes, requested)) {
            return None;
        }
        if !matches!(driver.is_capturing(stream), Ok(false)) {
            return None;
        }
        bucket.cached.pop();
        self.next += 1;
        let id = self.id(slot, self.next);
        let row = &mut self.rows[slot as usize];
        debug_assert!(row.state == RowState::Cached && row.lease.uses.is_empty());
        row.state = RowState::Live;
        row.number = self.next;
        row.lease.asked = asked.take();
        let block = Block { id, address: row.address, bytes: requested };
        self.hearing.note(Demand::Allocate { block: id.number(), bytes, stream });
        if let Some(history) = &mut self.history {
            let place = (block.address, requested);
            history.push(EventKind::Allocate, place, stream, pool, row.lease.asked.frames.clone());
        }
        let counter = self.counted.rise(pool.row());
        counter.take_from(class, cached(bytes));
        let within = counter.raise(class, live(bytes, requested));
        Some((block, (!within).then(|| pool.row())))
    }

    /// Takes a block back, if nothing but its own stream's order decides who may have it next. With `within`
    /// only where that is no new peak; with `from` only if that is its stream.
    #[inline]
    pub(super) fn give(
        &mut self,
        driver: &impl Driver,
        id: BlockId,
        from: Option<StreamHandle>,
        within: bool,
    ) -> Given {
        let Some(row) = self.rows.get_mut(id.slot as usize) else { return Given::Unknown };
        let named = id.number == name(self.number, row.number);
        if row.state != RowState::Live || !named {
            return if named && row.is_live() { Given::Undecided } else { Given::Unknown };
        }
        if !row.lease.uses.is_empty() {
            return Given::Undecided;
        }
        let bucket = &mut self.buckets[row.bucket as usize];
        let key @ Key { stream, bytes, .. } = bucket.key;
        if from.is_some_and(|from| from != stream) {
            return Given::Undecided;
        }
        let (pool, class) = (key.pool.row(), key.class());
        if within && !self.counted.get(pool).can_add(class, cached(bytes)) {
            return Given::Undecided;
        }
        if !matches!(driver.is_capturing(stream), Ok(false)) {
            return Given::Undecided;
        }
        row.state = RowState::Cached;
        let Asked { requested, ref mut frames, .. } = row.lease.asked;
        let frames = frames.take();
        bucket.cached.push(id.slot);
        if !bucket.touched {
            bucket.touched = true;
            self.by_pool[pool].touched.push(row.bucket);
        }
        self.latest = row.bucket;
        self.hearing.note(Demand::Free { block: id.number() });
        if let Some(history) = &mut self.history {
            let (place, frames) = ((row.address, requested), Frames::given_or(frames));
            history.push(EventKind::FreeCompleted, place, stream, key.pool, frames);
        }
        let counter = self.counted.rise(pool);
        counter.take_from(class, live(bytes, requested));
        let within = counter.raise(class, cached(bytes));
        Given::Done { over: (!within).then_some(pool) }
    }

    /// Records a stream for a block, with `last` for the last time. `None` where there is no such live block.
    pub(super) fn record_stream(
        &mut self,
        id: BlockId,
        stream: StreamHandle,
        last: bool,
    ) -> Option<()> {
        self.live(id)?;
        let row = &mut self.rows[id.slot as usize];
        let own = self.buckets[row.bucket as usize].key.stream;
        let other = stream != own || row.state == RowState::Retired;
        if other && !row.lease.uses.contains(&stream) {
            row.lease.uses.push(stream);
        }
        self.hearing.note(Demand::Use { block: id.number(), stream, last });
        Some(())
    }

    /// Whether a stream was recorded for a live block.
    pub(super) fn names(&self, stream: StreamHandle) -> bool {
        self.rows.iter().any(|row| row.is_live() && row.lease.uses.contains(&stream))
    }

    /// Notes that a stream has passed to the calling thread.
    pub(super) fn assign(&mut self, stream: StreamHandle) {
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.key.stream == stream) {
            bucket.thread = this_thread();
        }
    }

    pub(super) fn live(&self, id: BlockId) -> Option<&CacheLease> {
        let row = self.rows.get(id.slot as usize)?;
        let named = id.engine == self.engine && id.number == name(self.number, row.number);
        (named && row.is_live()).then_some(&row.lease)
    }

    /// Takes a place on lease, for a block that is handed out now, and names it. Says whether it still counts no more
    /// than it is allowed.
    pub(super) fn enroll(
        &mut self,
        lease: CacheLease,
        pool: PoolId,
        (address, bytes): (u64, u64),
    ) -> (BlockId, bool) {
        let Asked { requested, stream, .. } = lease.asked;
        let key = Key { stream, pool, bytes };
        let bucket = self.bucket(key).unwrap_or_else(|| self.add_bucket(key));
        self.buckets[bucket as usize].members += 1;
        self.latest = bucket;
        self.next += 1;
        let row = LeaseRow { state: RowState::Live, number: self.next, address, bucket, lease };
        let slot = self.rows.enter(row);
        // The engine counts it as left over, in bytes alone.
        let counter = self.counted.rise(pool.row());
        counter.take_from(key.class(), [(SPLIT_BYTES, bytes as i64)]);
        let within = counter.raise(key.class(), live(bytes, requested));
        let id = self.id(slot, self.next);
        self.hearing.note(Demand::Allocate { block: id.number(), bytes, stream });
        (id, within)
    }

    pub(super) fn counters(&mut self) -> &mut Counters {
        &mut self.counted
    }

    /// Lets no live block of a stream be handed out again from here: the stream is about to go. Returns what
    /// [`StreamCache::keep`] takes where it does not.
    pub(super) fn retire(&mut self, stream: StreamHandle) -> Vec<(u32, RowState)> {
        let own = |row: &LeaseRow| self.buckets[row.bucket as usize].key.stream == stream;
        let rows = self.rows.iter_mut().zip(0..).filter(|(row, _)| row.is_live() && own(row));
        let retire = |row: &mut LeaseRow| std::mem::replace(&mut row.state, RowState::Retired);
        rows.map(|(row, slot)| (slot, retire(row))).collect()
    }

    /// Has live blocks be again what they were before [`StreamCache::retire`]. The engine's lock was held since.
    pub(super) fn keep(&mut self, retired: Vec<(u32, RowState)>) {
        retired.into_iter().for_each(|(slot, state)| self.rows[slot as usize].state = state);
    }

    /// Forgets the sizes of a stream that is gone, but for those of its live blocks, which go with these.
    pub(super) fn forget_stream(&mut self, stream: StreamHandle) {
        self.drop_empty(|key| key.stream == stream);
    }

    /// Hands nothing of a pool out again, and gives up what is cached: the pool is about to be suspended.
    pub(super) fn bar(&mut self, pool: PoolId) -> Leases {
        for row in self.rows.iter_mut().filter(|row| row.state == RowState::Live) {
            if self.buckets[row.bucket as usize].key.pool == pool {
                row.state = RowState::Barred;
            }
        }
        self.drain(Some(pool), |_, _| true)
    }

    /// Gives up a live block that is freed now. Says whether it still counts no more than it is allowed.
    pub(super) fn give_up(&mut self, id: BlockId) -> Option<(CacheLease, bool)> {
        let requested = self.live(id)?.asked.requested;
        let row = &self.rows[id.slot as usize];
        let key @ Key { pool, bytes, .. } = self.buckets[row.bucket as usize].key;
        let counter = self.counted.change(pool.row());
        counter.take_from(key.class(), live(bytes, requested));
        let within = counter.add(key.class(), [(SPLIT_BYTES, bytes as i64)]);
        let (number, retired) = (row.bucket, row.state == RowState::Retired);
        self.hearing.note(Demand::Free { block: id.number() });
        let row = vacate(&mut self.rows, id.slot);
        self.buckets[number as usize].members -= 1;
        let CacheLease { asked, uses, .. } = &mut self.rows[id.slot as usize].lease;
        let lease = CacheLease { row, asked: asked.take(), uses: std::mem::take(uses) };
        if retired && self.buckets[number as usize].members == 0 {
            // No request names its stream again.
            self.drop_empty(|it| *it == key);
        }
        Some((lease, within))
    }

    /// Gives up every live block of a pool, whose host has lost them all at once. Says whether it still counts no more
    /// than it is allowed.
    pub(super) fn give_up_live(&mut self, pool: PoolId) -> (Vec<(BlockId, CacheLease)>, bool) {
        let of_pool =
            |row: &LeaseRow| row.is_live() && self.buckets[row.bucket as usize].key.pool == pool;
        let rows = self.rows.iter().zip(0..).filter(|(row, _)| of_pool(row));
        let live: Vec<BlockId> = rows.map(|(row, slot)| self.id(slot, row.number)).collect();
        let mut all_within = true;
        let mut give_up = |id: BlockId| {
            let (lease, within) = self.give_up(id)?;
            all_within &= within;
            Some((id, lease))
        };
        (live.into_iter().filter_map(&mut give_up).collect(), all_within)
    }

    /// Gives up what can be handed out, of one pool or of all, and is of such a stream and class.
    pub(super) fn drain(
        &mut self,
        pool: Option<PoolId>,
        wanted: impl Fn(StreamHandle, bool) -> bool,
    ) -> Leases {
        let mut leases = Leases::new();
        let rows = pool.map_or(0..self.by_pool.len(), |pool| pool.row()..pool.row() + 1);
        rows.for_each(|row| self.drain_pool(row, &wanted, &mut leases));
        if self.by_key.len() > self.most_sizes {
            self.drop_empty(|_| true);
            // As many come before the next search as this one has met: it costs each of them a constant.
            self.most_sizes = KEPT_SIZES.max(2 * self.by_key.len());
        }
        leases
    }

    fn drain_pool(
        &mut self,
        row: usize,
        wanted: &impl Fn(StreamHandle, bool) -> bool,
        leases: &mut Leases,
    ) {
        let Some(of_pool) = self.by_pool.get_mut(row) else { return };
        let mut touched = std::mem::take(&mut of_pool.touched);
        touched.retain(|&number| {
            let bucket = &mut self.buckets[number as usize];
            let Key { stream, bytes, .. } = bucket.key;
            if !wanted(stream, is_small(bytes)) {
                return true;
            }
            bucket.touched = false;
            bucket.members -= bucket.cached.len();
            let count = bucket.cached.len() as i64;
            self.counted.change(row).take_from(bucket.key.class(), [(SPLIT, count)]);
            while let Some(slot) = bucket.cached.pop() {
                leases.push(vacate(&mut self.rows, slot));
            }
            false
        });
        self.by_pool[row].touched = touched;
    }

    /// Forgets a pool that is gone: its row will be another's.
    pub(super) fn forget_pool<'a>(
        &mut self,
        pool: PoolId,
        peaks: impl FnOnce() -> MutexGuard<'a, Peaks>,
    ) {
        let Some(of_pool) = self.by_pool.get_mut(pool.row()) else { return };
        of_pool.touched.clear();
        let numbers = std::mem::take(&mut of_pool.all);
        for number in numbers {
            let bucket = &self.buckets[number as usize];
            debug_assert!(bucket.members == 0, "a pool with blocks is not gone");
            self.by_key.remove(&bucket.key);
            self.buckets.vacate(number);
        }
        self.latest = u32::MAX;
        self.counted.forget_pool(pool.row(), &mut peaks());
    }

    /// Forgets such keys of which nothing is left.
    fn drop_empty(&mut self, unwanted: impl Fn(&Key) -> bool) {
        let Self { by_key, by_pool, buckets, latest, .. } = self;
        let goes = |number: u32| {
            let bucket = &buckets[number as usize];
            bucket.members == 0 && unwanted(&bucket.key)
        };
        let mut gone = Vec::new();
        for of_pool in by_pool {
            gone.extend(of_pool.all.extract_if(.., |number| goes(*number)));
            of_pool.touched.retain(|&number| !goes(number));
        }
        by_key.retain(|_, &mut number| !goes(number));
        gone.into_iter().for_each(|number| buckets.vacate(number));
        *latest = u32::MAX;
    }

    /// Everything leased, with its name, and whether it was freed and can be handed out again.
    pub(super) fn leases(&self) -> impl Iterator<Item = (BlockId, bool, &CacheLease)> {
        let rows = self.rows.iter().zip(0..).filter(|(row, _)| row.state != RowState::Vacant);
        rows.map(|(row, slot)| {
            (self.id(slot, row.number), row.state == RowState::Cached, &row.lease)
        })
    }

    #[inline(always)]
    fn bucket(&mut self, key: Key) -> Option<u32> {
        if self.buckets.get(self.latest as usize).is_some_and(|it| it.key == key) {
            return Some(self.latest);
        }
        if self.by_key.is_empty() {
            return None;
        }
        let number = *self.by_key.get(&key)?;
        self.latest = number;
        Some(number)
    }

    fn add_bucket(&mut self, key: Key) -> u32 {
        let row = key.pool.row();
        self.counted.reach(row);
        let bucket =
            Bucket { key, cached: Vec::new(), members: 0, touched: false, thread: this_thread() };
        let number = self.buckets.enter(bucket);
        self.by_key.insert(key, number);
        reach(&mut self.by_pool, row).all.push(number);
        number
    }

    /// The name of the use of a row that has this number.
    #[inline]
    fn id(&self, slot: u32, number: u64) -> BlockId {
        let (engine, cache) = (self.engine, self.number);
        BlockId { engine, cache, slot, number: name(cache, number) }
    }
}

/// Lets a row be another block's. Returns the engine's row of the one that it had.
#[inline]
fn vacate(rows: &mut Table<LeaseRow>, slot: u32) -> u32 {
    rows.vacate(slot);
    let row = &mut rows[slot as usize];
    row.state = RowState::Vacant;
    row.lease.row
}

#[cfg(debug_assertions)]
impl StreamCache {
    /// What [`verify`](super::verify) says of a stream cache itself.
    pub(super) fn verify(&self) -> Verdict {
        let mut members = vec![0; self.buckets.len()];
        let mut counted: Vec<[[i64; 5]; 2]> = Vec::new();
        let row = |&row: &u32| row as usize;
        self.rows.verify(|_, row| row.state != RowState::Vacant)?;
        let cached = self.buckets.iter().flat_map(|bucket| bucket.cached.iter().map(row));
        let cached = times(cached, self.rows.len())?;
        for ((slot, row), cached) in self.rows.iter().enumerate().zip(cached) {
            if row.state == RowState::Vacant {
                holds!(cached == 0, "row {slot} is vacant and cached");
                continue;
            }
            let Some(bucket) = self.buckets.get(row.bucket as usize) else {
                return Err(format!("there is no bucket of {row:?}"));
            };
            members[row.bucket as usize] += 1;
            let right = match row.state {
                RowState::Cached => cached == 1 && row.lease.uses.is_empty(),
                _ => cached == 0,
            };
            let in_bucket = cached == 0 || bucket.cached.contains(&(slot as u32));
            holds!(right && in_bucket, "cached {cached} times: {row:?}");
            let pool = bucket.key.pool.row();
            let (live, requested) = (i64::from(row.is_live()), row.lease.asked.requested as i64);
            let bytes = live * bucket.key.bytes as i64;
            let of_row = [live, bytes, live * requested, 1 - live, -bytes];
            let sums = &mut reach(&mut counted, pool)[bucket.key.class()];
            sums.iter_mut().zip(of_row).for_each(|(sum, it)| *sum += it);
        }
        let all =
            times(self.by_pool.iter().flat_map(|it| it.all.iter().map(row)), self.buckets.len())?;
        self.buckets.verify(|number, _| all[number as usize] == 1)?;
        let touched = self.by_pool.iter().flat_map(|it| it.touched.iter().map(row));
        let touched = times(touched, self.buckets.len())?;
        let listed = all.into_iter().zip(touched).zip(members);
        for ((at, bucket), (listed, members)) in (0..).zip(&*self.buckets).zip(listed) {
            let known = self.by_key.get(&bucket.key) == Some(&at);
            if listed.0 == 0 {
                let unused = !known && self.latest != at && listed.1 + members == 0;
                holds!(unused, "vacant, and in use: {bucket:?}");
                continue;
            }
            let right = bucket.members == members && listed.1 == usize::from(bucket.touched);
            let found = known && (bucket.touched || bucket.cached.is_empty());
            let placed = self.number == number(bucket.key.stream);
            holds!(right && found && placed, "{members} rows, listed {listed:?}: {bucket:?}");
        }
        for (row, expected) in counted.iter().enumerate() {
            let found = [0, 1].map(|class| self.counted.get(row).live_and_left_over(class));
            holds!(found == *expected, "counter {row} has {found:?}, rows come to {expected:?}");
        }
        Ok(())
    }

    /// What [`verify`](super::verify) says of what it counts: see [`Counters::verify`].
    pub(super) fn verify_counters(&self, sums: &mut Vec<[Amounts; 3]>) -> Verdict {
        self.counted.verify(sums)
    }

    /// The pool, bytes and stream that a leased row was entered with; no stream where that was retired.
    pub(super) fn entered(&self, id: BlockId) -> (PoolId, u64, Option<StreamHandle>) {
        let row = &self.rows[id.slot as usize];
        let Key { stream, pool, bytes } = self.buckets[row.bucket as usize].key;
        (pool, bytes, (row.state != RowState::Retired).then_some(stream))
    }
}

/// A name that no other block of the engine has: other blocks' numbers stay far below.
#[inline]
fn name(cache: u32, number: u64) -> u64 {
    (u64::from(cache) + 1) << 48 | number
}

/// How many stream caches an engine has: streams that share one wait for each other, no more.
const CACHES: usize = 64;

/// The handle of no stream.
const NO_STREAM: usize = usize::MAX;

#[derive(Debug)]
pub(super) struct StreamCaches {
    rows: Box<[Padded]>,
    /// Bits of the stream caches that were ever used.
    used: AtomicU64,
    /// By stream cache: the handle of the stream that was last seen in a capture which has not ended
    /// since. One that is out of date costs time alone: the stream is served behind the engine's lock.
    capturing: Box<[AtomicUsize]>,
    numbers: Arc<Numbers>,
    peaks: Mutex<Peaks>,
}

/// On cache lines of its own, so that threads on different streams do not slow each other.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<StreamCache>);

impl StreamCaches {
    pub(super) fn new(engine: u32, heard: usize) -> Self {
        let numbers = Arc::new(Numbers::new(heard));
        let cache = |number| {
            let hearing = Hearing::new(Arc::clone(&numbers));
            let cache = StreamCache::new(engine, number, hearing);
            Padded(Mutex::new(Rank::StreamCache, cache))
        };
        Self {
            rows: (0..CACHES as u32).map(cache).collect(),
            used: AtomicU64::new(0),
            capturing: (0..CACHES).map(|_| AtomicUsize::new(NO_STREAM)).collect(),
            numbers,
            peaks: Mutex::new(Rank::Peaks, Peaks::default()),
        }
    }

    pub(super) fn peaks(&self) -> MutexGuard<'_, Peaks> {
        self.peaks.lock()
    }

    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// What was asked for outside captures since the last call, as far as it is kept (`heard::in_order`).
    pub(super) fn take_heard(&self) -> Vec<(u64, Demand)> {
        // Before: what is noted meanwhile in a stream cache that was looked at is heard the next time.
        self.numbers.set_taken();
        self.all().flat_map(|mut cache| cache.hearing.take()).collect()
    }

    /// Takes what was asked for, but no run that the host marks, which is kept for `Plans::learned`.
    pub(super) fn take_unmarked(&self) -> Vec<(u64, Demand)> {
        if self.numbers.keep_all() {
            return Vec::new();
        }
        self.take_heard()
    }

    /// What [`StreamCaches::take_unmarked`] would take.
    pub(super) fn heard(&self) -> Vec<(u64, Demand)> {
        let marked = self.numbers.keep_all();
        self.all().filter(|_| !marked).flat_map(|cache| cache.hearing.clone().take()).collect()
    }

    /// Keeps so much of what is asked for outside captures from now on. Returns what was kept so far.
    pub(super) fn hear(&self, most: usize) -> Vec<(u64, Demand)> {
        let heard = self.take_heard();
        self.numbers.keep(most);
        heard
    }

    /// Notes a request about a block of a stream that no stream cache has on lease.
    #[inline]
    pub(super) fn note(&self, stream: StreamHandle, asked: Demand) {
        if self.numbers.keep_any() {
            self.of(stream).hearing.note(asked);
        }
    }

    #[inline]
    pub(super) fn of(&self, stream: StreamHandle) -> MutexGuard<'_, StreamCache> {
        self.lock(number(stream))
    }

    /// The number of a stream's cache, unless the stream was last seen in a capture: the cache has no block for it then.
    #[inline]
    pub(super) fn number_outside(&self, stream: StreamHandle) -> Option<u32> {
        let number = number(stream);
        let captures = self.capturing[number as usize].load(Ordering::Relaxed) == stream.bits();
        (!captures).then_some(number)
    }

    /// Notes that a stream was seen in a capture.
    pub(super) fn set_capturing(&self, stream: StreamHandle) {
        self.capturing[number(stream) as usize].store(stream.bits(), Ordering::Relaxed);
    }

    /// Notes that a stream's capture has ended.
    pub(super) fn forget_capturing(&self, stream: StreamHandle) {
        self.capturing[number(stream) as usize].store(NO_STREAM, Ordering::Relaxed);
    }

    /// A stream cache by its number, where there is one, locked.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<MutexGuard<'_, StreamCache>> {
        ((number as usize) < CACHES).then(|| self.lock(number))
    }

    /// A stream cache by its number, unless another thread holds its lock.
    #[inline]
    pub(super) fn get_at_once(&self, number: u32) -> Option<MutexGuard<'_, StreamCache>> {
        // One that a thread panicked in is left to calls that tell of it.
        self.rows.get(number as usize)?.0.try_lock()
    }

    /// Every stream cache, in order, each locked when it is reached.
    pub(super) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, StreamCache>> {
        (0..CACHES as u32).map(|number| self.lock(number))
    }

    /// Every stream cache that was ever used, in order, each locked when it is reached.
    pub(super) fn used(&self) -> impl Iterator<Item = MutexGuard<'_, StreamCache>> {
        let mut left = self.used.load(Ordering::Relaxed);
        let numbers = std::iter::from_fn(move || {
            let number = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(number)
        });
        numbers.map(|number| self.lock(number))
    }

    /// Notes that a stream cache is in use. The caller holds the engine's lock, as does who asks.
    pub(super) fn set_used(&self, number: u32) {
        self.used.fetch_or(1 << number, Ordering::Relaxed);
    }

    #[inline]
    fn lock(&self, number: u32) -> MutexGuard<'_, StreamCache> {
        self.rows[number as usize].0.lock()
    }
}

/// The number of a stream's stream cache.
#[inline]
fn number(stream: StreamHandle) -> u32 {
    // Handles are addresses: the multiplication brings their middle bits up.
    let mixed = (stream.bits() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - CACHES.trailing_zeros())) as u32
}
