//! Programs with programmatic launches, captured again: every attempt that is accepted is safe, the
//! second one always is, and each is exactly as permissive as its outlook allows.

use std::collections::BTreeSet;

use crate::common::{bench, Bench};
use fastrand::Rng;
use regraph::driver::{Dependency, Driver, EdgeData, HostApi, NodeHandle, StreamHandle};
use regraph::engine::{Attempt, Block, Config, Error, Refusal};
use regraph::settings::Programmatic;
use regraph_paths::{Nodes, Paths};
use regraph_tagged::{Program, Tagged, Work};

#[derive(Clone, Copy, Debug)]
enum Step {
    Launch { stream: usize, early: bool },
    Wait { stream: usize, on: usize },
    Allocate { stream: usize, bytes: u64 },
    Use { block: usize, stream: usize },
    Free { block: usize },
}

/// A host program. `early` streams launch programmatically now and then.
fn program(random: &mut Rng, streams: usize, early: &[bool]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut live: Vec<usize> = Vec::new();
    let mut blocks = 0;
    for _ in 0..random.usize(20..90) {
        let stream = random.usize(..streams);
        steps.push(match random.u8(..10) {
            0..4 => Step::Launch { stream, early: early[stream] && random.u8(..3) == 0 },
            4 => Step::Wait { stream, on: random.usize(..streams) },
            5..8 => {
                live.push(blocks);
                blocks += 1;
                Step::Allocate { stream, bytes: random.u64(1..5) << 20 }
            }
            8 if !live.is_empty() => Step::Use { block: live[random.usize(..live.len())], stream },
            _ if !live.is_empty() => {
                Step::Free { block: live.swap_remove(random.usize(..live.len())) }
            }
            _ => continue,
        });
    }
    steps
}

/// A block of the program in one attempt.
struct Lived {
    block: Block,
    uses: BTreeSet<usize>,
    /// Its streams' terminals at its allocation, by stream.
    born: Vec<Vec<NodeHandle>>,
    /// Who wrote its tag.
    writer: Option<NodeHandle>,
    /// Its free markers, but for one without users.
    markers: Option<Vec<NodeHandle>>,
    freed: bool,
}

/// What is known of the launches behind each allocation.
enum Next<'a> {
    Full,
    /// By allocation: from which of the terminals a programmatic edge leads on, in their order.
    Known(&'a [Vec<bool>]),
}

/// What an attempt came to.
struct Outcome {
    accepted: bool,
    /// By allocation, as for [`Next::Known`].
    early: Vec<Vec<bool>>,
}

impl Bench {
    fn nodes_of(&self, stream: StreamHandle) -> Vec<NodeHandle> {
        self.driver.terminals(stream).unwrap().iter().map(|it| it.node).collect()
    }

    fn enter(
        &self,
        stream: StreamHandle,
        work: Work<'_>,
        early: bool,
        paths: &mut Paths,
    ) -> NodeHandle {
        self.driver.launch(stream, work, early).unwrap();
        let [node] = self.nodes_of(stream)[..] else { panic!("a launch is the only terminal") };
        let mut dependencies = Vec::new();
        self.driver.dependencies(node, &mut dependencies).unwrap();
        paths.enter(node, &dependencies);
        node
    }

