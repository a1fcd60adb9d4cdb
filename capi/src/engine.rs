//! Engines.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use regraph_sim::{SimConfig, SimDriver};

use crate::arguments::{give, shared, take_back, Out};
use crate::config::regraph_config;
use crate::error::regraph_error;
use crate::failure::{or_default, Failure, Fallible};
use crate::host::Host;

/// Makes a call on whichever engine it is.
macro_rules! on {
    ($engine:expr, $name:ident => $call:expr) => {
        match $engine {
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
/// thread names a stream that another thread has used before it captures on it. Where other threads
/// use the engine meanwhile, it says so before its first capture (regraph_may_capture()).
///
/// A stream that any call has named must live until regraph_retire_stream() has succeeded, or until the engine is
/// destroyed.
#[derive(Debug)]
pub struct regraph_engine {
    /// Null once the engine was destroyed.
    device: AtomicPtr<Device>,
    /// Of an engine that was destroyed: the one that was destroyed before it.
    before: AtomicPtr<regraph_engine>,
}

/// The engine that was destroyed last. Of each there stay these two words, so that calls with a stale pointer find that it
/// was destroyed.
static DESTROYED: AtomicPtr<regraph_engine> = AtomicPtr::new(null_mut());

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "an engine lies on the heap, once")]
pub(crate) enum Device {
    Simulated(Host<SimDriver>),
    #[cfg(feature = "cuda")]
    Cuda(Host<regraph::driver::cuda::CudaDriver>),
}

const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Device>();
};

fn created(device: impl FnOnce() -> Device) -> *mut regraph_engine {
    // First: the engine tells that it begins.
    crate::log::start();
    let device = AtomicPtr::new(give(device()));
    give(regraph_engine { device, before: AtomicPtr::new(null_mut()) })
}

impl regraph_engine {
    /// The engine that a pointer names.
    ///
    /// # Safety
    /// It is null, or an engine that is not destroyed during the call.
    #[inline]
    pub(crate) unsafe fn read<'a>(engine: *const Self) -> Fallible<&'a Device> {
        // SAFETY: the words of an engine stay, and it is not destroyed meanwhile, as the caller promised.
        let device = unsafe { shared(engine, "engine")?.device.load(Ordering::Acquire).as_ref() };
        device.ok_or(Failure::Destroyed)
    }

    /// Destroys an engine, once.
    ///
    /// # Safety
    /// It is null, or an engine that no other call uses.
    unsafe fn destroy(engine: *mut Self) {
        // SAFETY: the words of an engine stay.
        let Some(words) = (unsafe { engine.as_ref() }) else { return };
        let device = words.device.swap(null_mut(), Ordering::AcqRel);
        if device.is_null() {
            return;
        }
        // SAFETY: it came from `give`, and no call uses it, as the caller promised.
        unsafe { take_back(device) };
        // Where the program's leaks are looked for, what stays is still named.
        let put = |before: *mut Self| {
            words.before.store(before, Ordering::Relaxed);
            Some(engine)
        };
        let _ = DESTROYED.fetch_update(Ordering::AcqRel, Ordering::Acquire, put);
    }

    /// Its simulated driver.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    pub(crate) unsafe fn simulated<'a>(engine: *const Self) -> Fallible<&'a SimDriver> {
        // SAFETY: as the caller promised.
        match unsafe { Self::read(engine) }? {
            Device::Simulated(engine) => Ok(engine.driver()),
            #[cfg(feature = "cuda")]
            Device::Cuda(_) => Err(Failure::NotSimulated),
        }
    }
}

/// Creates an engine on a CUDA device and retains that device's primary context. libcuda is opened here, not when the
/// library is loaded. `config` is copied; NULL means the default. To be destroyed with regraph_engine_destroy().
///
/// Threads: any. No call changes the calling thread's current context, but that a thread without one
/// has the device's primary context after this call.
///
/// Errors: REGRAPH_ERROR_NO_DRIVER; REGRAPH_ERROR_DRIVER_TOO_OLD; REGRAPH_ERROR_DRIVER, for a device that does not
/// exist among others; REGRAPH_ERROR_NOT_SUPPORTED where the library was built without CUDA; REGRAPH_ERROR_NULL.
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
            out.put(created(|| Device::Cuda(Host::new(driver, config))));
            Ok(())
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (ordinal, config, out);
            Err(Failure::NoCuda)
        }
    })
}

/// Creates an engine on a simulated device with `total_bytes` of memory, 0 for 141 GiB and 128 TiB at most, and a
/// granularity of 2 MiB. Needs no GPU and no driver; the calls whose names begin with regraph_sim stand for the CUDA
/// driver's. `config` is copied; NULL means the default. To be destroyed with regraph_engine_destroy().
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
        out.put(created(|| Device::Simulated(Host::new(SimDriver::new(device), config))));
        Ok(())
    })
}

/// Destroys an engine, after a wait for the graphs that the library instantiated, which are
/// destroyed. The memory of pools that a live block, a capture, another graph or running work uses
/// is not given back before the process ends. A message names blocks that were never freed
/// (regraph_set_log_callback()), unless the config says otherwise. Does nothing for NULL. Later calls on the engine
/// fail with REGRAPH_ERROR_DESTROYED, for which two words of it stay; this call does nothing then.
///
/// Threads: any, while no other call on the engine runs.
#[no_mangle]
pub unsafe extern "C" fn regraph_engine_destroy(engine: *mut regraph_engine) {
    // SAFETY: the contract of all calls.
    or_default(|| unsafe { regraph_engine::destroy(engine) })
}
