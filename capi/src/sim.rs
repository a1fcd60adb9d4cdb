//! The simulated device's counterparts of the CUDA driver calls that a host makes.

use regraph::driver::{CaptureMode, CaptureStatus, Driver, ErrorKind, HostApi};
use regraph_sim::Launch;

use crate::arguments::put_if_wanted;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::handles::{
    executable as launchable, graph as handle, raw_executable, raw_graph, raw_stream,
    regraph_capture_id, regraph_executable, regraph_graph, regraph_stream, stream as named,
};

/// Creates a stream of the simulated device (cuStreamCreate).
///
/// Threads: any, as for every regraph_sim call.
///
/// Errors of every regraph_sim call: REGRAPH_ERROR_NOT_SIMULATED for an engine on a CUDA device; REGRAPH_ERROR_NULL;
/// REGRAPH_ERROR_DRIVER for calls that the CUDA driver would refuse, with its code in regraph_last_driver_code().
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_create_stream(
    engine: *const regraph_engine,
    stream: *mut regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, stream = raw_stream(driver.create_stream()?))
}

/// Destroys a simulated stream that is not capturing (cuStreamDestroy). Retire it first.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_destroy_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, driver.destroy_stream(named(stream))?)
}

/// Launches a kernel that does nothing on a simulated stream, capturing or not (cuLaunchKernelEx);
/// with `programmatic` it may start before the stream's last kernel has completed.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_launch(
    engine: *const regraph_engine,
    stream: regraph_stream,
    programmatic: bool,
) -> regraph_error {
    simulate!(
        engine as driver,
        driver.launch_kernel(named(stream), Launch { kernel: None, programmatic })?
    )
}

/// Makes later work on `stream` wait for the work that is on `on` now (cuEventRecord and
/// cuStreamWaitEvent). If `on` captures, `stream` joins the capture.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_wait(
    engine: *const regraph_engine,
    stream: regraph_stream,
    on: regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, driver.wait(named(stream), named(on))?)
}

/// Begins a capture on a simulated stream (cuStreamBeginCapture, thread-local mode).
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_begin_capture(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, driver.begin_capture(named(stream), CaptureMode::ThreadLocal)?)
}

/// The capture that a simulated stream is in, and the graph under capture (cuStreamGetCaptureInfo):
/// 0 and NULL if the stream does not capture. Either pointer may be NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_capture_info(
    engine: *const regraph_engine,
    stream: regraph_stream,
    capture: *mut regraph_capture_id,
    graph: *mut regraph_graph,
) -> regraph_error {
    simulate!(engine as driver, {
        let (id, under_capture) = match driver.capture_of(named(stream))? {
            CaptureStatus::Active { capture, graph } => (capture.0, raw_graph(graph)),
            CaptureStatus::None | CaptureStatus::Invalidated => (0, std::ptr::null_mut()),
        };
        put_if_wanted(capture, id);
        put_if_wanted(graph, under_capture)
    })
}

/// Invalidates the capture that a simulated stream is in, as an invalid operation does.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_invalidate_capture(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, driver.invalidate(named(stream))?)
}

/// Ends the capture that began on a simulated stream (cuStreamEndCapture). Every stream that joined it has been waited
/// for, directly or not, by this one. `graph` is to be destroyed with regraph_sim_destroy_graph().
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_end_capture(
    engine: *const regraph_engine,
    stream: regraph_stream,
    graph: *mut regraph_graph,
) -> regraph_error {
    simulate!(engine as driver, graph = raw_graph(driver.end_capture(named(stream))?))
}

/// Destroys a simulated graph (cuGraphDestroy).
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_destroy_graph(
    engine: *const regraph_engine,
    graph: regraph_graph,
) -> regraph_error {
    simulate!(engine as driver, driver.destroy_graph(handle(graph)?)?)
}

/// Makes a simulated graph ready to launch (cuGraphInstantiate). `executable` is to be destroyed
/// with regraph_sim_destroy_executable().
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_instantiate(
    engine: *const regraph_engine,
    graph: regraph_graph,
    executable: *mut regraph_executable,
) -> regraph_error {
    simulate!(engine as driver, executable = raw_executable(driver.instantiate(handle(graph)?)?))
}

/// Launches an executable graph on a simulated stream that does not capture (cuGraphLaunch), in no
/// order among the graphs of its pools: regraph_launch_executable() keeps that order.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_launch_graph(
    engine: *const regraph_engine,
    executable: regraph_executable,
    stream: regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, driver.replay(launchable(executable)?, named(stream))?)
}

/// Destroys a simulated executable graph (cuGraphExecDestroy).
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_destroy_executable(
    engine: *const regraph_engine,
    executable: regraph_executable,
) -> regraph_error {
    simulate!(engine as driver, driver.destroy_executable(launchable(executable)?)?)
}

/// Completes the work of a simulated stream, and the work that it waits for, and no other
/// (cuStreamSynchronize). Simulated work never completes by itself.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_synchronize_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    simulate!(engine as driver, driver.complete(named(stream))?)
}

/// Completes all work of the simulated device (cuCtxSynchronize).
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_synchronize(engine: *const regraph_engine) -> regraph_error {
    simulate!(engine as driver, driver.synchronize()?)
}

/// The simulated device's memory that is in use, in bytes.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_used_bytes(
    engine: *const regraph_engine,
    bytes: *mut u64,
) -> regraph_error {
    simulate!(engine as driver, bytes = driver.used_bytes())
}

/// Makes a later call of the engine to the simulated driver fail, without effect and with the code 800: the next one
/// for 0, the one after it for 1, and so on. For tests of how a host handles that.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_fail_driver_call(
    engine: *const regraph_engine,
    skip: u64,
) -> regraph_error {
    simulate!(engine as driver, driver.fail_any_nth(skip, ErrorKind::NotPermitted))
}

/// Panics inside the library, as a bug would, and returns REGRAPH_ERROR_PANIC. For tests of how a
/// host handles that; the engine can be used as before. The panic is written to standard error.
#[no_mangle]
pub unsafe extern "C" fn regraph_sim_panic(engine: *const regraph_engine) -> regraph_error {
    fn bug() {
        panic!("regraph_sim_panic was called")
    }
    simulate!(engine as _driver, bug())
}
