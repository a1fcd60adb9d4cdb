//! Graphs in named pools, and going back to checkpoints of these.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::world::{must, Block, Fate, Graph, Saved, World, Writer};
use regraph::driver::{CaptureMode, CaptureStatus, Driver, HostApi};
use regraph::engine;
use regraph_plugin::{Error, PoolKey};

/// Graphs and checkpoints of one program, at most.
const MOST: usize = 8;

impl World {
    pub(super) fn begin_graph(&mut self, pool: usize, row: usize, alone: bool) {
        let key = self.pools[pool].key;
        let under_way = |graph: &Graph| graph.fate == Fate::UnderWay;
        if self.graphs.len() == MOST || self.graphs.iter().any(under_way) {
            return;
        }
        let reports = self.plugin.pools(0).expect("the device is there");
        if !reports.iter().any(|report| report.key == key) {
            self.pools[pool] = self.new_pool(key);
        }
        let name = self.streams[row].name;
        let (driver, known) = (Arc::clone(&self.driver), Arc::new(AtomicUsize::new(0)));
        let wanted = Arc::clone(&known);
        let filter = Arc::new(move |stream| match driver.capture_of(stream) {
            Ok(CaptureStatus::Active { capture, .. }) => {
                capture.0 as usize == wanted.load(Ordering::Relaxed)
            }
            _ => false,
        });
        let begun = self.in_its_region(key, || self.plugin.begin_pool(0, key, filter));
        let route = begun.expect("the device is there");
        must(self.driver.begin_capture(name, CaptureMode::Relaxed));
        let status = must(self.driver.capture_of(name));
        let CaptureStatus::Active { capture: id, .. } = status else {
            panic!("the stream captures")
        };
        known.store(id.0 as usize, Ordering::Relaxed);
        if let Err(error) = self.plugin.capture_begun(0, name, route, alone) {
            // Its pool is short of memory: the capture comes to nothing.
            self.excuse(&error);
            must(self.driver.end_capture(name));
            self.plugin.end_pool(0, key).expect("the route stands");
            self.plugin.release_pool(0, key).expect("the device is there");
            self.judge_users(pool);
            return;
        }
        self.pools[pool].others += 1;
        let number = self.graphs.len();
        self.tell(format_args!("graph {number} begins on {row} in {key:?}, alone {alone}"));
        self.streams[row].graph = Some(number);
        let (route, fate) = (self.routes.len(), Fate::UnderWay);
        self.graphs.push(Graph { key, pool, route, latest: 0, fate, executable: None });
        self.judge_users(pool);
    }

    /// Ends the capture of a stream. One that fails comes to nothing.
    pub(super) fn end_graph(&mut self, row: usize, fails: bool) {
        let Some(number) = self.streams[row].graph else { return };
        let (name, Graph { key, pool, .. }) = (self.streams[row].name, &self.graphs[number]);
        let (key, pool) = (*key, *pool);
        let fails = fails
            || self.plugin.capture_ending(0, name, |_, _| {}).is_err_and(|error| {
                self.excuse(&error);
                true
            });
        if fails {
            must(self.driver.end_capture(name));
            self.plugin.capture_failing(0, name).expect("the device is there");
            if number.is_multiple_of(2) {
                // A host that lets go of the pool by itself.
                self.plugin.release_pool(0, key).expect("the device is there");
            }
            self.plugin.capture_failed(0, name).expect("the device is there");
            self.graphs[number].fate = Fate::Gone;
            self.pools[pool].others -= 1;
        } else {
            let graph = must(self.driver.end_capture(name));
            self.plugin.end_pool(0, key).expect("the route stands");
            self.plugin.capture_ended(0, name).expect("the capture is sound");
            self.graphs[number].executable = Some(must(self.driver.instantiate(graph)));
            self.graphs[number].fate = Fate::Accepted;
        }
        self.streams[row].graph = None;
        self.tell(format_args!("graph {number} ends, {:?}", self.graphs[number].fate));
        self.judge_users(pool);
    }

    /// The graphs of a pool that may run again.
    pub(super) fn graphs_of(&self, key: PoolKey) -> Vec<usize> {
        let runs = |it: &usize| self.graphs[*it].key == key && self.graphs[*it].fate != Fate::Gone;
        (0..self.graphs.len()).filter(runs).collect()
    }

    /// Runs a graph once everything is over that it could disturb; not alone with what comes after it.
    pub(super) fn replay(&mut self, number: usize, row: usize) {
        let Some(executable) = self.graphs[number].executable else { return };
        if self.streams.iter().any(|stream| stream.graph.is_some()) {
            return;
        }
        self.judge_device();
        self.tell(format_args!("replay of {number} on {row}"));
        must(self.driver.replay(executable, self.streams[row].name));
        self.push_operation(row);
        let count = self.order.count(row);
        self.replays.push(((row, count), number));
        let mut lost = false;
        for block in &mut self.blocks {
            // Others the graph has no node for.
            if block.writer == Writer::Node(number) {
                for bytes in self.ranges.between(block.address, block.end()) {
                    bytes.note_use(row, count);
                }
            }
            if block.live && block.restored {
                block.writer = Writer::NoWork;
                lost = true;
            }
        }
        if lost {
            // They are the host's to write again, after the graph.
            self.judge_device();
        }
    }

