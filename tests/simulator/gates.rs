//! What the simulated driver says of streams without its lock: never anything but what it would
//! say with it, and counted alike.

use std::sync::Barrier;
use std::thread;

use crate::driven::status;
use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, Driver, ErrorKind, HostApi, NodeHandle, StreamHandle,
};
use regraph_sim::{Call, SimConfig, SimDriver};

const LEGACY: StreamHandle = StreamHandle::from_bits(0);

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Is {
    Idle,
    Capturing,
    Invalidated,
    Refused(ErrorKind),
}

use Is::{Capturing, Idle, Invalidated};

fn sim() -> SimDriver {
    SimDriver::new(SimConfig::default())
}

/// Asks once, which counts as one call with any answer.
fn ask(sim: &SimDriver, stream: StreamHandle) -> Is {
    let stale = Dependency::full(NodeHandle::from_bits(1));
    let mut terminals = vec![stale];
    let (calls, total) = (sim.calls(Call::CaptureStatus), sim.total_calls());
    let status = sim.capture_status(stream, &mut terminals);
    assert_eq!(sim.calls(Call::CaptureStatus) - calls, 1, "{status:?}");
    assert_eq!(sim.total_calls() - total, 1, "{status:?}");
    assert!(!terminals.contains(&stale));
    match status {
        Ok(CaptureStatus::None) => Idle,
        Ok(CaptureStatus::Active { .. }) => Capturing,
        Ok(CaptureStatus::Invalidated) => Invalidated,
        Err(error) => {
            assert_eq!(error.call, "cuStreamGetCaptureInfo");
            Is::Refused(error.kind)
        }
    }
}

#[track_caller]
fn are<const N: usize>(sim: &SimDriver, streams: [StreamHandle; N], expected: [Is; N]) {
    // Twice, since asking changes nothing.
    for _ in 0..2 {
        assert_eq!(streams.map(|stream| ask(sim, stream)), expected);
    }
}

fn streams<const N: usize>(sim: &SimDriver) -> [StreamHandle; N] {
    std::array::from_fn(|_| sim.create_stream().unwrap())
}

#[test]
fn streams_that_are_not_there_are_refused() {
    let sim = sim();
    let [a, b] = streams(&sim);
    let refused = Is::Refused(ErrorKind::InvalidValue);
    sim.destroy_stream(a).unwrap();
    are(&sim, [a, b], [refused.clone(), Idle]);
    sim.begin_capture(b, CaptureMode::Global).unwrap();
    sim.destroy_stream(b).unwrap_err();
    are(&sim, [a, b], [refused.clone(), Capturing]);
    sim.end_capture(b).unwrap();
    sim.destroy_stream(LEGACY).unwrap_err();
    are(&sim, [LEGACY, b], [Idle, Idle]);

    let next = StreamHandle::from_bits(2 * b.bits() - a.bits());
    let inside = StreamHandle::from_bits(b.bits() + 1);
    let unknown = [1, a.bits() - 16, usize::MAX, usize::MAX & !15].map(StreamHandle::from_bits);
    for stream in [next, inside].into_iter().chain(unknown) {
        assert_eq!(ask(&sim, stream), refused, "{stream:?}");
    }
    assert_eq!(sim.create_stream().unwrap(), next);
    are(&sim, [next], [Idle]);
}

#[test]
fn a_question_fails_where_that_was_asked_for() {
    let sim = sim();
    let [a, b] = streams(&sim);
    let failed = || Is::Refused(ErrorKind::NotSupported);
    let next = |expected: &[Is]| {
        for (position, is) in expected.iter().enumerate() {
            assert_eq!(ask(&sim, [a, b, LEGACY][position % 3]), *is, "{position}");
        }
    };
    // The answers before count; then it is over.
    next(&[Idle, Idle]);
    sim.fail_nth(Call::CaptureStatus, 2, ErrorKind::NotSupported);
    next(&[Idle, Idle, failed(), Idle, Idle]);

    // Calls of other kinds are in the count, or fail.
    sim.fail_any_nth(3, ErrorKind::NotSupported);
    next(&[Idle, Idle]);
    sim.memory_info().unwrap();
    next(&[failed(), Idle]);
    sim.fail_nth(Call::CreateEvent, 1, ErrorKind::NotSupported);
    next(&[Idle, Idle]);
    sim.create_event().unwrap();
    sim.create_event().unwrap_err();
    next(&[Idle, Idle]);

    // Two at once; and streams made or freed meanwhile are no way round.
    sim.fail_nth(Call::CaptureStatus, 1, ErrorKind::NotSupported);
    sim.fail_nth(Call::CaptureStatus, 3, ErrorKind::NotSupported);
    let [c] = streams(&sim);
    sim.begin_capture(a, CaptureMode::Global).unwrap();
    sim.end_capture(a).unwrap();
    assert_eq!(ask(&sim, c), Idle);
    next(&[failed(), Idle, failed(), Idle, Idle]);
    assert_eq!(ask(&sim, c), Idle);
}

