//! Graphs of one pool.

use std::sync::Arc;

use fastrand::Rng;
use regraph::plan::Options;

use super::{granules, planned, Device, MIB, PAGE};

twins! {
    outputs_survive_every_order_of_launches
    a_pool_needs_its_outputs_and_the_largest_of_the_rest
    memory_of_outputs_that_are_freed_serves_later_graphs
    a_released_graph_gives_back_what_it_alone_used
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

fn memory_of_outputs_that_are_freed_serves_later_graphs<P: Device>(driver: &Arc<P>) {
    let (bench, [stream]) = planned(driver, granules()).with_streams();
    let one = |tag, sizes: &[u64]| {
        bench.capture(stream, |capture| bench.line(capture, stream, (tag, sizes))).unwrap()
    };
    let (first, output) = one(1000, &[4 * MIB, 4 * MIB]);
    assert_eq!(bench.reserved(), 8 * MIB);
    let (second, held) = one(2000, &[8 * MIB, 2 * MIB]);
    // The first one's output is live: of 8 MiB that do not last 4 are there.
    assert_eq!(bench.reserved(), 14 * MIB);
    drop(output);
    bench.driver.synchronize().unwrap();
    // Its 4 MiB serve now, and what is left of the 8.
    let (third, _) = one(3000, &[12 * MIB, 2 * MIB]);
    assert_eq!(bench.reserved(), 16 * MIB);
    for _ in 0..3 {
        for graph in [&first, &third, &second] {
            graph.launch(stream).unwrap();
        }
    }
    assert_eq!(bench.wrong(), 0);
    assert!(bench.holds(&held, 2001));
    bench.close_after((first, second, third, held));
}

fn a_released_graph_gives_back_what_it_alone_used<P: Device>(driver: &Arc<P>) {
    let (bench, [stream]) = planned(driver, granules()).with_streams();
    let one = |tag, sizes: &[u64]| {
        bench.capture(stream, |capture| bench.line(capture, stream, (tag, sizes))).unwrap()
    };
    let small = one(1000, &[2 * MIB, 2 * MIB]);
    let (large, output) = one(2000, &[10 * MIB, 4 * MIB]);
    assert_eq!(bench.reserved(), 16 * MIB);
    large.launch(stream).unwrap();
    bench.driver.synchronize().unwrap();
    drop(large);
    bench.engine.empty_cache().unwrap();
    // The output lives on, and so do what the small one needs.
    assert_eq!(bench.reserved(), 8 * MIB);
    assert!(bench.holds(&output, 2001));
    small.0.launch(stream).unwrap();
    assert_eq!(bench.wrong(), 0);
    drop(output);
    bench.engine.empty_cache().unwrap();
    assert_eq!(bench.reserved(), 4 * MIB);
    bench.close_after(small);
}
