//! The checker notices when the engine leaves out a safety rule: for every rule a program that the
//! flawed engine gets wrong and the sound one does not, and a search by random programs. For work
//! outside captures and restorations, which no checker judges, tagged kernels and the model of the random programs
//! notice. An engine that does not wait for the checker is in `tests/simulated/two_steps.rs`, and plans that are wrong are
//! in `tests/plans/by_bytes.rs`.

use crate::common::{bench, Bench};
use regraph::driver::{CaptureId, CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Block, Config, Error, Flaw, PoolConfig, Spare};
use regraph::plan::Options;
use regraph::settings::Programmatic;
use regraph_tagged::{Program, Tagged, Work};
use regraph_testing::{ManyGraphs, Shape, PAGE};

/// Expects the flawed engine to be refused and the sound one to be accepted.
fn caught(flaw: Flaw, program: impl Fn(&Bench) -> (StreamHandle, CaptureId)) {
    caught_under(Programmatic::default(), flaw, program);
}

fn caught_under(
    policy: Programmatic,
    flaw: Flaw,
    program: impl Fn(&Bench) -> (StreamHandle, CaptureId),
) {
    let config = Config::default().programmatic(policy);
    let flawed = bench(config.clone().flaw(Some(flaw)));
    let (stream, capture) = program(&flawed);
    let refused = flawed.try_finish(stream, capture);
    let judged = matches!(refused, Err(Error::Refused(_) | Error::CaptureAgain(_)));
    assert!(judged, "{flaw:?}: {refused:?}");
    let sound = bench(config);
    let (stream, capture) = program(&sound);
    sound.finish(stream, capture);
}

