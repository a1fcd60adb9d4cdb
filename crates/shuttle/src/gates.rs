//! The simulated driver's answers without its lock, under random interleavings of threads:
//! `RUSTFLAGS="--cfg shuttle" cargo test -p regraph-shuttle`.

use std::sync::Arc;

use regraph::driver::{CaptureMode, CaptureStatus, Driver, ErrorKind, HostApi, StreamHandle};
use regraph_sim::{Call, SimConfig, SimDriver};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

const LEGACY: StreamHandle = StreamHandle::from_bits(0);

fn captures(sim: &SimDriver, stream: StreamHandle) -> bool {
    match sim.capture_status(stream, &mut Vec::new()) {
        Ok(CaptureStatus::None) => false,
        Ok(CaptureStatus::Active { .. }) => true,
        Err(error) if error.kind == ErrorKind::CaptureImplicit => true,
        other => panic!("{other:?}"),
    }
}

fn sim() -> Arc<SimDriver> {
    Arc::new(SimDriver::new(SimConfig::default()))
}

#[test]
fn an_answer_is_true_at_some_time_while_it_is_given() {
    let run = || {
        let sim = sim();
        let (a, b) = (sim.create_blocking_stream(), sim.create_stream().unwrap());
        // What has been done to the streams, and what has at least been begun.
        let (done, begun) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let asking = [a, b, LEGACY].map(|stream| {
            let (sim, done, begun) = (sim.clone(), done.clone(), begun.clone());
            let should = move |step| match step {
                0 | 3 => false,
                1 => stream != b,
                _ => true,
            };
            thread::spawn(move || {
                for _ in 0..3 {
                    let first = done.load(Ordering::SeqCst);
                    let is = captures(&sim, stream);
                    let last = begun.load(Ordering::SeqCst);
                    assert!((first..=last).any(|step| should(step) == is), "{stream:?} {is}");
                }
            })
        });
        let step = |number, act: &dyn Fn()| {
            begun.store(number, Ordering::SeqCst);
            act();
            done.store(number, Ordering::SeqCst);
        };
        step(1, &|| sim.begin_capture(a, CaptureMode::Relaxed).unwrap());
        step(2, &|| sim.wait(b, a).unwrap());
        step(3, &|| {
            sim.end_capture(a).unwrap();
        });
        for thread in asking {
            thread.join().unwrap();
        }
        assert_eq!(sim.calls(Call::CaptureStatus), 9);
    };
    shuttle::check_random(run, 5_000);
}

#[test]
fn a_failure_asked_for_hits_one_question_and_the_very_next() {
    let run = || {
        let sim = sim();
        let asking = [(); 2].map(|()| {
            let sim = sim.clone();
            thread::spawn(move || {
                let stream = sim.create_stream().unwrap();
                let asked = (0..3).map(|_| sim.capture_status(stream, &mut Vec::new()));
                asked.filter(Result::is_err).count()
            })
        });
        let stream = sim.create_stream().unwrap();
        sim.fail_nth(Call::CaptureStatus, 0, ErrorKind::NotSupported);
        // If it does not fail now, it already has elsewhere.
        let here = usize::from(sim.capture_status(stream, &mut Vec::new()).is_err());
        let elsewhere: usize = asking.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(here + elsewhere, 1);
        assert_eq!(sim.calls(Call::CaptureStatus), 7);
    };
    shuttle::check_random(run, 5_000);
}
