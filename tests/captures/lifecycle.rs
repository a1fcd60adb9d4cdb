//! Captures, graphs and pools that begin, end and go in unusual orders.

use crate::common::{bench, MIB};
use crate::device::simulated;
use crate::owned;
use regraph::driver::{CaptureMode, Driver, HostApi};
use regraph::engine::{with_frames, Config, Error, HostFrame, PoolConfig, Unknown};
use regraph_cli::replay::{replay, Options};
use regraph_sim::Call;
use regraph_trace::Sources;

/// Found by review: a ruined capture was accepted, on a graph that may be gone.
#[test]
fn a_ruined_capture_cannot_be_ended_well() {
    let (b, [s], capture) = bench(Config::default()).capturing();
    b.launch(s);
    let graph = b.graph(s);
    b.driver.invalidate(s).unwrap();
    let ended = b.engine.end_capture(capture, graph);
    assert!(matches!(ended, Err(Error::CaptureInvalidated { .. })), "{ended:?}");
    assert!(b.driver.end_capture(s).is_err());
}

#[test]
fn a_ruined_capture_that_the_library_ends_is_over() {
    let (b, [s]) = owned::Bench::new(&simulated()).with_streams();
    let ended = b.engine.capture(s, &b.pool, CaptureMode::Relaxed, |capture| {
        capture.allocate(MIB, s)?;
        Ok::<_, Error>(b.driver.invalidate(s)?)
    });
    let error = ended.unwrap_err().to_string();
    assert!(
        error.starts_with("finish: ") && error.contains("has ended without a graph"),
        "{error}"
    );
    assert!(!error.contains("end it"), "{error}");
    assert_eq!(b.driver.is_capturing(s), Ok(false));
}

/// Each of them frees a block from before, which waits for the stream that they are captured on, one after the other.
#[test]
fn captures_in_a_row_ask_as_much_as_the_first_ones() {
    for in_two_steps in [false, true] {
        let (b, [s]) = bench(Config::default()).with_streams();
        let blocks: Vec<_> = (0..100).map(|_| b.allocate(s)).collect();
        b.launch(s);
        let asked: Vec<u64> = blocks
            .into_iter()
            .map(|block| {
                let before = b.driver.calls(Call::CaptureStatus);
                let capture = b.begin(s);
                b.launch_and_free(s, block);
                match in_two_steps {
                    true => {
                        b.engine.close_capture(capture, b.graph(s)).unwrap();
                        b.driver.end_capture(s).unwrap();
                        b.engine.verdict(capture).unwrap();
                    }
                    false => drop(b.finish(s, capture)),
                }
                b.driver.calls(Call::CaptureStatus) - before
            })
            .collect();
        assert_eq!(asked[5..50], asked[55..], "in two steps: {in_two_steps}");
    }
}

#[test]
fn blocks_of_another_engine_are_unknown() {
    let (one, other) = (bench(Config::default()), bench(Config::default()));
    let [s] = one.streams();
    let [t] = other.streams();
    let block = one.allocate(s);
    other.allocate(t);
    let refused = other.engine.free(block.id);
    assert!(matches!(refused, Err(Error::Unknown { what: Unknown::Block(_), .. })));
}

/// A live capture becomes a file that replays to the same figures.
#[test]
fn a_live_capture_becomes_a_trace() {
    let b = bench(Config::default());
    let streams: [_; 3] = b.streams();
    let capture = b.begin(streams[0]);
    b.launch(streams[0]);
    for &stream in &streams[1..] {
        b.driver.wait(stream, streams[0]).unwrap();
    }
    let mut live = Vec::new();
    for step in 0..60 {
        let (own, other) = (streams[step % 3], streams[(step * 5 + 1) % 3]);
        let block = b.engine.allocate(b.pool, (step as u64 % 7 + 1) * MIB, own).unwrap();
        b.launch(own);
        b.driver.wait(other, own).unwrap();
        b.engine.record_stream(block.id, other).unwrap();
        b.launch(other);
        live.push(block.id);
        if live.len() > 5 {
            b.engine.free(live.remove(step % 4)).unwrap();
        }
    }
    for &stream in &streams[1..] {
        b.driver.wait(streams[0], stream).unwrap();
    }
    let journal = b.engine.host().journal(capture).unwrap().unwrap();
    let report = b.finish(streams[0], capture);
    let recorded =
        regraph_trace::from_journal(&journal, streams[0], 0, &Sources::default()).unwrap();
    let mut text = Vec::new();
    regraph_trace::write(&recorded, &mut text).unwrap();
    let read = regraph_trace::read(&text[..]).unwrap();
    let again = replay(&b.driver, &read, &Options::default()).unwrap();
    assert_eq!((again.blocks, again.nodes), (report.blocks, report.nodes));
    assert_eq!(again.reserved_bytes, b.reserved());
}

/// Blocks of a trace lead back to the lines that asked for them, also when they are freed by then, and another capture's
/// are not among them.
#[test]
fn a_traces_blocks_have_the_frames_that_the_host_gave() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let frame = |function: &str, line| HostFrame {
        filename: "model.py".to_owned(),
        line,
        name: function.to_owned(),
    };
    let traced = |names: &[Option<(&str, u32)>]| {
        let capture = b.begin(s);
        for name in names {
            let ask = || b.engine.allocate(b.pool, MIB, s).unwrap();
            let block = match *name {
                Some((function, line)) => with_frames(vec![frame(function, line)], ask),
                None => ask(),
            };
            b.launch_and_free(s, block);
        }
        let trace = regraph_trace::from_capture(&b.engine, capture, s).unwrap();
        b.finish(s, capture);
        assert!(b.engine.host().origins(capture).is_err(), "it is over");
        let told = |block| trace.labels().describe(block);
        (0..names.len() as u32).map(told).collect::<Vec<_>>()
    };
    let first = traced(&[Some(("forward", 31)), None, Some(("loss", 7))]);
    let told = |text: &str| Some(text.to_owned());
    assert_eq!(first, [told("model.py:31 forward"), None, told("model.py:7 loss")]);
    assert_eq!(traced(&[None]), [None]);
}

/// A request that names no pool goes to the pool that serves its stream's capture, and is left to the caller where
/// none does; what serves a capture is forgotten with it.
#[test]
fn a_request_by_its_capture_goes_to_the_pool_that_serves_it() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let eager = b.engine.create_pool(PoolConfig::default());
    let live = |pool| b.engine.pool_statistics(pool).unwrap().blocks;
    let ask = |stream| {
        let asked = b.engine.host().allocate_by_capture(eager, MIB, stream, || false);
        asked.unwrap().map(|block| block.id)
    };
    let capture = b.begin(s);
    assert!(ask(s).is_none(), "no pool serves the capture yet");
    b.engine.host().serve_capture(capture, Some(b.pool)).unwrap();
    let inside = ask(s).expect("the capture is served");
    let outside = ask(t).expect("work outside captures has its pool");
    assert_eq!((live(b.pool), live(eager)), (1, 1));
    b.engine.host().serve_capture(capture, None).unwrap();
    assert!(ask(s).is_none(), "no pool serves the capture any more");
    b.engine.host().serve_capture(capture, Some(b.pool)).unwrap();
    b.engine.free(inside).unwrap();
    b.finish(s, capture);
    // Of a capture that is over it says nothing.
    b.engine.host().serve_capture(capture, Some(b.pool)).unwrap();
    b.begin(s);
    assert!(ask(s).is_none(), "the next capture of the stream is another one");
    b.engine.free(outside).unwrap();
}
