//! Random programs over both devices: every kernel checks the tags of what it reads, at its start
//! and at its end, in random orders of work.

use fastrand::Rng;
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Block, Config};
use regraph_tagged::Tagged;

use super::{two, Two};
use crate::device::{tagged, Device};

struct Live {
    device: usize,
    block: Block,
    stream: usize,
    tag: Tagged,
}

/// A program as it goes along.
struct Host<'a, D: Device> {
    two: &'a Two<D>,
    random: Rng,
    /// With the device of each; the first is the capture's origin.
    streams: Vec<(StreamHandle, usize)>,
    live: Vec<Live>,
    addresses: Vec<u64>,
    /// Hand-outs of a place that another block had before.
    again: usize,
    /// Reads by the other device than the block's.
    across: usize,
    next: u64,
}

impl<'a, D: Device> Host<'a, D> {
    fn new(two: &'a Two<D>, seed: u64) -> Self {
        let streams = [0, 1, 0, 1, 1].map(|device: usize| (two.sides[device].stream(), device));
        Self {
            two,
            random: Rng::with_seed(seed),
            streams: streams.to_vec(),
            live: Vec::new(),
            addresses: Vec::new(),
            again: 0,
            across: 0,
            next: 0,
        }
    }

    fn wait(&self, stream: usize, on: usize) {
        let ((stream, device), (on, _)) = (self.streams[stream], self.streams[on]);
        if stream != on {
            self.two.sides[device].wait(stream, on);
        }
    }

    fn allocate(&mut self) {
        let stream = self.random.usize(..self.streams.len());
        let (handle, home) = self.streams[stream];
        // Mostly memory of the stream's own device.
        let device = if self.random.usize(..4) == 0 { 1 - home } else { home };
        let side = &self.two.sides[device];
        let bytes = [4 << 10, 600 << 10, 3 << 20][self.random.usize(..3)];
        let block = side.engine.allocate(side.pool, bytes, handle).unwrap();
        self.again += usize::from(self.addresses.contains(&block.address));
        self.addresses.push(block.address);
        self.next += 1;
        let tag = tagged(block, self.next);
        self.two.sides[home].write(handle, tag);
        self.live.push(Live { device, block, stream, tag });
    }

    fn read(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let chosen = self.random.usize(..self.live.len());
        let stream = self.random.usize(..self.streams.len());
        let Live { device, block, stream: own, tag } = &self.live[chosen];
        let (handle, home) = self.streams[stream];
        self.wait(stream, *own);
        self.two.sides[home].read(handle, *tag);
        self.two.sides[*device].engine.record_stream(block.id, handle).unwrap();
        self.across += usize::from(home != *device);
    }

    fn free(&mut self, all: bool) {
        while !self.live.is_empty() {
            let chosen = self.random.usize(..self.live.len());
            let Live { device, block, .. } = self.live.swap_remove(chosen);
            self.two.sides[device].engine.free(block.id).unwrap();
            if !all {
                break;
            }
        }
    }

    /// Ends all streams, once their work is done and no block is live.
    fn retire(&mut self) {
        for (stream, device) in self.streams.drain(..) {
            for side in &self.two.sides {
                side.engine.retire_stream(stream).unwrap();
            }
            self.two.sides[device].driver.destroy_stream(stream).unwrap();
        }
    }

    fn step(&mut self) {
        match self.random.usize(..10) {
            0..3 => self.allocate(),
            3..6 => self.read(),
            6..9 => self.free(false),
            _ => {
                let (stream, on) = (self.random.usize(..5), self.random.usize(..5));
                self.wait(stream, on);
            }
        }
    }
}

/// What some programs came to: places handed out again, and reads across devices.
type Came = (usize, usize);

/// One capture over both devices, judged by both engines and replayed.
pub fn capture<D: Device>(two: &Two<D>, seed: u64, replays: u64) -> Came {
    let mut host = Host::new(two, seed);
    let [first, second] = &two.sides;
    let origin = host.streams[0].0;
    let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    first.driver.begin_capture(origin, modes[seed as usize % 3]).unwrap();
    let capture = first.engine.begin_capture(first.pool, origin).unwrap();
    assert_eq!(second.engine.begin_capture(second.pool, origin).unwrap(), capture);
    for stream in 1..host.streams.len() {
        host.wait(stream, 0);
    }
    for _ in 0..120 {
        host.step();
    }
    if host.random.usize(..2) == 0 {
        host.free(true);
    }
    for stream in 1..host.streams.len() {
        host.wait(0, stream);
    }
    let graph = first.graph(origin);
    let reports = two.devices.end_capture(capture, graph).unwrap();
    assert_eq!(reports.len(), 2, "seed {seed}");
    assert_eq!(first.driver.end_capture(origin).unwrap(), graph);
    let executable = first.driver.instantiate(graph).unwrap();
    for order in 0..replays {
        first.driver.schedule(seed * replays + order);
        first.driver.replay(executable, origin).unwrap();
        assert_eq!(two.wrong_tags(), 0, "seed {seed}, order {order}");
    }
    host.free(true);
    first.driver.destroy_executable(executable).unwrap();
    first.driver.destroy_graph(graph).unwrap();
    for (device, report) in reports {
        two.sides[device as usize].engine.release_graph(report.graph).unwrap();
    }
    host.retire();
    (host.again, host.across)
}

/// Work outside captures on both devices.
pub fn eager<D: Device>(two: &Two<D>, seed: u64) -> Came {
    let mut host = Host::new(two, seed + 1000);
    two.sides[0].driver.schedule(seed);
    for _ in 0..200 {
        host.step();
        if host.random.usize(..8) == 0 {
            let stream = host.random.usize(..host.streams.len());
            let (handle, device) = host.streams[stream];
            two.sides[device].driver.progress(handle);
        }
    }
    host.free(true);
    assert_eq!(two.wrong_tags(), 0, "seed {seed}");
    host.retire();
    (host.again, host.across)
}

/// Whether the programs showed anything.
pub fn assert_telling(came: impl Iterator<Item = Came>, least: usize) {
    let (again, across) = came.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(again > least && across > least, "{again} places again, {across} reads across");
}

#[test]
fn captures_over_two_devices() {
    assert_telling((0..60).map(|seed| capture(&two(&Config::default()), seed, 4)), 500);
}

#[test]
fn captures_over_two_devices_one_after_another() {
    let two = two(&Config::default());
    assert_telling((0..20).map(|seed| capture(&two, seed + 100, 2)), 200);
}

#[test]
fn eager_work_on_two_devices() {
    assert_telling((0..60).map(|seed| eager(&two(&Config::default()), seed)), 500);
}

#[test]
fn captures_and_eager_work_by_turns() {
    let two = two(&Config::default());
    let turns = (0..20).map(|seed| match seed % 2 {
        0 => capture(&two, seed + 200, 2),
        _ => eager(&two, seed + 200),
    });
    assert_telling(turns, 200);
}
