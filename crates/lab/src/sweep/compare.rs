//! Random captures of all shapes, under each plan.

use std::sync::Arc;

use super::{Shape, Sizes, Workload};
use crate::random::log_uniform;
use regraph::settings::Programmatic;
use regraph_cli::replay::{replay, Options, Plan, ReplayError};
use regraph_plan::random::Random;
use regraph_tagged::Program;
use regraph_trace::{minimum, BlockIndex, InvalidTrace, Operation, StreamIndex, Trace};

/// The most streams of a capture.
const STREAMS: u32 = 8;
/// The fewest and the most steps.
const STEPS: (u64, u64) = (20, 1_500);
/// One in so many pools has an earlier graph.
const EARLIER: u32 = 4;

/// A random capture: any shape, one to eight streams, 20 to 1,500 steps. A quarter come after another one into the same
/// pool. In two thirds of single steps more blocks are allocated than freed, so some stay as outputs.
///
/// # Errors
/// None: what is generated is valid. The rules of the format are checked nevertheless.
pub fn any_capture(seed: u64) -> Result<(Shape, Trace), InvalidTrace> {
    let mut random = Random::new(seed);
    // The first numbers of neighbouring seeds are alike.
    random.next();
    let shapes = [Shape::Steps, Shape::Layers, Shape::Pipelines];
    let shape = shapes[random.below(3) as usize];
    let earlier = random.below(EARLIER) == 0;
    let mut operations = Vec::new();
    let mut blocks = 0;
    for _ in 0..=u32::from(earlier) {
        let trace = shape.trace(&any_workload(&mut random))?;
        operations.extend(trace.operations().iter().map(|it| renumbered(it, blocks)));
        blocks += trace.blocks() as BlockIndex;
    }
    Ok((shape, Trace::new(operations)?))
}

fn any_workload(random: &mut Random) -> Workload {
    let probability = |random: &mut Random| [0.1, 0.3, 0.6][random.below(3) as usize];
    Workload {
        streams: 1 + random.below(STREAMS) as StreamIndex,
        operations: log_uniform(random, STEPS.0, STEPS.1) as u32,
        alloc: probability(random),
        free: probability(random),
        join: probability(random),
        sizes: [Sizes::Mixed, Sizes::Fixed][random.below(2) as usize],
        seed: random.next(),
    }
}

/// An operation, with blocks' names counted from `first`.
fn renumbered(operation: &Operation, first: BlockIndex) -> Operation {
    let mut operation = operation.clone();
    match &mut operation {
        Operation::Alloc { id, .. } | Operation::Use { id, .. } | Operation::Free { id } => {
            *id += first;
        }
        Operation::Kernel { uses, .. } => uses.iter_mut().for_each(|id| *id += first),
        _ => {}
    }
    operation
}

/// The ways in which captures get their memory, by name: each plan, the first one none at all, and what a capture hears of
/// two runs before it or of one, of which the host says nothing.
pub fn ways() -> Vec<(String, Options)> {
    let planned = |&plan: &Plan| (plan.to_string(), Options { plan, ..Options::default() });
    let heard = [("heard", 2), ("once", 1)];
    let heard =
        heard.map(|(name, warm_ups)| (name.to_owned(), Options { warm_ups, ..Options::default() }));
    Plan::ALL.iter().map(planned).chain(heard).collect()
}

/// The least that a trace's pools need, and what they hold in each of [`ways`], in bytes, the least in whole units of the
/// device's granularity.
///
/// # Errors
/// The first replay that fails.
pub fn compare<P: Program>(driver: &Arc<P>, trace: &Trace) -> Result<(u64, Vec<u64>), ReplayError> {
    let unit = driver.memory_support().granularity().unwrap_or(1);
    let certificates = minimum::of_trace(trace, Programmatic::default());
    let reserved = |(_, options)| Ok(replay(driver, trace, &options)?.reserved_bytes);
    let reserved = ways().into_iter().map(reserved).collect::<Result<_, _>>()?;
    Ok((minimum::of_pools(trace, &certificates, unit), reserved))
}
