//! Pools that give their memory back and get it again at the same addresses.

use crate::common::{bench, bench_on, Bench, MIB};
use crate::device::tagged;
use proptest::collection::vec;
use proptest::prelude::*;
use regraph::driver::{
    CaptureMode, Driver, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{Block, Config, Error, GraphId, PoolConfig, PoolId, PoolRefusal, Unknown};
use regraph::settings::Settings;
use regraph_sim::{Call, SimConfig};
use regraph_tagged::{Program, Work};

fn settings(expandable: bool) -> Config {
    let settings = Settings::default().expandable_segments(expandable).history(10_000);
    Config::default().settings(settings)
}

/// A captured graph: a chain of kernels, each of which writes a block of its own and reads the one
/// before; the last block stays live.
struct Chain {
    executable: ExecutableHandle,
    graph: GraphId,
    output: Block,
    tag: u64,
}

impl Chain {
    fn capture(b: &Bench, pool: PoolId, stream: StreamHandle, sizes: &[u64], tag: u64) -> Self {
        b.driver.begin_capture(stream, CaptureMode::ThreadLocal).unwrap();
        let capture = b.engine.begin_capture(pool, stream).unwrap();
        let mut before: Option<(Block, u64)> = None;
        for (number, &bytes) in sizes.iter().enumerate() {
            let block = b.engine.allocate(pool, bytes, stream).unwrap();
            let tag = tag + number as u64;
            let input = before.map(|(block, tag)| tagged(block, tag));
            let outputs = [tagged(block, tag)];
            let work = Work { inputs: input.as_slice(), outputs: &outputs, ..Work::default() };
            b.driver.launch(stream, work, false).unwrap();
            if let Some((old, _)) = before.replace((block, tag)) {
                b.engine.free(old.id).unwrap();
            }
        }
        let graph = b.driver.end_capture(stream).unwrap();
        let report = b.engine.end_capture(capture, graph).unwrap();
        let executable = b.driver.instantiate(graph).unwrap();
        let (output, tag) = before.unwrap();
        Self { executable, graph: report.graph, output, tag }
    }

    /// Runs it, and expects its output to be right.
    fn replay(&self, b: &Bench, stream: StreamHandle) {
        b.driver.replay(self.executable, stream).unwrap();
        judge(b);
        let found = b.driver.read_tags(self.output.address, self.output.bytes).unwrap();
        assert!(found.iter().all(|&tag| tag == self.tag), "{found:?}");
    }
}

/// Everything that was launched ran on memory, and none of it was overwritten.
fn judge(b: &Bench) {
    b.driver.synchronize().unwrap();
    assert_eq!(b.driver.take_wrong_tags().unwrap(), 0);
}

#[test]
fn what_cannot_be_mapped_again_is_not_given_back() {
    let allocated = SimConfig { support: MemorySupport::Allocated, ..SimConfig::default() };
    let uncached = Config::default().settings(Settings::default().caching(false));
    for b in [bench_on(allocated, Config::default()), bench(uncached)] {
        let [s] = b.streams();
        b.allocate(s);
        let held = b.reserved();
        let refused = b.engine.host().suspend_discarding_outputs(b.pool);
        assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::CannotSuspend, .. })));
        assert_eq!((b.reserved(), b.engine.host().resume_pool(b.pool).unwrap()), (held, 0));
        b.allocate(s);
    }
}

#[test]
fn a_pool_that_is_suspended_can_go() {
    for drop_it in [false, true] {
        let (b, [s]) = bench(settings(true)).with_streams();
        let chain = Chain::capture(&b, b.pool, s, &[4 * MIB, 8 * MIB], 1);
        b.engine.host().suspend_discarding_outputs(b.pool).unwrap();
        let refused = b.engine.destroy_pool(b.pool);
        assert!(matches!(
            refused,
            Err(Error::Pool { why: PoolRefusal::InUse { blocks: 1, graphs: 1, .. }, .. })
        ));
        b.engine.free(chain.output.id).unwrap();
        b.engine.release_graph(chain.graph).unwrap();
        let (unreserved, driver) = (b.driver.calls(Call::Unreserve), b.driver.clone());
        if !drop_it {
            b.engine.destroy_pool(b.pool).unwrap();
            let gone = b.engine.host().suspend_discarding_outputs(b.pool);
            assert!(matches!(gone, Err(Error::Unknown { what: Unknown::Pool(_), .. })));
            assert!(b.engine.host().resume_pool(b.pool).is_err());
            assert!(b.engine.host().is_suspended(b.pool).is_err());
            b.judge_figures();
        }
        drop(b);
        assert_eq!(driver.calls(Call::Unreserve), unreserved + 1);
        assert_eq!(driver.used_bytes(), 0);
    }
}

fn small_device(total: u64) -> (Bench, PoolId, [StreamHandle; 2]) {
    let device = SimConfig { total_bytes: total, ..SimConfig::default() };
    let b = bench_on(device, settings(true));
    let other = b.engine.create_pool(PoolConfig::default());
    let streams = b.streams();
    (b, other, streams)
}

