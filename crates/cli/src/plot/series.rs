//! The figures of one run of a trace.

use std::sync::Arc;

use super::layout::Layout;
use crate::replay::{replay_sampled, Options, Plan, ReplayError, Sample};
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_sim::{SimConfig, SimDriver};
use regraph_trace::Trace;

/// What is drawn in one panel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// The panel's name.
    pub name: String,
    /// Memory behind each operation of the trace, in order.
    pub samples: Vec<Sample>,
    /// The highest that each pool's live blocks came to, summed over pools, in bytes. With several
    /// pools it may be more than any sample.
    pub peak_allocated: u64,
    /// Where the blocks lay.
    pub layout: Layout,
}

impl Series {
    /// Runs a trace; the panel is named after the plan, or without one after the reuse policy. Nothing is mapped ahead,
    /// so that what is held is what is needed.
    ///
    /// # Errors
    /// As of [`crate::replay::replay`].
    pub fn run(
        driver: &Arc<SimDriver>,
        trace: &Trace,
        options: &Options,
    ) -> Result<Self, ReplayError> {
        let mut samples = Vec::with_capacity(trace.operations().len());
        let mut options = options.clone();
        options.config.settings.growth_step_bytes = None;
        let mut layout = Layout::default();
        let replayed = replay_sampled(
            driver,
            trace,
            &options,
            |sample| samples.push(sample),
            |placements| layout = Layout::new(placements, |at, bytes| driver.behind(at, bytes)),
        )?;
        let name = match options.plan {
            Plan::None => options.config.settings.reuse.to_string(),
            plan => plan.to_string(),
        };
        Ok(Self { name, samples, peak_allocated: replayed.peak_allocated_bytes, layout })
    }

    /// A run for each panel, on a simulated device of its own: each policy without a plan, if the plans have
    /// [`Plan::None`], then each other plan under the first of the policies. What is named twice runs once. `begin` is
    /// called with each one's name.
    ///
    /// # Errors
    /// As of [`Series::run`], with the name of the run.
    pub fn run_all(
        trace: &Trace,
        policies: &[Reuse],
        plans: &[Plan],
        programmatic: Programmatic,
        mut begin: impl FnMut(&str),
    ) -> Result<Vec<Self>, (String, Box<ReplayError>)> {
        let unplanned = policies.iter().map(|&policy| (policy, Plan::None));
        let unplanned = unplanned.filter(|_| plans.contains(&Plan::None));
        let first = policies.first().copied().unwrap_or_default();
        let planned = plans.iter().filter(|&&plan| plan != Plan::None);
        let mut series: Vec<Self> = Vec::new();
        for (reuse, plan) in unplanned.chain(planned.map(|&plan| (first, plan))) {
            let name = match plan {
                Plan::None => reuse.to_string(),
                plan => plan.to_string(),
            };
            if series.iter().any(|done| done.name == name) {
                continue;
            }
            begin(&name);
            let config = Config::default().programmatic(programmatic).reuse(reuse);
            let options = Options { config, plan, ..Options::default() };
            let driver = Arc::new(SimDriver::new(SimConfig::default()));
            series.push(Self::run(&driver, trace, &options).map_err(|error| (name, error.into()))?);
        }
        Ok(series)
    }

    /// The highest that the pools held, in bytes.
    pub fn peak_reserved(&self) -> u64 {
        self.highest(|sample| sample.reserved)
    }

    /// The highest that waited, in bytes.
    pub fn peak_waiting(&self) -> u64 {
        self.highest(|sample| sample.waiting)
    }

    /// [`Series::peak_reserved`] over [`Series::peak_allocated`]; `None` where nothing was allocated.
    pub fn reserved_over_allocated(&self) -> Option<f64> {
        let reserved = self.peak_reserved() as f64;
        (self.peak_allocated > 0).then(|| reserved / self.peak_allocated as f64)
    }

    fn highest(&self, figure: impl Fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(figure).max().unwrap_or(0)
    }
}
