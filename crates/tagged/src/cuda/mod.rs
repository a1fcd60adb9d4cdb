//! Tagged kernels on a GPU.
//!
//! - `functions`: the functions of libcuda that only these programs call;
//! - `raw`: numbers and structure layouts that the crate of the driver does not have;
//! - `kernel`, `records`: the kernel behind every launch, and the tables that it reads.

mod functions;
mod kernel;
mod raw;
mod records;

use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use regraph_driver::cuda::{mode, CudaDriver, KernelNodeParams, Pointer, RawEdge};
use regraph_driver::{
    CaptureMode, Dependency, Driver, DriverError, EdgeData, ErrorKind, ExecutableHandle,
    GraphHandle, HostApi, NodeHandle, Result, StreamHandle, Transfer,
};

use super::{Program, Work};
use functions::Functions;
use kernel::{shape, Kernel, Parameters};
use raw::{ConditionalNodeParams, LaunchAttribute, LaunchConfig};
use records::Records;

const GRANULE: usize = 512;
/// How much [`Program::read_tags`] copies at once, in bytes.
const READ_BYTES: usize = 1 << 22;

/// What launches need: the kernel, its tables, and how many wrong tags were already reported.
#[derive(Default)]
struct Launcher {
    kernel: Option<Kernel>,
    records: Records,
    reported: u64,
}

impl Launcher {
    /// Gives everything back. The context must be current, the thread relaxed, the device idle.
    fn free(&mut self, driver: &CudaDriver, functions: &Functions) {
        // Freeing the counter waits for kernels that still run, so it goes before the tables.
        if let Some(mut kernel) = self.kernel.take() {
            kernel.unload(driver, functions);
        }
        self.records.free(driver, functions);
    }
}

/// A device whose kernels check and write tags.
///
/// Its streams are made after the kernel is loaded, so that no first launch loads it in a capture.
pub struct CudaProgram {
    driver: CudaDriver,
    functions: Functions,
    launcher: Mutex<Launcher>,
}

impl CudaProgram {
    /// Opens a device by its ordinal.
    ///
    /// # Errors
    /// As [`CudaDriver::new`]; those of loading the kernel.
    pub fn new(ordinal: u32) -> Result<Self> {
        // SAFETY: tests and measurements alone make one, and keep what their handles name.
        Self::on(unsafe { CudaDriver::new(ordinal) }?)
    }

    /// On a driver that the host already has.
    ///
    /// # Errors
    /// Those of loading the kernel.
    pub fn on(driver: CudaDriver) -> Result<Self> {
        let functions = Functions::load(&driver)?;
        let launcher = {
            let _relaxed = driver.relaxed()?;
            let major = functions.compute_major(&driver)?;
            Launcher {
                kernel: Some(Kernel::load(&driver, &functions, major)?),
                ..Launcher::default()
            }
        };
        Ok(Self { driver, functions, launcher: Mutex::new(launcher) })
    }

    /// Launches an executable graph `repeats` times back to back and returns the time of a launch
    /// in nanoseconds, by the host's clock. Other work on the device counts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] for no repeats, and what the driver answers.
    pub fn replay_timed(
        &self,
        executable: ExecutableHandle,
        stream: StreamHandle,
        repeats: u32,
    ) -> Result<f64> {
        if repeats == 0 {
            return Err(DriverError::new("cuGraphLaunch", 1, ErrorKind::InvalidValue));
        }
        self.synchronize()?;
        let start = Instant::now();
        for _ in 0..repeats {
            self.replay(executable, stream)?;
        }
        self.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(repeats))
    }

    /// Gives the memory of all launches' range tables to later launches. No graph captured so
    /// far may be replayed again: its kernels would work on other ranges.
    ///
    /// # Errors
    /// What the driver answers; waits for the device.
    pub fn forget_launches(&self) -> Result<()> {
        self.synchronize()?;
        self.launcher().records.rewind();
        Ok(())
    }

    fn launcher(&self) -> MutexGuard<'_, Launcher> {
        self.launcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the work's table and returns the function with its parameters.
    fn compose(&self, work: &Work<'_>) -> Result<(Pointer, Parameters)> {
        let mut guard = self.launcher();
        let launcher = &mut *guard;
        let Some(kernel) = &launcher.kernel else {
            return Err(other("cuModuleGetFunction", "the kernel is not loaded"));
        };
        let _relaxed = self.driver.relaxed()?;
        let table =
            launcher.records.write(&self.driver, &self.functions, work.inputs, work.outputs)?;
        Ok((kernel.function(), Parameters::new(kernel, table, work)))
    }
}