    /// Captures a program, runs its graph if it was accepted, and gives everything back.
    fn attempt(
        &self,
        steps: &[Step],
        streams: &[StreamHandle],
        attempt: Option<Attempt>,
        next: &Next<'_>,
    ) -> Outcome {
        let (driver, engine) = (&self.driver, &self.engine);
        let capture = self.begin(streams[0]);
        if let Some(attempt) = attempt {
            engine.set_attempt(capture, attempt).unwrap();
        }
        let mut paths = Paths::new(Programmatic::Lag);
        self.enter(streams[0], Work::default(), false, &mut paths);
        streams[1..].iter().for_each(|&stream| driver.wait(stream, streams[0]).unwrap());
        let mut blocks: Vec<Lived> = Vec::new();
        let mut points = Vec::new();
        for &step in steps {
            match step {
                Step::Launch { stream, early } => {
                    let handle = streams[stream];
                    let edge = if early { EdgeData::PROGRAMMATIC } else { EdgeData::FULL };
                    let before: Vec<_> = self.nodes_of(handle);
                    let dependencies: Vec<_> =
                        before.iter().map(|&node| Dependency { node, edge }).collect();
                    let completed = paths.completed(&dependencies);
                    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
                    let mut written = Vec::new();
                    for (tag, it) in blocks.iter_mut().enumerate() {
                        if it.freed || !it.uses.contains(&stream) {
                            continue;
                        }
                        let Block { address, bytes, .. } = it.block;
                        let tagged = Tagged { address, bytes, tag: tag as u64 + 1 };
                        match it.writer {
                            None if it.uses.first() == Some(&stream) && it.uses.len() == 1 => {
                                written.push(tag);
                                outputs.push(tagged);
                            }
                            Some(writer) if completed.contains(&writer) => {
                                inputs.push(tagged);
                            }
                            _ => {}
                        }
                    }
                    let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
                    let node = self.enter(handle, work, early, &mut paths);
                    written.iter().for_each(|&tag| blocks[tag].writer = Some(node));
                }
                Step::Wait { stream, on } if stream != on => {
                    driver.wait(streams[stream], streams[on]).unwrap();
                }
                Step::Wait { .. } => {}
                Step::Allocate { stream, bytes } => {
                    let handle = streams[stream];
                    let terminals = self.nodes_of(handle);
                    let early = match next {
                        Next::Full => Some(vec![false; terminals.len()]),
                        Next::Known(early) => early.get(points.len()).cloned(),
                    };
                    if let Some(early) = early {
                        self.judge(handle, &early, &blocks, &paths);
                    }
                    points.push(terminals);
                    let block = engine.allocate(self.pool, bytes, handle).unwrap();
                    blocks.push(Lived {
                        block,
                        uses: BTreeSet::from([stream]),
                        born: streams.iter().map(|&stream| self.nodes_of(stream)).collect(),
                        writer: None,
                        markers: None,
                        freed: false,
                    });
                }
                Step::Use { block, stream } => {
                    engine.record_stream(blocks[block].block.id, streams[stream]).unwrap();
                    blocks[block].uses.insert(stream);
                }
                Step::Free { block } => {
                    let it = &mut blocks[block];
                    let all = it.uses.iter().map(|&stream| self.nodes_of(streams[stream]));
                    let all: Vec<_> = all.collect();
                    let mut lives = it.uses.iter().zip(&all);
                    let used = lives.any(|(&stream, now)| it.born[stream] != *now);
                    it.markers = used.then(|| all.concat());
                    it.freed = true;
                    engine.free(it.block.id).unwrap();
                }
            }
        }
        for &stream in &streams[1..] {
            driver.wait(streams[0], stream).unwrap();
        }
        self.enter(streams[0], Work::default(), false, &mut paths);
        let mut sources = BTreeSet::new();
        for node in paths.nodes() {
            let mut dependencies = Vec::new();
            driver.dependencies(node, &mut dependencies).unwrap();
            let early = dependencies.iter().filter(|it| it.edge == EdgeData::PROGRAMMATIC);
            sources.extend(early.map(|it| it.node));
        }
        let ended = engine.end_capture(capture, self.graph(streams[0]));
        let graph = driver.end_capture(streams[0]).unwrap();
        let accepted = match ended {
            Ok(report) => {
                let executable = driver.instantiate(graph).unwrap();
                for seed in 0..4 {
                    driver.set_schedule_seed(seed);
                    driver.replay(executable, streams[0]).unwrap();
                    driver.complete_all();
                }
                let wrong = driver.take_wrong_tags().unwrap();
                assert_eq!(wrong, 0, "a block was overwritten while in use");
                driver.destroy_executable(executable).unwrap();
                engine.release_graph(report.graph).unwrap();
                true
            }
            Err(Error::CaptureAgain(_)) => false,
            Err(error) => panic!("{error}"),
        };
        driver.destroy_graph(graph).unwrap();
        for it in blocks.iter().filter(|it| !it.freed) {
            engine.free(it.block.id).unwrap();
        }
        driver.complete_all();
        let early =
            points.iter().map(|point| point.iter().map(|it| sources.contains(it)).collect());
        Outcome { accepted, early: early.collect() }
    }

