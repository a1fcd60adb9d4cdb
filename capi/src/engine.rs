//! Engines.

use regraph_sim::{SimConfig, SimDriver};

use crate::arguments::{give, shared, take_back, Out};
use crate::config::regraph_config;
use crate::error::regraph_error;
use crate::failure::{guard, or_default, Failure, Fallible};
use crate::host::Host;

/// Makes a call on whichever engine it is.
macro_rules! on {
    ($engine:expr, $name:ident => $call:expr) => {
        match &$engine.device {
            $crate::engine::Device::Simulated($name) => $call,
            #[cfg(feature = "cuda")]
            $crate::engine::Device::Cuda($name) => $call,
        }
    };
}

/// An allocator on one device.
///
/// All calls on it may come from any thread, at once, but for regraph_engine_destroy(). Calls that
/// concern streams of a capture read its graph and must not run while another thread captures into
/// the same graph: CUDA's graph objects are not thread-safe. A stream belongs to the thread that named
/// it last (to regraph_allocate(), regraph_begin_capture() or regraph_mark_stream()): a thread that
/// is to capture on a stream which another one has used names it first.
///
/// A stream that blocks were allocated on outside captures lives until regraph_retire_stream() has
/// been told of its end, or until the engine is destroyed.
#[derive(Debug)]
pub struct regraph_engine {
    pub(crate) device: Device,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "an engine lies on the heap, once")]
pub(crate) enum Device {
    Simulated(Host<SimDriver>),
    #[cfg(feature = "cuda")]
    Cuda(Host<regraph::driver::cuda::CudaDriver>),
}

const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<regraph_engine>();
};

/// A new engine. A C program has no logger of Rust's, so messages go to standard error.
fn created(device: Device) -> *mut regraph_engine {
    regraph::log_to_stderr();
    give(regraph_engine { device })
}

impl regraph_engine {
    /// The engine that a pointer names.
    ///
    /// # Safety
    /// It is null, or an engine that is not destroyed during the call.
    #[inline]
    pub(crate) unsafe fn read<'a>(engine: *const Self) -> Fallible<&'a Self> {
        // SAFETY: as the caller promised.
        unsafe { shared(engine, "engine") }
    }

    /// The simulated driver behind it.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    pub(crate) unsafe fn simulated<'a>(engine: *const Self) -> Fallible<&'a SimDriver> {
        // SAFETY: as the caller promised.
        match &unsafe { Self::read(engine) }?.device {
            Device::Simulated(engine) => Ok(engine.driver()),
            #[cfg(feature = "cuda")]
            Device::Cuda(_) => Err(Failure::NotSimulated),
        }
    }
}

/// Creates an engine on a CUDA device and retains that device's primary context. libcuda is opened
/// here, not when the library is loaded. `config` is NULL for the default, and is copied. To be
/// destroyed with regraph_engine_destroy().
///
/// Threads: any. The calling thread's current context stays as it is, here and in every other call; a
/// thread that had none keeps the device's primary context.
///
/// Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER, for a device
/// that does not exist among others; REGRAPH_ERROR_NOT_SUPPORTED where the library was built without
/// CUDA; REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_engine_create_cuda(
    ordinal: u32,
    config: *const regraph_config,
    engine: *mut *mut regraph_engine,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (out, config) =
            unsafe { (Out::needed(engine, "engine")?, regraph_config::read(config)) };
        #[cfg(feature = "cuda")]
        {
            // SAFETY: handles are given to calls while what they name lives, and graphs run while what
            // they use does.
            let driver = unsafe { regraph::driver::cuda::CudaDriver::new(ordinal as usize) }?;
            let device = Device::Cuda(Host::new(driver, config.device(ordinal)));
            out.put(created(device));
            Ok(())
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (ordinal, config, out);
            Err(Failure::NoCuda)
        }
    })
}

/// Creates an engine on a simulated device with `total_bytes` of memory, 0 for 141 GiB, in pieces of
/// 2 MiB. Needs no GPU and no driver; the calls whose names begin with regraph_sim are its host side.
/// `config` is NULL for the default, and is copied. To be destroyed with regraph_engine_destroy().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_engine_create_sim(
    total_bytes: u64,
    config: *const regraph_config,
    engine: *mut *mut regraph_engine,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (out, config) =
            unsafe { (Out::needed(engine, "engine")?, regraph_config::read(config)) };
        let mut device = SimConfig::default();
        if total_bytes > 0 {
            device.total_bytes = total_bytes;
        }
        let device = Device::Simulated(Host::new(SimDriver::new(device), config));
        out.put(created(device));
        Ok(())
    })
}

/// Destroys an engine and gives back the memory of every pool that no live block, capture, graph or
/// running work uses; the rest is left to the driver. Blocks that were never freed are written to
/// standard error, unless the config says otherwise. Nothing for NULL.
///
/// Threads: any, while no other call on the engine runs, and none comes later.
#[no_mangle]
pub unsafe extern "C" fn regraph_engine_destroy(engine: *mut regraph_engine) {
    // SAFETY: the contract of all calls.
    or_default(|| unsafe { take_back(engine) });
}
