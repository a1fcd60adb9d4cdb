//! Running a trace against an [`Engine`](regraph::engine::Engine) on any [`Program`].
//!
//! Every operation of the trace becomes the host's call: kernels are launched, streams wait, raw nodes are added and
//! terminals set on the graph under capture, blocks come from the engine. With tags on, the nodes also write and check
//! what lies in the blocks, so that a wrong reuse shows as wrong data.

mod again;
mod cleanup;
mod clock;
mod error;
mod refusal;
mod runner;
mod sample;
mod tags;
mod twice;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "command")]
use clap::ValueEnum;
use serde::{Serialize, Serializer};

use regraph::engine::{Config, Followed, PlanReport};
use regraph_tagged::Program;
use regraph_trace::{BlockIndex, Trace};

pub use error::ReplayError;
pub use refusal::{Placed, Refusal};
pub use sample::Sample;

/// How a capture's blocks get their places, in the order of what that costs a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "command", derive(ValueEnum))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Plan {
    /// As they are asked for.
    #[default]
    None,
    /// By a layout, planned from a run of the same operations outside captures. In that one frees and
    /// uses of blocks from before it are left out.
    Learned,
    /// Their memory comes at the capture's end, as little as it can run on.
    Exact,
    /// By a layout, planned from a first capture that is thrown away. In that one frees and uses of
    /// blocks from before it are left out. Where that is less, their memory comes at the capture's end.
    Twice,
}

impl Plan {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::None, Self::Learned, Self::Exact, Self::Twice];
}

impl fmt::Display for Plan {
    /// Its name on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Learned => "learned",
            Self::Exact => "exact",
            Self::Twice => "twice",
        })
    }
}

/// How to run a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The engine's choices.
    pub config: Config,
    /// Whether nodes write tags into blocks and check them.
    pub tags: bool,
    /// What the tags, and the choice of who checks them, are drawn from.
    pub seed: u64,
    /// The longest that a node with tags waits, in nanoseconds; how long is drawn for each.
    pub delay: u32,
    /// How often the graphs are launched after their captures.
    pub launches: u32,
    /// How a capture's blocks get their places.
    pub plan: Plan,
    /// How often a capture's operations run outside captures before it, so that it learns from them.
    pub warm_ups: u32,
    /// Whether kernels have the blocks among their parameters that the trace says they touch, and each graph is
    /// searched for later uses than the trace records and for reads of what nothing in it wrote before. Not with
    /// tags, whose kernels have blocks of their own choice.
    pub lint: bool,
}

/// What a trace came to.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// Captures.
    pub captures: usize,
    /// Nodes of all captures.
    pub nodes: usize,
    /// Blocks allocated.
    pub blocks: usize,
    /// Bytes of all blocks, as asked for.
    pub total_bytes: u128,
    /// The highest that each pool's live blocks came to, summed over pools, as placed.
    pub peak_allocated_bytes: u64,
    /// What the pools hold at the end, before the outputs are freed.
    pub reserved_bytes: u64,
    /// Host time of an allocation, on average, in nanoseconds.
    pub alloc_ns: u64,
    /// Host time of a free, on average, in nanoseconds.
    pub free_ns: u64,
    /// Host time of all captures, from before their begin to behind their end, in nanoseconds.
    pub capture_ns: u64,
    /// Time of a launch of all graphs, from the launch until the device is idle, on average, in
    /// nanoseconds; `None` without launches.
    pub replay_ns: Option<u64>,
    /// Whether the checker judged every capture.
    pub verified: bool,
    /// How often a capture was made again, refused for a programmatic launch.
    #[serde(rename = "captured_again")]
    pub again: usize,
    /// What the memory that came at each capture's end amounts to; empty without [`Plan::Exact`] and [`Plan::Twice`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanReport>,
    /// Host time to instantiate all graphs, in nanoseconds; `None` without launches.
    pub instantiate_ns: Option<u64>,
    /// How far each capture lies by its layout; empty without [`Plan::Twice`].
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "layouts")]
    pub layouts: Vec<Followed>,
    /// Where the blocks were placed, in order of allocation.
    #[serde(skip)]
    pub placements: Vec<Placement>,
    /// What was found in the graphs; empty without [`Options::lint`].
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// The tags left in blocks that were never freed; empty unless tags were on.
    #[serde(skip)]
    pub outputs: Vec<Output>,
}

