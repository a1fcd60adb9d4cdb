//! Work that is submitted with its blocks, on streams of a capture and beside it.

use std::sync::Arc;

use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::graphs::{Capture, Submit};
use regraph::{Config, Engine, Error, Memory, Pool, PoolConfig, StreamRefusal};
use regraph_sim::{Call, SimConfig, SimDriver};

const BYTES: u64 = 4 << 20;
const LEGACY: StreamHandle = StreamHandle::from_bits(0);

fn pool() -> Pool<SimDriver> {
    let engine = Engine::new(SimDriver::new(SimConfig::default()), Config::default());
    Pool::new(&Arc::new(engine), PoolConfig::default())
}

fn stream(pool: &Pool<SimDriver>) -> StreamHandle {
    pool.engine().driver().create_stream().unwrap()
}

fn nothing() -> Result<(), Error> {
    Ok(())
}

#[test]
fn what_uses_a_block_is_recorded_with_its_work() {
    let pool = pool();
    let (a, b) = (stream(&pool), stream(&pool));
    let driver = pool.engine().driver();
    let capture = |record: bool| {
        pool.engine().capture(a, &pool, CaptureMode::Relaxed, |capture| {
            let block = capture.allocate(BYTES, a)?;
            capture.submit(a, [&block], nothing)?;
            driver.wait(b, a)?;
            let used: Vec<&Memory<_>> = if record { vec![&block] } else { Vec::new() };
            capture.submit(b, used, nothing)?;
            let address = block.address();
            drop(block);
            let before = capture.allocate(BYTES, a)?;
            capture.submit(a, [&before], nothing)?;
            driver.wait(a, b)?;
            let after = capture.allocate(BYTES, a)?;
            capture.submit(a, [&after], nothing)?;
            Ok::<_, Error>([before.address() == address, after.address() == address])
        })
    };
    // `b` may still use the block when `a` asks first, and has been joined when `a` asks again.
    assert_eq!(capture(true).unwrap().1, [false, true]);
    // Nothing of `b` is told, so the block goes to `a` at once.
    assert_eq!(capture(false).unwrap().1, [true, false]);
}

#[test]
fn a_use_that_was_not_recorded_is_found_by_its_address() {
    let engine = Engine::new(
        SimDriver::new(SimConfig::default()),
        Config::default().find_late_uses(true).refuse_late_uses(true),
    );
    let pool = Pool::new(&Arc::new(engine), PoolConfig::default());
    let (a, b) = (stream(&pool), stream(&pool));
    let driver = pool.engine().driver();
    let captured = pool.engine().capture(a, &pool, CaptureMode::Relaxed, |capture| {
        let block = capture.allocate(BYTES, a)?;
        capture.submit(a, [&block], nothing)?;
        driver.wait(b, a)?;
        // Launched around the library, so that it does not know that `b` uses the block.
        driver.submit(b, &[(block.address(), BYTES)], nothing)?;
        drop(block);
        driver.wait(a, b)?;
        Ok::<_, Error>(())
    });
    assert!(matches!(captured, Err(Error::LateUse(_))), "{captured:?}");
}

