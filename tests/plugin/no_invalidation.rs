//! No call of the plug-in, by any thread, invalidates a capture of any mode, also where a driver call
//! fails meanwhile: the capture then ends, and the next one works.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;

use super::host::{self, filter};

use crate::common::deref;
use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Driver, ErrorKind, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{Config, HistoryOptions};
use regraph::settings::PlanChoice;
use regraph::settings::Settings;
use regraph_plugin::{Filter, Plugin, PoolKey};
use regraph_sim::{SimConfig, SimDriver};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 512 * MIB;
const LEGACY: StreamHandle = StreamHandle::from_bits(0);
/// The pool of the capture that must stay sound, of another thread's, and one that is released.
const OWN: PoolKey = (1, 0);
const OTHER: PoolKey = (2, 0);
const IDLE: PoolKey = (3, 0);

/// What a run differs in.
#[derive(Clone, Copy, Debug)]
struct Variant {
    mode: CaptureMode,
    exact: bool,
    mapped: bool,
    /// Whether the capturing stream is a blocking one, as streams from elsewhere are.
    blocking: bool,
}

fn variants() -> Vec<Variant> {
    let mut all = Vec::new();
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        for (exact, mapped) in [(false, true), (true, true), (false, false)] {
            for blocking in [false, true] {
                all.push(Variant { mode, exact, mapped, blocking });
            }
        }
    }
    all
}

/// A program in PyTorch's manner in the middle of a capture, with something of every kind waiting.
struct Host {
    host: host::Host,
    variant: Variant,
    /// Captures `OWN`.
    own: StreamHandle,
    /// Captures nothing.
    eager: StreamHandle,
    second: StreamHandle,
    /// Live blocks: of the capture, of eager work, of eager work that two streams use.
    blocks: [u64; 3],
    capture: CaptureId,
}

deref!(Host.host as host::Host);

impl Host {
    fn new(variant: Variant) -> Self {
        let support = if variant.mapped {
            MemorySupport::Mapped { granularity: 2 * MIB }
        } else {
            MemorySupport::Allocated
        };
        let config = SimConfig { total_bytes: CAPACITY, support };
        let driver = Arc::new(SimDriver::new(config));
        let mut settings = Settings::default();
        if variant.exact {
            settings.plan = PlanChoice::Exact;
        }
        let config = Config::default().settings(settings).check(true).report_leaks(false);
        let shared = Arc::clone(&driver);
        let plugin = Plugin::new(config, move |_| Ok(Arc::clone(&shared)));
        let own = if variant.blocking {
            driver.create_blocking_stream()
        } else {
            driver.create_stream().unwrap()
        };
        let (eager, second) = (driver.create_stream().unwrap(), driver.create_stream().unwrap());
        let mut host = Self {
            host: host::Host { driver, plugin },
            variant,
            own,
            eager,
            second,
            blocks: [0; 3],
            capture: CaptureId(0),
        };
        host.prepare();
        host
    }

    fn begin(&self, stream: StreamHandle, key: PoolKey) -> CaptureId {
        let route = self.begin_in(self.variant.mode, stream, key);
        self.plugin.capture_begun(0, stream, route, true).unwrap().unwrap()
    }

    fn prepare(&mut self) {
        // A pool whose graph is gone: its memory may go once the device is idle.
        self.begin(self.own, IDLE);
        let block = self.allocate(self.own);
        self.launch(self.own);
        self.plugin.free(block, 0).unwrap();
        self.host.finish(self.own, IDLE);
        self.plugin.release_pool(0, IDLE).unwrap();
        // Eager blocks: one that two streams use is freed, and waits for both.
        for _ in 0..2 {
            let shared = self.allocate(self.eager);
            self.launch(self.eager);
            self.plugin.record_stream(shared, self.second).unwrap();
            self.launch(self.second);
            self.blocks[2] = shared;
            if self.blocks[1] == 0 {
                self.plugin.free(shared, 0).unwrap();
                self.blocks[1] = self.allocate(LEGACY);
            }
        }
        // What the capture's stream did before.
        let before = self.allocate(self.own);
        self.launch(self.own);
        self.plugin.record_stream(before, self.eager).unwrap();
        self.capture = self.begin(self.own, OWN);
        self.plugin.free(before, 0).unwrap();
        let freed = self.allocate(self.own);
        self.launch(self.own);
        self.blocks[0] = self.allocate(self.own);
        self.plugin.free(freed, 0).unwrap();
    }

    fn is_sound(&self) -> bool {
        self.capture_of(self.own) == Some(self.capture)
    }

    /// The capture ends as if nothing had been, and so does the next one.
    fn finish(&self) {
        self.driver.forget_failures();
        // A failure may have made the engine give the capture up; the host is told at its end, and
        // the driver's capture is as good as ever.
        let judged = self.plugin.capture_ending(0, self.own, |_, _| ());
        self.driver.end_capture(self.own).unwrap();
        if judged.is_ok() {
            self.plugin.end_pool(0, OWN).unwrap();
            self.plugin.capture_ended(0, self.own).unwrap();
        } else {
            self.plugin.capture_failed(0, self.own).unwrap();
        }
        self.driver.complete_all();
        let again = self.driver.create_stream().unwrap();
        let pool = (9, 0);
        self.begin(again, pool);
        let block = self.allocate(again);
        self.launch(again);
        self.plugin.free(block, 0).unwrap();
        self.host.finish(again, pool);
    }
}