#[test]
fn proof() {
    caught(Flaw::Proof, |b| {
        let [s, t] = b.streams();
        let capture = b.begin(s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        let block = b.allocate(s);
        b.launch(s);
        b.engine.free(block.id).unwrap();
        b.allocate(t);
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        (s, capture)
    });
}

/// A block that no list of its pool has would never be told to the checker: the sums of bytes differ.
#[test]
fn unlisted() {
    caught(Flaw::Unlisted, |b| {
        let [s, t] = b.streams();
        b.allocate(t);
        let capture = b.begin(s);
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
    // One that comes while the capture is under way.
    caught(Flaw::Unlisted, |b| {
        let [s, t] = b.streams();
        let capture = b.begin(s);
        b.allocate(t);
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

/// What an earlier capture has left is told where a later one is handed its place.
#[test]
fn alias() {
    caught(Flaw::Alias, |b| {
        let [s] = b.streams();
        let before = b.begin(s);
        b.allocate(s);
        b.launch(s);
        b.finish(s, before);
        let capture = b.begin(s);
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

#[test]
fn own_marker() {
    caught(Flaw::OwnMarker, |b| {
        let [s, t] = b.streams();
        let capture = b.begin(s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        let block = b.allocate(s);
        b.engine.record_stream(block.id, t).unwrap();
        b.launch(s);
        b.launch(t);
        b.engine.free(block.id).unwrap();
        // All that t did is proven for t.
        b.allocate(t);
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        (s, capture)
    });
}

#[test]
fn foreign_markers() {
    caught(Flaw::ForeignMarkers, |b| {
        let [s, t] = b.streams();
        let capture = b.begin(s);
        let block = b.allocate(s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.engine.record_stream(block.id, t).unwrap();
        b.launch(t);
        b.engine.free(block.id).unwrap();
        b.allocate(s);
        b.launch(s);
        b.driver.wait(s, t).unwrap();
        (s, capture)
    });
}

#[test]
fn use_after_last_use() {
    caught(Flaw::UseAfterLastUse, |b| {
        let [s, t] = b.streams();
        let capture = b.begin(s);
        let block = b.allocate(s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.launch(t);
        b.engine.record_use(block.id, t).unwrap();
        b.driver.wait(s, t).unwrap();
        b.engine.record_stream(block.id, t).unwrap();
        b.launch(t);
        b.engine.free(block.id).unwrap();
        b.allocate(s);
        b.launch(s);
        b.driver.wait(s, t).unwrap();
        (s, capture)
    });
}

#[test]
fn set_back() {
    caught(Flaw::SetBack, |b| {
        let [s] = b.streams();
        let capture = b.begin(s);
        b.launch(s);
        let old = b.driver.terminals(s).unwrap();
        let block = b.allocate(s);
        b.launch(s);
        b.engine.free(block.id).unwrap();
        b.driver.set_terminals(s, &old).unwrap();
        b.engine.observe(s).unwrap();
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

#[test]
fn edge_kinds() {
    caught_under(Programmatic::Deny, Flaw::EdgeKinds, |b| {
        let [s] = b.streams();
        let capture = b.begin(s);
        let block = b.allocate(s);
        b.launch(s);
        b.launch_early(s);
        b.engine.record_use(block.id, s).unwrap();
        b.launch_early(s);
        b.engine.free(block.id).unwrap();
        b.launch_early(s);
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

#[test]
fn early_launches() {
    caught(Flaw::EarlyLaunches, |b| {
        let [s, t] = b.streams();
        // The second capture foresees what was refused in the first, on either stream.
        let mut last = None;
        for _ in 0..2 {
            if let Some((stream, capture)) = last {
                assert!(matches!(b.try_finish(stream, capture), Err(Error::CaptureAgain(_))));
            }
            let capture = b.begin(s);
            b.launch(s);
            b.driver.wait(t, s).unwrap();
            for stream in [s, t] {
                let block = b.allocate(stream);
                b.launch(stream);
                b.engine.free(block.id).unwrap();
                b.allocate(stream);
                b.launch_early(stream);
            }
            b.driver.wait(s, t).unwrap();
            last = Some((s, capture));
        }
        last.unwrap()
    });
}

#[test]
fn outside_uses() {
    caught(Flaw::OutsideUses, |b| {
        let [s, outside] = b.streams();
        let capture = b.begin(s);
        let block = b.allocate(s);
        b.launch(s);
        b.engine.record_stream(block.id, outside).unwrap();
        b.engine.free(block.id).unwrap();
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

#[test]
fn nested_capture() {
    caught(Flaw::NestedCapture, |b| {
        let [s, inner] = b.streams();
        let capture = b.begin(s);
        let block = b.allocate(s);
        b.launch(s);
        let before = b.driver.terminals(s).unwrap();
        let (_, body) = b.driver.add_conditional(b.graph(s), &before).unwrap();
        b.driver.begin_capture_to_graph(inner, body, CaptureMode::Relaxed).unwrap();
        let inside = b.engine.begin_capture(b.pool, inner).unwrap();
        b.launch(inner);
        b.engine.free(block.id).unwrap();
        b.allocate(s);
        b.launch(s);
        b.finish(inner, inside);
        (s, capture)
    });
}

#[test]
fn hold() {
    caught(Flaw::Hold, |b| {
        let [s, inner] = b.streams();
        let capture = b.begin(s);
        b.launch(s);
        let before = b.driver.terminals(s).unwrap();
        let (_, body) = b.driver.add_conditional(b.graph(s), &before).unwrap();
        b.driver.begin_capture_to_graph(inner, body, CaptureMode::Relaxed).unwrap();
        let inside = b.engine.begin_capture(b.pool, inner).unwrap();
        let block = b.allocate(inner);
        b.launch(inner);
        b.engine.free(block.id).unwrap();
        b.finish(inner, inside);
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

#[test]
fn older_blocks() {
    caught(Flaw::OlderBlocks, |b| {
        let [s] = b.streams();
        let block = b.allocate(s);
        b.launch(s);
        let capture = b.begin(s);
        b.launch(s);
        b.engine.free(block.id).unwrap();
        b.allocate(s);
        b.launch(s);
        (s, capture)
    });
}

#[test]
fn input_markers() {
    caught(Flaw::InputMarkers, |b| {
        let [s, t] = b.streams();
        let block = b.allocate(s);
        b.launch(s);
        b.engine.expect_capture(s).unwrap();
        b.driver.complete_all();
        let capture = b.begin(s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.launch(s);
        b.engine.free(block.id).unwrap();
        b.allocate(t);
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        (s, capture)
    });
}

/// Nothing in the graph shows the work before the capture: tagged kernels do.
#[test]
fn input_work() {
    for flaw in [Some(Flaw::InputWork), None] {
        let mut wrong = 0;
        for seed in 0..20 {
            let b = bench(Config::default().find_late_uses(false).flaw(flaw));
            b.driver.set_schedule_seed(seed);
            let [s, t] = b.streams();
            let work = |block: Block, tag| {
                let range = [Tagged { address: block.address, bytes: block.bytes, tag }];
                let write = Work { outputs: &range, ..Work::default() };
                b.driver.launch(s, write, false).unwrap();
                let read = Work { inputs: &range, ..Work::default() };
                b.driver.launch(s, read, false).unwrap();
            };
            let input = b.allocate(s);
            work(input, 1);
            b.engine.expect_capture(s).unwrap();
            let capture = b.begin(s);
            b.launch(s);
            b.engine.free(input.id).unwrap();
            let block = b.allocate(s);
            assert_eq!(block.address == input.address, flaw.is_some());
            work(block, 2);
            b.engine.end_capture(capture, b.graph(s)).unwrap();
            let graph = b.driver.end_capture(s).unwrap();
            let executable = b.driver.instantiate(graph).unwrap();
            b.driver.replay(executable, t).unwrap();
            b.driver.synchronize().unwrap();
            wrong += b.driver.take_wrong_tags().unwrap();
        }
        assert_eq!(wrong > 0, flaw.is_some(), "{flaw:?}: {wrong} wrong tags");
    }
}

/// Expects tagged kernels to find the flawed engine's memory overwritten and the sound one's not.
fn overwritten(flaw: Flaw, program: impl Fn(&Bench, &dyn Fn(StreamHandle, Block, u64))) {
    for flaw in [Some(flaw), None] {
        let mut wrong = 0;
        for seed in 0..20 {
            let b = bench(Config::default().flaw(flaw));
            b.driver.set_schedule_seed(seed);
            // Writes a tag and reads it again.
            let work = |stream, block: Block, tag| {
                let range = [Tagged { address: block.address, bytes: block.bytes, tag }];
                let write = Work { outputs: &range, ..Work::default() };
                b.driver.launch(stream, write, false).unwrap();
                let read = Work { inputs: &range, ..Work::default() };
                b.driver.launch(stream, read, false).unwrap();
            };
            program(&b, &work);
            b.driver.synchronize().unwrap();
            wrong += b.driver.take_wrong_tags().unwrap();
        }
        assert_eq!(wrong > 0, flaw.is_some(), "{flaw:?}: {wrong} wrong tags");
    }
}

#[test]
fn stream_order() {
    overwritten(Flaw::StreamOrder, |b, work| {
        let [s, t] = b.streams();
        let block = b.allocate(s);
        work(s, block, 1);
        b.engine.free(block.id).unwrap();
        work(t, b.allocate(t), 2);
    });
}

#[test]
fn events() {
    overwritten(Flaw::Events, |b, work| {
        let [s, t] = b.streams();
        let block = b.allocate(s);
        b.driver.wait(t, s).unwrap();
        b.engine.record_stream(block.id, t).unwrap();
        work(t, block, 1);
        b.engine.free(block.id).unwrap();
        work(s, b.allocate(s), 2);
    });
}

/// A graph's temporary memory was an output's place when it was live; a restoration frees that.
#[test]
fn restored_graphs() {
    overwritten(Flaw::RestoredGraphs, |b, work| {
        let [s, t] = b.streams();
        let checkpoint = b.engine.checkpoint(b.pool).unwrap();
        let capture = b.begin(s);
        let output = b.allocate(s);
        work(s, output, 1);
        b.engine.end_capture(capture, b.graph(s)).unwrap();
        let graph = b.driver.end_capture(s).unwrap();
        let executable = b.driver.instantiate(graph).unwrap();
        b.engine.restore(b.pool, &checkpoint).unwrap();
        let eager = b.allocate(t);
        b.driver.replay(executable, s).unwrap();
        work(t, eager, 2);
    });
}

/// The restoration forgets that the block was recorded for the stream that captures afterwards.
#[test]
fn restored_later() {
    overwritten(Flaw::RestoredLater, |b, work| {
        let [s, t] = b.streams();
        let block = b.allocate(s);
        b.engine.record_stream(block.id, t).unwrap();
        let checkpoint = b.engine.checkpoint(b.pool).unwrap();
        let block = b.engine.restore(b.pool, &checkpoint).unwrap().live[0];
        let capture = b.begin(t);
        work(t, block, 1);
        b.engine.end_capture(capture, b.graph(t)).unwrap();
        let graph = b.driver.end_capture(t).unwrap();
        let executable = b.driver.instantiate(graph).unwrap();
        b.engine.free(block.id).unwrap();
        let eager = b.allocate(s);
        b.driver.replay(executable, t).unwrap();
        work(s, eager, 2);
    });
}

/// The graph of the other pool's capture is launched beside that of a capture into the restored pool.
#[test]
fn restored_in_capture() {
    overwritten(Flaw::RestoredInCapture, |b, work| {
        let [s, t] = b.streams();
        let other = b.engine.create_pool(PoolConfig::default());
        let checkpoint = b.engine.checkpoint(b.pool).unwrap();
        let used = b.allocate(s);
        b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        let outer = b.engine.begin_capture(other, s).unwrap();
        work(s, used, 1);
        // Refused by the sound engine, for which the block stays live.
        let restored = b.engine.restore(b.pool, &checkpoint);
        let capture = b.begin(t);
        let block = b.allocate(t);
        work(t, block, 2);
        let mut executables = Vec::new();
        for (stream, capture) in [(s, outer), (t, capture)] {
            b.engine.end_capture(capture, b.graph(stream)).unwrap();
            let graph = b.driver.end_capture(stream).unwrap();
            executables.push((b.driver.instantiate(graph).unwrap(), stream));
        }
        assert_eq!(restored.is_ok(), block.address == used.address);
        for (executable, stream) in executables {
            b.driver.replay(executable, stream).unwrap();
        }
    });
}

/// The pool's own owner has promised the order, and not the owner of the pool that borrows.
#[test]
fn restored_unsettled() {
    overwritten(Flaw::RestoredUnsettled, |b, work| {
        let [s, t] = b.streams();
        let eager = b.engine.create_pool(PoolConfig::default().borrows(true));
        b.engine.set_spare(b.pool, Spare::Lent).unwrap();
        let checkpoint = b.engine.checkpoint(b.pool).unwrap();
        let block = b.allocate(s);
        work(s, block, 1);
        b.engine.restore(b.pool, &checkpoint).unwrap();
        work(t, b.engine.allocate(eager, block.bytes, t).unwrap(), 2);
    });
}

#[test]
fn restored_borrowed() {
    overwritten(Flaw::RestoredBorrowed, |b, work| {
        let [s, t] = b.streams();
        let eager = b.engine.create_pool(PoolConfig::default().borrows(true));
        let block = b.allocate(s);
        let checkpoint = b.engine.checkpoint(b.pool).unwrap();
        b.engine.free(block.id).unwrap();
        b.engine.set_spare(b.pool, Spare::Lent).unwrap();
        let borrowed = b.engine.allocate(eager, block.bytes, s).unwrap();
        work(s, borrowed, 1);
        // Refused by the sound engine.
        let restored = b.engine.restore(b.pool, &checkpoint);
        let own = restored.map_or_else(|_| b.allocate(t), |restored| restored.live[0]);
        work(t, own, 2);
    });
}

/// Expects the checker to refuse the flawed engine's compaction and to accept the sound one's.
fn refused_compaction(flaw: Flaw, program: impl Fn(&mut ManyGraphs)) {
    for flaw in [Some(flaw), None] {
        let mut host = ManyGraphs::new(Options::default().max_mappings(Some(1)), flaw);
        program(&mut host);
        host.replay(|_| None);
        let gone = host.compact();
        assert_eq!(gone.is_none(), flaw.is_some(), "{flaw:?}: {gone:?}");
        host.replay(|_| None);
    }
}

fn shape(pages: &[u64], kept: usize, sources: &[usize]) -> Shape {
    let sizes = pages.iter().map(|pages| pages * PAGE).collect();
    Shape { sizes, kept, sources: sources.to_vec(), ..Shape::default() }
}

#[test]
fn compacted_blocks() {
    refused_compaction(Flaw::CompactedBlocks, |host| {
        let large = host.capture(shape(&[40], 0, &[]));
        host.capture(shape(&[6], 1, &[]));
        host.capture(shape(&[10, 30, 20], 0, &[]));
        host.capture(shape(&[35], 0, &[]));
        host.release(large);
    });
}

#[test]
fn compacted_readers() {
    refused_compaction(Flaw::CompactedReaders, |host| {
        let large = host.capture(shape(&[40], 0, &[]));
        let source = host.capture(shape(&[6], 1, &[]));
        host.capture(shape(&[10, 30, 20], 0, &[source]));
        host.drop_outputs(source, 1);
        host.capture(shape(&[6, 30], 0, &[]));
        host.release(large);
    });
}

/// Random bytes, the same in each run.
fn bytes() -> impl FnMut() -> u8 {
    let mut state = 1_u64;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }
}

/// Random programs until the model says that the flawed engine gave memory away too early. It says
/// nothing of that kind of the sound engine: the search would panic.
#[test]
fn a_search_finds_every_flaw_outside_captures() {
    let mut next = bytes();
    for flaw in [Flaw::StreamOrder, Flaw::Events, Flaw::Lending, Flaw::WholeBlocks] {
        let found = (0..200).find(|_| {
            let program: Vec<u8> = (0..600).map(|_| next()).collect();
            regraph_testing::eager(&program);
            regraph_testing::flawed_eager(&program, flaw)
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}

/// The same through the plug-in.
#[test]
fn a_search_finds_every_flaw_of_named_pools() {
    let mut next = bytes();
    for flaw in [Flaw::StreamOrder, Flaw::Lending, Flaw::WholeBlocks, Flaw::RestoredUnsettled] {
        let found = (0..400).find(|_| {
            let program: Vec<u8> = (0..900).map(|_| next()).collect();
            regraph_testing::flawed_named(&program, flaw)
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}

/// The same of graphs whose pool lends what they do not keep. In an unoptimized build the rarest take minutes.
#[test]
#[ignore = "takes minutes without optimization"]
fn a_search_finds_every_flaw_of_lending() {
    let mut next = bytes();
    let mut left = vec![
        Flaw::LentKept,
        Flaw::LentKeptAgain,
        Flaw::KeptOutputs,
        Flaw::KeptInputs,
        Flaw::KeptRestored,
        Flaw::KeptUsed,
        Flaw::LentBlocks,
        Flaw::LentElsewhere,
        Flaw::LentWork,
        Flaw::LentOwnWork,
        Flaw::LentForeignWork,
        Flaw::LentRetiredWork,
        Flaw::LentAdoption,
        Flaw::LentAdoptedWork,
        Flaw::LentMarks,
        Flaw::LentUnmarked,
        Flaw::LentForgotten,
        Flaw::LentMeanwhile,
        Flaw::LentClosed,
        Flaw::LentTakenOver,
        Flaw::LentEarly,
        Flaw::LentEarlyAgain,
        Flaw::LentOrder,
        Flaw::LentPassed,
        Flaw::LentShared,
        Flaw::LentHeld,
        Flaw::LentReturn,
        Flaw::LentCached,
        Flaw::LentPlace,
        Flaw::LentCaptured,
        Flaw::LentAsleep,
        Flaw::LentEnd,
        Flaw::LentOn,
    ];
    // The rarest comes once in 700 programs.
    for number in 0..16_000 {
        let program: Vec<u8> = (0..900).map(|_| next()).collect();
        if number < 400 {
            regraph_testing::lending(&program);
        }
        left.retain(|&flaw| {
            let found = regraph_testing::flawed_lending(&program, flaw);
            if found {
                println!("{flaw:?} after {number}");
            }
            !found
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("{left:?} were not found");
}

/// The coarse ones among them, in every build.
#[test]
fn a_search_finds_coarse_flaws_of_lending() {
    let mut next = bytes();
    for flaw in [
        Flaw::LentBlocks,
        Flaw::LentWork,
        Flaw::LentEarly,
        Flaw::LentKept,
        Flaw::LentOrder,
        Flaw::LentReturn,
    ] {
        let found = (0..400).find(|_| {
            let program: Vec<u8> = (0..900).map(|_| next()).collect();
            regraph_testing::lending(&program);
            regraph_testing::flawed_lending(&program, flaw)
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}

/// Random programs until the checker refuses a compaction.
#[test]
fn a_search_finds_every_flaw_of_compactions() {
    let mut next = bytes();
    for flaw in [Flaw::CompactedBlocks, Flaw::CompactedReaders] {
        let found = (0..400).find(|_| {
            let program: Vec<u8> = (0..600).map(|_| next()).collect();
            regraph_testing::many_graphs(&program);
            regraph_testing::flawed_many_graphs(&program, flaw) > 0
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}

/// Random programs until the checker refuses one of the flawed engine's captures that it has no
/// reason to refuse otherwise. What it accepts is safe all the same: the search would panic.
#[test]
fn a_search_finds_every_flaw() {
    let mut next = bytes();
    for flaw in [
        Flaw::Proof,
        Flaw::OwnMarker,
        Flaw::ForeignMarkers,
        Flaw::UseAfterLastUse,
        Flaw::SetBack,
        Flaw::EdgeKinds,
        Flaw::EarlyLaunches,
        Flaw::OutsideUses,
        Flaw::NestedCapture,
        Flaw::Hold,
        Flaw::OlderBlocks,
        Flaw::InputMarkers,
    ] {
        let found = (0..4_000).find(|_| {
            let program: Vec<u8> = (0..700).map(|_| next()).collect();
            regraph_testing::flawed_engine(&program, flaw).refused
                > regraph_testing::sound_engine(&program).refused
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}
