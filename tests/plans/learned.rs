//! Captures that lie by what was learned from a run outside captures, or from an earlier capture: in close
//! to the least memory where they ask for the same, and as good as any others where they do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use super::twice::{device, followed, perform, program, run, tags_hold, Step, SUPPORTS};
use crate::common::messages::messages_of;
use crate::common::{bench_on, Bench, MIB};
use crate::device::trace;
use log::Level;
use regraph::driver::{Driver, StreamHandle};
use regraph::engine::{CaptureReport, Config, PoolConfig, Why};
use regraph::settings::{PlanChoice, Programmatic, Reuse, Settings};
use regraph_cli::replay::{replay, Options, Plan};
use regraph_lab::sweep::{any_capture, compare, Sizes, Workload};
use regraph_sim::{Call, SimConfig, SimDriver};

pub(super) fn learning() -> Config {
    Config::default().settings(Settings::default().plan(PlanChoice::Auto))
}

/// Asks for what the steps do outside captures, from a pool of their own.
pub(super) fn warm_up(bench: &Bench, streams: &[StreamHandle], steps: &[Step]) -> usize {
    let Bench { driver, engine, .. } = bench;
    let own = engine.create_pool(PoolConfig::default());
    engine.plans().learn().unwrap();
    let live = perform((bench, own), streams, steps, false);
    let noted = engine.plans().learned().unwrap();
    live.into_iter().for_each(|block| engine.free(block).unwrap());
    driver.complete_all();
    engine.destroy_pool(own).unwrap();
    noted
}

/// Captures the steps; the blocks that they leave are freed then.
pub(super) fn capture(bench: &Bench, streams: &[StreamHandle], steps: &[Step]) -> CaptureReport {
    let capture = bench.begin(streams[0]);
    bench.launch(streams[0]);
    let live = run(bench, streams, steps);
    let report = bench.finish(streams[0], capture);
    assert!(report.verified);
    live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.driver.complete_all();
    report
}

pub(super) fn blocks(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Allocate(..))).count()
}

/// Everything goes back to the driver.
pub(super) fn leave(bench: &Bench, reports: impl IntoIterator<Item = CaptureReport>) {
    for report in reports {
        bench.engine.release_graph(report.graph).unwrap();
    }
    bench.driver.complete_all();
    bench.engine.destroy_pool(bench.pool).unwrap();
    bench.engine.empty_cache().unwrap();
    assert_eq!(bench.driver.used_bytes(), 0);
}

/// Steps of a model on one stream: a chain of blocks of which each reads the one before, and short ones.
pub(super) fn chain(scale: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 0..40 {
        let block = 2 * number;
        steps.push(Step::Allocate(block, scale * [3, 5, 2, 9][number % 4] * MIB / 2, 0));
        steps.push(Step::Launch(0, false));
        steps.push(Step::Allocate(block + 1, [8 * MIB, 700, 40 << 10][number % 3], 0));
        steps.push(Step::Launch(0, false));
        steps.push(Step::Free(block + 1));
        if number > 0 {
            steps.push(Step::Free(block - 2));
        }
    }
    steps
}

#[test]
fn a_run_outside_captures_is_enough_for_one_stream() {
    for support in SUPPORTS {
        for seed in 0..8 {
            let (bench, streams) = bench_on(device(support), Config::default()).with_streams::<1>();
            let steps = program(seed, 1, 200, false);
            assert_eq!(warm_up(&bench, &streams, &steps), blocks(&steps));
            assert_eq!(bench.driver.used_bytes(), 0);
            let report = capture(&bench, &streams, &steps);
            let layout = followed(&report);
            assert!(layout.is_whole(), "seed {seed}: {layout}");
            assert_eq!(bench.reserved(), layout.planned_bytes.next_multiple_of(2 * MIB));
            leave(&bench, [report]);
        }
    }
}

