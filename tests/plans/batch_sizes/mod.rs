//! Capturing every batch size into one pool costs what the largest alone costs, in any order.
//!
//! All graphs live on. The checker judges each capture.

mod many;
mod models;

use crate::common::{bench, Bench, MIB};
use models::{Model, Pass, MODELS};
use regraph::driver::StreamHandle;
use regraph::engine::{Config, PoolConfig};
use regraph::plan::Options;

const LARGEST: u64 = 128;

/// When the result of a graph is free for captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Freed after the graph's end, with all work completed.
    Freed,
    /// Freed after the graph's end, while its stream is busy until the next capture's end.
    Busy,
    /// Freed in the capture, which copies it to a buffer outside the pool.
    Copied,
}

fn capture(
    b: &Bench,
    [main, side]: [StreamHandle; 2],
    model: Model,
    batch: u64,
    output: Output,
) -> usize {
    let capture = b.begin(main);
    b.launch(main);
    let result = model(&Pass { bench: b, main, side }, batch);
    if output == Output::Copied {
        b.launch_and_free(main, result);
    }
    let report = b.finish(main, capture);
    assert!(report.verified);
    let mappings = report.plan.map_or(0, |plan| plan.mappings);
    b.driver.complete_all();
    match output {
        Output::Copied => return mappings,
        Output::Freed => {}
        Output::Busy => b.launch(main),
    }
    b.engine.free(result.id).unwrap();
    mappings
}

/// What the pool holds after captures of these batch sizes, in bytes.
fn reserved(model: Model, streams: usize, sizes: &[u64], output: Output) -> u64 {
    reserved_with(model, streams, sizes, output, None).0
}

/// The same with a plan for each capture, and how often memory was mapped for all of them.
fn reserved_with(
    model: Model,
    streams: usize,
    sizes: &[u64],
    output: Output,
    options: Option<Options>,
) -> (u64, usize) {
    let mut b = bench(Config::default());
    if let Some(options) = options {
        b.pool = b.engine.create_pool(PoolConfig::default().plan(options));
    }
    let mut mappings = 0;
    let [main, second] = b.streams();
    let side = if streams == 1 { main } else { second };
    for &size in sizes {
        mappings += capture(&b, [main, side], model, size, output);
    }
    for figures in
        [b.engine.statistics().unwrap().small_pool, b.engine.statistics().unwrap().large_pool]
    {
        assert_eq!((figures.allocation.current, figures.allocated_bytes.current), (0, 0));
    }
    (b.reserved(), mappings)
}

fn every() -> Vec<u64> {
    (1..=LARGEST).collect()
}

fn powers() -> Vec<u64> {
    (0..=7).map(|log| 1 << log).collect()
}

fn reversed(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.reverse();
    sizes
}

/// In an order that looks like chance and is the same on every machine.
fn shuffled(mut sizes: Vec<u64>, seed: u64) -> Vec<u64> {
    let mut state = seed;
    for at in (1..sizes.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sizes.swap(at, (state >> 33) as usize % (at + 1));
    }
    sizes
}

/// What these batch sizes hold together above what the largest alone holds, in MiB.
fn excess(model: Model, streams: usize, sizes: &[u64]) -> i64 {
    let alone = reserved(model, streams, &[LARGEST], Output::Freed);
    let excess = |output| {
        let all = reserved(model, streams, sizes, output);
        (all as i64 - alone as i64) / MIB as i64
    };
    let (freed, copied) = (excess(Output::Freed), excess(Output::Copied));
    assert_eq!(freed, copied, "a result that is free again by the next capture costs nothing");
    freed
}

#[test]
fn descending_costs_what_the_largest_does() {
    for (name, model) in MODELS {
        for streams in [1, 2] {
            assert_eq!(excess(model, streams, &reversed(every())), 0, "{name}, {streams}");
            assert_eq!(excess(model, streams, &reversed(powers())), 0, "{name}, {streams}");
        }
    }
}

#[test]
fn ascending_costs_no_more_than_the_largest() {
    for (name, model) in MODELS {
        for streams in [1, 2] {
            assert!(excess(model, streams, &every()) <= 0, "{name}, {streams}");
            assert!(excess(model, streams, &powers()) <= 0, "{name}, {streams}");
        }
    }
}

#[test]
fn any_order_costs_no_more_than_the_largest() {
    for (name, model) in MODELS {
        for streams in [1, 2] {
            let excess = excess(model, streams, &shuffled(every(), 1));
            assert!(excess <= 0, "{name}, {streams}: {excess}");
        }
    }
}