/// An array's start, or null for an empty one.
fn start<T>(array: &[T]) -> *const T {
    if array.is_empty() {
        std::ptr::null()
    } else {
        array.as_ptr()
    }
}

/// Dependencies as the two arrays that the driver takes.
fn split(dependencies: &[Dependency]) -> (Vec<Pointer>, Vec<RawEdge>) {
    dependencies
        .iter()
        .map(|dependency| (dependency.node.as_raw(), RawEdge::from(dependency.edge)))
        .unzip()
}

/// An answer of the driver that makes no sense.
fn other(call: &'static str, what: &str) -> DriverError {
    DriverError::new(call, 0, ErrorKind::Other(what.to_owned()))
}

/// Whether an edge is an ordinary one.
fn is_full(dependency: &Dependency) -> bool {
    dependency.edge == EdgeData::FULL
}

impl Deref for CudaProgram {
    type Target = CudaDriver;

    fn deref(&self) -> &CudaDriver {
        &self.driver
    }
}

impl Drop for CudaProgram {
    fn drop(&mut self) {
        let launcher = self.launcher.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Ok(_relaxed) = self.driver.relaxed() {
            launcher.free(&self.driver, &self.functions);
        }
    }
}

impl std::fmt::Debug for CudaProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.driver.fmt(f)
    }
}

impl Driver for CudaProgram {
    regraph_driver::forward_driver!();
}

impl HostApi for CudaProgram {
    regraph_driver::forward_host_api!();
}

impl Transfer for CudaProgram {
    regraph_driver::forward_transfer!();
}

impl Program for CudaProgram {
    fn begin_capture_to_graph(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        capture: CaptureMode,
    ) -> Result<()> {
        let _current = self.driver.relaxed()?;
        // SAFETY: stream and graph are the caller's and alive; no dependencies are given.
        unsafe {
            self.functions.capture_begin_to_graph(
                &self.driver,
                stream.as_raw(),
                graph.as_raw(),
                std::ptr::null(),
                std::ptr::null(),
                0,
                mode(capture),
            )
        }
    }

