//! Pools of all kinds, who lends to whom, and blocks that are mapped a second time.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use super::super::world::World;
use super::Direct;
use crate::given::Given;
use regraph::engine::{BlockId, Error, PoolConfig, Shared, Spare};
use regraph_tagged::Program;

/// Second mappings of one program, at most.
const MOST: usize = 4;

/// What a pool is like.
#[derive(Clone, Debug, Default)]
pub(super) struct Kind {
    /// Whether its memory is the host's own.
    pub given: bool,
    pub no_split: bool,
    pub uncached: bool,
    pub takes_offers: bool,
}

impl Kind {
    pub(super) fn new(byte: u8) -> Self {
        Self {
            given: byte.is_multiple_of(4),
            no_split: (byte / 4).is_multiple_of(4),
            uncached: (byte / 16).is_multiple_of(5),
            takes_offers: byte % 3 < 2,
        }
    }

    pub(super) fn apply(&self, config: PoolConfig, given: &Arc<Given>) -> PoolConfig {
        let config =
            config.no_split(self.no_split).uncached(self.uncached).takes_offers(self.takes_offers);
        if self.given {
            config.source(given.clone())
        } else {
            config
        }
    }
}

impl World<Direct> {
    /// Whether blocks of a pool are allocations of their own.
    pub(super) fn is_uncached(&self, pool: usize) -> bool {
        self.host.kinds[pool].uncached || !self.host.settings.caching
    }

    /// The pool that a new block lies in: that which was asked, or one that lends.
    pub(super) fn judge_lender(
        &self,
        asked: usize,
        block: BlockId,
        capture: Option<usize>,
    ) -> usize {
        let report = self.host.engine.host().block_report(block).expect("the block is live");
        let pool = self.host.pools.iter().position(|&pool| pool == report.pool);
        let pool = pool.expect("the pool is one of the host's");
        let offers = matches!(self.host.spares[pool], Spare::Offered | Spare::OfferedWhenShort);
        let takes = self.host.kinds[asked].takes_offers && capture.is_none();
        assert!(pool == asked || offers && takes, "pool {asked} has a block of pool {pool}");
        pool
    }

    /// What only programs with pools of all kinds do.
    pub(super) fn vary(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let pool = u.choose_index(self.host.pools.len())?;
        match u.int_in_range(0..=7u8)? {
            0..=3 => {
                let all = [Spare::GivenBack, Spare::Kept, Spare::OfferedWhenShort, Spare::Offered];
                let spare = *u.choose(&all)?;
                self.tell(format_args!("pool {pool}: {spare:?}"));
                self.host
                    .engine
                    .host()
                    .set_spare(self.host.pools[pool], spare)
                    .expect("the pool exists");
                self.host.spares[pool] = spare;
            }
            4 => self.empty_pool(pool, u.arbitrary()?),
            5 => {
                let largest = self.host.engine.host().largest_block(self.host.pools[pool]);
                if let Err(error) = largest {
                    self.excuse(&error);
                }
            }
            6 => {
                let live = self.live();
                if !live.is_empty() && self.host.imports.len() < MOST {
                    let block = live[u.choose_index(live.len())?];
                    self.import(block);
                }
            }
            _ => {
                if !self.host.imports.is_empty() {
                    let import = u.choose_index(self.host.imports.len())?;
                    self.close_import(import);
                }
            }
        }
        Ok(())
    }

    fn empty_pool(&mut self, pool: usize, wait: bool) {
        self.tell(format_args!("pool {pool} is emptied, waiting {wait}"));
        let held = |world: &Self| {
            let figures = world.host.engine.statistics_of(world.host.pools[pool]);
            figures.expect("the pool exists").all.reserved_bytes.current
        };
        let before = held(self);
        match self.host.engine.host().empty_pool(self.host.pools[pool], wait) {
            Ok(gone) if self.is_uncached(pool) => assert!(gone <= before),
            Ok(gone) => assert_eq!(gone, before - held(self), "what went"),
            Err(error) => self.excuse(&error),
        }
        for block in self.live() {
            self.judge_mapped(block);
        }
    }

    /// Maps a block's memory a second time, as another process would.
    fn import(&mut self, block: usize) {
        let id = self.blocks[block].id;
        let (offset, pieces) = match self.host.engine.sharing().share(id) {
            Ok(Shared::Pieces { offset, pieces }) => (offset, pieces),
            // By the driver's own name of it, which is the plug-in's to use.
            Ok(_) | Err(Error::Sharing { .. }) => return,
            Err(error) => return self.excuse(&error),
        };
        assert!(!self.host.kinds[self.blocks[block].pool].given, "the source alone may share it");
        let pieces: Vec<_> =
            pieces.iter().map(|piece| (piece.bytes, piece.export.descriptor())).collect();
        match self.host.engine.sharing().import(&pieces) {
            Ok((import, address)) => {
                let at = address + offset;
                self.tell(format_args!("block {block} is mapped at {at:#x} too"));
                self.host.imports.push((import, at, Some(block)));
                self.judge_import(self.host.imports.len() - 1);
            }
            Err(error) => self.excuse(&error),
        }
    }

    /// What a live block's memory holds shows at both addresses, if it is mapped at both.
    fn judge_import(&self, import: usize) {
        let (_, address, Some(block)) = self.host.imports[import] else { return };
        let block = &self.blocks[block];
        if !block.live || self.host.suspended[block.pool] {
            return;
        }
        let behind = |address| self.driver.behind(address, block.bytes);
        assert_eq!(behind(address), behind(block.address), "the mappings differ");
    }

    pub(super) fn close_import(&mut self, import: usize) {
        self.judge_import(import);
        let (id, address, _) = self.host.imports.remove(import);
        self.tell(format_args!("{address:#x} is closed"));
        match self.host.engine.sharing().close_import(id) {
            Ok(()) => {
                let gone = self.driver.read_tags(address, 512).is_err();
                assert!(gone, "a closed import is mapped");
            }
            Err(error) => self.excuse(&error),
        }
    }
}
