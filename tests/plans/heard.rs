//! Captures that learn from what was asked for outside captures by themselves: the host marks no run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::learned::{self, blocks, capture, learning, leave};
use super::twice::{device, followed, perform, perform_with, program, Step, SUPPORTS};
use crate::common::Draw;
use crate::common::{bench_on, Bench, MIB};
use regraph::driver::StreamHandle;
use regraph::engine::{CaptureReport, Config, Followed, PoolConfig};
use regraph::settings::{PlanChoice, Settings};
use regraph::BlockNumber;
use regraph_plan::layout::{Demand, Heard};
use regraph_sim::SimConfig;

fn with_plan(plan: PlanChoice) -> Config {
    Config::default().settings(Settings::default().plan(plan))
}

fn unlearning() -> Config {
    with_plan(PlanChoice::None)
}

/// Does the steps outside captures so many times, as a host that frees what is left at the end of each run.
fn warm_up(bench: &Bench, streams: &[StreamHandle], steps: &[Step], times: usize) {
    let Bench { driver, engine, .. } = bench;
    let own = engine.create_pool(PoolConfig::default());
    for _ in 0..times {
        let live = perform((bench, own), streams, steps, false);
        live.into_iter().for_each(|block| engine.free(block).unwrap());
    }
    driver.complete_all();
    engine.destroy_pool(own).unwrap();
}

/// What the pool of a capture holds that comes behind so many runs of the same steps, and the capture's report.
fn held(
    config: Config,
    streams: usize,
    (warm_ups, before): (usize, &[Step]),
    steps: &[Step],
) -> (u64, CaptureReport) {
    let (bench, all) = bench_on(device(SUPPORTS[0]), config).with_streams::<4>();
    warm_up(&bench, &all[..streams], before, warm_ups);
    let report = capture(&bench, &all[..streams], steps);
    let held = bench.reserved();
    leave(&bench, [report.clone()]);
    (held, report)
}

#[test]
fn two_equal_runs_show_what_a_capture_asks_for() {
    let mut better = 0;
    for seed in 0..24 {
        let steps = program(seed, 1, 200, false);
        let (without, report) = held(unlearning(), 1, (3, &steps), &steps);
        assert_eq!(report.layout, None);
        for times in [1, 2, 3, 7] {
            let (with, report) = held(learning(), 1, (times, &steps), &steps);
            assert!(with <= without, "seed {seed}, {times} runs: {with} bytes for {without}");
            if let Some(layout) = report.layout {
                better += usize::from(with < without);
                assert!(layout.followed >= blocks(&steps), "seed {seed}: {layout}");
            }
        }
    }
    assert!(better > 40, "{better} captures of 96 hold less");
}

#[test]
fn captures_into_other_pools_teach() {
    let (mut bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
    let first = bench.pool;
    let (mut sizes, mut reports) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        bench.pool = bench.engine.create_pool(PoolConfig::default());
        reports.push((bench.pool, capture(&bench, &streams, &fragmenting())));
        sizes.push(bench.reserved());
    }
    bench.pool = first;
    assert!(sizes[1] < sizes[0] && sizes[2] == sizes[1], "{sizes:?}");
    assert_eq!(reports[0].1.layout, None);
    assert!(followed(&reports[1].1).is_whole() && followed(&reports[2].1).is_whole());
    for (pool, report) in reports {
        bench.engine.release_graph(report.graph).unwrap();
        bench.engine.destroy_pool(pool).unwrap();
    }
    leave(&bench, []);
}

/// Of a run it is guessed what streams know of each other; a capture tells.
#[test]
fn what_a_capture_showed_is_chosen_over_what_is_guessed() {
    let mut followed = 0;
    for seed in 0..40 {
        let steps = program(seed, 3, 200, false);
        let (mut bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<3>();
        let first = bench.pool;
        let mut reports = Vec::new();
        for _ in 0..2 {
            warm_up(&bench, &streams, &steps, 3);
            bench.pool = bench.engine.create_pool(PoolConfig::default());
            reports.push((bench.pool, capture(&bench, &streams, &steps)));
        }
        bench.pool = first;
        if let Some(layout) = &reports[1].1.layout {
            assert!(layout.is_whole(), "seed {seed}: {layout}");
            followed += 1;
        }
        for (pool, report) in reports {
            bench.engine.release_graph(report.graph).unwrap();
            bench.engine.destroy_pool(pool).unwrap();
        }
        leave(&bench, []);
    }
    assert!(followed > 10, "{followed} captures of 40 follow a layout");
}

/// Blocks that leave gaps where they go to the best one, and need none.
fn fragmenting() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut ask = |number: usize, mib: u64| {
        steps.extend([Step::Allocate(number, mib * MIB, 0), Step::Launch(0, false)]);
    };
    (0..8).for_each(|number| ask(number, 4));
    steps.extend((0..8).step_by(2).map(Step::Free));
    steps.extend([Step::Allocate(8, 16 * MIB, 0), Step::Launch(0, false)]);
    steps
}

/// The last block is so large that an arena's pieces are larger than the others.
fn fragmenting_more() -> Vec<Step> {
    let more = |step| match step {
        Step::Allocate(8, bytes, stream) => Step::Allocate(8, 10 * bytes, stream),
        step => step,
    };
    fragmenting().into_iter().map(more).collect()
}

