//! The checker notices when the engine leaves out a safety rule: for every rule a program that the
//! flawed engine gets wrong and the sound one does not, and a search by random programs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{bench, Bench};
use regraph::driver::{CaptureId, CaptureMode, Program, StreamHandle};
use regraph::engine::{Config, Error, Flaw};

/// Expects the flawed engine to be refused and the sound one to be accepted.
fn caught(flaw: Flaw, program: impl Fn(&Bench) -> (StreamHandle, CaptureId)) {
    let flawed = bench(Config::default().flaw(Some(flaw)));
    let (stream, capture) = program(&flawed);
    let refused = flawed.try_finish(stream, capture);
    assert!(matches!(refused, Err(Error::Refused(_))), "{flaw:?}: {refused:?}");
    let sound = bench(Config::default());
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
        // Without a look at it the launch could as well have come after the free.
        b.engine.observe(t).unwrap();
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
    caught(Flaw::EdgeKinds, |b| {
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

/// Random programs until the checker refuses one of the flawed engine's captures that it has no
/// reason to refuse otherwise. What it accepts is safe all the same: the search would panic.
#[test]
fn a_search_finds_every_flaw() {
    let mut state = 1_u64;
    let mut next = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    for flaw in [
        Flaw::Proof,
        Flaw::OwnMarker,
        Flaw::ForeignMarkers,
        Flaw::UseAfterLastUse,
        Flaw::SetBack,
        Flaw::EdgeKinds,
        Flaw::OutsideUses,
        Flaw::NestedCapture,
        Flaw::Hold,
        Flaw::OlderBlocks,
    ] {
        let found = (0..4_000).find(|_| {
            let program: Vec<u8> = (0..700).map(|_| next()).collect();
            regraph::fuzzing::flawed_engine(&program, flaw).refused
                > regraph::fuzzing::sound_engine(&program).refused
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}