#[test]
fn every_one_of_many_streams_has_a_state_of_its_own() {
    let sim = sim();
    let streams: Vec<_> = (0..1_000).map(|_| sim.create_stream().unwrap()).collect();
    let begun = |position: usize| position % 7 == 3;
    let check = |capturing: bool| {
        for (position, stream) in streams.iter().enumerate() {
            let is = if capturing && begun(position) { Capturing } else { Idle };
            assert_eq!(ask(&sim, *stream), is, "{position}");
        }
    };
    check(false);
    for (_, stream) in streams.iter().enumerate().filter(|(position, _)| begun(*position)) {
        sim.begin_capture(*stream, CaptureMode::Relaxed).unwrap();
    }
    check(true);
    for (_, stream) in streams.iter().enumerate().filter(|(position, _)| begun(*position)) {
        sim.end_capture(*stream).unwrap();
    }
    check(false);
}

#[test]
fn threads_see_their_own_captures_at_once() {
    const THREADS: usize = 8;
    const ROUNDS: u64 = 200;
    let sim = sim();
    let idle = sim.create_stream().unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let [a, b] = streams(&sim);
                for _ in 0..ROUNDS {
                    assert_eq!(status(&sim, a), CaptureStatus::None);
                    sim.begin_capture(a, CaptureMode::ThreadLocal).unwrap();
                    assert!(matches!(status(&sim, a), CaptureStatus::Active { .. }));
                    assert_eq!(status(&sim, b), CaptureStatus::None);
                    sim.wait(b, a).unwrap();
                    assert!(matches!(status(&sim, b), CaptureStatus::Active { .. }));
                    assert_eq!(status(&sim, idle), CaptureStatus::None);
                    sim.end_capture(a).unwrap();
                    assert_eq!(status(&sim, b), CaptureStatus::None);
                    assert_eq!(status(&sim, LEGACY), CaptureStatus::None);
                }
            });
        }
    });
    // The captures of other threads neither lost nor doubled a call.
    assert_eq!(sim.calls(Call::CaptureStatus), 7 * ROUNDS * THREADS as u64);
}

#[test]
fn threads_see_each_others_captures_once_they_know_of_them() {
    let sim = sim();
    let stream = sim.create_stream().unwrap();
    let (changed, seen) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                changed.wait();
                let captures = matches!(status(&sim, stream), CaptureStatus::Active { .. });
                assert_eq!(captures, round % 2 == 0);
                seen.wait();
            }
        });
        for round in 0..200 {
            if round % 2 == 0 {
                sim.begin_capture(stream, CaptureMode::Global).unwrap();
            } else {
                sim.end_capture(stream).unwrap();
            }
            changed.wait();
            seen.wait();
        }
    });
}

#[test]
fn of_many_threads_questions_one_fails() {
    let sim = sim();
    let failures = |n| {
        sim.fail_nth(Call::CaptureStatus, n, ErrorKind::NotSupported);
        let failed = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let [stream] = streams(&sim);
                        let asked = (0..100).map(|_| sim.capture_status(stream, &mut Vec::new()));
                        asked.filter(Result::is_err).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        failed
    };
    assert_eq!(failures(0), 1);
    assert_eq!(failures(250), 1);
    assert_eq!(failures(400), 0, "there were no more than 400");
    assert_eq!(failures(100), 2, "one is of the time before");
    assert_eq!(sim.calls(Call::CaptureStatus), 1600);
}
