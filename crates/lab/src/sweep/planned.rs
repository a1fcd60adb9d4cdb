//! A workload with a plan.

use std::sync::Arc;

use serde::Serialize;

use regraph::engine::PlanReport;
use regraph_cli::replay::{replay, Options, Plan, ReplayError};
use regraph_tagged::Program;
use regraph_trace::Trace;

/// The figures of a workload with a [`Plan`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Planned {
    /// What the pool holds.
    pub planned_bytes: u64,
    /// [`Row::minimum_bytes`](super::Row::minimum_bytes) in whole units of the device's granularity.
    pub planned_minimum_bytes: u64,
    /// `planned_bytes` over `planned_minimum_bytes`; `None` where no memory is needed.
    pub planned_ratio: Option<f64>,
    /// How often pieces of memory are mapped at the capture's end.
    pub mappings: usize,
    /// How long planning took then, in nanoseconds.
    pub planning_ns: u64,
    /// How long mapping took, in nanoseconds.
    pub binding_ns: u64,
    /// Time of a launch of the graph, on average, in nanoseconds, where graphs are launched.
    pub planned_replay_ns: Option<u64>,
}

impl Planned {
    /// Runs a workload once more; `None` where the device cannot map memory.
    pub(super) fn run<P: Program>(
        driver: &Arc<P>,
        trace: &Trace,
        launches: u32,
        minimum_bytes: u64,
        plan: Plan,
    ) -> Result<Option<Self>, ReplayError> {
        let Some(granularity) = driver.memory_support().granularity() else {
            return Ok(None);
        };
        let options = Options { launches, plan, ..Options::default() };
        let replayed = replay(driver, trace, &options)?;
        let sum = |figure: fn(&PlanReport) -> u64| replayed.plans.iter().map(figure).sum();
        let planned_minimum_bytes = minimum_bytes.next_multiple_of(granularity);
        Ok(Some(Self {
            planned_bytes: replayed.reserved_bytes,
            planned_minimum_bytes,
            planned_ratio: regraph_plan::minimum::ratio(
                replayed.reserved_bytes,
                planned_minimum_bytes,
            ),
            mappings: replayed.plans.iter().map(|plan| plan.mappings).sum(),
            planning_ns: sum(|plan| plan.planning_ns),
            binding_ns: sum(|plan| plan.binding_ns),
            planned_replay_ns: replayed.replay_ns,
        }))
    }
}
