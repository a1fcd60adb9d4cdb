//! Devices that tests run on, a simulated one and a GPU, tagged kernels for them, and recorded captures.
#![allow(dead_code, unused_macros, reason = "each test file uses a part")]
#![allow(clippy::disallowed_types, reason = "locks of one test")]

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use regraph::driver::{CaptureStatus, Driver, GraphHandle, StreamHandle};
use regraph::engine::Block;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};
use regraph_trace::{read, Trace};

/// Makes a test on the simulated driver and one on a GPU of a function of the driver.
macro_rules! twins {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn simulated() {
                super::$name(&crate::device::simulated());
            }

            #[cfg(feature = "cuda")]
            #[test]
            #[ignore = "needs an NVIDIA GPU"]
            fn on_a_gpu() {
                let gpu = crate::device::gpu::open();
                super::$name(&gpu.driver);
            }
        }
    )*};
}

/// A device to run the tests on.
pub trait Device: Program + 'static {
    /// Lets a stream's work complete, where that does not happen by itself.
    fn progress(&self, stream: StreamHandle);

    /// Chooses among the orders of work that are allowed, where the device does not.
    fn schedule(&self, seed: u64);
}

impl Device for SimDriver {
    fn progress(&self, stream: StreamHandle) {
        self.complete(stream).unwrap();
    }

    fn schedule(&self, seed: u64) {
        self.set_schedule_seed(seed);
    }
}

pub fn simulated() -> Arc<SimDriver> {
    Arc::new(SimDriver::new(SimConfig::default()))
}

#[cfg(feature = "cuda")]
pub mod gpu {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use regraph::driver::StreamHandle;
    use regraph_tagged::CudaProgram;

    /// One test at a time: a capture in the global mode forbids calls to all other threads, event
    /// tracking is a state of the whole context, and all tests share the device's free memory.
    static TURN: Mutex<()> = Mutex::new(());

    pub struct Gpu {
        pub driver: Arc<CudaProgram>,
        _turn: MutexGuard<'static, ()>,
    }

    pub fn turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn open() -> Gpu {
        let turn = turn();
        Gpu { driver: Arc::new(CudaProgram::new(0).unwrap()), _turn: turn }
    }

    impl super::Device for CudaProgram {
        fn progress(&self, _: StreamHandle) {}

        fn schedule(&self, _: u64) {}
    }
}

/// The graph that a stream captures.
pub fn graph_of(driver: &impl Driver, stream: StreamHandle) -> GraphHandle {
    match driver.capture_of(stream).unwrap() {
        CaptureStatus::Active { graph, .. } => graph,
        status => panic!("not capturing: {status:?}"),
    }
}

/// A recorded capture.
pub fn trace(name: &str) -> Trace {
    let file = File::open(format!("{}/tests/traces/{name}.jsonl", crate::ROOT)).unwrap();
    read(BufReader::new(file)).unwrap()
}

/// All of a block, with what it holds or is to hold.
pub fn tagged(block: Block, tag: u64) -> Tagged {
    Tagged { address: block.address, bytes: block.bytes, tag }
}

/// Launches a kernel that checks `inputs`, waits so many nanoseconds, checks them again and writes `outputs`.
pub fn launch<P: Program>(
    driver: &P,
    stream: StreamHandle,
    (inputs, outputs): (&[Tagged], &[Tagged]),
    delay: u32,
) {
    let work = Work { inputs, outputs, delay, trigger_early: false };
    driver.launch(stream, work, false).unwrap();
}
