//! Random programs of graphs whose executables are shared, kept within budgets, pinned and released: every launch runs
//! the kernels of its own graph, whatever was updated, refused, destroyed or failed before.

use std::sync::Arc;

use arbtest::arbitrary::{Result, Unstructured};
use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, Driver, ErrorKind, Functions, HostApi, StreamHandle,
};
use regraph::graphs::ExecutableOptions;
use regraph::{Config, Engine, Error, Graph, Pool, PoolConfig, PoolRefusal};
use regraph_sim::{SimConfig, SimDriver};

use crate::cases::cases;
use crate::common::noted::{Noted, Notes};

/// What an executable takes for each node, in bytes.
const NODE: u64 = 64 << 10;
const POOLS: usize = 2;
const MOST: usize = 10;

struct Made {
    graph: Graph<SimDriver>,
    home: usize,
    /// Its kernels, ascending.
    numbers: Vec<u64>,
    nodes: u64,
}

struct Home {
    pool: Pool<SimDriver>,
    options: Option<ExecutableOptions>,
    /// Whether a budget may be exceeded by what is pinned, or what was there before it.
    pins: bool,
    suspended: bool,
    /// The kernels of each launch that has not been seen yet, in order.
    launched: Vec<Vec<u64>>,
}

struct World {
    engine: Arc<Engine<SimDriver>>,
    streams: [StreamHandle; 2],
    notes: Notes,
    homes: [Home; POOLS],
    graphs: Vec<Made>,
    number: u64,
    /// Whether a call failed, which may have been one that destroys an executable.
    failed: bool,
}

fn options(u: &mut Unstructured<'_>) -> Result<ExecutableOptions> {
    let mut options = ExecutableOptions::default();
    options.budget = match u.int_in_range(0..=9)? {
        0..=3 => None,
        nodes => Some(nodes * NODE),
    };
    options.sharing = *u.choose(&[None, Some(Functions::Same), Some(Functions::Any)])?;
    Ok(options)
}

impl World {
    fn new() -> Self {
        let driver = SimDriver::new(SimConfig::default());
        driver.charge_executables(NODE);
        let engine = Arc::new(Engine::new(driver, Config::default().report_leaks(false)));
        let streams = [(); 2].map(|()| engine.driver().create_stream().unwrap());
        let homes = [(); POOLS].map(|()| Home {
            pool: Pool::new(&engine, PoolConfig::default()),
            options: None,
            pins: false,
            suspended: false,
            launched: Vec::new(),
        });
        let (notes, graphs) = (Notes::default(), Vec::new());
        Self { engine, streams, notes, homes, graphs, number: 0, failed: false }
    }

    fn driver(&self) -> &SimDriver {
        self.engine.driver()
    }

    /// A kernel with a number that tells its pool, and of few kinds.
    fn kernel(&mut self, home: usize, u: &mut Unstructured<'_>) -> Result<Noted> {
        self.number += 1;
        Ok(Noted {
            number: self.number * POOLS as u64 + home as u64,
            function: usize::from(u.ratio(1, 12)?),
            parameters: usize::from(u.ratio(1, 12)?),
            attributes: u64::from(u.ratio(1, 12)?),
            programmatic: u.ratio(1, 12)?,
        })
    }

    fn capture(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        if self.homes[home].suspended || self.graphs.len() >= MOST {
            return Ok(());
        }
        let length = u.int_in_range(1..=2)?;
        let (forks, conditional) = (u.ratio(1, 6)?, u.ratio(1, 10)?);
        let mut kernels = Vec::new();
        for _ in 0..length {
            kernels.push(self.kernel(home, u)?);
        }
        let mut numbers: Vec<u64> = kernels.iter().map(|it| it.number).collect();
        let (pool, [stream, other]) = (self.homes[home].pool.clone(), self.streams);
        let body = (conditional, self.kernel(home, u)?);
        let captured = self.engine.capture(stream, &pool, CaptureMode::Relaxed, |capture| {
            let driver = self.driver();
            let block = capture.allocate(1 << 20, stream)?;
            driver.wait(other, stream)?;
            for (at, kernel) in kernels.iter().enumerate() {
                let on = if forks && at % 2 == 1 { other } else { stream };
                self.notes.launch(driver, on, kernel.clone());
            }
            driver.wait(stream, other)?;
            if let (true, kernel) = &body {
                let CaptureStatus::Active { graph, .. } = driver.capture_of(stream)? else {
                    panic!("the stream captures");
                };
                let (node, body) = driver.add_conditional(graph, &driver.terminals(stream)?)?;
                driver.add_kernel_node(body, &[], Some(self.notes.kernel(kernel.clone())))?;
                driver.set_terminals(stream, &[Dependency::full(node)])?;
            }
            drop(block);
            Ok::<_, Error>(())
        });
        let (graph, ()) = captured.expect("the capture is sound");
        let nodes = numbers.len() as u64 + u64::from(conditional);
        if conditional {
            numbers.push(body.1.number);
        }
        numbers.sort_unstable();
        self.graphs.push(Made { graph, home, numbers, nodes });
        Ok(())
    }

