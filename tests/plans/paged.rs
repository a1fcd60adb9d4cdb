//! Capturing twice where memory comes at captures' ends: the second capture's addresses are those of the
//! layout, and its pages of memory go wherever they are free.

use super::twice::{
    device, follow, followed, nothing_stays, program, rehearse, run_on, variants, Step,
};
use crate::common::{bench_on, MIB};
use regraph::driver::{ErrorKind, HostApi, MemorySupport};
use regraph::engine::Config;
use regraph::settings::{PlanChoice, Reuse, Settings};
use regraph_plan::layout::Layout;

const PAGE: u64 = 2 * MIB;
const SUPPORT: MemorySupport = MemorySupport::Mapped { granularity: PAGE };

fn exact() -> Config {
    let settings = Settings::default().plan(PlanChoice::Exact).plan_pool_graphs(Some(1));
    Config::default().settings(settings)
}

/// A program, and a layout for it that pages need less memory than.
fn with_pages(seeds: std::ops::Range<u64>, steps: usize) -> Option<(Vec<Step>, Layout)> {
    seeds.into_iter().find_map(|seed| {
        let (bench, streams) = bench_on(device(SUPPORT), exact()).with_streams::<3>();
        let steps = program(seed, 3, steps, false);
        let layout = rehearse(&bench, &streams, &steps);
        let less = layout.pages().is_some_and(|pages| pages.bytes() < layout.bytes());
        less.then_some((steps, layout))
    })
}

#[test]
fn the_least_of_both_is_held() {
    let (mut by_pages, mut at_once) = (0, 0);
    for seed in 0..48 {
        let (bench, streams) = bench_on(device(SUPPORT), exact()).with_streams::<3>();
        let steps = program(seed, 1 + seed % 3, 200, false);
        let layout = rehearse(&bench, &streams, &steps);
        let arena = layout.bytes().next_multiple_of(PAGE);
        let pages = layout.pages().unwrap().bytes();
        let (report, live) = follow(&bench, &streams, &steps, layout);
        assert!(followed(&report).is_whole(), "seed {seed}: {}", followed(&report));
        assert_eq!(bench.reserved(), arena.min(pages), "seed {seed}");
        match report.plan {
            Some(plan) => {
                assert!(pages < arena && plan.bytes == pages);
                by_pages += 1;
            }
            None => at_once += 1,
        }
        nothing_stays(&bench, live, report.graph);
    }
    assert!(by_pages > 0 && at_once > 0, "{by_pages} by pages, {at_once} at once");
}

/// Nothing but an exact plan lets memory come late, and other policies have the arena.
#[test]
fn who_asks_for_no_plan_gets_the_arena() {
    let (steps, _) = with_pages(0..200, 200).unwrap();
    let policies = Reuse::ALL.iter().flat_map(|&reuse| [(reuse, true), (reuse, false)]);
    for (reuse, planned) in policies.filter(|it| *it != (Reuse::CrossStream, true)) {
        let config = if planned { exact() } else { Config::default() };
        let (bench, streams) = bench_on(device(SUPPORT), config.reuse(reuse)).with_streams::<3>();
        let layout = rehearse(&bench, &streams, &steps);
        let (report, _) = follow(&bench, &streams, &steps, layout);
        assert_eq!(report.plan, None, "{reuse}");
    }
    // A plan with so few mappings would need more.
    let mut config = exact();
    config.settings.plan_max_mappings = Some(1);
    let (bench, streams) = bench_on(device(SUPPORT), config).with_streams::<3>();
    let layout = rehearse(&bench, &streams, &steps);
    let (report, _) = follow(&bench, &streams, &steps, layout);
    assert!(report.plan.is_none() && followed(&report).is_whole());
}

#[test]
fn anything_else_is_served_all_the_same() {
    let (steps, layout) = with_pages(0..400, 90).unwrap();
    let mut fell = 0;
    for at in (0..steps.len()).step_by(3) {
        for changed in variants(&steps, at) {
            let (bench, streams) = bench_on(device(SUPPORT), exact()).with_streams::<3>();
            let (report, live) = follow(&bench, &streams, &changed, layout.clone());
            fell += u32::from(followed(&report).fell_back.is_some());
            nothing_stays(&bench, live, report.graph);
        }
    }
    assert!(fell > 10, "{fell}");
}

#[test]
fn graphs_of_a_pool_share_pages() {
    let mut config = exact();
    config.settings.plan_pool_graphs = None;
    let (bench, streams) = bench_on(device(SUPPORT), config).with_streams::<3>();
    let mut seeds = 0;
    let (mut sum, mut most) = (0, 0);
    for _ in 0..4 {
        let Some((steps, layout)) = with_pages(seeds..seeds + 100, 150) else { continue };
        seeds += 100;
        let pages = layout.pages().unwrap().bytes();
        (sum, most) = (sum + pages, pages.max(most));
        let (report, live) = follow(&bench, &streams, &steps, layout);
        assert!(followed(&report).is_whole(), "{}", followed(&report));
        live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
        bench.driver.complete_all();
    }
    let held = bench.reserved();
    assert!(sum > most && held >= most && held < sum, "{held} for {most}, {sum} alone");
}

/// Only calls that ask for something, so that nothing is lost that could not be given back.
#[test]
fn every_call_for_memory_may_fail() {
    use regraph_sim::Call;
    let (steps, layout) = with_pages(0..1_000, 70).unwrap();
    let calls = [Call::Reserve, Call::Create, Call::Map, Call::SetAccess];
    for (call, kind) in calls
        .into_iter()
        .flat_map(|call| [(call, ErrorKind::OutOfMemory), (call, ErrorKind::InvalidValue)])
    {
        for n in 0u64.. {
            let (bench, streams) = bench_on(device(SUPPORT), exact()).with_streams::<3>();
            let before = bench.driver.calls(call);
            bench.driver.fail_nth(call, n, kind.clone());
            let capture = bench.begin(streams[0]);
            bench.engine.plans().follow_layout(capture, layout.clone()).unwrap();
            bench.launch(streams[0]);
            let live = run_on(&bench, &streams, &steps, true);
            let graph = bench.driver.end_capture(streams[0]).unwrap();
            let ended = bench.engine.end_capture(capture, graph);
            let reserved = bench.reserved();
            assert_eq!(reserved, bench.driver.used_bytes(), "{call:?} {n}");
            live.into_iter().for_each(|block| bench.engine.free(block).unwrap());
            if let Ok(report) = ended {
                assert!(report.verified);
                bench.engine.release_graph(report.graph).unwrap();
            }
            bench.driver.complete_all();
            bench.engine.destroy_pool(bench.pool).unwrap();
            assert_eq!(bench.driver.used_bytes(), 0, "{call:?} {n}");
            if bench.driver.calls(call) - before <= n {
                break;
            }
        }
    }
}
