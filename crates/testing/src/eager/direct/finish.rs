//! The end of a program.

use super::super::world::World;
use super::figures::Device;
use super::Direct;

impl World<Direct> {
    /// Ends captures, runs what is to run, frees everything and looks for what is missing.
    pub(in super::super) fn finish(&mut self) {
        self.judge_figures();
        if !self.flawed {
            crate::judge_snapshot(&self.host.engine);
        }
        for stream in 0..self.streams.len() {
            self.end(stream, false, stream.is_multiple_of(2));
        }
        // What stays suspended is freed and destroyed as it is.
        for pool in (0..self.host.pools.len()).filter(|pool| pool.is_multiple_of(2)) {
            self.resume(pool);
        }
        for number in 0..self.captures.len() {
            self.replay(number, 0);
        }
        self.driver.forget_failures();
        while !self.host.imports.is_empty() {
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
        for &pool in &self.host.pools {
            self.host.engine.destroy_pool(pool).expect("nothing uses the pool any more");
        }
        if self.host.device == Device::Exact {
            assert_eq!(self.driver.used_bytes(), 0, "device memory was lost");
            self.given.judge_balance();
        }
    }
}
