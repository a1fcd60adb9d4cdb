//! Captures that get their memory at their end, and pools without memory for a while.

use super::world::{Block, Capture, Fate, Launched, World};
use regraph::engine::{Error, Flaw, PoolRefusal, Unknown};

impl World {
    /// Has the capture that a stream is in planned, or not.
    pub(super) fn plan_capture(&mut self, stream: usize, on: bool) {
        let Some(capture) = self.capture_of(stream) else { return };
        let options = self.plan.clone().filter(|_| on);
        self.tell(format_args!("capture {capture} is planned: {on}"));
        match self.engine.plans().plan_capture(self.captures[capture].id, options) {
            Ok(())
            | Err(Error::Unknown { what: Unknown::Capture(_), .. } | Error::CannotPlan { .. }) => {}
            Err(error) => panic!("plan_capture: {error}"),
        }
    }

    /// Has the engine learn from what is asked for outside captures from now on, or lets it have learned.
    pub(super) fn learn(&mut self, begins: bool) {
        self.tell(format_args!("learns: {begins}"));
        let done = if begins {
            self.engine.plans().learn()
        } else {
            self.engine.plans().learned().map(drop)
        };
        done.expect("the engine is sound");
    }

    /// Asks for the plan of the capture that a stream is in.
    pub(super) fn preview(&mut self, stream: usize) {
        let Some(capture) = self.capture_of(stream) else { return };
        self.tell(format_args!("preview of {capture}"));
        match self.engine.plans().preview_plan(self.captures[capture].id) {
            Ok(_) | Err(Error::Unknown { what: Unknown::Capture(_), .. }) => {}
            Err(error) => panic!("preview_plan: {error}"),
        }
    }

    /// Suspends a pool, if nothing uses it, and resumes it.
    pub(super) fn suspend(&mut self, pool: usize) {
        self.driver.complete_all();
        let gone = match self.engine.host().suspend_discarding_all(self.pools[pool]) {
            Ok(gone) => gone,
            Err(
                Error::Pool { why: PoolRefusal::Busy { .. }, .. }
                | Error::Pool { why: PoolRefusal::CannotSuspend, .. },
            ) => return,
            Err(error) => panic!("suspend_discarding_outputs: {error}"),
        };
        assert_eq!(self.reserved(pool), 0, "a suspended pool holds memory");
        self.tell(format_args!("pool {pool} goes and comes: {gone}"));
        let limited = self.engine.set_memory_limit(None);
        limited.expect("the engine is sound");
        let back = self.engine.host().resume_pool(self.pools[pool]);
        assert_eq!(back.expect("there was as much memory before"), gone);
        // What they held is lost.
        for block in self.blocks.iter_mut().filter(|it| it.pool == pool && it.home.is_none()) {
            block.writer = None;
        }
        self.look_behind(pool, |_| {});
    }

    /// Has the graphs of a pool share what they can, if nothing uses it.
    pub(super) fn compact(&mut self, pool: usize) {
        self.driver.complete_all();
        let before = self.reserved(pool);
        let shared = self.shared(pool);
        let gone = match self.engine.host().compact_pool(self.pools[pool]) {
            Ok(gone) => gone,
            Err(Error::Pool { why: PoolRefusal::Busy { .. }, .. }) => return,
            Err(error) => panic!("compact_pool: {error}"),
        };
        assert!(self.reserved(pool) + gone <= before, "compaction gave {gone} back");
        self.tell(format_args!("pool {pool} is compacted: {gone}"));
        self.look_behind(pool, |block| assert!(block.freed.is_some(), "a live block was moved"));
        for (number, other) in self.shared(pool).into_iter().filter(|it| !shared.contains(it)) {
            self.judge_shared(number, other);
        }
    }

    /// The blocks of graphs of a pool that may be launched which lie on the same memory.
    fn shared(&self, pool: usize) -> Vec<(usize, usize)> {
        let launches = |block: &Block| {
            let capture = block.home.map(|home| &self.captures[home]);
            let launches = |it: &Capture| it.fate == Fate::Accepted && it.released.is_none();
            block.pool == pool && !block.behind.is_empty() && capture.is_some_and(launches)
        };
        let all: Vec<usize> =
            (0..self.blocks.len()).filter(|&it| launches(&self.blocks[it])).collect();
        let pairs = all.iter().flat_map(|&one| all.iter().map(move |&other| (one, other)));
        let meets = |&(one, other): &(usize, usize)| {
            let (one, other) = (&self.blocks[one], &self.blocks[other]);
            let apart = one.end() <= other.address || other.end() <= one.address;
            apart && one.meets(other)
        };
        pairs.filter(meets).collect()
    }

