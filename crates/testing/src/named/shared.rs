//! Blocks that are opened by their handles, as another process would.

use super::world::World;
use super::Opened;
use regraph::engine;
use regraph_plugin::Error;
use regraph_tagged::Program;

/// Open handles of one program, at most.
const MOST: usize = 4;

impl World {
    pub(super) fn open(&mut self, number: usize) {
        let block = &self.blocks[number];
        if self.host.opened.len() == MOST {
            return;
        }
        let shared = match self.host.plugin.share(block.address) {
            Ok(shared) => shared,
            Err(Error::Engine(engine::Error::Sharing { .. })) => return,
            Err(error) => return self.excuse(&error),
        };
        match self.host.plugin.open_shared(0, &shared.handle) {
            Ok(opened) => {
                let address = opened.address + shared.offset;
                self.tell(format_args!("block {number} is open at {address:#x}"));
                self.host.opened.push(Opened { id: opened.id, address, block: number });
                self.judge_opened(self.host.opened.len() - 1);
            }
            Err(error) => self.excuse(&error),
        }
    }

    /// What a live block's memory holds shows at both addresses.
    fn judge_opened(&self, opened: usize) {
        let Opened { address, block, .. } = self.host.opened[opened];
        let block = &self.blocks[block];
        if block.live {
            let behind = |address| self.driver.behind(address, block.bytes);
            assert_eq!(behind(address), behind(block.address), "the mappings differ");
        }
    }

    pub(super) fn close(&mut self, opened: usize) {
        self.judge_opened(opened);
        if self.captures_untold() {
            return;
        }
        let Opened { id, address, .. } = self.host.opened.remove(opened);
        self.tell(format_args!("{address:#x} is closed"));
        self.host.plugin.close_shared(id).expect("it is open");
        let last = self.host.opened.iter().all(|other| other.id != id);
        let captures = self.captures_now() || self.host.strays;
        self.host.lingers |= captures;
        if last && !captures {
            let gone = self.driver.read_tags(address, 512).is_err();
            assert!(gone || self.host.lossy, "what its last user has closed is mapped");
        }
    }
}
