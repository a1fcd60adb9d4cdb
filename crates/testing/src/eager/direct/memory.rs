//! Allocating and freeing, judged by the model.

use arbitrary::{Result, Unstructured};

use super::super::world::{Block, Fate, World, Writer, MIB};
use super::Direct;
use regraph::driver::StreamHandle;
use regraph::engine::{BlockId, Error, PoolRefusal, Spare, StreamRefusal, Unknown};

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

impl World<Direct> {
    pub(super) fn allocate_block(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let pool = u.choose_index(self.host.pools.len())?;
        let requested = size(u)?;
        let bytes = if self.host.settings.caching {
            self.host.settings.rounding.round(requested)
        } else {
            requested.next_multiple_of(512)
        };
        let stream = self.streams[stream];
        let must_fit = self.must_fit(bytes);
        let block = match self.host.engine.allocate(self.host.pools[pool], requested, stream.name) {
            Ok(block) => block,
            Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })
                if self.host.suspended[pool] =>
            {
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
        assert!(!self.host.suspended[pool], "handed out of a suspended pool");
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
        self.host.figures.add((pool, large), bytes, requested);
        assert_eq!((address % 512, block.bytes), (0, requested));
        self.order.refresh(&self.driver);
        if !self.judge_place(pool, (address, end), stream) {
            self.caught = true;
        }
        self.enter(Block {
            id: block.id,
            pool,
            address,
            bytes,
            requested,
            users: vec![stream.row],
            home: stream.capture,
            born: self.now,
            restored: false,
            counts: self.order.counts(),
            live: true,
            large,
            borrowed: pool != asked,
            tag: number as u64 + 1,
            writer: Writer::NotWritten,
        });
        Ok(())
    }

    /// What the latest block occupies: as asked for, or, where large ranges are not split, a little
    /// more; where none is, all of its segment.
    fn judge_size(&mut self, pool: usize, id: BlockId, bytes: u64) -> u64 {
        let whole = self.host.kinds[pool].no_split && !self.is_uncached(pool);
        let most = match self.host.settings.max_split_bytes {
            None if !whole => return bytes,
            most => most.unwrap_or(u64::MAX),
        };
        let allocated =
            self.host.engine.statistics().expect("the engine is sound").all.allocated_bytes;
        let live = self.live();
        let before: u64 = live.into_iter().map(|block| self.blocks[block].bytes).sum();
        let placed = allocated.current - before;
        if whole {
            let around = self.host.engine.host().surroundings_of(id).expect("the block is live").1;
            assert!(placed >= bytes, "{placed} given for {bytes}");
            assert!(around == placed || self.flawed, "{placed} of a segment of {around}");
            self.caught |= around != placed;
            return placed;
        }
        let slack = self.host.settings.max_non_split_rounding_bytes;
        let whole = bytes >= most && (bytes..=bytes + slack).contains(&placed);
        assert!(placed == bytes || whole, "{placed} given for {bytes}");
        placed
    }

    /// Whether nothing is in use that could stand in the way of so many bytes.
    fn must_fit(&self, bytes: u64) -> bool {
        let given_back = |spare: &Spare| matches!(spare, Spare::GivenBack | Spare::Offered);
        let idle = self.live().is_empty()
            && self.host.imports.is_empty()
            && self.host.spares.iter().all(given_back)
            && !self.host.untold
            && self.captures.iter().all(|capture| capture.fate == Fate::Gone)
            && self.streams.iter().all(|stream| stream.capture.is_none());
        let least = bytes.next_multiple_of(2 * MIB);
        let limits = [self.host.limit, self.host.pool_limit, Some(self.host.total)];
        idle && limits.into_iter().flatten().all(|limit| least <= limit)
    }

    /// Calls that must be refused, and change nothing.
    pub(super) fn misuse(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        const PER_THREAD: StreamHandle = StreamHandle::from_bits(2);
        if self.blocks.is_empty() || self.flawed {
            return Ok(());
        }
        let block = &self.blocks[u.choose_index(self.blocks.len())?];
        if !block.live {
            let freed = self.host.engine.free(block.id);
            assert!(
                matches!(freed, Err(Error::Unknown { what: Unknown::Block(_), .. })),
                "{freed:?}"
            );
            let recorded = self.host.engine.record_stream(block.id, self.streams[0].name);
            assert!(
                matches!(recorded, Err(Error::Unknown { what: Unknown::Block(_), .. })),
                "{recorded:?}"
            );
        }
        let refused = self.host.engine.allocate(self.host.pools[0], 512, PER_THREAD);
        assert!(
            matches!(refused, Err(Error::Stream { why: StreamRefusal::PerThread, .. })),
            "{refused:?}"
        );
        Ok(())
    }

    /// What the engine says of free memory adds up with its figures.
    pub(super) fn explain(&mut self, pool: usize, stream: usize) {
        use regraph::engine::Refusal;
        let ranges =
            match self.host.engine.explain(self.host.pools[pool], self.streams[stream].name) {
                Ok(ranges) => ranges,
                Err(error) => return self.excuse(&error),
            };
        let figures =
            self.host.engine.statistics_of(self.host.pools[pool]).expect("the pool exists").all;
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
}
