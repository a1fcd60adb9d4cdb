//! Going back to checkpoints of pools.

use regraph::engine::Checkpoint;

use super::world::{Block, World};

/// Checkpoints of one program, at most.
const MOST: usize = 8;

/// A checkpoint, with the model's blocks that were live then.
pub(super) struct Saved {
    pool: usize,
    checkpoint: Checkpoint,
    blocks: Vec<usize>,
}

impl World {
    /// The live blocks that a checkpoint of a pool has: not those that others have borrowed.
    fn own_live(&self, pool: usize) -> Vec<usize> {
        let addresses = self.host.live_in(pool);
        let is = |it: &usize| {
            let block = &self.blocks[*it];
            block.pool == pool && addresses.contains(&block.address)
        };
        let live: Vec<usize> = self.live().into_iter().filter(is).collect();
        assert_eq!(live.len(), addresses.len(), "a live block is unknown");
        live
    }

    pub(super) fn save(&mut self, pool: usize) {
        if self.saved.len() == MOST {
            return;
        }
        if let Some(checkpoint) = self.checkpoint(pool) {
            let blocks = self.own_live(pool);
            self.tell(format_args!("checkpoint {} of {pool}: {blocks:?}", self.saved.len()));
            self.saved.push(Saved { pool, checkpoint, blocks });
        }
    }

    /// Goes back to a checkpoint, once all streams come after all others.
    pub(super) fn restore(&mut self, saved: usize) {
        let Saved { pool, .. } = self.saved[saved];
        if self.captures_now() {
            return;
        }
        // No stream can wait for one that is gone: the host waits for the device.
        if self.ended {
            self.judge_device();
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
        let Some(restored) = self.go_back(pool, &self.saved[saved].checkpoint) else { return };
        self.tell(format_args!("back to checkpoint {saved} of {pool}"));
        let mut freed: Vec<u64> = before.iter().map(|&it| self.blocks[it].address).collect();
        freed.sort_unstable();
        assert_eq!(restored.freed, freed, "what was live");
        let graphs = self.graphs_of(pool);
        for number in before {
            self.note_gone(number);
            self.note_graphs(self.blocks[number].range(), &graphs);
        }
        let mut back = self.saved[saved].blocks.clone();
        back.sort_unstable_by_key(|&number| self.blocks[number].address);
        let addresses: Vec<u64> = back.iter().map(|&number| self.blocks[number].address).collect();
        assert_eq!(restored.live, addresses, "what is live");
        for number in back {
            let block = Block {
                users: vec![self.blocks[number].users[0]],
                home: None,
                restored: true,
                born: self.now,
                live: true,
                tag: self.blocks.len() as u64 + 1,
                written: false,
                ..self.blocks[number]
            };
            self.enter(block);
        }
    }
}
