//! What a program is given: settings of all kinds, and memory of its host's own, for pools that get theirs from
//! elsewhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regraph::driver::{self, Driver, Source, StreamHandle};
use regraph::settings::{Rounding, Settings};
use regraph_sim::SimDriver;

/// Settings of all kinds, of an engine that may have up to so many bytes.
pub(crate) fn settings(mut next: impl FnMut() -> u8, total: u64) -> Settings {
    let mut settings = Settings::default()
        .expandable_segments(!next().is_multiple_of(3))
        .exportable(next().is_multiple_of(2))
        .max_split_bytes(next().is_multiple_of(4).then_some(20 << 20))
        .max_non_split_rounding_bytes(u64::from(next() % 3) << 21);
    let strict = next();
    if strict.is_multiple_of(3) {
        settings.memory_limit_bytes = Some(total / 2 + (u64::from(strict) << 17));
        let threshold = 0.2 + f64::from(next()) / 400.0;
        settings.garbage_collection_threshold = strict.is_multiple_of(2).then_some(threshold);
    }
    let divisions = next();
    if divisions.is_multiple_of(3) {
        let rounding = Rounding::uniform(1 << (divisions / 3 % 4));
        settings.rounding = rounding.expect("a power of two");
    }
    settings.history = if next().is_multiple_of(4) { 64 } else { 0 };
    settings
}

/// Memory of the host's own: the device's, asked for behind the engine's back.
#[derive(Debug)]
pub struct Given {
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
    /// Has its memory from a device.
    pub fn new(driver: Arc<SimDriver>) -> Self {
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
