//! The end of a program.

use super::figures::Device;
use super::world::World;

impl World {
    /// Ends captures, runs what is to run, frees everything and looks for what is missing.
    pub(super) fn finish(&mut self) {
        self.judge_figures();
        if self.flaw.is_none() {
            super::super::judge_snapshot(&self.engine);
        }
        for stream in 0..self.streams.len() {
            self.end(stream, false, stream.is_multiple_of(2));
        }
        // What stays suspended is freed and destroyed as it is.
        for pool in (0..self.pools.len()).filter(|pool| pool.is_multiple_of(2)) {
            self.resume(pool);
        }
        for number in 0..self.captures.len() {
            self.replay(number, 0);
        }
        self.driver.forget_failures();
        while !self.imports.is_empty() {
            self.close_import(0);
        }
        for block in self.live() {
            self.free(block, None);
        }
        for number in 0..self.captures.len() {
            self.release(number);
        }
        self.judge_device();
        if self.caught {
            return;
        }
        self.judge_figures();
        self.driver.forget_failures();
        for &pool in &self.pools {
            self.engine.destroy_pool(pool).expect("nothing uses the pool any more");
        }
        if self.device == Device::Exact {
            assert_eq!(self.driver.used_bytes(), 0, "device memory was lost");
            self.given.judge_balance();
        }
    }
}
