//! Engines.

use regraph_sim::{SimConfig, SimDriver};

use crate::arguments::{give, shared, Out};
use crate::config::regraph_config;
use crate::error::regraph_error;
use crate::failure::{Failure, Fallible};
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
/// All calls on it may come from several threads at once, except regraph_engine_destroy(). Calls
/// that concern streams of a capture read its graph and must not run while another thread captures
/// into the same graph: CUDA's graph objects are not thread-safe. A stream belongs to the thread
/// that named it last (in regraph_allocate(), regraph_begin_capture() or regraph_mark_stream()): a
/// thread names a stream that another thread has used before it captures on it.
///
/// A stream that blocks were allocated for outside captures must live until regraph_retire_stream()
/// has succeeded, or until the engine is destroyed.
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

fn created(device: Device) -> *mut regraph_engine {
    crate::log::start();
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

    /// Its simulated driver.
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
/// here, not when the library is loaded. `config` is copied; NULL means the default. To be
/// destroyed with regraph_engine_destroy().
///
/// Threads: any. No call changes the calling thread's current context; a thread without one gets
/// the device's primary context.
///
/// Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER, for a
/// device that does not exist among others; REGRAPH_ERROR_NOT_SUPPORTED where the library was built
/// without CUDA; REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_engine_create_cuda(
    ordinal: u32,
    config: *const regraph_config,
    engine: *mut *mut regraph_engine,
) -> regraph_error {
    fallible!({
        let (out, config) = (Out::needed(engine, "engine")?, regraph_config::read(config));
        #[cfg(feature = "cuda")]
        {
            // By the contract CUDA's handles name live objects, and graphs run while the memory that they use lives.
            let driver = regraph::driver::cuda::CudaDriver::new(ordinal)?;
            out.put(created(Device::Cuda(Host::new(driver, config))));
            Ok(())
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (ordinal, config, out);
            Err(Failure::NoCuda)
        }
    })
}

/// Creates an engine on a simulated device with `total_bytes` of memory, 0 for 141 GiB, and a
/// granularity of 2 MiB. Needs no GPU and no driver; the calls whose names begin with regraph_sim
/// stand for the CUDA driver's. `config` is copied; NULL means the default. To be destroyed with
/// regraph_engine_destroy().
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
    fallible!({
        let (out, config) = (Out::needed(engine, "engine")?, regraph_config::read(config));
        let mut device = SimConfig::default();
        if total_bytes > 0 {
            device.total_bytes = total_bytes;
        }
        out.put(created(Device::Simulated(Host::new(SimDriver::new(device), config))));
        Ok(())
    })
}

/// Destroys an engine, after a wait for the graphs that the library instantiated, which are
/// destroyed. The memory of pools that a live block, a capture, another graph or running work uses
/// is not given back before the process ends. A message names blocks that were never freed
/// (regraph_set_log_callback()), unless the config says otherwise. Does nothing for NULL.
///
/// Threads: any, while no other call on the engine runs, and none comes later.
#[no_mangle]
pub unsafe extern "C" fn regraph_engine_destroy(engine: *mut regraph_engine) {
    destroy!(engine)
}