#[test]
fn what_waits_for_what_outside_captures_is_a_guess_that_harms_nothing() {
    for support in SUPPORTS {
        for seed in 0..8 {
            for &reuse in Reuse::ALL {
                let config = Config::default().reuse(reuse).programmatic(Programmatic::Lag);
                let (bench, streams) = bench_on(device(support), config).with_streams::<3>();
                let steps = program(seed, 3, 200, seed % 2 == 0);
                warm_up(&bench, &streams, &steps);
                let report = capture(&bench, &streams, &steps);
                // None where it would save nothing.
                if let Some(layout) = &report.layout {
                    assert!(layout.followed * 3 > blocks(&steps), "seed {seed}: {layout}");
                }
                leave(&bench, [report]);
            }
        }
    }
}

/// A layout that saves nothing is not followed: one for streams that know less of each other outside captures, one that
/// finds no place in what an earlier graph of its pool holds (5 to 58) or whose places that graph's outputs take (41),
/// and one of an earlier run, where the latest begins with as many bytes and does not show what its streams wait for
/// (61). One is given up where its own blocks lie beside it (1097). A run may end with a branch that has read its input
/// (1107).
#[test]
fn a_layout_takes_no_more_than_no_layout() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    for seed in [5, 7, 10, 16, 55, 58, 41, 61, 1097, 1107] {
        let (shape, trace) = any_capture(seed).unwrap();
        let (_, reserved) = compare(&driver, &trace).unwrap();
        let of = |plan: Plan| reserved[Plan::ALL.iter().position(|it| *it == plan).unwrap()];
        for plan in [Plan::Learned, Plan::Twice] {
            let (with, without) = (of(plan), of(Plan::None));
            assert!(with <= without, "{shape} {seed}: {plan} {with}, {without} without");
        }
    }
}

#[test]
fn a_second_capture_lies_as_the_first_one_shows() {
    for support in SUPPORTS {
        for seed in 0..6 {
            let (bench, streams) = bench_on(device(support), learning()).with_streams::<3>();
            let steps = program(seed, 3, 200, false);
            let first = capture(&bench, &streams, &steps);
            assert_eq!(first.layout, None);
            let online = bench.reserved();
            bench.engine.release_graph(first.graph).unwrap();
            let second = capture(&bench, &streams, &steps);
            let held = bench.reserved();
            assert!(held <= online, "seed {seed}");
            // The third knows no less, and takes no more.
            let third = capture(&bench, &streams, &steps);
            assert_eq!(bench.reserved(), held, "seed {seed}");
            // None follows a layout that takes no less than what is there already, in one place or several.
            for layout in [&second, &third].iter().filter_map(|report| report.layout.as_ref()) {
                assert!(layout.is_whole(), "seed {seed}: {layout}");
            }
            leave(&bench, [second, third]);
        }
    }
}

#[test]
fn smaller_batches_lie_where_the_largest_does() {
    for support in SUPPORTS {
        let (bench, streams) = bench_on(device(support), learning()).with_streams::<1>();
        let largest = chain(8);
        warm_up(&bench, &streams, &largest);
        let mut reports = vec![capture(&bench, &streams, &largest)];
        let layout = followed(&reports[0]);
        assert!(layout.is_whole(), "{layout}");
        let reserved = bench.reserved();
        assert_eq!(reserved, layout.planned_bytes.next_multiple_of(2 * MIB));
        for scale in (1..8).rev() {
            reports.push(capture(&bench, &streams, &chain(scale)));
            let layout = followed(&reports[reports.len() - 1]);
            assert_eq!(bench.reserved(), reserved, "scale {scale}: {layout}");
        }
        leave(&bench, reports);
    }
}

/// Where a layout lay no memory is left, once the graphs are gone and the cache is emptied: at the pool's end, or below a
/// block.
#[test]
fn a_small_batch_takes_little_where_the_largest_ones_memory_is_gone() {
    let held = |config: Config, largest: bool, above: u64| {
        let (bench, streams) = bench_on(device(SUPPORTS[0]), config).with_streams::<1>();
        let mut reports = Vec::new();
        if largest {
            warm_up(&bench, &streams, &chain(8));
            reports.push(capture(&bench, &streams, &chain(8)));
            assert!(followed(&reports[0]).is_whole());
        }
        let block = bench.engine.allocate(bench.pool, above, streams[0]).unwrap().id;
        reports.drain(..).for_each(|it| bench.engine.release_graph(it.graph).unwrap());
        bench.engine.empty_cache().unwrap();
        assert_eq!(bench.driver.used_bytes(), above);
        let report = capture(&bench, &streams, &chain(1));
        let held = bench.reserved();
        bench.engine.free(block).unwrap();
        leave(&bench, [report]);
        held
    };
    for above in [2 * MIB, 64 * MIB] {
        let without = held(Config::default(), false, above);
        assert_eq!(held(learning(), true, above), without, "{above}");
    }
}