#[test]
fn a_capture_serves_its_own_streams() {
    let pool = pool();
    let (a, b) = (stream(&pool), stream(&pool));
    pool.engine()
        .capture(a, &pool, CaptureMode::Relaxed, |capture| {
            let outside = capture.allocate(BYTES, b);
            assert!(
                matches!(outside, Err(Error::Stream { call: "allocate", stream, why: StreamRefusal::NotInCapture }) if stream == b),
                "{outside:?}"
            );
            let fixed = capture.allocate_fixed(BYTES, b);
            assert!(matches!(fixed, Err(Error::Stream { call: "allocate_fixed", why: StreamRefusal::NotInCapture, .. })));
            // The pool serves streams outside the capture meanwhile.
            let eager = pool.allocate(BYTES, b)?;
            capture.submit(a, [], nothing)?;
            drop(eager);
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn a_block_of_a_capture_takes_one_question() {
    let pool = pool();
    let (a, b) = (stream(&pool), stream(&pool));
    let driver = pool.engine().driver();
    pool.engine()
        .capture(a, &pool, CaptureMode::Relaxed, |capture| {
            capture.submit(a, [], nothing)?;
            driver.wait(b, a)?;
            for (stream, fixed) in [(a, false), (a, true), (b, false), (b, true)] {
                for again in [false, true] {
                    let (asked, all) = (driver.calls(Call::CaptureStatus), driver.total_calls());
                    let block = match fixed {
                        false => capture.allocate(BYTES, stream)?,
                        true => capture.allocate_fixed(BYTES, stream)?,
                    };
                    assert_eq!(driver.calls(Call::CaptureStatus) - asked, 1, "{stream:?} {fixed}");
                    // The second time the memory is there, and no node is new.
                    if again && !fixed {
                        assert_eq!(driver.total_calls() - all, 1, "{stream:?}");
                    }
                    drop(block);
                }
            }
            driver.wait(a, b)?;
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn a_capture_refuses_by_what_the_driver_says_of_the_stream() {
    let pool = pool();
    let (a, b) = (stream(&pool), stream(&pool));
    let driver = pool.engine().driver();
    let blocking = driver.create_blocking_stream();
    let both = |capture: &Capture<SimDriver>, stream| {
        [capture.allocate(BYTES, stream), capture.allocate_fixed(BYTES, stream)]
            .map(|asked| asked.map(drop).unwrap_err())
    };
    let capture = Capture::begin(&pool, a, CaptureMode::Relaxed).unwrap();
    let other = Capture::begin(&pool, blocking, CaptureMode::Relaxed).unwrap();
    // A stream of another capture, and the legacy stream, which cannot be asked beside a blocking capture.
    let [shared, fixed] = both(&capture, blocking);
    assert!(
        matches!(shared, Error::Stream { call: "allocate", stream, why: StreamRefusal::NotInCapture } if stream == blocking)
    );
    assert!(
        matches!(fixed, Error::Stream { call: "allocate_fixed", stream, why: StreamRefusal::NotInCapture } if stream == blocking)
    );
    for refused in both(&capture, LEGACY) {
        assert!(
            matches!(&refused, Error::Driver(error) if error.kind == ErrorKind::CaptureImplicit),
            "{refused:?}"
        );
    }
    // What the driver refuses to tell.
    driver.fail_nth(Call::CaptureStatus, 0, ErrorKind::NotPermitted);
    let refused = capture.allocate(BYTES, a).map(drop).unwrap_err();
    assert!(
        matches!(&refused, Error::Driver(error) if error.kind == ErrorKind::NotPermitted),
        "{refused:?}"
    );
    // The capture goes on, until it is ruined. That of another stream is told so too.
    drop(capture.allocate(BYTES, a).unwrap());
    driver.invalidate(blocking).unwrap();
    for (capture, stream) in [(&capture, blocking), (&other, blocking)] {
        for refused in both(capture, stream) {
            assert!(
                matches!(refused, Error::CaptureInvalidated { stream, .. } if stream == blocking),
                "{refused:?}"
            );
        }
    }
    drop(other);
    driver.wait(b, a).unwrap();
    drop(capture.allocate(BYTES, b).unwrap());
    driver.wait(a, b).unwrap();
    capture.finish().unwrap();
}

#[test]
fn a_graph_prints_a_few_lines() {
    let pool = pool();
    let a = stream(&pool);
    let (graph, ()) = pool
        .engine()
        .capture(a, &pool, CaptureMode::Relaxed, |capture| {
            for _ in 0..1000 {
                let block = capture.allocate(BYTES, a)?;
                capture.submit(a, [&block], nothing)?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    let text = format!("{graph:?}");
    assert!(text.len() < 1000, "{text}");
}
