//! Captures whose memory comes at their end, on the simulated driver and on a real GPU.
//!
//! ```text
//! cargo test --release --test gpu plans:: -- --ignored
//! ```
//!
//! Every kernel checks tags that others wrote, so memory that is shared wrongly shows.

use std::sync::Arc;

use fastrand::Rng;

use crate::bench::{range, Bench, MIB};
use crate::device::{launch, Device};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::PoolConfig;
use regraph::graphs::{Capture, Error, Graph, Memory};
use regraph::plan::Options;

twins! {
    outputs_survive_every_order_of_launches
    a_pool_needs_its_outputs_and_the_largest_of_the_rest
    a_plan_tells_its_cost_before_it_is_carried_out
    bounds_on_mappings_are_kept
}

/// The granularity of both devices, in bytes.
const PAGE: u64 = 2 * MIB;

type Shared<P> = Arc<P>;
type Block<P> = Memory<Shared<P>>;

/// With a pool whose captures get their memory at their end.
fn planned<P: Device>(driver: &Arc<P>, options: Options) -> Bench<P> {
    Bench::with(driver, PoolConfig::default().plan(options))
}

impl<P: Device> Bench<P> {
    fn capture<R>(
        &self,
        stream: StreamHandle,
        body: impl FnMut(&Capture<Shared<P>>) -> Result<R, Error>,
    ) -> Result<(Graph<Shared<P>>, R), Error> {
        self.engine.capture(stream, &self.pool, CaptureMode::ThreadLocal, body)
    }

    /// Blocks of so many bytes one after the other, each read by the kernel that writes the next one.
    /// The last is returned.
    fn line(
        &self,
        capture: &Capture<Shared<P>>,
        stream: StreamHandle,
        (tag, sizes): (u64, &[u64]),
    ) -> Result<Block<P>, Error> {
        let mut last: Option<(Block<P>, u64)> = None;
        for (step, &bytes) in sizes.iter().enumerate() {
            let memory = capture.allocate(bytes, stream)?;
            let own = tag + step as u64;
            let inputs: Vec<_> = last.iter().map(|(memory, tag)| range(memory, *tag)).collect();
            launch(&*self.driver, stream, (&inputs, &[range(&memory, own)]), 2_000);
            last = Some((memory, own));
        }
        Ok(last.unwrap().0)
    }
}

/// Pieces that fit any later plan.
fn granules() -> Options {
    Options::default().max_piece_bytes(Some(PAGE))
}

/// Every order of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let longer = |order: &Vec<usize>| {
        let order = order.clone();
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        })
    };
    shorter.iter().flat_map(longer).collect()
}

fn outputs_survive_every_order_of_launches<P: Device>(driver: &Arc<P>) {
    const SIZES: [&[u64]; 4] = [
        &[3 * MIB, 4 * MIB, 5 * MIB, 2 * MIB],
        &[8 * MIB, 6 * MIB],
        &[2 * MIB, 2 * MIB, 2 * MIB, 2 * MIB, 7 * MIB],
        &[9 * MIB, MIB, 4 * MIB],
    ];
    for (seed, captured) in orders(SIZES.len()).into_iter().enumerate() {
        driver.schedule(seed as u64);
        let options = if seed % 2 == 0 { granules() } else { Options::default() };
        let (bench, [stream, other]) = planned(driver, options).with_streams();
        let mut graphs: Vec<_> = captured
            .iter()
            .map(|&which| {
                let shape = (1000 * (which as u64 + 1), SIZES[which]);
                let (graph, output) =
                    bench.capture(stream, |capture| bench.line(capture, stream, shape)).unwrap();
                let plan = graph.report().plan.unwrap();
                assert!(plan.mappings > 0 && graph.report().verified, "{plan:?}");
                (which, graph, output, 1000 * (which as u64 + 1) + SIZES[which].len() as u64 - 1)
            })
            .collect();
        graphs.sort_by_key(|(which, ..)| *which);
        for order in orders(SIZES.len()) {
            for (place, &which) in order.iter().enumerate() {
                graphs[which].1.launch(if place % 2 == 0 { &stream } else { &other }).unwrap();
            }
            assert_eq!(bench.wrong(), 0, "captured {captured:?}, launched {order:?}");
            for (which, _, output, tag) in &graphs {
                assert!(bench.holds(output, *tag), "{which} of {captured:?}, launched {order:?}");
            }
        }
        bench.close_after(graphs);
    }
}

fn a_pool_needs_its_outputs_and_the_largest_of_the_rest<P: Device>(driver: &Arc<P>) {
    let mut random = Rng::with_seed(3);
    for _ in 0..12 {
        let (bench, [stream]) = planned(driver, granules()).with_streams();
        let (mut outputs, mut largest, mut kept) = (0, 0, Vec::new());
        for number in 0..6 {
            let steps = 2 + random.usize(..5);
            let sizes: Vec<_> = (0..steps).map(|_| (1 + random.u64(..6)) * PAGE).collect();
            let shape = (1000 * (number + 1), &sizes[..]);
            kept.push(bench.capture(stream, |capture| bench.line(capture, stream, shape)).unwrap());
            let least = sizes.windows(2).map(|pair| pair[0] + pair[1]).max().unwrap();
            outputs += sizes[steps - 1];
            largest = largest.max(least - sizes[steps - 1]);
            assert_eq!(bench.reserved(), outputs + largest, "{sizes:?}");
            let plan = kept.last().unwrap().0.report().plan.unwrap();
            assert_eq!((plan.minimum_bytes, plan.excess_bytes), (least, 0));
        }
        bench.close_after(kept);
    }
}

fn a_plan_tells_its_cost_before_it_is_carried_out<P: Device>(driver: &Arc<P>) {
    let (bench, [s]) = planned(driver, Options::default()).with_streams();
    let mut told = None;
    let (graph, _) = bench
        .capture(s, |capture| {
            let last = bench.line(capture, s, (100, &[4 * MIB, 6 * MIB, 4 * MIB, 8 * MIB]))?;
            drop(last);
            told = bench.engine.plans().preview_plan(capture.id())?.pop();
            Ok(())
        })
        .unwrap();
    let (pool, told) = told.unwrap();
    let plan = graph.report().plan.unwrap();
    assert_eq!(pool, bench.pool.id());
    assert_eq!((told.bytes(), told.mappings.len()), (plan.bytes, plan.mappings));
    bench.close_after(graph);
}

fn bounds_on_mappings_are_kept<P: Device>(driver: &Arc<P>) {
    let sizes: Vec<u64> = (0..40).map(|step| (1 + step % 5) * PAGE).collect();
    let mut before = u64::MAX;
    for most in [1, 4, 8, 16, 32, 64] {
        let (bench, [s]) =
            planned(driver, Options::default().max_mappings(Some(most))).with_streams();
        let (graph, _) =
            bench.capture(s, |capture| bench.line(capture, s, (100, &sizes)).map(drop)).unwrap();
        let plan = graph.report().plan.unwrap();
        assert!(plan.mappings <= most, "{most}: {plan:?}");
        assert!(plan.bytes <= before, "more mappings are no worse: {most}: {plan:?}");
        before = plan.bytes;
        graph.launch(s).unwrap();
        assert_eq!(bench.wrong(), 0);
        bench.close_after(graph);
    }
    assert_eq!(before, 9 * PAGE, "with enough of them, the least");
}