#[test]
fn one_request_more_or_less_costs_one_block_its_place() {
    let steps = chain(4);
    for at in 0..steps.len() {
        for more in [true, false] {
            let mut changed = steps.clone();
            match (more, steps[at]) {
                (true, _) => changed.insert(at, Step::Allocate(10_000, 7 * MIB, 0)),
                (false, Step::Allocate(..)) => drop(changed.remove(at)),
                _ => continue,
            }
            let (bench, streams) =
                bench_on(device(SUPPORTS[at % 2]), Config::default()).with_streams::<1>();
            warm_up(&bench, &streams, &steps);
            let report = capture(&bench, &streams, &changed);
            if at == 0 {
                // It begins with another request: nothing is known of it.
                assert_eq!(report.layout, None);
            } else {
                let layout = followed(&report);
                assert!(layout.followed + 1 >= blocks(&steps), "{at}, {more}: {layout}");
                assert!(bench.reserved() <= 40 * MIB, "{at}, {more}: {}", bench.reserved());
            }
            leave(&bench, [report]);
        }
    }
}

/// Other threads are at work all the time while a capture's layout is made.
#[test]
fn a_layout_is_made_beside_the_work_of_other_threads() {
    let bench = bench_on(device(SUPPORTS[0]), learning());
    let [s, others @ ..]: [StreamHandle; 5] = bench.streams();
    let own = bench.engine.create_pool(PoolConfig::default());
    warm_up(&bench, &[s], &chain(4));
    // So much that what was heard is not searched at once.
    for _ in 0..400 {
        let live = perform((&bench, own), &[s], &chain(4), false);
        live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    }
    let (began, ends) = (Barrier::new(1 + others.len()), AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        for stream in others {
            let (bench, began, ends) = (&bench, &began, &ends);
            scope.spawn(move || {
                began.wait();
                while !ends.load(Ordering::SeqCst) {
                    let block = bench.engine.allocate(own, MIB, stream).unwrap();
                    bench.engine.free(block.id).unwrap();
                }
            });
        }
        began.wait();
        let report = capture(&bench, &[s], &chain(4));
        ends.store(true, Ordering::SeqCst);
        report
    });
    // That of the run that was marked, or of the many that were heard.
    assert!(report.layout.is_some());
    assert!(bench.engine.wait_for_device().unwrap());
    bench.engine.destroy_pool(own).unwrap();
    leave(&bench, [report]);
}

/// A layout without memory is asked for once.
#[test]
fn a_layout_that_gets_no_memory_is_not_tried_again() {
    let bench =
        bench_on(SimConfig { total_bytes: 32 * MIB, support: SUPPORTS[1] }, Config::default());
    let [s] = bench.streams();
    bench.engine.plans().learn().unwrap();
    let ask = || bench.engine.allocate(bench.pool, 10 * MIB, s).unwrap().id;
    let first = [(); 3].map(|()| ask());
    assert_eq!(bench.engine.plans().learned().unwrap(), 3);
    first.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.driver.complete_all();
    bench.engine.empty_cache().unwrap();
    let taken = bench.driver.allocate(10 * MIB).unwrap();
    let capture = bench.begin(s);
    bench.launch(s);
    let calls = || bench.driver.calls(Call::Allocate);
    let mut live = vec![ask()];
    let before = calls();
    live.push(ask());
    assert_eq!(calls() - before, 1);
    let report = bench.finish(s, capture);
    let why = followed(&report).fell_back.map(|it| it.why);
    assert_eq!(why, Some(Why::NoMemory));
    live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.driver.free(taken).unwrap();
    leave(&bench, [report]);
}