#[test]
fn a_small_batch_captured_first_costs_nothing() {
    let sizes = shuffled(every(), 3);
    assert_eq!(sizes[0], 20);
    for streams in [1, 2] {
        assert!(excess(models::mlp_16384, streams, &sizes) <= 0);
    }
}

#[test]
fn work_outside_takes_and_trims_what_a_capture_has_not_opened() {
    let (b, [main, side, outside]) = bench(Config::default()).with_streams();
    capture(&b, [main, side], models::mlp_4096, 16, Output::Copied);
    let before = b.reserved();
    let block = b.engine.allocate(b.pool, 8 * MIB, outside).unwrap();
    b.engine.free(block.id).unwrap();
    b.driver.complete_all();
    b.engine.trim(u64::MAX).unwrap();

    let under_way = b.begin(main);
    let again = b.engine.allocate(b.pool, 8 * MIB, outside).unwrap();
    assert_eq!(again.address, block.address);
    b.engine.free(again.id).unwrap();
    b.driver.complete_all();
    b.engine.empty_cache().unwrap();
    assert!(b.reserved() <= before);
    let result = models::mlp_4096(&Pass { bench: &b, main, side }, 16);
    b.finish(main, under_way);
    b.engine.free(result.id).unwrap();
    assert!(b.reserved() <= before);
}

#[test]
#[ignore = "prints a table and asserts nothing"]
fn table() {
    println!("model, streams, result, sizes: alone, then ascending, descending, shuffled; MiB");
    for (name, model) in MODELS {
        for streams in [1, 2] {
            for output in [Output::Freed, Output::Busy, Output::Copied] {
                for (which, sizes) in [("1..=128", every()), ("powers", powers())] {
                    let held = |sizes: &[u64]| reserved(model, streams, sizes, output) / MIB;
                    let mixed: Vec<_> =
                        (1..=8).map(|seed| held(&shuffled(sizes.clone(), seed))).collect();
                    let down = held(&reversed(sizes.clone()));
                    let (alone, up) = (held(&[LARGEST]), held(&sizes));
                    println!(
                        "{name:10} {streams} {output:?} {which}: {alone} | {up} {down} {mixed:?}"
                    );
                }
            }
        }
    }
}

/// The batch sizes that inference servers capture: 1, 2, 4 and multiples of 8 up to 256.
fn served() -> Vec<u64> {
    [1, 2, 4].into_iter().chain((1..=32).map(|eighth| 8 * eighth)).collect()
}

/// Orders in which servers may capture them.
fn orders() -> [Vec<u64>; 4] {
    [served(), reversed(served()), shuffled(served(), 1), shuffled(served(), 2)]
}

/// A plan needs whole units of the device's granularity, so its pool may hold what the largest batch
/// size alone holds with one, where that is more than without.
#[test]
fn with_plans_a_pool_holds_what_it_does_without() {
    let models: [(&str, Model, usize); 3] = [
        ("logits", models::logits, 1),
        ("mlp 16384", models::mlp_16384, 2),
        ("attention", models::attention, 1),
    ];
    let plan = || Some(Options::default());
    for (name, model, streams) in models {
        for output in [Output::Freed, Output::Copied] {
            let (alone, _) = reserved_with(model, streams, &[256], output, plan());
            for sizes in orders() {
                let without = reserved(model, streams, &sizes, output).max(alone);
                let (held, _) = reserved_with(model, streams, &sizes, output, plan());
                let [held, without] = [held, without].map(|bytes| bytes / MIB);
                assert!(held * 100 <= without * 105, "{name}, {output:?}: {held} MiB of {without}");
            }
        }
    }
}

#[test]
#[ignore = "prints a table and asserts nothing"]
fn table_of_plans() {
    println!("model, streams, result: without a plan, then with one, and its mappings; MiB");
    for (name, model) in MODELS {
        for streams in [1, 2] {
            for output in [Output::Freed, Output::Copied] {
                let held = |options: Option<Options>| {
                    orders().map(|sizes| {
                        let (held, mappings) =
                            reserved_with(model, streams, &sizes, output, options.clone());
                        (held / MIB, mappings)
                    })
                };
                let without = held(None).map(|(held, _)| held);
                let with = held(Some(Options::default()));
                println!("{name:10} {streams} {output:?}: {without:?} | {with:?}");
            }
        }
    }
}
