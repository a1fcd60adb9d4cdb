//! The checker notices when the engine leaves out a safety rule: for every rule a program that the
//! flawed engine gets wrong and the sound one does not, and a search by random programs. For work
//! outside captures, which no checker judges, tagged kernels and the model of the random programs
//! notice. Plans that are wrong are in `tests/plans/plan_safety.rs`; rules that only the source can leave out are in
//! `mutants.rs`.

use crate::common::{bench, Bench};
use regraph::driver::{CaptureId, CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Block, Config, Error, Flaw};
use regraph::settings::Programmatic;
use regraph_tagged::{Program, Tagged, Work};

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
    for flaw in [Flaw::StreamOrder, Flaw::Events, Flaw::Lending] {
        let found = (0..200).find(|_| {
            let program: Vec<u8> = (0..600).map(|_| next()).collect();
            regraph_testing::eager(&program);
            regraph_testing::flawed_eager(&program, flaw)
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