#[test]
fn two_pools_take_turns_on_a_device_that_holds_one() {
    let (b, other, [s, _]) = small_device(64 * MIB);
    let first = Chain::capture(&b, b.pool, s, &[20 * MIB, 20 * MIB], 10);
    // What has lost nothing stays open.
    b.driver.fail_nth(Call::Unmap, 0, ErrorKind::NotSupported);
    assert!(b.engine.host().suspend_discarding_outputs(b.pool).is_err());
    assert!(!b.engine.host().is_suspended(b.pool).unwrap());
    assert_eq!(b.engine.host().suspend_discarding_outputs(b.pool).unwrap(), 40 * MIB);
    let second = Chain::capture(&b, other, s, &[30 * MIB, 8 * MIB, 20 * MIB], 20);
    for _ in 0..3 {
        second.replay(&b, s);
        b.engine.host().suspend_discarding_outputs(other).unwrap();
        b.engine.host().resume_pool(b.pool).unwrap();
        first.replay(&b, s);
        b.judge_figures();
        b.engine.host().suspend_discarding_outputs(b.pool).unwrap();
        b.engine.host().resume_pool(other).unwrap();
    }
    b.judge_figures();
}

#[test]
fn without_memory_a_pool_stays_suspended() {
    for limited in [false, true] {
        let (b, other, [s, _]) = small_device(if limited { 1 << 30 } else { 64 * MIB });
        if limited {
            b.engine.set_memory_limit(Some(64 * MIB)).unwrap();
        }
        let chain = Chain::capture(&b, b.pool, s, &[700, 20 * MIB, 20 * MIB], 10);
        let held = b.engine.host().suspend_discarding_outputs(b.pool).unwrap();
        let block = b.engine.allocate(other, 40 * MIB, s).unwrap();
        let ooms = b.engine.statistics().unwrap().counts.num_ooms;
        for _ in 0..2 {
            match b.engine.host().resume_pool(b.pool) {
                Err(Error::OutOfMemory(report)) => {
                    assert_eq!((report.requested, report.engine_reserved), (held, 40 * MIB));
                    assert_eq!(report.engine_limit, limited.then_some(64 * MIB));
                    assert_eq!(
                        report.device_free,
                        b.driver.memory_info().ok().map(|info| info.free)
                    );
                }
                other => panic!("{other:?}"),
            }
            assert!(b.engine.host().is_suspended(b.pool).unwrap());
            assert_eq!(b.driver.used_bytes(), 40 * MIB);
            b.judge_figures();
        }
        assert_eq!(b.engine.statistics().unwrap().counts.num_ooms, ooms + 2);
        // A request that fails says where the rest is.
        match b.engine.allocate(other, 2 << 30, s) {
            Err(Error::OutOfMemory(report)) => {
                assert_eq!((report.engine_suspended, report.engine_allocated), (held, 40 * MIB));
                assert!(report.to_string().contains("suspended pools"), "{report}");
            }
            other => panic!("{other:?}"),
        }
        // Its stream has not completed what it did with the block: that is waited for.
        b.launch_and_free(s, block);
        assert_eq!(b.engine.host().resume_pool(b.pool).unwrap(), held);
        assert!(b.engine.statistics().unwrap().counts.num_sync_all_streams > 0);
        chain.replay(&b, s);
        b.judge_figures();
    }
}

/// What other pools have cached goes first, and no more of it than is needed.
#[test]
fn free_memory_of_other_pools_makes_room() {
    let (b, other, [s, _]) = small_device(64 * MIB);
    let chain = Chain::capture(&b, b.pool, s, &[20 * MIB, 4 * MIB], 10);
    b.engine.host().suspend_discarding_outputs(b.pool).unwrap();
    let blocks = [(); 15].map(|()| b.engine.allocate(other, 4 * MIB, s).unwrap());
    for block in blocks {
        b.engine.free(block.id).unwrap();
    }
    b.driver.complete_all();
    b.engine.host().resume_pool(b.pool).unwrap();
    assert_eq!(b.driver.used_bytes(), 60 * MIB);
    assert_eq!(b.engine.statistics().unwrap().counts.num_sync_all_streams, 0);
    chain.replay(&b, s);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// A step that fails, and whose undoing fails too, can be done later, and a pool that goes amid that
    /// takes everything with it.
    #[test]
    fn several_calls_may_fail(
        expandable in any::<bool>(),
        resumes in any::<bool>(),
        steps in vec((any::<bool>(), vec((0..5_usize, any::<bool>(), 0..4_u64), 0..4)), 0..8),
    ) {
        let calls = [Call::Create, Call::Map, Call::SetAccess, Call::Unmap, Call::Release];
        let (b, [s]) = bench(settings(expandable)).with_streams();
        let chain = Chain::capture(&b, b.pool, s, &[12 * MIB, 700, 19 * MIB, 12 * MIB], 7);
        let held = b.reserved();
        for (resume, failures) in steps {
            for (call, memory, n) in failures {
                let kind =
                    if memory { ErrorKind::OutOfMemory } else { ErrorKind::InvalidValue };
                b.driver.fail_nth(calls[call], n, kind);
            }
            let done = if resume {
                b.engine.host().resume_pool(b.pool)
            } else {
                b.engine.host().suspend_discarding_outputs(b.pool)
            };
            if done.is_ok() {
                assert_eq!(b.engine.host().is_suspended(b.pool).unwrap(), !resume);
                assert_eq!(b.driver.used_bytes(), if resume { held } else { 0 });
            }
            b.judge_figures();
        }
        b.driver.forget_failures();
        if resumes {
            b.engine.host().resume_pool(b.pool).unwrap();
            assert_eq!(b.reserved(), held);
            b.judge_figures();
            chain.replay(&b, s);
        }
        b.engine.free(chain.output.id).unwrap();
        b.engine.release_graph(chain.graph).unwrap();
        b.driver.complete_all();
        b.engine.destroy_pool(b.pool).unwrap();
        assert_eq!(b.driver.used_bytes(), 0);
    }
}
