//! Memory of a host's own, for pools that get theirs from elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regraph::driver::{self, Driver, Source, StreamHandle};
use regraph_sim::SimDriver;

/// Memory of the host's own: the device's, asked for behind the engine's back.
#[derive(Debug)]
pub(crate) struct Given {
    driver: Arc<SimDriver>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// What was given and not taken back: where it really begins, and its bytes as asked for.
    given: BTreeMap<u64, (u64, u64)>,
    /// Whether the next address is to be one that no block can have.
    odd: bool,
}

impl Given {
    pub(crate) fn new(driver: Arc<SimDriver>) -> Self {
        Self { driver, held: Mutex::default() }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn misplace(&self) {
        self.held().odd = true;
    }

    pub(crate) fn judge_balance(&self) {
        let held = self.held();
        assert!(held.given.is_empty(), "a source was not given back {:x?}", held.given);
    }
}

impl Source for Given {
    fn allocate(&self, bytes: u64, _: StreamHandle) -> driver::Result<u64> {
        let real = self.driver.allocate(bytes)?;
        let mut held = self.held();
        let address = if std::mem::take(&mut held.odd) { real + 8 } else { real };
        held.given.insert(address, (real, bytes));
        Ok(address)
    }

    fn free(&self, address: u64, bytes: u64) -> driver::Result<()> {
        let mut held = self.held();
        let given = held.given.get(&address).copied();
        let (real, asked) = given.expect("taken back twice, or never given");
        assert_eq!(bytes, asked, "as many bytes go back as came");
        self.driver.free(real)?;
        held.given.remove(&address);
        Ok(())
    }
}
