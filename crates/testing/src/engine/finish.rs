//! The end of a program: everything under way ends, the graphs run, all memory goes back.

use super::world::{must, World};
use regraph::driver::{Driver, HostApi};
use regraph::engine::Flaw;
use regraph_tagged::Program;

/// Orders of execution that each graph is run in.
const SCHEDULES: u64 = 3;

impl World {
    pub(super) fn finish(&mut self) {
        self.judge_figures();
        if self.flaw.is_none() {
            super::super::judge_snapshot(&self.engine);
        }
        for capture in self.under_way().into_iter().rev() {
            self.end_one(capture, true, false, capture.is_multiple_of(2));
        }
        self.judge_all();
        self.judge_figures();
        for capture in 0..self.captures.len() {
            self.replay(capture);
        }
        self.now += 1;
        for block in self.live() {
            self.free(block, None);
        }
        for capture in 0..self.captures.len() {
            self.release(capture);
        }
        self.driver.complete_all();
        let wrong = must(self.driver.take_wrong_tags());
        // It hands out what work outside captures still uses, and no checker judges that work.
        let excused = self.flaw == Some(Flaw::OlderBlocks);
        assert!(wrong == 0 || excused, "a block was overwritten while in use");
        self.judge_figures();
        for &pool in &self.pools {
            self.engine.destroy_pool(pool).expect("nothing uses the pool any more");
        }
        let info = must(self.driver.memory_info());
        assert_eq!(info.free, info.total, "device memory was lost");
    }

    /// Runs a graph in several orders that its edges allow.
    pub(super) fn replay(&mut self, capture: usize) {
        let Some(executable) = self.captures[capture].executable else {
            return;
        };
        let traits = self.family_traits(capture);
        // What an edge that was taken away ordered, the host no longer orders; and programmatic
        // successors never wait on the simulated device.
        let trusts = self.programmatic == regraph::settings::Programmatic::Trust;
        if self.flaw.is_some() || traits.removed || (trusts && traits.programmatic) {
            return;
        }
        self.driver.complete_all();
        for seed in 0..SCHEDULES {
            self.driver.set_schedule_seed(seed + 17 * capture as u64);
            must(self.driver.replay(executable, self.observer));
            self.driver.complete_all();
        }
        let wrong = must(self.driver.take_wrong_tags());
        assert_eq!(wrong, 0, "capture {capture}: a block was overwritten while in use");
    }
}