    /// What the engine says of the capture's free ranges, compared with the definition: a range is
    /// handed out only if the launches to come allow it, and is held only if it would have to be were
    /// all edges to the next node as the weakest of them.
    fn judge(&self, stream: StreamHandle, early: &[bool], blocks: &[Lived], paths: &Paths) {
        let terminals = self.nodes_of(stream);
        let next = |early: &dyn Fn(usize) -> bool| {
            let edges = terminals.iter().enumerate().map(|(place, &node)| {
                let edge = if early(place) { EdgeData::PROGRAMMATIC } else { EdgeData::FULL };
                Dependency { node, edge }
            });
            paths.completed(&edges.collect::<Vec<_>>())
        };
        let weakest = early.contains(&true);
        let (most, least) = (next(&|place| early[place]), next(&|_| weakest));
        for range in self.engine.explain(self.pool, stream).unwrap() {
            let end = range.address + range.bytes;
            let over = |it: &Lived| {
                it.block.address < end && range.address < it.block.address + it.block.bytes
            };
            let Some(last) = blocks.iter().rev().find(|it| over(it)) else { continue };
            let whole =
                last.block.address <= range.address && end <= last.block.address + last.block.bytes;
            let (Some(markers), true) = (&last.markers, whole && last.freed) else { continue };
            let proven = |completed: &Nodes| markers.iter().all(|it| completed.contains(it));
            match range.refusal {
                None => assert!(proven(&most), "{range:?} is handed out too early"),
                Some(Refusal::Marker { .. } | Refusal::EarlyLaunch { .. }) => {
                    assert!(!proven(&least), "{range:?} is held for nothing");
                }
                _ => {}
            }
        }
    }
}

fn draw(random: &mut Rng, streams: usize) -> Vec<Step> {
    let early: Vec<bool> = (0..streams).map(|_| random.u8(..3) > 0).collect();
    program(random, streams, &early)
}

#[test]
fn the_second_attempt_is_accepted_and_as_permissive_as_the_first_ones_launches_allow() {
    let mut refused = 0;
    for seed in 0..250 {
        let mut random = Rng::with_seed(seed);
        let count = random.usize(1..4);
        let steps = draw(&mut random, count);
        let host = bench(Config::default().report_leaks(false));
        let [streams, others]: [[_; 3]; 2] = [(); 2].map(|()| host.streams());
        let first = host.attempt(&steps, &streams[..count], Some(Attempt::First), &Next::Full);
        if first.accepted {
            continue;
        }
        refused += 1;
        // Other handles do not matter.
        let again = if random.bool() { others } else { streams };
        let known = Next::Known(&first.early);
        let second = host.attempt(&steps, &again[..count], Some(Attempt::Again), &known);
        assert!(second.accepted, "seed {seed}");
        assert_eq!(first.early, second.early, "seed {seed}");
    }
    assert!(refused > 25, "{refused} programs were refused at first");
}

/// Captures of one engine and the same streams, of which the host says nothing: each program is
/// refused a few times at most, also with others in between.
#[test]
fn a_host_that_says_nothing_is_refused_finitely_often() {
    for seed in 0..25 {
        let mut random = Rng::with_seed(seed);
        let programs: Vec<_> = (0..3).map(|_| draw(&mut random, 3)).collect();
        let host = bench(Config::default().report_leaks(false));
        let streams: [_; 3] = host.streams();
        let mut refused = 0;
        for _ in 0..24 {
            let steps = &programs[random.usize(..programs.len())];
            refused +=
                usize::from(!host.attempt(steps, &streams, None, &Next::Known(&[])).accepted);
        }
        for steps in &programs {
            assert!(host.attempt(steps, &streams, None, &Next::Known(&[])).accepted, "seed {seed}");
        }
        assert!(refused <= 9, "seed {seed}: {refused}");
    }
}
