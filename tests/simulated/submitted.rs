//! Work that is submitted with its blocks, on streams of a capture and beside it.

use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::graphs::Submit;
use regraph::{Config, Engine, Error, Memory, Pool, PoolConfig};
use regraph_sim::{SimConfig, SimDriver};

const BYTES: u64 = 4 << 20;

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
                matches!(outside, Err(Error::NotInCapture { call: "allocate", stream }) if stream == b),
                "{outside:?}"
            );
            let fixed = capture.allocate_fixed(BYTES, b);
            assert!(matches!(fixed, Err(Error::NotInCapture { call: "allocate_fixed", .. })));
            // The pool serves streams outside the capture meanwhile.
            let eager = pool.allocate(BYTES, b)?;
            capture.submit(a, [], nothing)?;
            drop(eager);
            Ok::<_, Error>(())
        })
        .unwrap();
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