type Step = fn(&Host);

/// Every call of the plug-in. What it answers does not matter here.
fn steps() -> BTreeMap<&'static str, Step> {
    BTreeMap::from([
        ("allocate in the capture", (|h| drop(h.plugin.allocate(40 * MIB, 0, h.own))) as Step),
        ("allocate little in the capture", |h| drop(h.plugin.allocate(100, 0, h.own))),
        ("allocate too much in the capture", |h| drop(h.plugin.allocate(CAPACITY, 0, h.own))),
        ("allocate eagerly", |h| drop(h.plugin.allocate(40 * MIB, 0, h.eager))),
        ("allocate on the legacy stream", |h| drop(h.plugin.allocate(4 * MIB, 0, LEGACY))),
        ("allocate what only waiting frees", |h| {
            drop(h.plugin.allocate(CAPACITY - 64 * MIB, 0, h.eager));
        }),
        ("allocate too much eagerly", |h| drop(h.plugin.allocate(CAPACITY, 0, h.eager))),
        ("free of the capture", |h| drop(h.plugin.free(h.blocks[0], 0))),
        ("free of eager work", |h| drop(h.plugin.free(h.blocks[1], 0))),
        ("free of two streams", |h| drop(h.plugin.free(h.blocks[2], 0))),
        ("free of nothing", |h| drop(h.plugin.free(77, 0))),
        ("record_stream in the capture", |h| {
            drop(h.plugin.record_stream(h.blocks[0], h.eager));
        }),
        ("record_stream of eager work", |h| drop(h.plugin.record_stream(h.blocks[1], h.own))),
        ("record_use in the capture", |h| drop(h.plugin.record_use(h.blocks[0], h.own))),
        ("record_use of eager work", |h| drop(h.plugin.record_use(h.blocks[2], h.second))),
        ("empty_cache", |h| drop(h.plugin.empty_cache())),
        ("set_memory_fraction", |h| drop(h.plugin.engine(0).unwrap().set_memory_fraction(0.9))),
        ("another device", |h| drop(h.plugin.allocate(MIB, 1, h.second))),
        ("figures", |h| {
            drop(h.plugin.statistics(0));
            drop(h.plugin.pools(0));
            drop(h.plugin.captures(0));
        }),
        ("explain", |h| {
            drop(h.plugin.explain(0, h.own));
            drop(h.plugin.explain(0, h.eager));
            drop(h.plugin.explain(0, LEGACY));
        }),
        ("snapshot", |h| drop(h.plugin.snapshot())),
        ("keep_history", |h| drop(h.plugin.keep_history(HistoryOptions::latest(10)))),
        ("keep_journals", |h| drop(h.plugin.keep_journals(true))),
        ("memory without a stream", |h| {
            if let Ok(block) = h.plugin.allocate_unordered(4 * MIB, 0) {
                drop(h.plugin.free(block, 0));
            }
            drop(h.plugin.allocate_on((), 4 * MIB, 0, StreamHandle::from_bits(2)));
        }),
        ("free_on of the capture", |h| drop(h.plugin.free_on((), h.blocks[0], Some(h.own)))),
        ("free_on of eager work", |h| drop(h.plugin.free_on((), h.blocks[1], Some(h.own)))),
        ("another capture, announced by its stream", |h| {
            let (other, key) = (h.driver.create_stream().unwrap(), h.plugin.name_pool());
            h.driver.begin_capture(other, h.variant.mode).unwrap();
            let started = h.plugin.capture_started(0, other, key, false);
            drop(h.plugin.allocate(4 * MIB, 0, other));
            let judged = h.plugin.capture_ending(0, other, |_, _| ());
            h.driver.end_capture(other).unwrap();
            match (started, judged) {
                (Ok(_), Ok(())) => drop(h.plugin.capture_finished(0, other, key)),
                _ => drop(h.plugin.capture_failed(0, other)),
            }
            drop(h.plugin.release_pool(0, key));
            drop(h.plugin.empty_cache());
        }),
        ("a capture that does not begin", |h| {
            let filter: Filter = Arc::new(|_| false);
            if let Ok(route) = h.plugin.begin_pool(0, OTHER, filter) {
                drop(h.plugin.capture_begun(0, h.second, route, true));
                drop(h.plugin.capture_failed(0, h.second));
                drop(h.plugin.begin_failed(0, route));
            }
        }),
        ("a second capture", |h| {
            let other = h.driver.create_stream().unwrap();
            let (filter, id) = filter(&h.driver);
            if let Ok(route) = h.plugin.begin_pool(0, OTHER, filter) {
                h.driver.begin_capture(other, h.variant.mode).unwrap();
                if let Ok(CaptureStatus::Active { capture, .. }) = h.driver.capture_of(other) {
                    id.store(capture.0 as usize, Ordering::Relaxed);
                }
                drop(h.plugin.capture_begun(0, other, route, true));
                if let Ok(block) = h.plugin.allocate(4 * MIB, 0, other) {
                    h.launch(other);
                    drop(h.plugin.free(block, 0));
                }
                let judged = h.plugin.capture_ending(0, other, |_, _| ());
                h.driver.end_capture(other).unwrap();
                drop(h.plugin.end_pool(0, OTHER));
                drop(match judged {
                    Ok(()) => h.plugin.capture_ended(0, other),
                    Err(_) => h.plugin.capture_failed(0, other),
                });
                drop(h.plugin.release_pool(0, OTHER));
                drop(h.plugin.empty_cache());
            }
        }),
        ("ends elsewhere", |h| {
            drop(h.plugin.capture_ending(0, h.eager, |_, _| ()));
            drop(h.plugin.capture_ended(0, h.eager));
            drop(h.plugin.capture_failed(0, h.eager));
            drop(h.plugin.end_pool(0, IDLE));
            drop(h.plugin.capture_dropped(0, h.own, CaptureId(12345)));
        }),
        ("the graph object is dropped", |h| {
            drop(h.plugin.capture_dropped(0, h.own, h.capture));
            drop(h.plugin.empty_cache());
            drop(h.plugin.allocate(CAPACITY - 64 * MIB, 0, h.eager));
        }),
        ("the end is judged", |h| drop(h.plugin.capture_ending(0, h.own, |_, _| ()))),
        ("the end is judged, and work goes on", |h| {
            drop(h.plugin.capture_ending(0, h.own, |_, _| ()));
            drop(h.plugin.empty_cache());
            drop(h.plugin.allocate(4 * MIB, 0, h.eager));
            drop(h.plugin.allocate(CAPACITY - 64 * MIB, 0, h.eager));
        }),
        ("regions", |h| {
            let entered = h.plugin.enter_region(Some("weights"));
            drop(h.plugin.allocate(4 * MIB, 0, h.eager));
            drop(h.plugin.leave_region(entered));
            drop(h.plugin.sleep(None));
            drop(h.plugin.try_sleep(None));
            drop(h.plugin.wake(None));
            drop((h.plugin.regions(0), h.plugin.free_region_host()));
        }),
        ("regions when the end is judged", |h| {
            let entered = h.plugin.enter_region(Some("weights"));
            drop(h.plugin.allocate(4 * MIB, 0, h.eager));
            drop(h.plugin.leave_region(entered));
            drop(h.plugin.capture_ending(0, h.own, |_, _| ()));
            drop(h.plugin.sleep(None));
            drop(h.plugin.try_sleep(None));
        }),
        ("compaction", |h| {
            drop(h.plugin.compact(0, None));
            drop(h.plugin.compact(0, Some(IDLE)));
            drop(h.plugin.excess_bytes(0, None));
        }),
        ("learning", |h| {
            let plans = h.plugin.engine(0).unwrap().plans();
            drop(plans.learn());
            drop(h.plugin.allocate(4 * MIB, 0, h.eager));
            drop((plans.forget_run(), plans.learned(), plans.forget_learned()));
        }),
        ("the capture fails", |h| drop(h.plugin.capture_failed(0, h.own))),
    ])
}

