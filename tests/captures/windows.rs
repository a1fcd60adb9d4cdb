//! Long captures against the definition: streams that stand still for longer than windows reach back,
//! old events, set-backs.

use std::sync::Arc;

use fastrand::Rng;
use regraph::driver::{
    CaptureMode, Dependency, Driver, EdgeData, ErrorKind, HostApi, StreamHandle,
};
use regraph::settings::Programmatic;
use regraph_paths::{Before, Paths};
use regraph_reach::{Capture, NodeIndex, Outlook, StreamIndex};
use regraph_record::effort::spent;
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

/// Terminals as edges to the next node, which may be programmatic.
fn next_edges(terminals: &[Dependency], early: bool) -> Vec<Dependency> {
    let weaker = |it: &Dependency| match it.edge {
        EdgeData::FULL if early => Dependency { edge: EdgeData::PROGRAMMATIC, ..*it },
        _ => *it,
    };
    terminals.iter().map(weaker).collect()
}

/// Enters the node that a stream has just launched.
fn enter(driver: &SimDriver, stream: StreamHandle, paths: &mut Paths) {
    let (mut terminals, mut dependencies) = (Vec::new(), Vec::new());
    driver.capture_status(stream, &mut terminals).expect("it captures");
    let [Dependency { node, .. }] = terminals[..] else { panic!("a launch is the only terminal") };
    driver.dependencies(node, &mut dependencies).expect("a node of the capture");
    paths.enter(node, &dependencies);
}

/// What a capture takes the edges to come for: always, or changing.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Full,
    Early,
    Changing,
}

/// How often a stream is set back, of the steps that launch nothing.
const SELDOM: f64 = 0.02;

fn run(seed: u64, programmatic: Programmatic, launches: bool, next: Next) {
    run_with(seed, programmatic, launches, (next, SELDOM));
}

fn run_with(seed: u64, programmatic: Programmatic, launches: bool, next: (Next, f64)) {
    let mut capture = Capture::new(programmatic, true);
    // The second one has what the first has allocated, and nothing else of it.
    run_in(&mut capture, (!seed, 900), programmatic, launches, next);
    assert!(capture.clear());
    run_in(&mut capture, (seed, 6000), programmatic, launches, next);
    // Of a stream that was set back some nodes are never looked at.
    assert!(capture.nodes() > 1000, "{} nodes", capture.nodes());
}

fn run_in(
    capture: &mut Capture,
    (seed, steps): (u64, u32),
    programmatic: Programmatic,
    launches: bool,
    (next, set_backs): (Next, f64),
) {
    const STREAMS: u32 = 12;
    let mut random = Rng::with_seed(seed);
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let streams: Vec<StreamHandle> =
        (0..STREAMS).map(|_| driver.create_stream().expect("streams are to be had")).collect();
    driver.begin_capture(streams[0], CaptureMode::Relaxed).expect("it does not capture");
    driver.launch(streams[0], Work::default(), false).expect("it captures");
    for &stream in &streams[1..] {
        driver.wait(stream, streams[0]).expect("both are there");
    }
    let mut early = next == Next::Early;
    let mut paths = Paths::new(programmatic);
    enter(&driver, streams[0], &mut paths);
    let outlook = |early| if early { Outlook::Early } else { Outlook::Full };
    capture.set_outlook(outlook(early));
    // A stream's terminals at the last look.
    let mut seen: Vec<Vec<Dependency>> = vec![Vec::new(); STREAMS as usize];
    let mut old: Vec<Vec<Dependency>> = Vec::new();
    let mut terminals = Vec::new();
    for step in 0..steps {
        // Some streams have long pauses.
        let busy = if step / 700 % 3 == 0 { STREAMS } else { 3 + step / 700 % 4 };
        let [stream, other] = [random.u32(..busy), random.u32(..busy)].map(|it| it as usize);
        if random.f64() < 0.6 {
            let programmatic = launches && (random.f64() < 0.2);
            driver.launch(streams[stream], Work::default(), programmatic).expect("it captures");
            enter(&driver, streams[stream], &mut paths);
        } else if (random.f64() < set_backs) && !old.is_empty() {
            let back = &old[random.u32(..old.len() as u32) as usize];
            let back = next_edges(back, launches && random.bool());
            driver.set_terminals(streams[stream], &back).expect("nodes of the capture");
        } else if stream != other {
            driver.wait(streams[stream], streams[other]).expect("both are there");
        }
        if random.f64() >= 0.1 {
            continue;
        }
        if next == Next::Changing && step % 31 == 0 {
            early = !early;
            capture.set_outlook(outlook(early));
        }
        let stream = random.u32(..busy) as usize;
        driver.capture_status(streams[stream], &mut terminals).expect("it captures");
        let before = capture.tick();
        let index = capture.look(&*driver, streams[stream], &terminals, None);
        let next = next_edges(&terminals, early);
        let before_next = paths.before(&next);
        check(capture, index, &before_next);
        let seen = &mut seen[stream];
        let moved = seen.iter().all(|terminal| before_next.has_started(terminal.node));
        // Edges that prove nothing break the order in other ways too.
        if programmatic != Programmatic::Deny || !launches {
            assert_eq!(capture.broken_since(index, before), !moved, "step {step} of {seed}");
        }
        seen.clone_from(&terminals);
        old.push(terminals.clone());
    }
}

