//! What the C interface costs: the same calls on a Rust engine, and through the exported functions.
//!
//! An iteration is one allocation and its free, on the simulated driver.

use std::hint::black_box;
use std::ptr::null_mut;

use criterion::{criterion_group, criterion_main, Criterion};
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig, PoolId};
use regraph::settings::Programmatic;
use regraph_c::*;
use regraph_sim::{SimConfig, SimDriver};

const BYTES: u64 = 64 << 10;
const FINE: &str = "the simulated driver does not fail";

/// A journal would grow with every iteration. Without the checker `auto` would be `lag`; no launch here is
/// programmatic, so `deny` is safe.
const SETTINGS: &std::ffi::CStr = c"check:False,programmatic:deny";

fn rust(capture: bool) -> (Engine<SimDriver>, PoolId, StreamHandle) {
    // As SETTINGS has it.
    let config = Config::default().check(false).programmatic(Programmatic::Deny);
    let engine = Engine::new(SimDriver::new(SimConfig::default()), config);
    let pool = engine.create_pool(PoolConfig::default());
    let stream = engine.driver().create_stream().expect(FINE);
    if capture {
        engine.driver().begin_capture(stream, CaptureMode::ThreadLocal).expect(FINE);
        engine.begin_capture(pool, stream).expect(FINE);
    }
    (engine, pool, stream)
}

fn is_ok(error: regraph_error) {
    assert_eq!(error, regraph_error::REGRAPH_OK);
}

fn c(capture: bool) -> (*mut regraph_engine, regraph_pool, regraph_stream) {
    let (mut config, mut engine, mut stream, mut id) = (null_mut(), null_mut(), null_mut(), 0);
    let mut pool = regraph_pool { words: [0; 2] };
    // SAFETY: every pointer is to a variable above, or came from the library.
    unsafe {
        is_ok(regraph_config_create(&mut config));
        is_ok(regraph_config_set_settings(config, SETTINGS.as_ptr()));
        is_ok(regraph_engine_create_sim(0, config, &mut engine));
        regraph_config_destroy(config);
        is_ok(regraph_pool_create(engine, REGRAPH_NO_LIMIT, &mut pool));
        is_ok(regraph_sim_create_stream(engine, &mut stream));
        if capture {
            is_ok(regraph_sim_begin_capture(engine, stream));
            is_ok(regraph_begin_capture(engine, pool, stream, &mut id));
        }
    }
    (engine, pool, stream)
}

fn bench(criterion: &mut Criterion) {
    for (name, capture) in [("outside", false), ("capture", true)] {
        let mut group = criterion.benchmark_group(name);
        let (engine, pool, stream) = rust(capture);
        group.bench_function("rust", |bencher| {
            bencher.iter(|| {
                let block = engine.allocate(black_box(pool), BYTES, stream).expect(FINE);
                engine.free(black_box(block.id)).expect(FINE);
            });
        });
        let (engine, pool, stream) = c(capture);
        // As a program that links the library calls them: not inlined.
        let (allocate, free) = black_box((regraph_allocate as Allocate, regraph_free as Free));
        let id = regraph_block_id { words: [0; 3] };
        let mut block = regraph_block { id, address: 0, bytes: 0 };
        group.bench_function("c", |bencher| {
            bencher.iter(|| {
                // SAFETY: the engine lives, and there is room for a block.
                unsafe {
                    is_ok(allocate(engine, black_box(pool), BYTES, stream, &mut block));
                    is_ok(free(engine, black_box(block.id)));
                }
            });
        });
        group.finish();
        // SAFETY: nothing else uses it.
        unsafe { regraph_engine_destroy(engine) };
    }
}

type Allocate = unsafe extern "C" fn(
    *const regraph_engine,
    regraph_pool,
    u64,
    regraph_stream,
    *mut regraph_block,
) -> regraph_error;
type Free = unsafe extern "C" fn(*const regraph_engine, regraph_block_id) -> regraph_error;

criterion_group!(benches, bench);
criterion_main!(benches);