#[test]
fn a_capture_that_only_begins_as_a_lesson_holds_what_it_used() {
    for taken in 1..16 {
        let (bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
        let lesson = fragmenting_more();
        warm_up(&bench, &streams, &lesson, 2);
        // As many requests as the lesson has first, and then nothing.
        let steps: Vec<Step> = lesson.into_iter().take(taken).collect();
        let asked: u64 = steps.iter().map(bytes).sum();
        let report = capture(&bench, &streams, &steps);
        let layout = followed(&report);
        assert_eq!(layout.followed, blocks(&steps));
        let piece = layout.planned_bytes.div_ceil(8).next_multiple_of(2 * MIB);
        let most = asked.div_ceil(piece).max(blocks(&steps) as u64) * piece;
        // The first four show whether it is the lesson's work.
        let most = if blocks(&steps) > 4 { most } else { asked };
        assert!(bench.reserved() <= most, "{taken}: {} of {most}", bench.reserved());
        leave(&bench, [report]);
    }
}

/// A capture of another pool was of larger work that begins with as many bytes.
#[test]
fn a_capture_that_only_begins_as_one_of_another_pool_takes_its_own_blocks_alone() {
    for blocks in 1..4 {
        let (mut bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
        let large = fragmenting_more();
        let first = (bench.pool, capture(&bench, &streams, &large));
        bench.pool = bench.engine.create_pool(PoolConfig::default());
        let report = capture(&bench, &streams, &large[..2 * blocks]);
        assert_eq!(followed(&report).followed, blocks);
        assert_eq!(bench.reserved(), blocks as u64 * 4 * MIB);
        bench.engine.release_graph(report.graph).unwrap();
        bench.engine.destroy_pool(bench.pool).unwrap();
        bench.pool = first.0;
        leave(&bench, [first.1]);
    }
}

/// Layers of a training step, each of random sizes: forward, and backward, which frees what each layer has left.
fn forward_and_backward(seed: u64) -> (Vec<Step>, Vec<Step>) {
    let mut draw = Draw(seed);
    let layers = 3 + draw.below(8) as usize;
    let width = (1 + draw.below(8)) * MIB;
    let mut half = |first: usize, is_backward: bool| {
        let mut steps = Vec::new();
        for layer in 0..layers {
            for block in first + 3 * layer..first + 3 * layer + 3 {
                steps.extend([
                    Step::Allocate(block, width * [1, 1, 2, 4][draw.below(4) as usize], 0),
                    Step::Launch(0, false),
                ]);
            }
            let last = first + 3 * layer + 2;
            steps.push(Step::Free(last));
            if is_backward {
                let left = 3 * (layers - 1 - layer);
                steps.extend([Step::Free(left), Step::Free(left + 1), Step::Free(last - 1)]);
                steps.extend((layer > 0).then_some(Step::Free(last - 5)));
            }
        }
        steps
    };
    let forward = half(0, false);
    (forward, half(3 * layers, true))
}

/// Forward and backward are captured by themselves into one pool. Backward asks for less where it has the place of what
/// forward left, of which a layout knows nothing; and forward is a part of what was heard, which lies higher than need be
/// in some of these.
#[test]
fn captures_that_free_what_others_left_take_little_more() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..60 {
        let (forward, backward) = forward_and_backward(seed);
        let held = |config: Config| {
            let (mut bench, streams) = bench_on(device(SUPPORTS[0]), config).with_streams::<2>();
            warm_up(&bench, &streams, &[&forward[..], &backward].concat(), 3);
            // By what was heard, and by captures of another pool.
            let held = [(); 2].map(|()| {
                let first = bench.pool;
                bench.pool = bench.engine.create_pool(PoolConfig::default());
                let mut live = BTreeMap::new();
                let reports = [&forward, &backward].map(|steps| {
                    bench.engine.host().expect_capture(streams[1]).unwrap();
                    let capture = bench.begin(streams[1]);
                    perform_with(&mut live, (&bench, bench.pool), &streams[1..], steps, false);
                    bench.finish(streams[1], capture)
                });
                let held = bench.reserved();
                for report in reports {
                    assert!(report.verified);
                    bench.engine.release_graph(report.graph).unwrap();
                }
                live.into_values().for_each(|block| bench.engine.free(block).unwrap());
                bench.driver.complete_all();
                bench.engine.destroy_pool(bench.pool).unwrap();
                bench.pool = first;
                held
            });
            leave(&bench, []);
            held
        };
        let each = held(unlearning()).into_iter().zip(held(learning()));
        for (number, (least, more)) in each.enumerate() {
            let percent = [108, 101][number];
            assert!(100 * more <= percent * least, "seed {seed}, {number}: {more} for {least}");
            (with, without) = (with + more, without + least);
        }
    }
    assert!(1_000 * with <= 1_005 * without, "{with} bytes for {without}");
}

/// The pool's memory ends with a page of which a part is a block's.
#[test]
fn a_layout_begins_with_whole_pages() {
    for mib in [2, 3, 4, 5] {
        let (bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
        let block = bench.engine.allocate(bench.pool, mib * MIB, streams[0]).unwrap();
        warm_up(&bench, &streams, &fragmenting(), 2);
        let report = capture(&bench, &streams, &fragmenting());
        let layout = followed(&report);
        assert!(layout.is_whole(), "{mib} MiB: {layout}");
        let most = (2 * mib.div_ceil(2)) * MIB + layout.planned_bytes;
        assert!(bench.reserved() <= most, "{mib} MiB: {} of {most}", bench.reserved());
        bench.engine.free(block.id).unwrap();
        leave(&bench, [report]);
    }
}

fn bytes(step: &Step) -> u64 {
    match step {
        Step::Allocate(_, bytes, _) => *bytes,
        _ => 0,
    }
}

#[test]
fn another_work_that_begins_as_a_lesson_takes_little_more() {
    let works = [beginning_as, going_on_otherwise];
    for (work, thousandths) in works.into_iter().zip([1_010, 1_020]) {
        let (mut all, mut all_without) = (0, 0);
        for seed in 0..24 {
            let known = program(seed, 1, 300, false);
            let other = work(seed + 100, 1, &known);
            for times in [1, 3] {
                let (without, _) = held(unlearning(), 1, (times, &known), &other);
                let (with, report) = held(learning(), 1, (times, &known), &other);
                let planned = report.layout.map_or(0, |layout| layout.planned_bytes);
                assert!(with <= without + planned, "seed {seed}: {with} for {without}");
                (all, all_without) = (all + with, all_without + without);
            }
        }
        assert!(all * 1_000 <= all_without * thousandths, "{all} for {all_without}");
    }
}

/// The program keeps blocks of sizes that the other work asks for, such as an optimizer's state.
#[test]
fn what_a_program_keeps_is_no_workspace_of_another_work() {
    let (mut all, mut all_without) = (0, 0);
    for seed in 0..24 {
        let known = closed(program(seed, 1, 300, false));
        let other = beginning_as(seed + 100, 1, &known);
        let sizes: Vec<u64> = other.iter().map(bytes).filter(|&bytes| bytes >= MIB).collect();
        let keep = |(number, &bytes): (usize, &u64)| Step::Allocate(50_000 + number, bytes, 0);
        let first = [&known[..], &sizes.iter().enumerate().map(keep).collect::<Vec<_>>()].concat();
        let run = |config| {
            let (bench, streams) = bench_on(device(SUPPORTS[0]), config).with_streams::<1>();
            let own = bench.engine.create_pool(PoolConfig::default());
            let kept = perform((&bench, own), &streams, &first, false);
            warm_up(&bench, &streams, &known, 2);
            let report = capture(&bench, &streams, &other);
            let held = bench.reserved();
            kept.into_iter().for_each(|block| bench.engine.free(block).unwrap());
            bench.engine.destroy_pool(own).unwrap();
            leave(&bench, [report]);
            held
        };
        (all, all_without) = (all + run(learning()), all_without + run(unlearning()));
    }
    assert!(all * 100 <= all_without * 103, "{all} for {all_without}");
}

/// Another program, with a first block of as many bytes.
fn beginning_as(seed: u64, streams: usize, known: &[Step]) -> Vec<Step> {
    let mut other = program(seed, streams as u64, 300, false);
    let first = known.iter().map(bytes).find(|&bytes| bytes > 0).unwrap();
    let mut blocks = other.iter_mut().filter(|step| matches!(step, Step::Allocate(..)));
    if let Some(Step::Allocate(_, bytes, _)) = blocks.next() {
        *bytes = first;
    }
    other
}

/// The first blocks of a program, and then another one.
fn going_on_otherwise(seed: u64, streams: usize, known: &[Step]) -> Vec<Step> {
    let ends = known.iter().enumerate().filter(|(_, step)| bytes(step) > 0).nth(5).unwrap().0;
    let other = program(seed, streams as u64, 300, false).into_iter().map(|step| match step {
        Step::Allocate(block, bytes, stream) => Step::Allocate(10_000 + block, bytes, stream),
        Step::Use(block, stream) => Step::Use(10_000 + block, stream),
        Step::LastUse(block, stream) => Step::LastUse(10_000 + block, stream),
        Step::Free(block) => Step::Free(10_000 + block),
        step => step,
    });
    known[..=ends].iter().copied().chain(other).collect()
}

#[test]
fn what_was_heard_can_be_forgotten() {
    let (bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
    warm_up(&bench, &streams, &fragmenting(), 3);
    bench.engine.plans().forget_learned().unwrap();
    let report = capture(&bench, &streams, &fragmenting());
    assert_eq!(report.layout, None);
    leave(&bench, [report]);
}

#[test]
fn requests_of_streams_are_heard_in_the_order_of_the_calls() {
    let (bench, streams) = bench_on(device(SUPPORTS[0]), unlearning()).with_streams::<4>();
    let mut steps = Vec::new();
    for block in 0..40 {
        let stream = block * 7 % 4;
        steps.push(Step::Allocate(block, (1 + block as u64) * MIB / 2, stream));
        steps.push(Step::Launch(stream, false));
        // What shows that the stream waits for another.
        steps.extend((1..4).contains(&block).then(|| Step::Use(block - 1, stream)));
        steps.extend((block >= 4).then(|| Step::Free(block - 4)));
    }
    assert_eq!(learned::warm_up(&bench, &streams, &steps), blocks(&steps));
    let report = capture(&bench, &streams, &steps);
    let layout = followed(&report);
    assert!(layout.is_whole(), "{layout}");
    leave(&bench, [report]);
}

/// An arena lies over memory of an earlier graph and over memory that no graph uses; the capture has blocks in a part of
/// it, and the rest is no graph's.
#[test]
fn what_a_capture_leaves_of_its_arena_is_no_graphs() {
    let (bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
    let Bench { engine, driver, pool, .. } = &bench;
    let first = [Step::Allocate(0, 2 * MIB, 0), Step::Launch(0, false), Step::Free(0)];
    let first = capture(&bench, &streams, &first);
    let block = engine.allocate(*pool, 38 * MIB, streams[0]).unwrap();
    engine.free(block.id).unwrap();
    driver.complete_all();
    // It is idle when the capture begins.
    assert_eq!(engine.trim(u64::MAX).unwrap().waiting, 0);

    warm_up(&bench, &streams, &fragmenting(), 2);
    // The lesson's first block alone.
    let mut part = fragmenting()[..2].to_vec();
    part.push(Step::Free(0));
    let second = capture(&bench, &streams, &part);
    assert_eq!(followed(&second).followed, 1);
    let held = bench.reserved();
    let block = engine.allocate(*pool, 30 * MIB, streams[0]).unwrap();
    assert_eq!(bench.reserved(), held, "the block has memory of its own beside what no graph uses");
    engine.free(block.id).unwrap();
    leave(&bench, [first, second]);
}

#[test]
fn an_arena_takes_no_more_than_the_pool_may_hold() {
    let (mut bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
    warm_up(&bench, &streams, &fragmenting(), 3);
    let first = bench.pool;
    // Room for seven blocks of the lesson.
    let most = 30 * MIB;
    bench.pool = bench.engine.create_pool(PoolConfig::default().max_bytes(most));
    let capture = bench.begin(streams[0]);
    let asked = |number: usize| [4 * MIB, 16 * MIB][usize::from(number == 8)];
    let mut live = Vec::new();
    for number in 0..9 {
        match bench.engine.allocate(bench.pool, asked(number), streams[0]) {
            Ok(block) => live.push(block.id),
            Err(error) => {
                assert!(error.out_of_memory().is_some() && number > 6, "{number}: {error}")
            }
        }
        bench.launch(streams[0]);
        assert!(bench.reserved() <= most, "{number}: {}", bench.reserved());
    }
    let report = bench.finish(streams[0], capture);
    live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.engine.release_graph(report.graph).unwrap();
    bench.driver.complete_all();
    bench.engine.destroy_pool(bench.pool).unwrap();
    bench.pool = first;
    leave(&bench, []);
}

#[test]
fn a_run_that_the_host_marks_is_heard_whole_from_all_threads() {
    let (bench, streams) = bench_on(device(SUPPORTS[0]), unlearning()).with_streams::<2>();
    bench.engine.plans().learn().unwrap();
    // Threads ask in turns, as slowly as can be: each request is behind the other thread's.
    let (rounds, turn) = (200, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for (thread, stream) in streams.into_iter().enumerate() {
            let (bench, turn) = (&bench, &turn);
            scope.spawn(move || {
                for round in 0..rounds {
                    while turn.load(Ordering::SeqCst) != 2 * round + thread {
                        std::thread::yield_now();
                    }
                    let block = bench.engine.allocate(bench.pool, MIB, stream).unwrap();
                    bench.engine.free(block.id).unwrap();
                    turn.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(bench.engine.plans().learned().unwrap(), 2 * rounds);
    assert!(bench.engine.wait_for_device().unwrap());
    leave(&bench, []);
}

#[test]
fn with_plan_none_nothing_is_learned() {
    let (bench, streams) = bench_on(SimConfig::default(), unlearning()).with_streams::<1>();
    warm_up(&bench, &streams, &fragmenting(), 3);
    let reports = [(); 2].map(|()| capture(&bench, &streams, &fragmenting()));
    assert!(reports.iter().all(|report| report.layout.is_none()));
    leave(&bench, reports);
}

#[test]
fn threads_that_ask_beside_each_other_are_heard_in_some_order() {
    let (bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<8>();
    std::thread::scope(|scope| {
        for stream in streams {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..2_000 {
                    let bytes = [MIB, 3 * MIB][round % 2];
                    let block = bench.engine.allocate(bench.pool, bytes, stream).unwrap();
                    bench.engine.free(block.id).unwrap();
                }
            });
        }
    });
    assert!(bench.engine.wait_for_device().unwrap());
    let own = [streams[0]];
    let report = capture(&bench, &own, &fragmenting());
    leave(&bench, [report]);
}

fn stream(number: usize) -> StreamHandle {
    StreamHandle::from_bits(1_000 + number)
}

/// The bytes and the stream of a run's first request.
fn first_of(run: &[Step]) -> (u64, StreamHandle) {
    let first = run.iter().find_map(|step| match *step {
        Step::Allocate(_, bytes, of) => Some((bytes, stream(of))),
        _ => None,
    });
    first.unwrap()
}

/// Adds a run's requests under names that no other run has.
fn hear(heard: &mut Heard, steps: &[Step], run: usize) {
    let name = |block: usize| BlockNumber((run * 100_000 + block) as u64);
    for step in steps {
        match *step {
            Step::Allocate(block, bytes, of) => {
                heard.add(Demand::Allocate { block: name(block), bytes, stream: stream(of) });
            }
            Step::Use(block, of) => {
                heard.add(Demand::Use { block: name(block), stream: stream(of), last: false });
            }
            Step::Free(block) => heard.add(Demand::Free { block: name(block) }),
            _ => {}
        }
    }
}

/// Frees what a run leaves.
fn closed(mut steps: Vec<Step>) -> Vec<Step> {
    let frees = steps.iter().filter_map(|step| match *step {
        Step::Allocate(block, ..) => Some(Step::Free(block)),
        _ => None,
    });
    let open: Vec<Step> = frees.filter(|free| !steps.contains(free)).collect();
    steps.extend(open);
    steps
}

#[test]
fn a_run_is_found_between_what_comes_before_and_behind() {
    for seed in 0..60 {
        let (streams, times) = (1 + seed % 3, 2 + (seed as usize / 3) % 3);
        let run = closed(program(seed, streams, 200, false));
        let first = first_of(&run);
        let mut heard = Heard::default();
        // A model's weights, which are never freed.
        let weights = (0..50).map(|number| Step::Allocate(number, (1 + number as u64) * 3_584, 0));
        hear(&mut heard, &weights.collect::<Vec<_>>(), 0);
        (1..=times).for_each(|number| hear(&mut heard, &run, number));
        let few = [Step::Allocate(0, 1_536, 0), Step::Free(0)];
        (0..seed as usize % 3).for_each(|number| hear(&mut heard, &few, 50 + number));
        let found = heard.last_run(&[first.0], first.1).unwrap();
        let reuse = regraph::settings::Reuse::CrossStream;
        let pattern = |runs: usize| {
            let mut alone = Heard::default();
            (0..runs).for_each(|number| hear(&mut alone, &run, number));
            alone.requests().outline(reuse).pattern()
        };
        // Four runs are two of twice the length, to which what comes behind may belong.
        let least = times / 2 * blocks(&run);
        assert!((least..least + times - 1).contains(&found.blocks()), "seed {seed}");
        assert!(pattern(times / 2).begins(found.sizes()), "seed {seed}");
        // What is forgotten takes nothing from what is kept.
        let most = heard.requests().blocks() / 4;
        heard.keep(most);
        assert!(heard.requests().blocks() <= most, "seed {seed}");
        (60..62).for_each(|number| hear(&mut heard, &run, number));
        let found = heard.last_run(&[first.0], first.1).unwrap();
        assert_eq!(found.outline(reuse).pattern(), pattern(1), "seed {seed}");
    }
}

#[test]
fn many_runs_in_a_row_are_one() {
    for seed in 0..6 {
        let run = closed(program(seed, 1 + seed % 3, 1_600, false));
        assert!((301..600).contains(&blocks(&run)), "{} blocks", blocks(&run));
        let (first, mut heard) = (first_of(&run), Heard::default());
        hear(&mut heard, &run, 1);
        for times in 2..=11 {
            hear(&mut heard, &run, times);
            let found = heard.last_run(&[first.0], first.1).unwrap();
            assert_eq!(found.blocks(), blocks(&run), "seed {seed}, {times} runs");
            // What PyTorch asks for before a capture belongs to none.
            let mut asked = heard.clone();
            hear(&mut asked, &[Step::Allocate(0, 512, 0), Step::Allocate(1, 512, 0)], 99);
            let found = asked.last_run(&[first.0], first.1).unwrap().blocks();
            assert!(
                (blocks(&run)..=blocks(&run) + 2).contains(&found),
                "seed {seed}, {times} runs"
            );
        }
    }
}

/// A model is made, of weights that come behind blocks as large as its input, and runs once before its capture, as one of
/// other sizes that begins as it has run before another.
#[test]
fn a_run_that_ran_once_is_found_behind_weights_and_captures() {
    for seed in 0..60 {
        let streams = 1 + seed % 3;
        let run = closed(program(seed, streams, 200, false));
        let (first, mut heard) = (first_of(&run), Heard::default());
        let weight = |number: usize| {
            let like_the_input = [Step::Allocate(3 * number, first.0, 0)];
            let kept = (1..3 - seed as usize / 2 % 2)
                .map(move |kept| Step::Allocate(3 * number + kept, 3_584, 0));
            like_the_input.into_iter().chain(kept).chain([Step::Free(3 * number)])
        };
        hear(&mut heard, &(0..50).flat_map(weight).collect::<Vec<_>>(), 0);
        if seed % 2 == 1 {
            hear(&mut heard, &closed(beginning_as(seed + 100, streams as usize, &run)), 1);
            heard.note_capture();
        }
        hear(&mut heard, &run, 2);
        let found = heard.last_run(&[first.0], first.1).unwrap();
        assert_eq!(found.blocks(), blocks(&run), "seed {seed}");
        // What is forgotten takes nothing from what came behind the capture.
        heard.keep(run.len());
        let found = heard.last_run(&[first.0], first.1).unwrap();
        assert_eq!(found.blocks(), blocks(&run), "seed {seed}");
    }
}

#[test]
fn any_requests_are_searched_for_a_run() {
    for seed in 0..20_000 {
        let (mut draw, mut heard, mut steps) = (Draw(seed), Heard::default(), Vec::new());
        for _ in 0..2 + draw.below(12) {
            let part: Vec<u64> = (0..=draw.below(10)).map(|_| 512 * (1 + draw.below(2))).collect();
            for &bytes in part.iter().cycle().take(part.len() * (1 + draw.below(4) as usize)) {
                let block = steps.len();
                steps.push(Step::Allocate(block, bytes, 0));
                steps.extend((draw.below(9) < seed % 10).then_some(Step::Free(block)));
            }
        }
        hear(&mut heard, &steps, 0);
        let first = heard.last_run(&[512], stream(0)).map(|run| run.sizes().next());
        assert!(first.is_none_or(|first| first == Some(512)), "seed {seed}");
    }
}

/// The first seeds are of works of which what is asked for again ends before the run that was found.
#[test]
fn work_that_comes_again_with_captures_between_is_searched_for_a_run() {
    for seed in [3_208, 47_248, 96_628].into_iter().chain(0..500) {
        let (mut draw, mut heard) = (Draw(seed), Heard::default());
        let (mut blocks, mut since, mut live) = (0, 0, Vec::<usize>::new());
        let unit: Vec<(u64, usize, u64)> = (0..1 + draw.below(4))
            .map(|_| (draw.below(2) * draw.below(2), draw.below(2) as usize, draw.below(4)))
            .collect();
        for _ in 0..2 + draw.below(3) {
            let (times, frees) = (4 + draw.below(40), draw.below(4) > 0);
            for _ in 0..times {
                let mut steps = Vec::new();
                for &(units, of, how) in &unit {
                    steps.push(Step::Allocate(blocks, 512 * (1 + units), of));
                    steps.extend((how == 3).then_some(Step::Use(blocks, 1 - of)));
                    live.push(blocks);
                    blocks += 1;
                    if frees && how > 0 {
                        let at = if how == 1 { live.len() - 1 } else { 0 };
                        steps.push(Step::Free(live.remove(at)));
                    }
                }
                if draw.below(30) == 0 {
                    steps.pop();
                }
                hear(&mut heard, &steps, 0);
                since += 1;
                if since > 10 && draw.below(12) == 0 {
                    heard.last_run(&[512], stream(draw.below(3) as usize));
                    heard.note_capture();
                    since = 0;
                }
            }
            while live.len() > 3 && draw.below(3) > 0 {
                hear(&mut heard, &[Step::Free(live.remove(0))], 0);
            }
        }
        heard.last_run(&[512], stream(0));
    }
}

#[test]
fn layers_of_one_run_are_no_runs() {
    let layer = |at: usize| {
        let name = |block: usize| at * 4 + block;
        let mut steps: Vec<Step> =
            (0..3).map(|block| Step::Allocate(name(block), (1 + block as u64) * MIB, 0)).collect();
        steps.extend([Step::Free(name(0)), Step::Free(name(1))]);
        if at > 0 {
            steps.push(Step::Free((at - 1) * 4 + 2));
        }
        steps
    };
    let run = closed((0..12).flat_map(layer).collect());
    let mut once = Heard::default();
    hear(&mut once, &run, 0);
    assert_eq!(once.last_run(&[MIB], stream(0)).unwrap().blocks(), blocks(&run));
    // Between runs that are the same but for a block in the first one, which stays.
    for (times, first) in [(2, 0), (3, 0), (2, 1), (3, 1)] {
        let mut heard = Heard::default();
        let workspace = Step::Allocate(1_000, 8 * MIB, 0);
        hear(&mut heard, &[&run[..4], &[workspace], &run[4..]].concat(), 0);
        (first..times).for_each(|number| hear(&mut heard, &run, 1 + number));
        let found = heard.last_run(&[MIB], stream(0)).unwrap();
        // Nothing but frees tells where one begins.
        assert!((33..=36).contains(&found.blocks()), "{times} runs: {}", found.blocks());
        hear(&mut heard, &[Step::Allocate(0, 512, 0), Step::Allocate(1, 512, 0)], 9);
        // What PyTorch asks for before a capture may belong to it.
        let found = heard.last_run(&[MIB], stream(0)).unwrap().blocks();
        assert!((33..=38).contains(&found), "{times} runs: {found}");
    }
    assert!(Heard::default().last_run(&[MIB], stream(0)).is_none());
}

#[test]
fn runs_that_differ_in_a_few_requests_are_runs() {
    for seed in 0..40 {
        let run = closed(program(seed, 1 + seed % 3, 300, false));
        let first = first_of(&run);
        let mut heard = Heard::default();
        let weights = (0..50).map(|number| Step::Allocate(number, (1 + number as u64) * 3_584, 0));
        hear(&mut heard, &weights.collect::<Vec<_>>(), 0);
        // What an optimizer keeps comes in the first run only, and each run frees a block at another moment.
        let at = run.len() / 2;
        let kept = (0..100).map(|number| Step::Allocate(1_000 + number, 640 << 10, 0));
        let once = [&run[..at], &kept.collect::<Vec<_>>(), &run[at..]].concat();
        hear(&mut heard, &once, 1);
        hear(&mut heard, &run, 2);
        let free = run[at..].iter().position(|it| matches!(it, Step::Free(_))).unwrap();
        let mut other = run.clone();
        other[at + free..].rotate_left(1);
        hear(&mut heard, &other, 3);
        let found = heard.last_run(&[first.0], first.1).unwrap();
        assert_eq!(found.blocks(), blocks(&run), "seed {seed}");
    }
}

/// Chunks that go through stages with a stream each, as in a pipeline.
#[test]
fn a_chunk_of_a_pipeline_is_no_run() {
    let chunk = |at: usize| {
        let layer = move |layer: usize| {
            let name = at * 100 + layer * 3;
            let sizes = [4 * MIB, 4 * MIB, MIB].into_iter();
            let blocks = (name..).zip(sizes);
            let own = blocks.map(move |(name, bytes)| Step::Allocate(name, bytes, layer / 2));
            own.chain((name..name + 2).map(Step::Free))
                .chain((layer > 0).then(|| Step::Free(name - 1)))
        };
        (0..8).flat_map(layer).chain([Step::Free(at * 100 + 7 * 3 + 2)])
    };
    let run: Vec<Step> = (0..6).flat_map(chunk).collect();
    let mut heard = Heard::default();
    (0..3).for_each(|number| hear(&mut heard, &run, number));
    let seeds = [Step::Allocate(0, 512, 3), Step::Allocate(1, 512, 3)];
    hear(&mut heard, &seeds, 4);
    let found = heard.last_run(&[4 * MIB], stream(0)).unwrap();
    assert!(found.blocks() >= blocks(&run), "{}", found.blocks());
    // As it was asked for, from the stage on that the capture begins with.
    let mut alone = Heard::default();
    hear(&mut alone, &run, 0);
    let pattern = alone.requests().outline(regraph::settings::Reuse::CrossStream).pattern();
    assert!(pattern.begins(found.sizes()));
}

/// Gated units, of which half are twice in a row as well, with their gates on a stream of their own or not; the first
/// matrix product of each stream has asked for a workspace.
#[test]
fn a_run_is_whole_though_a_library_asked_for_workspaces_in_the_one_before() {
    for side in [0, 1] {
        let unit = |at: usize| {
            let [gate, up, gated, down, result] = [1, 2, 3, 4, 5].map(|block| at * 5 + block);
            let wide = |name, stream| Step::Allocate(name, 24 * MIB, stream);
            let narrow = |name| Step::Allocate(name, 8 * MIB, 0);
            let products = [wide(gate, side), Step::Use(at * 5, side), wide(up, 0)];
            let gates = [Step::Use(gate, 0), wide(gated, 0), Step::Free(gate), Step::Free(up)];
            let passes_on = [narrow(down), Step::Free(gated), narrow(result)];
            let frees = [Step::Free(at * 5), Step::Free(down)];
            [&products[..], &gates, &passes_on, &frees].concat()
        };
        let input = [Step::Allocate(0, 8 * MIB, 0)];
        let run = closed(input.into_iter().chain((0..8).flat_map(unit)).collect());
        let mut first = run.clone();
        let workspace = |name, stream| Step::Allocate(name, 32 * MIB, stream);
        first.insert(2, workspace(1_000, side));
        if side != 0 {
            // Behind the block of the other product.
            first.insert(5, workspace(1_001, 0));
        }
        let mut heard = Heard::default();
        hear(&mut heard, &first, 0);
        hear(&mut heard, &run, 1);
        assert_eq!(heard.last_run(&[8 * MIB], stream(0)).unwrap().blocks(), blocks(&run), "{side}");
        hear(&mut heard, &[Step::Allocate(0, 512, 0), Step::Allocate(1, 512, 0)], 2);
        let found = heard.last_run(&[8 * MIB], stream(0)).unwrap().blocks();
        assert!((blocks(&run)..=blocks(&run) + 2).contains(&found), "{side}: {found}");
    }
}

/// In a program's first run a library asks for workspaces, and an optimizer for its state. All of that stays in use.
#[test]
fn what_is_asked_for_once_is_no_part_of_a_run_that_ran_once() {
    for seed in 0..60 {
        let streams = 1 + seed as usize % 3;
        let run = closed(program(seed, streams as u64, 200, false));
        let asks: Vec<usize> = (0..run.len()).filter(|&step| bytes(&run[step]) > 0).collect();
        let sizes: Vec<u64> = asks.iter().map(|&step| bytes(&run[step])).collect();
        let mut first = run.clone();
        for (number, behind) in [asks[asks.len() / 2], asks[streams]].into_iter().enumerate() {
            first.insert(behind + 1, Step::Allocate(10_000 + number, 32 * MIB, streams - 1));
        }
        let state = |number: usize| Step::Allocate(20_000 + number, sizes[number], 0);
        first.extend((0..sizes.len().min(40)).map(state));
        let mut heard = Heard::default();
        hear(&mut heard, &first, 0);
        let (size, on) = first_of(&run);
        let found = heard.last_run(&[size], on).unwrap();
        assert!(found.sizes().take(sizes.len()).eq(sizes), "seed {seed}");
    }
}

/// The workspace is the second block of the first run; the second run has none.
#[test]
fn a_workspace_behind_the_first_request_hides_no_run() {
    for seed in 0..60 {
        let run = closed(program(seed, 1 + seed % 3, 200, false));
        let (size, on) = first_of(&run);
        let at = run.iter().position(|step| bytes(step) > 0).unwrap();
        let workspace = [Step::Allocate(10_000, 32 * MIB, 0)];
        let mut heard = Heard::default();
        hear(&mut heard, &[&run[..=at], &workspace, &run[at + 1..]].concat(), 0);
        hear(&mut heard, &run, 1);
        assert_eq!(heard.last_run(&[size], on).unwrap().blocks(), blocks(&run), "seed {seed}");
    }
}

/// A program is prepared on the default stream, warmed up on one that it makes, and captured on another; a branch has its
/// own.
#[test]
fn the_run_before_may_have_begun_on_another_stream_than_the_run() {
    for seed in 0..40 {
        let run = closed(program(seed, 2, 300, false));
        let (size, on) = first_of(&run);
        let moved = |of: usize| if stream(of) == on { 5 } else { of };
        let warm_up = run.iter().map(|step| match *step {
            Step::Allocate(block, bytes, of) => Step::Allocate(block, bytes, moved(of)),
            Step::Use(block, of) => Step::Use(block, moved(of)),
            other => other,
        });
        let mut heard = Heard::default();
        // Its result is freed in the other run, so nothing but likeness tells where that begins.
        let result = Step::Allocate(109_000, 8 * MIB, 0);
        hear(&mut heard, &[&run[..], &[result]].concat(), 0);
        let warm_up: Vec<Step> = warm_up.collect();
        let (most, rest) = warm_up.split_at(warm_up.len() * 3 / 4);
        hear(&mut heard, &[most, &[Step::Free(9_000)], rest].concat(), 1);
        assert_eq!(
            heard.last_run(&[size], stream(9)).unwrap().blocks(),
            blocks(&run),
            "seed {seed}"
        );
    }
}

/// The warm-up was on another stream, so the library has no workspaces yet for that of the capture: one of a size that no
/// block has, and at once another one, of some size or of that of a block which is asked for soon.
#[test]
fn workspaces_that_a_library_asks_for_in_a_capture_end_no_layout() {
    for alike in [false, true] {
        let mut better = 0;
        for seed in 0..24 {
            let steps = closed(program(seed, 1, 200, false));
            let asks = steps.iter().enumerate().filter(|(_, step)| bytes(step) > 0);
            let asks: Vec<(usize, u64)> = asks.map(|(at, step)| (at, bytes(step))).collect();
            let differs = |it: &&(usize, u64)| it.1 != asks[7].1 && it.1 >= MIB;
            let soon = asks[8..10].iter().find(differs).map_or(2 * MIB, |it| it.1);
            let sizes = [40 * MIB, if alike { soon } else { 2 * MIB }];
            let (before, behind) = steps.split_at(asks[6].0 + 1);
            let ask = |number: usize| Step::Allocate(10_000 + number, sizes[number], 0);
            let asks = [before, &[ask(0), ask(1)], behind].concat();
            let without = held_on_another_stream(unlearning(), &steps, &asks, &asks).0;
            let (with, layout) = held_on_another_stream(learning(), &steps, &asks, &asks);
            assert!(alike || with <= without, "seed {seed}: {with} bytes for {without}");
            if let Some(layout) = layout.filter(|it| it.followed > 0) {
                better += usize::from(with < without);
                assert_eq!(layout.followed, blocks(&steps), "seed {seed}: {layout}");
            }
        }
        assert!(better > 10, "{better} captures of 24 hold less");
    }
}

/// What the pool of a capture holds that comes behind a first run, of which all stays that it does not free, and one of the
/// steps, both on another stream; and how far the capture followed a layout.
fn held_on_another_stream(
    config: Config,
    steps: &[Step],
    first: &[Step],
    captured: &[Step],
) -> (u64, Option<Followed>) {
    let bench = bench_on(device(SUPPORTS[0]), config);
    let [warm, new]: [StreamHandle; 2] = bench.streams();
    let own = bench.engine.create_pool(PoolConfig::default());
    let kept = perform((&bench, own), &[warm], first, false);
    warm_up(&bench, &[warm], steps, 1);
    let report = capture(&bench, &[new], captured);
    let held = bench.reserved();
    kept.into_iter().for_each(|block| bench.engine.free(block).unwrap());
    bench.engine.destroy_pool(own).unwrap();
    leave(&bench, [report.clone()]);
    (held, report.layout)
}

/// A step of a language model, whose layers ask for blocks of the first one's size again and again.
fn language_model(layers: usize) -> Vec<Step> {
    let mut steps = vec![Step::Allocate(0, MIB, 0)];
    for layer in 1..=layers {
        let sizes = [4, 4, 2, 4, 4, 1, 4, 4, 3, 4, 4, 12];
        let bytes = |size: u64| if size > 3 || size == 1 { size * MIB / 4 } else { size << 10 };
        let ask = |(number, size)| Step::Allocate(100 * layer + number, bytes(size), 0);
        steps.extend(sizes.into_iter().enumerate().map(ask));
        steps.push(Step::Free(100 * layer + 7));
    }
    steps.push(Step::Allocate(1, 32 * MIB, 0));
    for layer in (1..=layers).rev() {
        for number in (0..12).filter(|&number| number != 7) {
            let block = 100 * layer + number;
            let gradient = Step::Allocate(10_000 + block, [4, 4, 12][number % 3] * MIB / 4, 0);
            steps.extend([gradient, Step::Free(block), Step::Free(10_000 + block)]);
        }
    }
    closed(steps)
}

/// The layers are so many that all pairs of their blocks are too many to compare. What is asked for behind the steps, on
/// the capture's stream, is no run.
#[test]
fn a_run_is_found_among_layers_that_ask_for_the_size_of_its_first_block() {
    let run = language_model(64);
    let states = (0..60).map(|number| Step::Allocate(50_000 + number, MIB, 0));
    let first: Vec<Step> = run.iter().copied().chain(states).collect();
    for times in [1, 2, 5] {
        let mut heard = Heard::default();
        hear(&mut heard, &first, 0);
        (1..times).for_each(|number| hear(&mut heard, &run, number));
        for known in [false, true] {
            // Behind an earlier capture the stream is known.
            let small = |number| Step::Allocate(number, if known { MIB } else { 512 }, 9);
            hear(&mut heard, &run, 90 + usize::from(known));
            hear(&mut heard, &[small(90_000), small(90_001)], 80 + usize::from(known));
            let found = heard.last_run(&[MIB], stream(9)).unwrap();
            let sizes = run.iter().map(bytes).filter(|&bytes| bytes > 0);
            assert!(found.sizes().take(blocks(&run)).eq(sizes), "{times} runs: {}", found.blocks());
        }
    }
}

/// For kernels that draw random numbers a library asks for two seeds in captures alone, here in each layer.
#[test]
fn seeds_that_a_library_asks_for_in_a_capture_end_no_layout() {
    let steps = language_model(8);
    let with_seeds = |step: &Step| {
        let first = match *step {
            Step::Allocate(block @ 100..10_000, ..) if block % 100 == 9 => Some(20_000 + 2 * block),
            _ => None,
        };
        let seeds = first.into_iter().flat_map(|first| [first, first + 1]);
        let asks = seeds.clone().map(|seed| Step::Allocate(seed, 512, 0));
        asks.chain(seeds.map(Step::Free)).chain([*step]).collect::<Vec<_>>()
    };
    let captured: Vec<Step> = steps.iter().flat_map(with_seeds).collect();
    let without = held_on_another_stream(unlearning(), &steps, &steps, &captured).0;
    let (with, layout) = held_on_another_stream(learning(), &steps, &steps, &captured);
    let layout = layout.unwrap();
    assert_eq!((layout.followed, layout.fell_back), (blocks(&steps), None));
    assert!(with < without, "{with} bytes for {without}");
}

/// It goes behind the addresses that the layout has no memory for yet, and the next blocks have their places.
#[test]
fn a_block_that_was_not_heard_takes_no_place_of_a_layout() {
    let steps = fragmenting_more();
    let places = steps.iter().enumerate().filter(|(_, step)| bytes(step) > 0).skip(4);
    for (at, _) in places {
        let more = [Step::Allocate(10_000, 2 * MIB, 0), Step::Launch(0, false)];
        let other = [&steps[..at], &more, &steps[at..]].concat();
        let (_, report) = held(learning(), 1, (2, &steps), &other);
        let layout = followed(&report);
        assert!(layout.followed > 6, "{at}: {layout}");
    }
}

#[test]
fn what_mostly_stays_in_use_is_no_run() {
    let mut heard = Heard::default();
    let layer = |number: usize| Step::Allocate(number, (1 + number as u64 % 4) * MIB, 0);
    hear(&mut heard, &(0..64).map(layer).collect::<Vec<_>>(), 0);
    assert!(heard.last_run(&[MIB], stream(0)).is_none());
}

/// What several streams knew of each other outside captures is a guess, which is followed where blocks show of each
/// stream that it waits for others, or it has one turn alone.
#[test]
fn captures_follow_runs_on_several_streams_whose_blocks_show_that_they_wait() {
    // How many turns the branch has, in which of them it uses its input, and whether last or first there.
    let waits = [
        (3, Some(0), false),
        (3, Some(0), true),
        (3, Some(1), true),
        (3, Some(2), true),
        (3, None, true),
        (2, None, true),
        (1, None, true),
    ];
    for (turns, shown, late) in waits {
        let mut steps = Vec::new();
        for turn in 0..turns {
            let uses = (shown == Some(turn)).then_some(Step::Use(20 + turn, 1));
            steps.extend([
                Step::Allocate(20 + turn, 4 * MIB, 0),
                Step::Launch(0, false),
                Step::Wait(1, 0),
            ]);
            steps.extend(uses.filter(|_| !late));
            steps.extend([
                Step::Allocate(30 + turn, (2 + turn as u64) * MIB, 1),
                Step::Launch(1, false),
            ]);
            if turn == 0 {
                steps.extend(fragmenting().into_iter().map(|step| match step {
                    Step::Allocate(number, bytes, _) => Step::Allocate(number, bytes, 1),
                    Step::Launch(_, early) => Step::Launch(1, early),
                    step => step,
                }));
            }
            // A host may record an input when the branch has used it last.
            steps.extend(uses.filter(|_| late));
            steps.extend([Step::Free(20 + turn), Step::Wait(0, 1)]);
        }
        let [without, with] = [unlearning(), learning()].map(|it| held(it, 2, (2, &steps), &steps));
        // Of a run that the host marks too.
        let (bench, streams) = bench_on(device(SUPPORTS[0]), unlearning()).with_streams::<2>();
        assert_eq!(learned::warm_up(&bench, &streams, &steps), blocks(&steps));
        let marked = capture(&bench, &streams, &steps);
        if turns == 1 || shown.is_some_and(|turn| turn < 2) {
            assert!(with.0 < without.0, "{} bytes, {} without", with.0, without.0);
            assert!(followed(&with.1).is_whole() && followed(&marked).is_whole());
        } else {
            assert_eq!((with.0, with.1.layout, &marked.layout), (without.0, None, &None));
        }
        leave(&bench, [marked]);
    }
}

/// As in tensor parallelism: another stream reduces each result in place, and the first one goes on with it. That one has
/// waited, though it uses no block of the other's, where it keeps the result behind its next block.
#[test]
fn what_the_first_stream_keeps_while_another_uses_it_may_be_had_again() {
    let mut steps = Vec::new();
    for layer in (20..32).step_by(2) {
        steps.extend([
            Step::Allocate(layer, 4 * MIB, 0),
            Step::Launch(0, false),
            Step::Wait(1, 0),
            Step::Use(layer, 1),
            Step::Launch(1, false),
            Step::Wait(0, 1),
            Step::Allocate(layer + 1, 8 * MIB, 0),
            Step::Launch(0, false),
            Step::Free(layer),
            Step::Free(layer + 1),
        ]);
    }
    steps.extend(fragmenting());
    let [without, with] = [unlearning(), learning()].map(|it| held(it, 2, (2, &steps), &steps));
    assert_eq!([without.0, with.0], [48 * MIB, 32 * MIB]);
    assert!(followed(&with.1).is_whole());
}

/// Branches are forked one after the other, and each one's result is recorded for the first stream when it is made: that
/// one waits when all are done, so no branch may have another's memory.
#[test]
fn a_branch_does_not_wait_for_results_that_its_origin_is_still_to_wait_for() {
    let mut steps = vec![Step::Allocate(20, 2 * MIB, 0), Step::Launch(0, false)];
    steps.extend([Step::Wait(1, 0), Step::Wait(2, 0)]);
    for branch in 1..3 {
        let (large, result) = (20 + 2 * branch, 21 + 2 * branch);
        steps.extend([
            Step::Use(20, branch),
            Step::Allocate(large, 8 * MIB, branch),
            Step::Launch(branch, false),
            Step::Allocate(result, 2 * MIB, branch),
            Step::Launch(branch, false),
            Step::Free(large),
            Step::Use(result, 0),
        ]);
    }
    steps.extend([Step::Wait(0, 1), Step::Wait(0, 2), Step::Allocate(30, MIB, 0)]);
    steps.extend([Step::Launch(0, false), Step::Free(20), Step::Free(23), Step::Free(25)]);
    steps.extend(fragmenting());
    let (_, report) = held(learning(), 3, (2, &steps), &steps);
    assert!(followed(&report).is_whole(), "{}", followed(&report));
}

/// Whose results are freed before the next one is captured: all that the pool has is a part of a larger layout's arena.
#[test]
fn a_larger_batch_begins_where_a_smaller_one_lay() {
    let (bench, streams) = bench_on(device(SUPPORTS[0]), learning()).with_streams::<1>();
    let mut reports = Vec::new();
    for scale in 1..5 {
        let steps = scaled(fragmenting(), scale);
        warm_up(&bench, &streams, &steps, 2);
        reports.push(capture(&bench, &streams, &steps));
        assert!(followed(&reports[scale as usize - 1]).is_whole(), "{scale}");
        assert_eq!(bench.reserved(), 32 * scale * MIB);
    }
    leave(&bench, reports);
}

/// The steps with blocks of so many times the bytes.
fn scaled(steps: Vec<Step>, scale: u64) -> Vec<Step> {
    let larger = |step| match step {
        Step::Allocate(block, bytes, stream) => Step::Allocate(block, scale * bytes, stream),
        step => step,
    };
    steps.into_iter().map(larger).collect()
}

/// What captures hold with and without a lesson from three runs: of the same random work, and of another one that begins
/// with as many bytes.
#[test]
#[ignore = "a table for design/figures.md"]
fn table_of_warm_ups() {
    println!("streams, work: mean, most of what is held without; captures that followed one");
    let works = (1..=4).flat_map(|streams| [(streams, true), (streams, false)]);
    for (streams, same) in works {
        let (mut sum, mut most, mut lessons) = (0.0, 0.0_f64, 0);
        for seed in 0..100 {
            let steps = program(seed, streams as u64, 300, false);
            let other =
                if same { steps.clone() } else { beginning_as(seed + 1_000, streams, &steps) };
            let (without, _) = held(unlearning(), streams, (3, &steps), &other);
            let (with, report) = held(with_plan(PlanChoice::Auto), streams, (3, &steps), &other);
            let ratio = with as f64 / without as f64;
            (sum, most) = (sum + ratio.ln(), most.max(ratio));
            lessons += usize::from(report.layout.is_some());
        }
        let work = if same { "the same" } else { "another" };
        println!("{streams}, {work}: {:.3}, {most:.3}; {lessons}", (sum / 100.0).exp());
    }
}