    fn launch(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()> {
        let (function, parameters) = self.compose(&work)?;
        let (grid, block) = shape(&work);
        let mut attribute = LaunchAttribute::programmatic();
        let config = LaunchConfig {
            grid,
            block,
            shared_bytes: 0,
            stream: stream.as_raw(),
            attributes: if programmatic { &mut attribute } else { null_mut() },
            attribute_count: u32::from(programmatic),
        };
        let mut pointers = parameters.pointers();
        let _current = self.driver.relaxed()?;
        // SAFETY: configuration, attribute and parameters outlive the call, which copies them;
        // the parameters are those that the kernel declares.
        unsafe {
            self.functions.launch(
                &self.driver,
                &config,
                function,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        }
    }

    fn set_terminals(&self, stream: StreamHandle, terminals: &[Dependency]) -> Result<()> {
        let (nodes, edges) = split(terminals);
        let _current = self.driver.relaxed()?;
        // SAFETY: both arrays have as many entries as said and are only read.
        unsafe {
            self.functions.update_dependencies(
                &self.driver,
                stream.as_raw(),
                start(&nodes).cast_mut(),
                start(&edges),
                nodes.len(),
                raw::SET_DEPENDENCIES,
            )
        }
    }

    fn add_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: Work<'_>,
    ) -> Result<NodeHandle> {
        let (function, parameters) = self.compose(&work)?;
        let (grid, block) = shape(&work);
        let mut pointers = parameters.pointers();
        let node_parameters = KernelNodeParams {
            function,
            grid,
            block,
            parameters: pointers.as_mut_ptr(),
            ..KernelNodeParams::none()
        };
        // The call for kernel nodes knows ordinary edges only; the others follow.
        let (full, other): (Vec<Dependency>, Vec<Dependency>) =
            dependencies.iter().partition(|dependency| is_full(dependency));
        let (nodes, _) = split(&full);
        let mut node: Pointer = null_mut();
        let _current = self.driver.relaxed()?;
        // SAFETY: the arrays and parameters outlive the call, which copies them; the parameters
        // are those that the kernel declares.
        unsafe {
            self.functions.add_kernel_node(
                &self.driver,
                &mut node,
                graph.as_raw(),
                start(&nodes),
                nodes.len(),
                &node_parameters,
            )
        }?;
        let node = NodeHandle::from_raw(node);
        for dependency in other {
            self.add_dependency(graph, dependency, node)?;
        }
        Ok(node)
    }

    fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)> {
        let context = self.driver.context().cu_ctx().cast();
        let (nodes, edges) = split(dependencies);
        let _relaxed = self.driver.relaxed()?;
        let mut handle = 0;
        // SAFETY: the graph is the caller's and alive; writes one handle, which the graph owns.
        unsafe {
            self.functions.conditional_handle(
                &self.driver,
                &mut handle,
                graph.as_raw(),
                context,
                1,
                raw::CONDITIONAL_ASSIGN_DEFAULT,
            )
        }?;
        let mut parameters = ConditionalNodeParams::if_once(handle, context);
        let mut node: Pointer = null_mut();
        // SAFETY: the parameters have the layout of `CUgraphNodeParams`; both arrays have as
        // many entries as said.
        unsafe {
            self.functions.add_node(
                &self.driver,
                &mut node,
                graph.as_raw(),
                start(&nodes),
                start(&edges),
                nodes.len(),
                &mut parameters,
            )
        }?;
        if parameters.bodies.is_null() {
            return Err(other("cuGraphAddNode_v2", "no body graph was returned"));
        }
        // SAFETY: on success the driver has set this to an array of one graph that lives as long
        // as the node.
        let body = unsafe { parameters.bodies.read() };
        Ok((NodeHandle::from_raw(node), GraphHandle::from_raw(body)))
    }

    fn add_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()> {
        let edge = RawEdge::from(from.edge);
        let (from, to) = (from.node.as_raw(), to.as_raw());
        // SAFETY: one entry is said and one is behind each pointer; all are only read.
        unsafe {
            self.functions.add_dependencies(&self.driver, graph.as_raw(), &from, &to, &edge, 1)
        }
    }

    fn remove_dependency(
        &self,
        graph: GraphHandle,
        from: Dependency,
        to: NodeHandle,
    ) -> Result<()> {
        let edge = RawEdge::from(from.edge);
        let (from, to) = (from.node.as_raw(), to.as_raw());
        // SAFETY: one entry is said and one is behind each pointer; all are only read.
        unsafe {
            self.functions.remove_dependencies(&self.driver, graph.as_raw(), &from, &to, &edge, 1)
        }
    }

    fn take_wrong_tags(&self) -> Result<u64> {
        let mut launcher = self.launcher();
        let Some(kernel) = &launcher.kernel else {
            return Ok(0);
        };
        let mut total = 0u64;
        let _relaxed = self.driver.relaxed()?;
        // SAFETY: copies the eight bytes of the counter into a local.
        unsafe {
            self.functions.copy_to_host(&self.driver, (&raw mut total).cast(), kernel.wrong, 8)
        }?;
        let fresh = total.wrapping_sub(launcher.reported);
        launcher.reported = total;
        Ok(fresh)
    }

    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        let _relaxed = self.driver.relaxed()?;
        let mut tags = Vec::with_capacity((bytes as usize).div_ceil(GRANULE));
        let mut buffer = vec![0u8; READ_BYTES.min(bytes as usize)];
        let mut done = 0;
        while done < bytes as usize {
            let length = READ_BYTES.min(bytes as usize - done);
            let piece = &mut buffer[..length];
            // SAFETY: the piece has room for `length` bytes; that the range is device memory is
            // the caller's part.
            unsafe {
                self.functions.copy_to_host(
                    &self.driver,
                    piece.as_mut_ptr().cast(),
                    address + done as u64,
                    length,
                )
            }?;
            tags.extend(
                piece
                    .chunks(GRANULE)
                    .filter_map(|granule| granule.first_chunk::<8>())
                    .map(|tag| u64::from_ne_bytes(*tag)),
            );
            done += length;
        }
        Ok(tags)
    }
}
