//! Random programs of tagged kernels: no kernel may find a tag that is not the one last written.

use std::sync::Arc;

use regraph::engine::{Config, Engine, Flaw, PoolConfig};
use regraph::settings::Settings;

use super::host::{give_everything_back, Host, Shape};
use super::{Device, MIB};

const STEPS: usize = 700;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    wrong: u64,
    failed: u64,
    replays: u64,
}

fn run<P: Device>(driver: &Arc<P>, seed: u64, shape: Shape) -> Outcome {
    let mut host = Host::new(driver, seed, shape);
    for _ in 0..STEPS {
        host.step();
    }
    let Host { failed, replays, .. } = host;
    Outcome { wrong: host.finish(), failed, replays }
}

fn eager_work_keeps_its_tags<P: Device>(driver: &Arc<P>) {
    let mut failed = 0;
    for seed in 0..32 {
        let limit = (32 + fastrand::Rng::with_seed(seed).u64(..64)) * MIB;
        let limit = (seed % 4 != 0).then_some(limit);
        let outcome = run(driver, seed, Shape { limit, ..Shape::default() });
        assert_eq!(outcome.wrong, 0, "seed {seed}");
        failed += outcome.failed;
    }
    println!("{failed} requests failed");
    assert!(failed > 0, "memory was never short");
}

fn eager_work_and_captures_keep_their_tags<P: Device>(driver: &Arc<P>) {
    let (mut replays, mut failed) = (0, 0);
    for seed in 100..148 {
        let limit = (64 + fastrand::Rng::with_seed(seed).u64(..96)) * MIB;
        let limit = (seed % 4 != 0).then_some(limit);
        let outcome = run(driver, seed, Shape { captures: true, limit, ..Shape::default() });
        assert_eq!(outcome.wrong, 0, "seed {seed}");
        replays += outcome.replays;
        failed += outcome.failed;
    }
    println!("{replays} replays, {failed} requests failed");
    assert!(replays > 0, "no graph ever ran");
}

/// Four threads on streams of their own share a pool and its limit, and one of them captures.
fn threads_keep_their_tags<P: Device>(driver: &Arc<P>) {
    for seed in 200..216_u64 {
        driver.schedule(seed);
        let limit = (seed % 4 != 0).then_some(160 * MIB);
        let settings = Settings::default()
            .memory_limit_bytes(limit)
            .expandable_segments(seed.is_multiple_of(2));
        let engine = Engine::new(driver.clone(), Config::default().settings(settings));
        let engine = Arc::new(engine);
        let pool = engine.create_pool(PoolConfig::default());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shape = Shape { captures: thread == 0, limit, ..Shape::default() };
                let mut host = Host::beside(&engine, pool, seed << 4 | thread, shape);
                scope.spawn(move || {
                    for _ in 0..STEPS {
                        host.step();
                    }
                    host.leave();
                });
            }
        });
        assert_eq!(give_everything_back(&engine, pool), 0, "seed {seed}");
    }
}

/// Shows that the tests above test something. The programs run without a limit: without its rules
/// the engine would give memory back that kernels use, and that ends a device's context.
fn a_rule_left_out_shows<P: Device>(driver: &Arc<P>) {
    if cfg!(not(debug_assertions)) {
        println!("not tried: only builds with debug assertions can leave rules out");
        return;
    }
    for flaw in [Flaw::StreamOrder, Flaw::Events] {
        let shape = Shape { flaw: Some(flaw), ..Shape::default() };
        let wrong = (0..32).map(|seed| run(driver, seed, shape).wrong).find(|&wrong| wrong > 0);
        println!("{flaw:?}: {wrong:?} wrong tags in the first program that shows it");
        assert!(wrong.is_some(), "no kernel noticed that {flaw:?} was left out");
    }
}

twins! {
    eager_work_keeps_its_tags
    eager_work_and_captures_keep_their_tags
    threads_keep_their_tags
    a_rule_left_out_shows
}
