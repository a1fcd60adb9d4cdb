//! Captures that are refused for a programmatic launch, and captured again.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::common::{bench, Bench, MIB};
use regraph::callables::{Callable, Options};
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Attempt, Block, Config, Engine, Error, PoolConfig, Refusal};
use regraph::graphs::{Capture, Graph, Memory, Pool};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

/// A launch that starts early behind the reuse of a block, and a pair of blocks that it does not touch.
fn work(b: &Bench, s: StreamHandle) -> [Block; 4] {
    let first = b.temporary(s);
    let second = b.allocate(s);
    b.launch_early(s);
    b.engine.free(second.id).unwrap();
    b.launch(s);
    let third = b.engine.allocate(b.pool, 8 * MIB, s).unwrap();
    b.launch_and_free(s, third);
    let fourth = b.engine.allocate(b.pool, 8 * MIB, s).unwrap();
    b.launch_and_free(s, fourth);
    [first, second, third, fourth]
}

fn capture(
    b: &Bench,
    s: StreamHandle,
    attempt: Option<Attempt>,
) -> ([Block; 4], Result<(), Error>) {
    let id = b.begin(s);
    if let Some(attempt) = attempt {
        b.engine.set_attempt(id, attempt).unwrap();
    }
    let blocks = work(b, s);
    (blocks, b.try_finish(s, id).map(|_| ()))
}

#[test]
fn what_lags_says_so() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let id = b.begin(s);
    b.engine.set_attempt(id, Attempt::Last).unwrap();
    b.driver.wait(t, s).unwrap();
    let block = b.temporary(s);
    let why = |stream| {
        let ranges = b.engine.explain(b.pool, stream).unwrap();
        let range = ranges.into_iter().find(|it| it.address == block.address).unwrap();
        range
            .refusal
            .map(|refusal| (matches!(refusal, Refusal::EarlyLaunch { .. }), refusal.to_string()))
    };
    let (early, text) = why(s).unwrap();
    assert!(early && text.contains("after one more launch"), "{text}");
    assert!(!why(t).unwrap().0, "nothing orders it");
    b.launch(s);
    assert_eq!(why(s), None);
    b.finish(s, id);
}

/// Its host found out about its end too late, and the checker has only what was seen.
#[test]
fn early_launches_are_found_without_the_graph() {
    for (attempt, sound) in [(Attempt::First, false), (Attempt::Last, true)] {
        let (b, [s, t]) = bench(Config::default()).with_streams();
        let id = b.begin(s);
        b.engine.set_attempt(id, attempt).unwrap();
        let blocks = work(&b, s);
        assert_eq!(blocks[0].address == blocks[1].address, !sound);
        // A join behind them, by full edges.
        b.driver.wait(t, s).unwrap();
        [t, s].iter().for_each(|&stream| b.launch(stream));
        b.driver.wait(s, t).unwrap();
        b.launch(s);
        b.engine.observe(s).unwrap();
        let graph = b.driver.end_capture(s).unwrap();
        b.driver.destroy_graph(graph).unwrap();
        let ended = b.engine.host().end_unjudged(id);
        match sound {
            true => assert!(!ended.unwrap().verified),
            false => assert!(matches!(ended, Err(Error::Refused(_))), "{ended:?}"),
        }
    }
}

#[test]
fn attempts_follow_each_other_for_one_error_only() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let refused = || capture(&b, s, Some(Attempt::First)).1.unwrap_err();
    assert_eq!(Attempt::First.after(refused()).unwrap(), Attempt::Again);
    assert_eq!(Attempt::Again.after(refused()).unwrap(), Attempt::Last);
    assert!(matches!(Attempt::Last.after(refused()), Err(Error::CaptureAgain(_))));
    assert!(matches!(Attempt::First.after(Error::Poisoned), Err(Error::Poisoned)));
}

struct Hosted {
    driver: Arc<SimDriver>,
    engine: Arc<Engine<Arc<SimDriver>>>,
    pool: Pool<Arc<SimDriver>>,
    stream: StreamHandle,
}

impl Hosted {
    fn new() -> Self {
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let pool = Pool::new(&engine, PoolConfig::default());
        let stream = driver.create_stream().unwrap();
        Self { driver, engine, pool, stream }
    }

    fn launch(&self, early: bool) {
        self.driver.launch(self.stream, Work::default(), early).unwrap();
    }

    /// Two temporaries, the second behind an early launch, and an output.
    fn work(&self) -> Result<Memory<Arc<SimDriver>>, Error> {
        let output = self.pool.allocate(MIB, self.stream)?;
        let first = self.pool.allocate(4 * MIB, self.stream)?;
        self.launch(false);
        drop(first);
        let second = self.pool.allocate(4 * MIB, self.stream)?;
        self.launch(true);
        drop(second);
        self.launch(false);
        Ok(output)
    }

    fn blocks(&self) -> usize {
        self.pool.statistics().unwrap().blocks
    }
}

type Body<'a> = &'a dyn Fn(&Capture<Arc<SimDriver>>) -> Result<Memory<Arc<SimDriver>>, Error>;
type Captured = Result<(Graph<Arc<SimDriver>>, Memory<Arc<SimDriver>>), Error>;

/// Expects a form that takes a closure to capture again by itself, and to leave nothing else.
fn captures_again(calls: usize, form: impl Fn(&Hosted, Body<'_>) -> Captured) {
    let hosted = Hosted::new();
    let called = Cell::new(0);
    let (graph, output) = form(&hosted, &|_| {
        called.set(called.get() + 1);
        hosted.work()
    })
    .unwrap();
    assert_eq!(called.get(), calls);
    assert_eq!(hosted.blocks(), 1, "the output alone is left");
    graph.launch(hosted.stream).unwrap();
    drop((graph, output));
    hosted.driver.complete_all();
}

#[test]
fn a_closure_is_captured_again() {
    captures_again(2, |hosted, body| {
        hosted.engine.capture(hosted.stream, &hosted.pool, CaptureMode::Relaxed, body)
    });
}

#[test]
fn a_closure_that_is_captured_twice_is_planned_by_its_launches() {
    captures_again(2, |hosted, body| {
        hosted.pool.capture_twice(hosted.stream, CaptureMode::Relaxed, body)
    });
}

#[test]
fn all_parts_of_a_callable_are_captured_again_with_new_outputs() {
    let hosted = Hosted::new();
    let calls = AtomicUsize::new(0);
    let options = Options::default().mode(CaptureMode::Relaxed).warm_ups(0);
    let mut callable =
        Callable::<_, u32, (), Vec<Memory<Arc<SimDriver>>>>::new(&hosted.pool, options, |_, _| {
            Ok::<_, Error>(())
        })
        .part(|_, _, _, outputs| {
            calls.fetch_add(1, Ordering::Relaxed);
            outputs.push(hosted.pool.allocate(MIB, hosted.stream)?);
            hosted.launch(false);
            Ok(())
        })
        .part(|_, _, _, outputs| {
            outputs.push(hosted.work()?);
            Ok(())
        });
    let outputs = callable.call(hosted.stream, &1, |_| Ok(())).unwrap().len();
    assert_eq!((outputs, calls.load(Ordering::Relaxed)), (2, 2));
    assert_eq!(hosted.blocks(), 2);
    hosted.driver.complete_all();
}
