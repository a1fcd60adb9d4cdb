//! A region that sleeps and wakes at once: everything that lives is as before.

use super::pools::Pool;
use super::world::{Fate, World};
use regraph::driver::Transfer;
use regraph::engine;
use regraph::regions::Backup;
use regraph_plugin::{Error, Plugin, PoolKey};

/// The region of all that sleeps.
const REGION: &str = "region";

/// The pool that belongs to it, whenever it is made, in programs that have one.
const IN_REGION: PoolKey = (0, 3);

/// Has files keep what the region holds while it sleeps.
pub(super) fn keep_in_files<D: Transfer>(plugin: &Plugin<D>) {
    plugin.set_region_backup(REGION, Backup::File(std::env::temp_dir().into()));
}

impl World {
    /// Runs a call of a thread that is in the region.
    pub(super) fn in_region<R>(&self, call: impl FnOnce() -> R) -> R {
        let entered = self.host.plugin.enter_region(Some(REGION));
        let result = call();
        self.host.plugin.leave_region(entered).expect("this thread has entered it");
        result
    }

    /// A pool that is about to be made.
    pub(super) fn new_pool(&self, key: PoolKey) -> Pool {
        Pool::new(key, self.host.sleeps && key == IN_REGION)
    }

    /// Runs a call that may make a pool, in the region if that is the pool's.
    pub(super) fn in_its_region<R>(&self, key: PoolKey, call: impl FnOnce() -> R) -> R {
        match self.host.sleeps && key == IN_REGION {
            true => self.in_region(call),
            false => call(),
        }
    }

    /// All regions go and come again.
    pub(super) fn nap(&mut self) {
        let open = !self.host.opened.is_empty() || self.host.lingers;
        if !self.host.sleeps || open || self.captures_untold() {
            // Who has memory open keeps it; and a capture that the plug-in does not know of is the host's to mind.
            return;
        }
        self.tell(format_args!("a nap"));
        let captures = self.captures.iter().any(|graph| graph.fate == Fate::UnderWay);
        let pool = self.host.pools.iter().find(|pool| pool.key == IN_REGION).expect("one of three");
        match self.host.plugin.sleep(None) {
            Ok(_) => assert!(!captures, "beside a capture"),
            // Or the driver did not say that one is over of whose end nothing was told.
            Err(Error::Engine(engine::Error::DeviceCaptures { .. })) => {
                assert!(captures || self.faulted);
            }
            // Memory from elsewhere, and on devices without mappings.
            Err(Error::Engine(engine::Error::Pool {
                why: engine::PoolRefusal::CannotSuspend,
                ..
            })) => {}
            // Eager work has borrowed some, while it could.
            Err(Error::Engine(engine::Error::Pool {
                why: engine::PoolRefusal::HasBlocks { .. },
                ..
            })) => {
                self.tell(format_args!("the region keeps awake"));
                assert!(pool.has_lent);
            }
            Err(error) => self.excuse(&error),
        }
        for _ in 0..2 {
            match self.host.plugin.wake(None) {
                Ok(_) => return self.judge_device(),
                Err(Error::Engine(engine::Error::OutOfMemory(_))) => {
                    assert!(self.faulted || self.host.limit.is_some());
                }
                Err(error) => self.excuse(&error),
            }
            self.driver.forget_failures();
            self.limit(None);
        }
        panic!("nothing fails any more, and the region sleeps on");
    }
}