    /// Two blocks share memory since a compaction that did not before.
    fn judge_shared(&self, number: usize, other: usize) {
        let (block, it) = (&self.blocks[number], &self.blocks[other]);
        let homes = [block, it].map(|block| block.home.expect("blocks of graphs have homes"));
        assert_ne!(homes[0], homes[1], "blocks {number} and {other} are of one graph");
        let [ended, its_end] = homes.map(|home| self.captures[home].ended);
        // What its capture did not free may be read by graphs that were captured before it was freed.
        if block.freed > ended && ended < its_end {
            assert!(
                block.freed <= its_end,
                "block {other} may overwrite {number} before it is read"
            );
        }
        if block.freed > ended && its_end < ended {
            // An output of the other graph was freed there before this one was captured.
            let pieces =
                |block: &Block| -> Vec<u32> { block.behind.iter().map(|it| it.0).collect() };
            let here = pieces(block);
            let lost = |it: &Block| {
                let freed = it.freed.is_some() && it.freed > its_end && it.freed <= ended;
                it.home == Some(homes[1]) && freed && pieces(it).iter().any(|it| here.contains(it))
            };
            assert!(self.blocks.iter().any(lost), "graphs overwrite output {number}");
        }
    }

    /// Notes anew which physical memory lies behind the blocks of a pool.
    fn look_behind(&mut self, pool: usize, moved: impl Fn(&Block)) {
        let driver = &self.driver;
        for block in self.blocks.iter_mut().filter(|it| it.pool == pool && !it.behind.is_empty()) {
            let behind = driver.behind(block.address, block.bytes).unwrap_or_default();
            if behind != block.behind {
                moved(block);
            }
            block.behind = behind;
        }
    }

    /// Notes which physical memory the blocks of a capture that was accepted lie on, and that none of
    /// it holds what must last.
    pub(super) fn note_memory(&mut self, capture: usize) {
        if self.plan.is_none() {
            return;
        }
        let own = |block: &usize| self.blocks[*block].home == Some(capture);
        let own: Vec<usize> = (0..self.blocks.len()).filter(own).collect();
        for &number in &own {
            let users = self.users(number);
            let here = |launch: &usize| matches!(self.launches[*launch].what, Launched::Node { capture: its, .. } if its == capture);
            let used = users.iter().any(here);
            let block = &self.blocks[number];
            let behind = self.driver.behind(block.address, block.bytes);
            let needed = used || block.freed.is_none();
            // Without a marker a block is idle at its free, and its memory may go back to the driver
            // while the capture is under way: no journal tells of that.
            let excused = self.flaw == Some(Flaw::OwnMarker);
            assert!(behind.is_some() || !needed || excused, "block {number} has no memory");
            self.blocks[number].behind = behind.filter(|_| needed).unwrap_or_default();
        }
        for live in self.live().into_iter().filter(|&live| !self.blocks[live].behind.is_empty()) {
            let home = self.blocks[live].home;
            // Within a capture, what comes before it may have had its memory.
            for &number in own.iter().filter(|&&it| home != Some(capture) || live < it) {
                let block = &self.blocks[number];
                let apart = block.behind.is_empty() || !block.meets(&self.blocks[live]);
                assert!(apart, "block {number} lies on block {live}, which is live");
            }
        }
        // What got its memory at once lies where earlier graphs may.
        let planned_output =
            |block: &Block| block.freed.is_none() && block.behind != block.behind_first;
        for &number in own.iter().filter(|it| planned_output(&self.blocks[**it])) {
            for graph in (0..self.captures.len()).filter(|&graph| graph != capture) {
                // The host may have freed an output of a graph after its capture, on the same piece of memory.
                let ended = self.captures[graph].ended;
                let mut lost = self
                    .blocks
                    .iter()
                    .filter(|it| it.home == Some(graph) && it.freed.is_some() && it.freed > ended);
                let here = &self.blocks[number].behind;
                let lost =
                    lost.any(|it| it.behind.iter().any(|it| here.iter().any(|at| at.0 == it.0)));
                let kept = self.is_written(number, graph) && !lost;
                assert!(!kept, "launches of graph {graph} overwrite output {number}");
            }
        }
    }

    /// Whether a graph that may be launched has blocks where another capture's block lies.
    fn is_written(&self, number: usize, graph: usize) -> bool {
        let Capture { fate, released, .. } = self.captures[graph];
        let of_graph = |it: &&Block| it.home == Some(graph) && !it.behind.is_empty();
        let mut blocks = self.blocks.iter().filter(of_graph);
        let launches = fate == Fate::Accepted && released.is_none();
        launches && blocks.any(|it| it.meets(&self.blocks[number]))
    }
}