/// Runs a step in the capturing thread or in another.
fn run(host: &Host, step: Step, elsewhere: bool) {
    if elsewhere {
        thread::scope(|scope| {
            scope.spawn(|| step(host)).join().unwrap();
        });
    } else {
        step(host);
    }
}

#[test]
fn no_call_of_the_plug_in_invalidates_a_capture() {
    for variant in variants() {
        for (name, step) in steps() {
            for elsewhere in [false, true] {
                let host = Host::new(variant);
                run(&host, step, elsewhere);
                assert!(host.is_sound(), "{name}, elsewhere {elsewhere}, {variant:?}");
                if name != "the capture fails" {
                    host.finish();
                }
            }
        }
    }
}

#[test]
fn no_failure_in_a_call_of_the_plug_in_invalidates_a_capture() {
    let variants = variants();
    let some = variants.iter().filter(|it| it.mode == CaptureMode::Global);
    for &variant in some {
        for (name, step) in steps() {
            // Out of memory is what calls expect; any other failure they must survive too.
            for kind in [ErrorKind::OutOfMemory, ErrorKind::NotSupported] {
                let mut n = 0;
                loop {
                    let host = Host::new(variant);
                    let before = host.driver.total_calls();
                    host.driver.fail_any_nth(n, kind.clone());
                    run(&host, step, false);
                    let made = host.driver.total_calls() - before;
                    host.driver.forget_failures();
                    assert!(host.is_sound(), "{name}, call {n} fails with {kind:?}, {variant:?}");
                    n += 1;
                    if made < n {
                        break;
                    }
                }
            }
        }
    }
}