/// What several streams know of each other is a guess, which is worth following where it saves memory.
#[test]
fn a_run_that_is_not_followed_since_it_saves_nothing_is_told_of() {
    let (bench, streams) = bench_on(SimConfig::default(), Config::default()).with_streams::<2>();
    let block =
        |number, stream| [Step::Allocate(number, 4 * MIB, stream), Step::Launch(stream, false)];
    let joined = [Step::Wait(1, 0), Step::Use(0, 1), Step::Launch(1, false)];
    let steps = [&block(0, 0)[..], &joined, &block(1, 1)].concat();
    warm_up(&bench, &streams, &steps);
    let mut reports = Vec::new();
    let told = messages_of(|| reports.push(capture(&bench, &streams, &steps)));
    assert_eq!(reports[0].layout, None);
    let text = "follows no layout of the run that was learned: one takes no less memory than";
    assert!(told.iter().any(|(level, it)| *level == Level::Info && it.contains(text)), "{told:?}");
    leave(&bench, reports);
}

#[test]
fn a_run_that_is_given_up_is_not_followed_and_leaves_the_others() {
    let (bench, streams) = bench_on(SimConfig::default(), learning()).with_streams::<1>();
    warm_up(&bench, &streams, &chain(4));
    bench.engine.plans().learn().unwrap();
    let block = bench.engine.allocate(bench.pool, 3 * MIB, streams[0]).unwrap();
    bench.engine.free(block.id).unwrap();
    bench.engine.plans().forget_run().unwrap();
    assert_eq!(bench.engine.plans().learned().unwrap(), 0);
    let report = capture(&bench, &streams, &chain(4));
    assert!(report.layout.is_some());
    leave(&bench, [report]);
}

/// Recorded captures lie in little more than the least memory after a run outside captures.
#[test]
fn recorded_captures_need_little_more_than_the_least() {
    let driver = || Arc::new(SimDriver::new(device(SUPPORTS[1])));
    for (name, most) in
        [("decoder_s1", 46), ("moe_s6", 128), ("googlenet_s4", 216), ("pipeline_s5", 228)]
    {
        let options = Options { plan: Plan::Learned, ..Options::default() };
        let replayed = replay(&driver(), &trace(name), &options).unwrap();
        assert!(replayed.layouts[0].is_whole(), "{name}: {}", replayed.layouts[0]);
        assert!(replayed.reserved_bytes <= most * MIB, "{name}: {}", replayed.reserved_bytes);
    }
}

/// What is searched for longer takes no more, and less where there was something to be found.
#[test]
fn a_longer_search_takes_less() {
    let (mut taken, mut followed) = ([0, 0], 0);
    for seed in 0..24 {
        let workload = Workload {
            streams: 3,
            operations: 150,
            alloc: 0.4,
            free: 0.3,
            join: 0.3,
            sizes: Sizes::Mixed,
            seed,
        };
        let trace = workload.trace().unwrap();
        let bytes = [1, 8].map(|times| {
            let mut config = learning();
            config.settings.plan_search = times;
            let options = Options { plan: Plan::Learned, config, ..Options::default() };
            let driver = Arc::new(SimDriver::new(device(SUPPORTS[1])));
            let replayed = replay(&driver, &trace, &options).unwrap();
            replayed.layouts.first().map(|layout| layout.planned_bytes)
        });
        // Not where blocks do not show what the streams wait for.
        let [Some(short), Some(long)] = bytes else { continue };
        assert!(long <= short, "seed {seed}: {bytes:?}");
        followed += 1;
        taken = [taken[0] + short, taken[1] + long];
    }
    assert!(followed >= 4 && taken[1] < taken[0], "{taken:?} of {followed}");
}

#[test]
fn tags_hold_on_the_simulated_driver() {
    for support in SUPPORTS {
        tags_hold(&Arc::new(SimDriver::new(device(support))), Plan::Learned, |_| learning());
    }
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tags_hold_on_a_gpu() {
    let gpu = crate::device::gpu::open();
    tags_hold(&gpu.driver, Plan::Learned, |_| learning());
}