    pub(super) fn release_graph(&mut self, number: usize) {
        let Some(executable) = self.graphs[number].executable.take() else { return };
        let Graph { key, pool, .. } = self.graphs[number];
        self.tell(format_args!("graph {number} goes"));
        self.graphs[number].fate = Fate::Gone;
        must(self.driver.destroy_executable(executable));
        self.plugin.release_pool(0, key).expect("the device is there");
        self.pools[pool].others -= 1;
        self.judge_users(pool);
    }

    /// The live blocks that a checkpoint of a pool has: not those that eager work has borrowed.
    fn own_live(&self, pool: usize) -> Vec<usize> {
        let key = self.pools[pool].key;
        let addresses = self.plugin.live_in_pool(0, key).unwrap_or_default();
        let is = |it: &usize| {
            let block = &self.blocks[*it];
            block.key == key && addresses.contains(&block.address)
        };
        let live: Vec<usize> = self.live().into_iter().filter(is).collect();
        assert_eq!(live.len(), addresses.len(), "a live block is unknown");
        live
    }

    pub(super) fn save(&mut self, pool: usize) {
        let key = self.pools[pool].key;
        if self.saved.len() == MOST {
            return;
        }
        match self.plugin.checkpoint(0, key) {
            Ok(checkpoint) => {
                let blocks = self.own_live(pool);
                self.tell(format_args!("checkpoint {} of {key:?}: {blocks:?}", self.saved.len()));
                self.saved.push(Saved { pool, checkpoint, blocks });
            }
            Err(Error::UnknownPool { .. }) => {}
            Err(Error::Engine(engine::Error::Checkpoint {
                why: engine::CheckpointRefusal::Captures { .. },
                ..
            })) => {
                // A route that began later has the capture use another pool than its own.
                let captures = self.streams.iter().any(|stream| stream.graph.is_some());
                assert!(captures, "nothing captures into the pool");
            }
            Err(error) => self.excuse(&error),
        }
    }

    /// Goes back to a checkpoint, once all streams come after all others.
    pub(super) fn restore(&mut self, saved: usize) {
        let Saved { pool, .. } = self.saved[saved];
        let key = self.pools[pool].key;
        if self.streams.iter().any(|stream| stream.graph.is_some()) {
            return;
        }
        for _ in 0..2 {
            for row in 1..self.streams.len() {
                self.wait(0, row);
            }
            for row in 1..self.streams.len() {
                self.wait(row, 0);
            }
        }
        let before = self.own_live(pool);
        let restored = match self.plugin.restore(0, key, &self.saved[saved].checkpoint) {
            Ok(restored) => restored,
            Err(Error::UnknownPool { .. }) => return,
            Err(Error::Engine(
                engine::Error::Checkpoint { why: engine::CheckpointRefusal::Gone { .. }, .. }
                | engine::Error::Checkpoint {
                    why: engine::CheckpointRefusal::OtherPool { .. }, ..
                },
            )) => return,
            Err(error) => return self.excuse(&error),
        };
        self.tell(format_args!("back to checkpoint {saved} of {key:?}"));
        let mut freed: Vec<u64> = before.iter().map(|&it| self.blocks[it].address).collect();
        freed.sort_unstable();
        assert_eq!(restored.freed, freed, "what was live");
        let graphs = self.graphs_of(key);
        for number in before {
            let block = &mut self.blocks[number];
            block.live = false;
            for bytes in self.ranges.between(block.address, block.end()) {
                bytes.live = None;
                bytes.graphs.extend(&graphs);
                // All that comes in the pool comes after it, by the host's word.
                bytes.by_word.clone_from(&bytes.uses);
            }
        }
        let back: Vec<Block> = self.saved[saved]
            .blocks
            .iter()
            .enumerate()
            .map(|(row, &number)| {
                let block = &self.blocks[number];
                Block {
                    users: vec![block.users[0]],
                    counts: self.order.counts(),
                    home: None,
                    restored: true,
                    born: self.now,
                    live: true,
                    tag: (self.blocks.len() + row) as u64 + 1,
                    writer: Writer::NoWork,
                    ..*block
                }
            })
            .collect();
        let mut addresses: Vec<u64> = back.iter().map(|block| block.address).collect();
        addresses.sort_unstable();
        assert_eq!(restored.live, addresses, "what is live");
        for block in back {
            for bytes in self.ranges.between(block.address, block.end()) {
                bytes.by_word.clone_from(&bytes.uses);
            }
            self.enter(block);
        }
    }
}
