//! Pools of planned captures, compacted between launches.

use arbitrary::{Result, Unstructured};
use regraph::driver::ErrorKind;
use regraph_tagged::{Program, Tagged};

use super::{Fault, World, POOLS};

impl<P: Program> World<'_, P> {
    /// Launches all graphs of the path, as far as nothing hinders that.
    pub(super) fn launch_all(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(&last) = self.path.last() else { return Ok(()) };
        (self.run, self.at) = (self.path_of(last), 0);
        for _ in 0..self.run.len() {
            if self.at < self.run.len() {
                self.launch(u)?;
            }
        }
        Ok(())
    }

    /// Everything that lives holds what was written there last. All work is done.
    pub(super) fn require(&self) {
        let run = &self.run[..self.at];
        // A graph from before a restoration overwrites what that has brought back.
        let on_path = run.iter().all(|it| self.path.contains(it));
        let launched = self.graphs.iter().filter(|it| on_path && run.contains(&it.number));
        let outputs = launched.flat_map(|it| &it.outputs).filter(|it| it.id.is_some());
        let blocks = self.blocks.iter().filter(|it| it.written);
        let places = outputs.map(|it| it.place).chain(blocks.map(|it| it.place));
        for Tagged { address, bytes, tag } in places {
            let tags = self.driver.read_tags(address, bytes).expect("live blocks have memory");
            assert!(
                tags.iter().all(|&held| held == tag),
                "the block at {address:#x} was overwritten"
            );
        }
    }

    /// What compaction would give back, once all work is done.
    fn excess(&mut self, home: usize) -> u64 {
        // The first look marks how far streams are that freed blocks wait for.
        let pool = self.homes[home].pool.clone();
        pool.excess_bytes().expect("the pool is awake");
        self.judge_device();
        pool.excess_bytes().expect("the pool is awake")
    }

    /// Compacts a pool between launches, until nothing is left to give back: as much goes as was told.
    pub(super) fn compact(&mut self, home: usize) {
        /// The search for new pieces is no exact one: it may find better ones from those that it made.
        const TIMES: usize = 8;
        if !self.judge_device() {
            return;
        }
        let pool = self.homes[home].pool.clone();
        for _ in 0..TIMES {
            let excess = self.excess(home);
            let before = pool.reserved().expect("the pool is there");
            let gone = pool.compact().expect("a right compaction is accepted");
            self.count("compactions that gave memory back", u64::from(gone > 0));
            let after = pool.reserved().expect("the pool is there");
            assert_eq!((gone, after), (excess, before - excess));
            self.require();
            if gone == 0 {
                return;
            }
        }
        panic!("compaction still finds something after {TIMES} times");
    }

    /// Compacts a pool while calls of the driver fail, and then resumes it while they fail.
    pub(super) fn compact_failing(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        if !self.judge_device() {
            return Ok(());
        }
        self.excess(home);
        let kind = if u.arbitrary()? { ErrorKind::OutOfMemory } else { ErrorKind::InvalidValue };
        let pool = self.homes[home].pool.clone();
        let is_short = || pool.is_short().expect("the pool is there");
        self.fail_any(u, &kind)?;
        let done = pool.compact();
        (self.hooks.fail)(None);
        self.failed = true;
        assert!(done.is_err() || !is_short(), "memory is missing, and no word of it");
        self.require();
        while is_short() {
            self.fail_any(u, &kind)?;
            let done = pool.resume();
            (self.hooks.fail)(None);
            assert_eq!(done.is_ok(), !is_short());
            self.require();
            if u.is_empty() || done.is_err() && u.arbitrary()? {
                pool.resume().expect("there is room for it");
            }
        }
        // What could not be released goes now.
        self.engine.empty_cache().expect("the engine is sound");
        self.require();
        assert!(!pool.is_suspended());
        Ok(())
    }

    /// Some coming calls of the driver fail, of any kind.
    fn fail_any(&self, u: &mut Unstructured<'_>, kind: &ErrorKind) -> Result<()> {
        let n = u64::from(u.arbitrary::<u8>()?);
        let fail = |fault| (self.hooks.fail)(Some(fault));
        match u.int_in_range(0..=2)? {
            0 => fail(Fault::Lost(n, kind.clone())),
            1 => fail(Fault::Any(n, kind.clone())),
            _ => {
                fail(Fault::Any(n, kind.clone()));
                fail(Fault::Any(n + u64::from(u.arbitrary::<u8>()? % 8), kind.clone()));
            }
        }
        Ok(())
    }

    /// What a failed call has left without memory at a capture's end gets it back.
    pub(super) fn wake(&mut self) {
        for home in 0..POOLS {
            let pool = self.homes[home].pool.clone();
            if self.engine.host().is_suspended(pool.id()).expect("the pool is there") {
                pool.resume().expect("there is room for it");
                self.restart();
            }
        }
    }
}
