//! Captures whose memory comes at their end, run once for every call to the driver that may fail.
//!
//! Each call fails in turn: each graph that was accepted runs on its own memory, live blocks keep what they
//! hold, and nothing is counted that is not there.

use std::sync::Arc;

use crate::common::MIB;
use regraph::driver::{
    CaptureMode, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{Block, Config, Engine, Error, GraphId, PoolConfig, PoolId, Unknown};
use regraph::plan::Options;
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

/// The granularity of the device, in bytes.
const PAGE: u64 = 2 * MIB;
const GIVING_BACK: [Call; 5] =
    [Call::Release, Call::Unmap, Call::Unreserve, Call::Free, Call::DestroyEvent];

struct Made {
    graph: GraphId,
    executable: ExecutableHandle,
    output: Option<(Block, u64)>,
}

struct Faulty {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    s: StreamHandle,
    /// Whether the call that fails is one for memory, and whether it is one that gives some back.
    memory: bool,
    lossy: bool,
}

impl Faulty {
    /// Figures say what the driver holds for us.
    fn judge(&self) {
        let reserved = self.engine.statistics().unwrap().all.reserved_bytes.current;
        let used = self.driver.used_bytes();
        assert!(reserved == used || (self.lossy && reserved < used), "{reserved}, {used} in use");
    }

    fn work(&self, inputs: &[(Block, u64)], output: (Block, u64)) {
        let of = |(block, tag): &(Block, u64)| Tagged {
            address: block.address,
            bytes: block.bytes,
            tag: *tag,
        };
        let inputs: Vec<_> = inputs.iter().map(of).collect();
        let work = Work { inputs: &inputs, outputs: &[of(&output)], ..Work::default() };
        self.driver.launch(self.s, work, false).unwrap();
    }

    /// A chain of blocks, each read by what writes the next, and a fixed one that all read.
    fn capture(&self, tag: u64, sizes: &[u64], keep: bool, abandon: bool) -> Option<Made> {
        self.driver.begin_capture(self.s, CaptureMode::Relaxed).unwrap();
        let begun = self.engine.begin_capture(self.pool, self.s);
        let fixed = self.engine.allocate_fixed(self.pool, PAGE, self.s).ok();
        let fixed = fixed.map(|block| (block, tag + 100));
        fixed.into_iter().for_each(|it| self.work(&[], it));
        let mut last: Option<(Block, u64)> = None;
        for (step, &bytes) in (1..).zip(sizes) {
            self.judge();
            let Ok(block) = self.engine.allocate(self.pool, bytes, self.s) else { continue };
            let inputs: Vec<_> = last.into_iter().chain(fixed).collect();
            self.work(&inputs, (block, tag + step));
            last.into_iter().for_each(|(block, _)| self.engine.free(block.id).unwrap());
            last = Some((block, tag + step));
        }
        fixed.into_iter().for_each(|(block, _)| self.engine.free(block.id).unwrap());
        let output = last.filter(|_| keep);
        if let Some((block, _)) = last.filter(|_| !keep) {
            self.engine.free(block.id).unwrap();
        }
        let graph = self.driver.end_capture(self.s).unwrap();
        let ended = match begun {
            _ if abandon => None,
            Ok(capture) => Some(self.engine.end_capture(capture, graph)),
            Err(_) => None,
        };
        // Where it is known and was not ended.
        for capture in self.engine.host().captures_of(self.s).unwrap() {
            self.engine.abandon_capture(capture).unwrap();
        }
        self.judge();
        match ended {
            Some(Ok(report)) => {
                let executable = self.driver.instantiate(graph).unwrap();
                Some(Made { graph: report.graph, executable, output })
            }
            other => {
                if let Some(Err(error)) = other {
                    let known = matches!(error, Error::Driver(_) | Error::PlanOutOfMemory { .. });
                    // A checker that cannot read the graph refuses it.
                    let unread = !self.memory && matches!(error, Error::Refused(_));
                    assert!(known || unread, "{error}");
                }
                output.into_iter().for_each(|(block, _)| self.engine.free(block.id).unwrap());
                self.judge();
                None
            }
        }
    }

    /// Runs graphs one after the other; their outputs last.
    fn run(&self, graphs: &[&Made]) {
        for made in graphs.iter().chain(graphs.iter().rev()) {
            self.driver.replay(made.executable, self.s).unwrap();
            self.driver.synchronize().expect("no graph met memory that was gone");
        }
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
        for (block, tag) in graphs.iter().filter_map(|made| made.output) {
            self.require(block, tag);
        }
    }

    fn require(&self, block: Block, tag: u64) {
        let tags = self.driver.read_tags(block.address, block.bytes).unwrap();
        assert!(tags.iter().all(|&held| held == tag), "an output was overwritten");
    }

    fn release(&self, made: &Made) {
        self.engine.release_graph(made.graph).unwrap();
        self.judge();
    }
}

/// Runs the program with the n-th such call failing; false once it no longer makes so many.
fn run(call: Call, n: u64, kind: ErrorKind) -> bool {
    let support = MemorySupport::Mapped { granularity: PAGE };
    let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: 256 * MIB, support }));
    let engine = Engine::new(driver.clone(), Config::default());
    let options = Options::default().max_piece_bytes(Some(2 * PAGE));
    let pool = engine.create_pool(PoolConfig::default().plan(options));
    let s = driver.create_stream().unwrap();
    let lossy = GIVING_BACK.contains(&call);
    let before = driver.calls(call);
    let getting = [Call::Reserve, Call::Create, Call::Map, Call::SetAccess];
    let memory = lossy || getting.contains(&call);
    let f = Faulty { driver, engine, pool, s, memory, lossy };
    f.driver.fail_nth(call, n, kind);

    let first = f.capture(1000, &[5 * PAGE, 3 * PAGE, 4 * PAGE, PAGE], true, false);
    let second = f.capture(2000, &[2 * PAGE, 6 * PAGE, 700, 3 * PAGE + 512], true, false);
    f.run(&first.iter().chain(&second).collect::<Vec<_>>());
    assert!(f.capture(3000, &[9 * PAGE, PAGE], true, true).is_none());
    let third = f.capture(4000, &[3 * PAGE, 3 * PAGE], false, false);
    f.run(&first.iter().chain(&second).chain(&third).collect::<Vec<_>>());
    if let Some(second) = &second {
        f.release(second);
    }
    f.run(&first.iter().chain(&third).collect::<Vec<_>>());
    let output = second.and_then(|made| made.output);
    output.into_iter().for_each(|(block, tag)| f.require(block, tag));
    for _ in 0..2 {
        // Once more where the driver failed.
        let gone = f
            .engine
            .host()
            .suspend_discarding_all(f.pool)
            .or_else(|_| f.engine.host().suspend_discarding_all(f.pool));
        f.judge();
        gone.unwrap();
        let back =
            f.engine.host().resume_pool(f.pool).or_else(|_| f.engine.host().resume_pool(f.pool));
        f.judge();
        back.unwrap();
        f.run(&first.iter().chain(&third).collect::<Vec<_>>());
    }
    output.into_iter().for_each(|(block, _)| f.engine.free(block.id).unwrap());
    for made in first.iter().chain(&third) {
        f.release(made);
        made.output.into_iter().for_each(|(block, _)| f.engine.free(block.id).unwrap());
    }
    f.driver.complete_all();
    for _ in 0..2 {
        f.engine.empty_cache().unwrap();
        f.judge();
    }
    let destroyed = f.engine.destroy_pool(f.pool).or_else(|_| f.engine.destroy_pool(f.pool));
    let gone = lossy && matches!(destroyed, Err(Error::Unknown { what: Unknown::Pool(_), .. }));
    assert!(destroyed.is_ok() || gone, "{destroyed:?}");
    assert!(lossy || f.driver.used_bytes() == 0, "memory was lost");
    f.driver.calls(call) - before > n
}

#[test]
fn every_call_may_fail() {
    let mut made = 0;
    for &call in Call::ALL {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
            let mut n = 0;
            while {
                println!("{call:?} {n} {kind:?}");
                run(call, n, kind.clone())
            } {
                n += 1;
            }
            made += n;
        }
    }
    assert!(made > 300, "the program makes many calls: {made}");
}
