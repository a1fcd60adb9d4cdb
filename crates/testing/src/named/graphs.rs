//! Graphs in named pools.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::world::{must, Capture, Fate, World};
use arbitrary::{Result, Unstructured};
use regraph::driver::{CaptureMode, CaptureStatus, Driver, HostApi, StreamHandle};
use regraph_plugin::PoolKey;
use regraph_sim::SimDriver;

/// Graphs of one program, at most.
const MOST: usize = 8;

/// The number of the capture that a stream is in. The host asks again where a call was made to fail.
fn capture_on(driver: &SimDriver, stream: StreamHandle) -> Option<u64> {
    loop {
        match driver.capture_of(stream) {
            Ok(CaptureStatus::Active { capture, .. }) => return Some(capture.0),
            Ok(_) => return None,
            Err(_) => {}
        }
    }
}

impl World {
    pub(super) fn begin_graph(
        &mut self,
        pool: usize,
        row: usize,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let (alone, told) = (u.arbitrary()?, !self.host.strays || u.ratio(1, 2)?);
        let modes = [CaptureMode::Relaxed, CaptureMode::Global, CaptureMode::ThreadLocal];
        // Memory that the driver allocates and frees would ruin others, which the plug-in does not know of.
        let mode = *u.choose(if told { &modes } else { &modes[..1] })?;
        let under_way = |graph: &Capture| graph.fate == Fate::UnderWay;
        if self.captures.len() == MOST || self.captures.iter().any(under_way) {
            return Ok(());
        }
        let (key, name) = (self.host.pools[pool].key, self.streams[row].name);
        if !told {
            must(self.driver.begin_capture(name, mode));
        } else if !self.announce((pool, key), name, (mode, alone)) {
            return Ok(());
        }
        let number = self.captures.len();
        self.tell(format_args!("graph {number} begins on {row} in {key:?}, {mode:?}, told {told}"));
        self.figures.share();
        self.streams[row].capture = Some(number);
        self.captures.push(Capture {
            fate: Fate::UnderWay,
            latest: 0,
            executable: None,
            pool: told.then_some((key, pool)),
            route: self.host.routes.len(),
        });
        if told {
            self.host.pools[pool].others += 1;
            self.judge_users(pool);
        }
        Ok(())
    }

    /// Begins a capture of which the plug-in is told. False where that fails.
    fn announce(
        &mut self,
        (pool, key): (usize, PoolKey),
        name: StreamHandle,
        (mode, alone): (CaptureMode, bool),
    ) -> bool {
        let reports = self.host.plugin.pools(0).expect("the device is there");
        if !reports.iter().any(|report| report.key == key) {
            self.host.pools[pool] = self.new_pool(key);
        }
        let (driver, known) = (Arc::clone(&self.driver), Arc::new(AtomicU64::new(0)));
        let wanted = Arc::clone(&known);
        let filter = Arc::new(move |stream| {
            capture_on(&driver, stream) == Some(wanted.load(Ordering::Relaxed))
        });
        let begun = self.in_its_region(key, || self.host.plugin.begin_pool(0, key, filter));
        let route = begun.expect("the device is there");
        must(self.driver.begin_capture(name, mode));
        let capture = capture_on(&self.driver, name).expect("the stream captures");
        known.store(capture, Ordering::Relaxed);
        if let Err(error) = self.host.plugin.capture_begun(0, name, route, alone) {
            // Its pool is short of memory: the capture comes to nothing.
            self.excuse(&error);
            must(self.driver.end_capture(name));
            self.host.plugin.end_pool(0, key).expect("the route stands");
            self.host.plugin.release_pool(0, key).expect("the device is there");
            self.judge_users(pool);
            return false;
        }
        true
    }

    /// Ends the capture of a stream. One that fails comes to nothing.
    pub(super) fn end_graph(&mut self, row: usize, fails: bool) {
        let Some(number) = self.streams[row].capture else { return };
        let name = self.streams[row].name;
        let Some((key, pool)) = self.captures[number].pool else {
            // The host launches no such graph once what it uses is gone; one that was ruined there is not.
            drop(self.driver.end_capture(name));
            self.captures[number].fate = Fate::Gone;
            self.streams[row].capture = None;
            return;
        };
        let fails = fails
            || self.host.plugin.capture_ending(0, name, |_, _| {}).is_err_and(|error| {
                self.excuse(&error);
                true
            });
        if fails {
            must(self.driver.end_capture(name));
            self.host.plugin.capture_failing(0, name).expect("the device is there");
            if number.is_multiple_of(2) {
                // A host that lets go of the pool by itself.
                self.host.plugin.release_pool(0, key).expect("the device is there");
            }
            self.host.plugin.capture_failed(0, name).expect("the device is there");
            self.captures[number].fate = Fate::Gone;
            self.host.pools[pool].others -= 1;
        } else {
            let graph = must(self.driver.end_capture(name));
            self.host.plugin.end_pool(0, key).expect("the route stands");
            self.host.plugin.capture_ended(0, name).expect("the capture is sound");
            self.captures[number].executable = Some(must(self.driver.instantiate(graph)));
            self.captures[number].fate = Fate::Accepted;
        }
        self.streams[row].capture = None;
        self.tell(format_args!("graph {number} ends, {:?}", self.captures[number].fate));
        self.judge_users(pool);
    }

    /// Runs a graph behind the last one that ran: graphs of one pool never run at once.
    pub(super) fn replay(&mut self, number: usize, slot: usize) {
        let Some(executable) = self.captures[number].executable else { return };
        if self.captures_now() {
            return;
        }
        let (name, row) = (self.streams[slot].name, self.streams[slot].row);
        self.tell(format_args!("replay of {number} on {row}"));
        let last = self.replayed.replace(row).filter(|&last| last != row);
        let on = last.map(|last| self.streams.iter().position(|it| it.row == last));
        // It overwrites what a checkpoint brought back, which the host is done with before, and writes again after it.
        let lost = self.blocks.iter().any(|it| it.live && it.restored);
        match on {
            _ if lost => self.judge_device(),
            Some(Some(on)) => drop(self.wait(slot, on)),
            Some(None) => self.judge_device(),
            None => {}
        }
        must(self.driver.replay(executable, name));
        if lost {
            self.judge_device();
            let mut blocks = self.blocks.iter_mut();
            blocks.by_ref().filter(|it| it.live && it.restored).for_each(|it| it.written = false);
        }
    }

    pub(super) fn release_graph(&mut self, number: usize) {
        let Some((key, pool)) = self.captures[number].pool else { return };
        let Some(executable) = self.captures[number].executable.take() else { return };
        self.tell(format_args!("graph {number} goes"));
        self.captures[number].fate = Fate::Gone;
        must(self.driver.destroy_executable(executable));
        self.host.plugin.release_pool(0, key).expect("the device is there");
        self.host.pools[pool].others -= 1;
        self.judge_users(pool);
    }
}
