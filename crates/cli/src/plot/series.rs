//! The figures of one run of a trace.

use std::sync::Arc;

use crate::replay::{replay_sampled, Options, ReplayError, Sample};
use regraph_tagged::Program;
use regraph_trace::Trace;

/// What is drawn in one panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The panel's name.
    pub name: String,
    /// Memory behind each operation of the trace, in order.
    pub samples: Vec<Sample>,
    /// The highest that each pool's live blocks came to, summed over pools, in bytes. With several
    /// pools it may be more than any sample.
    pub peak_allocated: u64,
}

impl Series {
    /// Runs a trace; the panel is named after the reuse policy. Nothing is mapped ahead, so that what is
    /// held is what is needed.
    ///
    /// # Errors
    /// As of [`crate::replay::replay`].
    pub fn run<P: Program>(
        driver: &Arc<P>,
        trace: &Trace,
        options: &Options,
    ) -> Result<Self, ReplayError> {
        let mut samples = Vec::with_capacity(trace.operations().len());
        let mut options = options.clone();
        options.config.settings.growth_step_bytes = None;
        let replayed = replay_sampled(driver, trace, &options, |sample| samples.push(sample))?;
        Ok(Self {
            name: options.config.settings.reuse.to_string(),
            samples,
            peak_allocated: replayed.peak_allocated_bytes,
        })
    }

    /// The highest that the pools held, in bytes.
    pub fn peak_reserved(&self) -> u64 {
        self.highest(|sample| sample.reserved)
    }

    /// The highest that waited, in bytes.
    pub fn peak_waiting(&self) -> u64 {
        self.highest(|sample| sample.waiting)
    }

    /// [`Series::peak_reserved`] over [`Series::peak_allocated`]; `None` where nothing was
    /// allocated.
    pub fn reserved_over_allocated(&self) -> Option<f64> {
        let reserved = self.peak_reserved() as f64;
        (self.peak_allocated > 0).then(|| reserved / self.peak_allocated as f64)
    }

    fn highest(&self, figure: impl Fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(figure).max().unwrap_or(0)
    }
}
