//! Allocating and freeing, judged by the model.

use arbitrary::{Result, Unstructured};

use super::world::{Block, Fate, World, Writer, MIB};
use regraph::driver::StreamHandle;
use regraph::engine::{BlockId, Error, PoolRefusal, Spare, StreamRefusal, Unknown};
use regraph_sim::Call;

/// What a program asks for.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=9u8)? {
        0 => u.int_in_range(1..=2048)?,
        1 | 2 => 512 * u.int_in_range(1..=8)?,
        3 => u.int_in_range(1..=MIB + 1)?,
        4..=6 => 2 * MIB * u.int_in_range(1..=3)?,
        7 | 8 => MIB * u.int_in_range(1..=12)?,
        _ => u.int_in_range(1..=30 * MIB)?,
    })
}

impl World {
    pub(super) fn allocate(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let pool = u.choose_index(self.pools.len())?;
        let requested = size(u)?;
        let bytes = if self.settings.caching {
            self.settings.rounding.round(requested)
        } else {
            requested.next_multiple_of(512)
        };
        let stream = self.streams[stream];
        let must_fit = self.must_fit(bytes);
        let block = match self.engine.allocate(self.pools[pool], requested, stream.name) {
            Ok(block) => block,
            Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. }) if self.suspended[pool] => {
                return Ok(())
            }
            Err(Error::OutOfMemory(report)) => {
                assert!(!must_fit || self.faulted, "nothing is in use, and {report}");
                self.tell(format_args!("no memory for {bytes:#x} on {}", stream.row));
                return Ok(());
            }
            Err(error) => {
                self.tell(format_args!("{error}"));
                self.excuse(&error);
                return Ok(());
            }
        };
        let asked = pool;
        let pool = self.judge_lender(asked, block.id, stream.capture);
        assert!(!self.suspended[pool], "handed out of a suspended pool");
        let large = bytes > MIB;
        let bytes = match self.is_uncached(pool) {
            true => requested.next_multiple_of(512),
            false => bytes,
        };
        let bytes = self.judge_size(pool, block.id, bytes);
        if self.caught {
            return Ok(());
        }
        let number = self.blocks.len();
        let (address, end) = (block.address, block.address + bytes);
        self.tell(format_args!(
            "block {number} on {} from pool {pool}: {address:#x}+{bytes:#x}, {:?}",
            stream.row, stream.capture
        ));
        self.addresses.push(address);
        self.figures.add((pool, large), bytes, requested);
        assert_eq!((address % 512, block.bytes), (0, requested));
        self.order.refresh(&self.driver);
        if !self.judge_place(address, end, stream.row, stream.capture) {
            self.caught = true;
        }
        for bytes in self.ranges.between(address, end) {
            bytes.live = Some(number);
        }
        self.blocks.push(Block {
            id: block.id,
            pool,
            address,
            bytes,
            requested,
            users: vec![stream.row],
            home: stream.capture,
            born: self.now,
            counts: self.order.counts(),
            live: true,
            large,
            borrowed: pool != asked,
            tag: number as u64 + 1,
            writer: Writer::NotWritten,
        });
        self.judge_mapped(number);
        Ok(())
    }

    /// What the latest block occupies: as asked for, or, where large ranges are not split, a little
    /// more; where none is, all of its segment.
    fn judge_size(&mut self, pool: usize, id: BlockId, bytes: u64) -> u64 {
        let whole = self.kinds[pool].no_split && !self.is_uncached(pool);
        let most = match self.settings.max_split_bytes {
            None if !whole => return bytes,
            most => most.unwrap_or(u64::MAX),
        };
        let allocated = self.engine.statistics().expect("the engine is sound").all.allocated_bytes;
        let live = self.live();
        let before: u64 = live.into_iter().map(|block| self.blocks[block].bytes).sum();
        let placed = allocated.current - before;
        if whole {
            let around = self.engine.surroundings_of(id).expect("the block is live").1;
            assert!(placed >= bytes, "{placed} given for {bytes}");
            assert!(around == placed || self.flaw.is_some(), "{placed} of a segment of {around}");
            self.caught |= around != placed;
            return placed;
        }
        let slack = self.settings.max_non_split_rounding_bytes;
        let whole = bytes >= most && (bytes..=bytes + slack).contains(&placed);
        assert!(placed == bytes || whole, "{placed} given for {bytes}");
        placed
    }

    /// Whether bytes may be given to a stream. False only on a flawed engine, which may not.
    fn judge_place(&mut self, start: u64, end: u64, row: usize, capture: Option<usize>) -> bool {
        let mut sound = true;
        let order = &self.order;
        for bytes in self.ranges.between(start, end) {
            assert_eq!(bytes.live, None, "handed out over a live block");
            bytes.uses.retain(|&used| !order.is_complete(used));
            bytes.graphs.retain(|&graph| self.captures[graph].fate != Fate::Gone);
            // A graph may be launched on any stream: an order of this one proves nothing.
            let early = bytes.uses.iter().find(|&&used| match capture {
                None => !order.precedes(used, row),
                Some(_) => true,
            });
            let shared = bytes.graphs.iter().find(|&&graph| match capture {
                None => true,
                Some(own) => graph != own && self.captures[graph].fate == Fate::UnderWay,
            });
            let clean = early.is_none() && shared.is_none();
            assert!(
                clean || self.flaw.is_some(),
                "{start:#x}..{end:#x} for stream {row}, capture {capture:?}: still in use by \
                 operation {early:?}, by the graph of capture {shared:?}"
            );
            sound &= clean;
        }
        sound
    }

    /// Whether nothing is in use that could stand in the way of so many bytes.
    fn must_fit(&self, bytes: u64) -> bool {
        let given_back = |spare: &Spare| matches!(spare, Spare::GivenBack | Spare::Offered);
        let idle = self.live().is_empty()
            && self.imports.is_empty()
            && self.spares.iter().all(given_back)
            && !self.untold
            && self.captures.iter().all(|capture| capture.fate == Fate::Gone)
            && self.streams.iter().all(|stream| stream.capture.is_none());
        let least = bytes.next_multiple_of(2 * MIB);
        let limits = [self.limit, self.pool_limit, Some(self.total)];
        idle && limits.into_iter().flatten().all(|limit| least <= limit)
    }

    pub(super) fn judge_mapped(&self, block: usize) {
        use regraph_tagged::Program;
        let block = &self.blocks[block];
        if self.suspended[block.pool] {
            return;
        }
        for address in [block.address, block.end() - 512] {
            assert!(self.driver.read_tags(address, 512).is_ok(), "{address:#x} is not mapped");
        }
    }

    /// Frees a block, perhaps in the order of another stream.
    pub(super) fn free(&mut self, number: usize, from: Option<usize>) {
        let id = self.blocks[number].id;
        let from = from.map(|stream| self.streams[stream]);
        self.tell(format_args!("free of {number} from {:?}", from.map(|stream| stream.row)));
        let freed = match from {
            Some(stream) => self.engine.free_from(id, stream.name),
            None => self.engine.free(id),
        };
        freed.expect("the block is live");
        if let Some(stream) = from {
            self.name_user(number, stream.row);
        }
        let Block { address, bytes, pool, large, requested, .. } = self.blocks[number];
        self.figures.remove((pool, large), bytes, requested);
        self.blocks[number].live = false;
        let users = self.blocks[number].users.clone();
        let Block { home, born, .. } = self.blocks[number];
        let mut uses: Vec<(usize, usize)> = Vec::new();
        let mut graphs: Vec<usize> = home.into_iter().collect();
        for row in users {
            let count = self.order.count(row);
            // What a stream did before the block was there did not use it.
            if self.blocks[number].counts.get(row).is_none_or(|&before| count > before) {
                uses.push((row, count));
            }
            let capture = self.of_row(row).and_then(|stream| stream.capture);
            graphs.extend(capture);
        }
        // Without a node in the block's time nothing in the graph can have used it, and blocks of a
        // capture that never was are in no graph at all.
        let dead = home.is_some_and(|home| self.captures[home].fate == Fate::Gone);
        graphs.retain(|&graph| !dead && self.captures[graph].latest > born);
        for bytes in self.ranges.between(address, address + bytes) {
            bytes.live = None;
            for &(row, count) in &uses {
                bytes.note_use(row, count);
            }
            bytes.graphs.extend(&graphs);
        }
    }

    /// Names a stream as a user of a block, ordered after the allocation.
    pub(super) fn record_stream(&mut self, block: usize, stream: usize, last: bool) {
        let name = self.streams[stream].name;
        let id = self.blocks[block].id;
        self.tell(format_args!("use of {block} by {}", self.streams[stream].row));
        let recorded = if last {
            self.engine.record_use(id, name)
        } else {
            self.engine.record_stream(id, name)
        };
        match recorded {
            Ok(()) => {}
            Err(error) => return self.excuse(&error),
        }
        self.name_user(block, self.streams[stream].row);
    }

    fn name_user(&mut self, block: usize, row: usize) {
        let users = &mut self.blocks[block].users;
        if !users.contains(&row) {
            users.push(row);
        }
    }

    /// Has the engine learn from what is asked for from now on, or lets it have learned.
    pub(super) fn learn(&mut self, begins: bool) {
        self.tell(format_args!("learns: {begins}"));
        let done = if begins { self.engine.learn() } else { self.engine.learned().map(drop) };
        done.expect("the engine is sound");
    }

    /// Gives memory back, until `keep` bytes are held.
    pub(super) fn trim(&mut self, keep: Option<u64>) {
        self.tell(format_args!("trim to {keep:?}"));
        let waits = self.driver.calls(Call::SynchronizeEvent);
        let before = self.engine.statistics().expect("the engine is sound").all.reserved_bytes;
        let kept = self.kept();
        let emptied = match keep {
            Some(keep) => self.engine.trim(keep),
            None => self.engine.empty_cache(),
        };
        let emptied = emptied.expect("the engine is sound");
        let waited = self.driver.calls(Call::SynchronizeEvent) - waits;
        assert_eq!(waited, 0, "giving memory back waits for nothing");
        let after = self.engine.statistics().expect("the engine is sound").all.reserved_bytes;
        assert_eq!(emptied.reserved, after.current);
        // In a heap that caches nothing, what has become free goes at once, and not by this.
        if self.settings.caching && !self.kinds.iter().any(|kind| kind.uncached) {
            assert_eq!(emptied.released, before.current - after.current);
        }
        assert_eq!(kept, self.kept(), "a pool lost what it keeps");
        for block in self.live() {
            self.judge_mapped(block);
        }
    }

    /// Calls that must be refused, and change nothing.
    pub(super) fn misuse(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        const PER_THREAD: StreamHandle = StreamHandle::from_bits(2);
        if self.blocks.is_empty() || self.flaw.is_some() {
            return Ok(());
        }
        let block = &self.blocks[u.choose_index(self.blocks.len())?];
        if !block.live {
            let freed = self.engine.free(block.id);
            assert!(
                matches!(freed, Err(Error::Unknown { what: Unknown::Block(_), .. })),
                "{freed:?}"
            );
            let recorded = self.engine.record_stream(block.id, self.streams[0].name);
            assert!(
                matches!(recorded, Err(Error::Unknown { what: Unknown::Block(_), .. })),
                "{recorded:?}"
            );
        }
        let refused = self.engine.allocate(self.pools[0], 512, PER_THREAD);
        assert!(
            matches!(refused, Err(Error::Stream { why: StreamRefusal::PerThread, .. })),
            "{refused:?}"
        );
        Ok(())
    }

    /// What the engine says of free memory adds up with its figures.
    pub(super) fn explain(&mut self, pool: usize, stream: usize) {
        use regraph::engine::Refusal;
        let ranges = match self.engine.explain(self.pools[pool], self.streams[stream].name) {
            Ok(ranges) => ranges,
            Err(error) => return self.excuse(&error),
        };
        let figures = self.engine.statistics_of(self.pools[pool]).expect("the pool exists").all;
        let (mut waiting, mut free) = (0, 0);
        for range in ranges {
            match range.refusal {
                Some(Refusal::Waiting(_)) => waiting += range.bytes,
                _ => free += range.bytes,
            }
        }
        let (active, allocated) = (figures.active_bytes.current, figures.allocated_bytes.current);
        assert_eq!(active, allocated + waiting, "active = allocated + waiting");
        assert_eq!(figures.inactive_split_bytes.current, free, "inactive = free");
    }

    /// The blocks that the engine says were never freed are those.
    pub(super) fn judge_leaks(&self) {
        let leaks = self.engine.leaks().expect("the engine is sound");
        let found: Vec<_> = leaks.iter().map(|leak| (leak.address, leak.bytes)).collect();
        let live = self.live().into_iter().map(|block| &self.blocks[block]);
        let mut expected: Vec<_> = live.map(|block| (block.address, block.requested)).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
