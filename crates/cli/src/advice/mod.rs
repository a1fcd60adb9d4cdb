//! What each way to place a capture's blocks comes to, and which is worth what it costs.
//!
//! Memory and mappings do not depend on kernels, so traces run on a simulated device that gives out memory as the one
//! that is asked about. Times are no part of the advice: it is the same on every machine.

use std::sync::Arc;

use serde::Serialize;

use crate::replay::{replay, Options, Plan, ReplayError};
use regraph::driver::MemorySupport;
use regraph::engine::Config;
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_trace::minimum;
use regraph_trace::Trace;

/// What a trace comes to with one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// What the pools hold at the end, in bytes.
    pub reserved_bytes: u64,
    /// How often the driver is asked to map memory, or to allocate it where it cannot be mapped: for
    /// scratch memory and for captures that are thrown away too.
    pub mappings: u64,
}

/// A trace with every plan that a device allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Captures.
    pub captures: usize,
    /// The least that any placement by free markers needs without new edges, in bytes.
    pub minimum_bytes: u64,
    /// The least that any placement by free markers needs without new edges of whole units of the device's granularity,
    /// summed over the pools, in bytes: what is mapped cannot come to less. `None` where memory is not mapped.
    pub minimum_unit_bytes: Option<u64>,
    unplanned: Outcome,
    planned: Vec<Outcome>,
}

/// The plans that are possible on a device, in the order of what they cost a capture: nothing, nothing but
/// a run before, mappings, a second capture.
///
/// Memory that comes at a capture's end needs virtual memory management.
pub fn possible(support: MemorySupport) -> impl Iterator<Item = Plan> {
    let maps = support.granularity().is_some();
    Plan::ALL.iter().copied().filter(move |plan| maps || *plan != Plan::Exact)
}

impl Outcome {
    /// What a host does for it, in words.
    pub fn asks_for(&self) -> &'static str {
        match self.plan {
            Plan::None => "nothing",
            Plan::Learned => "a run outside captures before (Plans::learn, regraph.torch.learn)",
            Plan::Exact => "the setting plan:exact",
            Plan::Twice => "a second capture of the same work (Pool::capture_twice) and plan:exact",
        }
    }
}

/// Runs a trace without a plan, and once with each of `plans` that is possible on a device like `device`, with an
/// engine's other choices.
///
/// # Errors
/// The first replay that fails.
pub fn compare(
    device: SimConfig,
    trace: &Trace,
    config: &Config,
    plans: &[Plan],
) -> Result<Comparison, ReplayError> {
    let outcome = |plan| -> Result<Outcome, ReplayError> {
        let driver = Arc::new(SimDriver::new(device));
        let options = Options { config: config.clone(), plan, ..Options::default() };
        let replayed = replay(&driver, trace, &options)?;
        let mappings = driver.calls(Call::Map) + driver.calls(Call::Allocate);
        Ok(Outcome { plan, reserved_bytes: replayed.reserved_bytes, mappings })
    };
    let certificates = minimum::of_trace(trace, config.settings.programmatic);
    let in_units = |unit| minimum::of_pools(trace, &certificates, unit);
    let wanted = |plan: &Plan| *plan != Plan::None && plans.contains(plan);
    let planned = possible(device.support).filter(wanted);
    Ok(Comparison {
        captures: certificates.len(),
        minimum_bytes: in_units(1),
        minimum_unit_bytes: device.support.granularity().map(in_units),
        unplanned: outcome(Plan::None)?,
        planned: planned.map(outcome).collect::<Result<_, _>>()?,
    })
}

impl Comparison {
    /// What the trace comes to without a plan.
    pub fn unplanned(&self) -> &Outcome {
        &self.unplanned
    }

    /// What it comes to without a plan, and with each that is possible.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        std::iter::once(&self.unplanned).chain(&self.planned)
    }

    /// The plan to use: the first that saves `worth_percent` of what is held without one, or a later
    /// one that saves as much again beside it. One that saves nothing is not worth anything.
    pub fn advised(&self, worth_percent: u64) -> &Outcome {
        let worth = u128::from(self.unplanned.reserved_bytes) * u128::from(worth_percent);
        self.planned.iter().fold(&self.unplanned, |best, outcome| {
            let saved = best.reserved_bytes.saturating_sub(outcome.reserved_bytes);
            let is_worth_it = saved > 0 && u128::from(saved) * 100 >= worth;
            if is_worth_it {
                outcome
            } else {
                best
            }
        })
    }
}