/// What the capture proves is what is completed, and nothing besides is.
fn check(capture: &Capture, stream: StreamIndex, before: &Before<'_>) {
    let mut completed = 0;
    for index in (0..capture.nodes()).map(NodeIndex::new) {
        let (proven, node) = (capture.proves(stream, &[index]), capture.node_handle(index));
        assert_eq!(proven, before.is_completed(node), "{node:?}");
        completed += usize::from(proven);
    }
    assert_eq!(completed, before.completed(), "of all nodes");
}

#[test]
fn full_edges() {
    (0..3).for_each(|seed| run(seed, Programmatic::Deny, false, Next::Full));
    (0..2).for_each(|seed| run(seed, Programmatic::Auto, false, Next::Changing));
}

/// A stream waits for many others, one after another, without a launch in between.
#[test]
fn joins_take_steps_for_each_terminal() {
    let driver = SimDriver::new(SimConfig::default());
    let streams: Vec<StreamHandle> = (0..300).map(|_| driver.create_stream().unwrap()).collect();
    driver.begin_capture(streams[0], CaptureMode::Relaxed).unwrap();
    let mut capture = Capture::new(Programmatic::Deny, true);
    let (mut terminals, mut told, before) = (Vec::new(), 0, spent());
    driver.launch(streams[0], Work::default(), false).unwrap();
    for &stream in &streams[1..] {
        driver.wait(stream, streams[0]).unwrap();
        driver.launch(stream, Work::default(), false).unwrap();
    }
    for &stream in &streams[1..] {
        driver.wait(streams[0], stream).unwrap();
        driver.capture_status(streams[0], &mut terminals).unwrap();
        capture.look(&driver, streams[0], &terminals, None);
        told += terminals.len() as u64;
    }
    let effort = spent() - before;
    assert!(effort <= 4 * told, "{effort} steps for {told} terminals");
}

/// Streams that are set back again and again: to nodes behind which little lies, and back to later ones.
#[test]
fn many_set_backs() {
    const OFTEN: f64 = 0.2;
    run_with(1, Programmatic::Deny, false, (Next::Full, OFTEN));
    run_with(2, Programmatic::Deny, true, (Next::Full, OFTEN));
    run_with(3, Programmatic::Lag, true, (Next::Early, OFTEN));
}

#[test]
fn trusted_edges() {
    (0..2).for_each(|seed| run(seed, Programmatic::Trust, true, Next::Full));
}

#[test]
fn edges_of_every_kind() {
    (0..2).for_each(|seed| run(seed, Programmatic::Deny, true, Next::Full));
    (0..2).for_each(|seed| run(seed, Programmatic::Lag, true, Next::Early));
    (0..2).for_each(|seed| run(seed, Programmatic::Auto, true, Next::Full));
    (0..2).for_each(|seed| run(seed, Programmatic::Auto, true, Next::Changing));
}

/// Nor does it have those of the node that was asked about before.
#[test]
fn a_node_whose_dependencies_are_refused_has_none() {
    let driver = SimDriver::new(SimConfig::default());
    let stream = driver.create_stream().unwrap();
    driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    let (mut capture, mut terminals) = (Capture::new(Programmatic::Deny, true), Vec::new());
    let mut proven = |refuses: bool| {
        driver.launch(stream, Work::default(), false).unwrap();
        driver.capture_status(stream, &mut terminals).unwrap();
        if refuses {
            driver.fail_nth(Call::Dependencies, 0, ErrorKind::InvalidValue);
        }
        let stream = capture.look(&driver, stream, &terminals, None);
        (0..capture.nodes()).filter(|&it| capture.proves(stream, &[NodeIndex::new(it)])).collect()
    };
    let all: [Vec<usize>; 3] = [false, false, true].map(&mut proven);
    assert_eq!(all, [vec![0], vec![0, 1], vec![2]]);
    // Nor is a terminal proven that the next node may start with, where no other edge is such.
    let mut capture = Capture::new(Programmatic::Auto, true);
    let index = capture.look(&driver, stream, &next_edges(&terminals, true), None);
    assert_eq!(
        [0, 1, 2].map(|it| capture.proves(index, &[NodeIndex::new(it)])),
        [true, true, false]
    );
}
