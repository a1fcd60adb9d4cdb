//! Suspending pools and resuming them.

use super::super::world::{World, Writer};
use super::figures::Device;
use super::Direct;
use regraph::driver::Driver;
use regraph::driver::MemorySupport;
use regraph::engine::{Error, PoolRefusal};
use regraph_tagged::Program;

impl World<Direct> {
    /// Suspends a pool, once nothing that uses it is running.
    pub(super) fn suspend(&mut self, pool: usize) {
        let under_way: Vec<usize> =
            self.streams.iter().filter_map(|stream| stream.capture).collect();
        if self.flawed || under_way.iter().any(|&capture| !self.captures[capture].detail.all) {
            // What such a capture uses is unknown here; a host knows its own.
            return;
        }
        self.judge_device();
        self.tell(format_args!("pool {pool} is suspended"));
        let figures = |world: &Self| {
            world.host.engine.statistics_of(world.host.pools[pool]).expect("the pool exists").all
        };
        let before = figures(self).reserved_bytes.current;
        let mapped = matches!(self.driver.memory_support(), MemorySupport::Mapped { .. });
        match self.host.engine.host().suspend_discarding_all(self.host.pools[pool]) {
            Ok(bytes) => {
                assert!(mapped && self.comes_back(pool), "it cannot come back");
                assert!(under_way.is_empty() || self.host.suspended[pool], "a capture uses it");
                assert_eq!(bytes, before);
                assert_eq!(figures(self).reserved_bytes.current, 0);
                self.host.suspended[pool] = true;
            }
            Err(Error::Pool { why: PoolRefusal::CannotSuspend, .. }) => {
                assert!(!mapped || !self.comes_back(pool));
            }
            Err(Error::Pool { why: PoolRefusal::HasBlocks { blocks, .. }, .. }) => {
                let borrowed =
                    |&it: &usize| self.blocks[it].pool == pool && self.blocks[it].borrowed;
                let borrowed = self.live().into_iter().filter(borrowed).count();
                assert!(borrowed > 0 && borrowed == blocks.len(), "only borrowed blocks keep it");
            }
            Err(Error::Pool { why: PoolRefusal::Busy { captures, .. }, .. }) => {
                // Without a capture nothing runs, so only events can be missing.
                assert!(captures > 0 || self.faulted, "everything has completed");
            }
            Err(error) => self.excuse(&error),
        }
        let suspended = self.host.engine.host().is_suspended(self.host.pools[pool]);
        self.host.suspended[pool] = suspended.expect("the pool exists");
        if self.host.suspended[pool] {
            self.forget(pool);
        }
    }

    /// Whether the driver can give a pool's memory back to where it was.
    fn comes_back(&self, pool: usize) -> bool {
        !self.is_uncached(pool) && !self.host.kinds[pool].given
    }

    /// Resumes a pool.
    pub(super) fn resume(&mut self, pool: usize) {
        self.tell(format_args!("pool {pool} is resumed"));
        let before =
            self.host.engine.statistics_of(self.host.pools[pool]).expect("the pool exists").all;
        let missing = before.suspended_bytes.current;
        match self.host.engine.host().resume_pool(self.host.pools[pool]) {
            Ok(bytes) => {
                // For lack of memory, what is free in the pool is given up instead.
                assert!(bytes == missing || self.faulted && bytes < missing);
                self.host.suspended[pool] = false;
                for block in self.live() {
                    self.judge_mapped(block);
                }
            }
            Err(Error::OutOfMemory(report)) => {
                let bytes = report.requested;
                assert!(self.host.suspended[pool]);
                assert!(bytes == missing || self.faulted);
                let used = self.driver.used_bytes();
                let room = self.host.limit.unwrap_or(u64::MAX).min(self.host.total);
                assert!(used + bytes > room || self.faulted, "there was room: {used} in use");
            }
            Err(error) => self.excuse(&error),
        }
        let suspended = self.host.engine.host().is_suspended(self.host.pools[pool]);
        assert_eq!(suspended.expect("the pool exists"), self.host.suspended[pool]);
    }

    /// What the pool's blocks held is lost, and has to be written again. Where it was mapped a second time it stays
    /// there, and the blocks get other memory.
    fn forget(&mut self, pool: usize) {
        for (.., block) in &mut self.host.imports {
            *block = block.filter(|block| self.blocks[*block].pool != pool);
        }
        for number in self.live() {
            let block = &mut self.blocks[number];
            if block.pool != pool {
                continue;
            }
            block.writer = Writer::NotWritten;
            if self.host.device == Device::Exact && !self.faulted {
                let found = self.driver.read_tags(block.address, 512);
                assert!(found.is_err(), "memory of a suspended pool is mapped");
            }
        }
    }
}