    /// Launches or prepares a graph, maybe while something fails.
    fn launch(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.graphs.is_empty() {
            return Ok(());
        }
        let made = &self.graphs[u.choose_index(self.graphs.len())?];
        let stream = *u.choose(&self.streams)?;
        let fails = u.int_in_range(0..=19)?;
        match fails {
            0..=2 => self.driver().fail_update_nth(0, ErrorKind::UpdateRefused),
            3 => self.driver().fail_update_nth(0, ErrorKind::NotSupported),
            4 => self.driver().fail_host_nth(u.int_in_range(0..=6)?, ErrorKind::NotSupported),
            5 => self.driver().fail_host_nth(u.int_in_range(0..=6)?, ErrorKind::OutOfMemory),
            _ => {}
        }
        let prepares = u.ratio(1, 5)?;
        let done = match prepares {
            true => made.graph.prepare(stream),
            false => made.graph.launch(stream),
        };
        self.driver().forget_failures();
        let home = &mut self.homes[made.home];
        match done {
            Ok(()) => {
                assert!(!home.suspended, "a pool that sleeps launches");
                if !prepares {
                    home.launched.push(made.numbers.clone());
                }
            }
            Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. }) => assert!(home.suspended),
            Err(Error::Pool {
                why: PoolRefusal::NoExecutable { bytes, pinned, budget }, ..
            }) => {
                let options = home.options.expect("there is a budget");
                assert_eq!(Some(budget), options.budget);
                assert_eq!(bytes, made.nodes * NODE);
                assert!(bytes + pinned > budget, "it fits");
                assert!(home.pins || pinned == 0, "nothing is pinned");
            }
            Err(Error::Driver(error)) => assert!((3..=5).contains(&fails), "{error}"),
            Err(error) => panic!("{error}"),
        }
        self.failed |= (4..=5).contains(&fails);
        Ok(())
    }

    /// Compares what has run with what was launched.
    fn judge(&mut self) {
        let ran = self.notes.take();
        for (at, home) in self.homes.iter_mut().enumerate() {
            let mut rest =
                ran.iter().copied().filter(|it| *it % POOLS as u64 == at as u64).peekable();
            let mut seen = 0;
            while rest.peek().is_some() {
                let expected = home.launched.get(seen).expect("nothing runs that was not launched");
                let mut numbers: Vec<u64> = rest.by_ref().take(expected.len()).collect();
                numbers.sort_unstable();
                assert_eq!(numbers, *expected, "a launch ran with the parameters of another graph");
                seen += 1;
            }
            home.launched.drain(..seen);
        }
    }

    /// All work is done: nothing is left of graphs that are gone, and figures tell what there is.
    fn settle(&mut self) {
        self.driver().complete_all();
        self.judge();
        assert!(self.homes.iter().all(|home| home.launched.is_empty()), "a launch did not run");
        self.homes.iter().for_each(|home| home.pool.collect());
        let figures = self.homes.each_ref().map(|home| home.pool.executables());
        let executables: usize = figures.iter().map(|it| it.executables).sum();
        let bytes: u64 = figures.iter().map(|it| it.nodes as u64 * NODE).sum();
        let there = (self.driver().executables(), self.driver().executable_memory());
        match self.failed {
            true => assert!(there.0 >= executables && there.1 >= bytes),
            false => assert_eq!(there, (executables, bytes)),
        }
        for (at, figures) in figures.iter().enumerate() {
            let graphs = self.graphs.iter().filter(|made| made.home == at);
            assert_eq!(figures.graphs, graphs.clone().count());
            assert_eq!(figures.graph_nodes as u64, graphs.map(|made| made.nodes).sum::<u64>());
        }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        match u.int_in_range(0..=31)? {
            0..=5 => self.capture(u)?,
            6..=21 => self.launch(u)?,
            22 => {
                let options = options(u)?;
                self.homes[home].pool.keep_executables(options).expect("the device answers");
                self.homes[home].options = Some(options);
            }
            23 | 24 if !self.graphs.is_empty() => {
                let row = u.choose_index(self.graphs.len())?;
                drop(self.graphs.swap_remove(row));
            }
            25 if !self.graphs.is_empty() => {
                let made = &self.graphs[u.choose_index(self.graphs.len())?];
                made.graph.pin(u.ratio(1, 2)?);
                self.homes[made.home].pins = true;
            }
            26 => {
                self.homes[home].pool.release_executables().expect("the device answers");
            }
            27 => {
                let it = &mut self.homes[home];
                let done = match it.suspended {
                    true => it.pool.resume(),
                    false => it.pool.suspend_discarding_outputs(),
                };
                done.expect("no block lives");
                it.suspended ^= true;
            }
            28 => self.driver().complete(self.streams[0]).expect("the device answers"),
            29 => self.settle(),
            _ => self.driver().set_schedule_seed(u.arbitrary::<u8>()?.into()),
        }
        self.judge();
        for home in &self.homes {
            let figures = home.pool.executables();
            if let (Some(budget), false) = (home.options.and_then(|it| it.budget), home.pins) {
                assert!(figures.bytes <= budget, "{figures:?}");
            }
        }
        Ok(())
    }
}

#[test]
fn each_launch_runs_the_kernels_of_its_graph() {
    let (mut updates, mut evicted, mut refused) = (0, 0, 0);
    cases(90, 256..=3_000, |u| {
        let mut world = World::new();
        while !u.is_empty() {
            world.step(u)?;
        }
        world.settle();
        for home in &world.homes {
            let figures = home.pool.executables();
            updates += figures.updates;
            evicted += figures.evicted;
            refused += figures.refused;
        }
        world.graphs.clear();
        world.settle();
        Ok(())
    });
    assert!(updates > 500 && evicted > 500 && refused > 50, "{updates} {evicted} {refused}");
}
