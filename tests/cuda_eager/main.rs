//! The engine outside captures, and beside them, on a real GPU.
//!
//! ```text
//! cargo test --release --test cuda_eager -- --ignored
//! ```
//!
//! Every test has a twin on the simulated driver, where work is run in a random order that is free
//! in every way in which streams leave it free; that one runs without `--ignored`.
//!
//! * [`random`]: tagged kernels of random programs, eager work and captures at once;
//! * [`giving_back`]: memory that goes back to the device under a running kernel;
//! * [`limits`]: limits as the device sees them;
//! * [`captures`]: calls of the engine beside captures of other threads and of its own;
//! * [`handles`]: streams that come and go while their work runs;
//! * [`suspend`]: pools that give their memory back while their graphs stay.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use regraph::driver::sim::{SimConfig, SimDriver};
use regraph::driver::{Program, StreamHandle, Tagged, Work};
use regraph::engine::Block;

/// Makes a test on the simulated driver and one on a GPU of a function of the driver.
macro_rules! twins {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn simulated() {
                super::$name(&crate::simulated());
            }

            #[cfg(feature = "cuda")]
            #[test]
            #[ignore = "needs an NVIDIA GPU"]
            fn on_a_gpu() {
                let gpu = crate::gpu::open();
                super::$name(&gpu.driver);
            }
        }
    )*};
}

mod captures;
mod giving_back;
mod handles;
mod host;
mod limits;
mod random;
mod suspend;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A device to run the tests on.
pub trait Device: Program {
    /// Lets a stream's work complete, where that does not happen by itself.
    fn progress(&self, stream: StreamHandle);

    /// Chooses among the orders of work that are allowed, where somebody has to.
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

fn simulated() -> Arc<SimDriver> {
    Arc::new(SimDriver::new(SimConfig::default()))
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use regraph::driver::cuda::CudaDriver;
    use regraph::driver::StreamHandle;

    /// One test at a time: a capture in the global mode forbids calls to all other threads, and
    /// what is free on the device is everybody's.
    static TURN: Mutex<()> = Mutex::new(());

    pub struct Gpu {
        pub driver: Arc<CudaDriver>,
        _turn: MutexGuard<'static, ()>,
    }

    pub fn open() -> Gpu {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Gpu { driver: Arc::new(CudaDriver::new(0).unwrap()), _turn: turn }
    }

    impl super::Device for CudaDriver {
        fn progress(&self, _: StreamHandle) {}

        fn schedule(&self, _: u64) {}
    }
}

/// All of a block, with what it holds or is to hold.
pub fn tagged(block: Block, tag: u64) -> Tagged {
    Tagged { address: block.address, bytes: block.bytes, tag }
}

/// Launches a kernel that checks `inputs`, waits so many nanoseconds, checks them again and writes
/// `outputs`.
pub fn launch<P: Program>(
    driver: &P,
    stream: StreamHandle,
    (inputs, outputs): (&[Tagged], &[Tagged]),
    delay: u32,
) {
    let work = Work { inputs, outputs, delay, trigger_early: false };
    driver.launch(stream, work, false).unwrap();
}
