//! One workload under the three reuse policies.

use std::sync::Arc;

use serde::Serialize;

use super::{Planned, Workload};
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::replay::{replay, Options, Plan, ReplayError, Replayed};
use regraph_tagged::Program;
use regraph_trace::minimum;
use regraph_trace::Trace;

/// The figures of a workload. Times are those of [`Reuse::CrossStream`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Streams.
    pub streams: u16,
    /// Steps.
    pub operations: u32,
    /// The probability of an allocation at a step.
    pub alloc: f64,
    /// The probability of a free.
    pub free: f64,
    /// The probability of a wait.
    pub join: f64,
    /// The sizes of blocks.
    pub sizes: String,
    /// Nodes of the graph.
    pub nodes: usize,
    /// Blocks allocated.
    pub blocks: usize,
    /// What the pool holds with [`Reuse::CrossStream`].
    pub reserved_bytes: u64,
    /// The least that any placement by free markers needs without new edges.
    pub minimum_bytes: u64,
    /// `reserved_bytes` over `minimum_bytes`; `None` where no memory is needed.
    pub ratio: Option<f64>,
    /// What it holds with [`Reuse::Deferred`].
    pub deferred_bytes: u64,
    /// What it holds with [`Reuse::OwnStream`].
    pub own_stream_bytes: u64,
    /// The highest that live blocks came to.
    pub peak_allocated_bytes: u64,
    /// Host time of the capture, in nanoseconds.
    pub capture_ns: u64,
    /// Host time of an allocation, on average, in nanoseconds.
    pub alloc_ns: u64,
    /// Host time of a free, on average, in nanoseconds.
    pub free_ns: u64,
    /// Time of a launch of the graph, on average, in nanoseconds, where graphs are launched.
    pub replay_ns: Option<u64>,
    /// The figures with a plan, where they were asked for and the device can map memory.
    #[serde(flatten)]
    pub planned: Option<Planned>,
}

/// Runs a workload under each policy, and once more with a plan, if there is one; `launches` of the graph are timed with the first policy and with the plan.
///
/// # Errors
/// The first replay that fails.
pub fn run<P: Program>(
    driver: &Arc<P>,
    workload: &Workload,
    trace: &Trace,
    launches: u32,
    plan: Plan,
) -> Result<Row, ReplayError> {
    let with = |reuse, launches| -> Result<Replayed, ReplayError> {
        let config = Config::default().reuse(reuse);
        let options = Options { config, launches, ..Options::default() };
        replay(driver, trace, &options)
    };
    let cross_stream = with(Reuse::CrossStream, launches)?;
    let own_stream = with(Reuse::OwnStream, 0)?;
    let deferred = with(Reuse::Deferred, 0)?;
    let certificates = minimum::of_trace(trace, Programmatic::default());
    let minimum_bytes = minimum::of_pools(trace, &certificates, 1);
    let planned = match plan {
        Plan::None => None,
        plan => Planned::run(driver, trace, launches, minimum_bytes, plan)?,
    };
    Ok(Row {
        streams: workload.streams,
        operations: workload.operations,
        alloc: workload.alloc,
        free: workload.free,
        join: workload.join,
        sizes: workload.sizes.to_string(),
        nodes: cross_stream.nodes,
        blocks: cross_stream.blocks,
        reserved_bytes: cross_stream.reserved_bytes,
        minimum_bytes,
        ratio: regraph_plan::minimum::ratio(cross_stream.reserved_bytes, minimum_bytes),
        deferred_bytes: deferred.reserved_bytes,
        own_stream_bytes: own_stream.reserved_bytes,
        peak_allocated_bytes: cross_stream.peak_allocated_bytes,
        capture_ns: cross_stream.capture_ns,
        alloc_ns: cross_stream.alloc_ns,
        free_ns: cross_stream.free_ns,
        replay_ns: cross_stream.replay_ns,
        planned,
    })
}