/// What became of each layout; of one that was not followed to its end why, in words.
fn layouts<S: Serializer>(layouts: &[Followed], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(layouts.iter().map(|layout| {
        serde_json::json!({
            "planned_blocks": layout.planned,
            "planned_bytes": layout.planned_bytes,
            "followed_blocks": layout.followed,
            "fell_back": layout.fell_back.map(|_| layout.to_string()),
        })
    }))
}

/// Where a block was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The block.
    pub id: BlockIndex,
    /// Its address.
    pub address: u64,
    /// Its size, as asked for.
    pub bytes: u64,
}

/// Something found in a captured graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The capture, counted from 1.
    pub capture: usize,
    /// The block, by the trace's number.
    pub block: Option<BlockIndex>,
    /// Whether it is a bare guess: a kernel is the first to have an address in the block.
    pub guess: bool,
    /// In words, with the engine's number of the block.
    pub text: String,
}

/// What lies in a block that was never freed, after the last launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The block.
    pub id: BlockIndex,
    /// Its tags. They depend on the trace and the seed alone, so equal runs have equal outputs.
    pub tags: Vec<u64>,
}

/// Runs a trace.
///
/// Membership in a capture is the trace's: a stream with a `kernel` or `terminals` line enters the capture, with no
/// terminals, at the first line that names it; a stream that waits for one in the capture enters by that; one that only
/// allocates or uses blocks stays outside. A `wait` for a stream outside adds nothing, as its terminals are empty.
/// Before `end` every stream joins the origin. Allocations outside captures come from the pool of the last capture that
/// began (or of the first one). The engine observes a stream before and after a `terminals` line.
///
/// A capture that is refused for a programmatic launch alone is made again (`programmatic` is `auto`);
/// what it freed from before it is gone by then.
///
/// # Errors
/// The first call that fails, and wrong tags. All that was created is given back.
pub fn replay<P: Program>(
    driver: &Arc<P>,
    trace: &Trace,
    options: &Options,
) -> Result<Replayed, ReplayError> {
    let mut runner = runner::Runner::new(driver, trace, options, None);
    let result = runner.run();
    cleaned(runner, result)
}

/// Runs a trace as [`replay`] does, for where its blocks are placed: also those of a capture that the checker refuses.
///
/// # Errors
/// As of [`replay`], but for a refusal.
pub fn place<P: Program>(
    driver: &Arc<P>,
    trace: &Trace,
    options: &Options,
) -> Result<Placed, ReplayError> {
    let mut runner = runner::Runner::new(driver, trace, options, None);
    let run = match runner.run() {
        Ok(run) => Ok(Placed { placements: run.placements, refusal: None }),
        Err(error) => runner.refusal(error).map(|refusal| {
            let placements = std::mem::take(&mut runner.placements);
            Placed { placements, refusal: Some(refusal) }
        }),
    };
    let cleaned = runner.clean();
    let placed = run?;
    cleaned?;
    Ok(placed)
}

/// Runs a trace as [`replay`] does, calls `take` behind each operation with what memory came to, and `placed` with all
/// placements before anything is given back. Placements are the same; times are not to be relied on.
///
/// Behind an allocation and a free it looks at every free range, behind an allocation with the
/// reason why it is refused.
///
/// # Errors
/// As of [`replay`].
pub fn replay_sampled<P: Program>(
    driver: &Arc<P>,
    trace: &Trace,
    options: &Options,
    mut take: impl FnMut(Sample),
    placed: impl FnOnce(&[Placement]),
) -> Result<Replayed, ReplayError> {
    let sampler = sample::Sampler::new(&mut take);
    let mut runner = runner::Runner::new(driver, trace, options, Some(sampler));
    let result = runner.run().inspect(|replayed| placed(&replayed.placements));
    cleaned(runner, result)
}

fn cleaned<P: Program>(
    mut runner: runner::Runner<'_, P>,
    result: Result<Replayed, ReplayError>,
) -> Result<Replayed, ReplayError> {
    let cleaned = runner.clean();
    let replayed = result?;
    cleaned?;
    Ok(replayed)
}
