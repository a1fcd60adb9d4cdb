//! The GPU, with what is there from the beginning and what starts kernels.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cudarc::cublas::sys::cublasOperation_t as Operation;
use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::sys::{self, CUgraphMem_attribute};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{self, CompileError};

use super::shape::{Matrix, On, Shape, Static};
use super::{Result, CONTEXT, HEADS, THREADS};

/// For each stream's cuBLAS, which then allocates nothing in captures and always decides the same.
const WORKSPACE_BYTES: usize = 32 << 20;

const KERNELS: &str = include_str!("kernels.cu");

/// Their names.
const NAMES: &str = "fill clear begin embed normalize append score attend add multiply silu choose";

/// Does one step.
pub type Launch<'a> = Box<dyn Fn() -> Result<()> + 'a>;

/// The GPU with all that is there from the beginning.
pub struct Device {
    pub context: Arc<CudaContext>,
    pub shape: Shape,
    pub streams: [Arc<CudaStream>; 2],
    pub blas: [CudaBlas; 2],
    /// cuBLAS's, dropped after its handles.
    pub _workspaces: [CudaSlice<u8>; 2],
    pub kernels: BTreeMap<&'static str, CudaFunction>,
    pub weights: BTreeMap<Matrix, CudaSlice<f32>>,
    pub tokens: CudaSlice<u32>,
    pub positions: CudaSlice<u32>,
    pub caches: CudaSlice<f32>,
    pub history: CudaSlice<u64>,
}

impl Device {
    pub fn new(context: &Arc<CudaContext>, shape: &Shape) -> Result<Self> {
        // SAFETY: opens the libraries, which are trusted, and closes them again.
        if unsafe { !cublas::sys::is_culib_present() || !nvrtc::sys::is_culib_present() } {
            return Err(
                "libcublas or libnvrtc is missing; name its folder in LD_LIBRARY_PATH".into()
            );
        }
        let Shape { hidden, vocabulary, steps, .. } = *shape;
        let source = format!(
            "#define HIDDEN {hidden}u\n#define HEADS {HEADS}u\n#define CONTEXT {CONTEXT}u\n\
             #define VOCABULARY {vocabulary}u\n#define STEPS {steps}u\n{KERNELS}"
        );
        let module = context.load_module(nvrtc::compile_ptx(source).map_err(readable)?)?;
        let mut kernels = BTreeMap::new();
        for name in NAMES.split(' ') {
            kernels.insert(name, module.load_function(name)?);
        }
        let streams = [context.new_stream()?, context.new_stream()?];
        let [main, side] = &streams;
        let blas = [CudaBlas::new(main.clone())?, CudaBlas::new(side.clone())?];
        let workspaces = [main.alloc_zeros(WORKSPACE_BYTES)?, side.alloc_zeros(WORKSPACE_BYTES)?];
        for (blas, workspace) in blas.iter().zip(&workspaces) {
            let address = workspace.device_ptr(main).0 as *mut _;
            // SAFETY: the memory is only used for this, and is dropped after the handle.
            unsafe { cublas::sys::cublasSetWorkspace_v2(*blas.handle(), address, WORKSPACE_BYTES) }
                .result()?;
        }
        let mut weights = BTreeMap::new();
        for matrix in shape.matrices() {
            let (rows, columns) = shape.dimensions(matrix);
            weights.insert(matrix, main.alloc_zeros(rows * columns)?);
        }
        let device = Self {
            context: context.clone(),
            shape: shape.clone(),
            blas,
            _workspaces: workspaces,
            kernels,
            weights,
            tokens: main.alloc_zeros(shape.largest())?,
            positions: main.alloc_zeros(shape.largest())?,
            caches: main.alloc_zeros(shape.cache_len())?,
            history: main.alloc_zeros(shape.history_len())?,
            streams,
        };
        for (seed, (&matrix, values)) in device.weights.iter().enumerate() {
            let (rows, columns) = shape.dimensions(matrix);
            let address = values.device_ptr(device.stream(On::Main)).0;
            let grid = (rows * columns / THREADS, 1);
            device.launch(On::Main, "fill", grid, &[address], &[seed + 1, columns])?;
        }
        context.synchronize()?;
        Ok(device)
    }

    pub fn stream(&self, on: On) -> &Arc<CudaStream> {
        &self.streams[on as usize]
    }

    pub fn address(&self, of: Static) -> u64 {
        let main = self.stream(On::Main);
        let ring = (self.shape.ring_len() * size_of::<f32>()) as u64;
        match of {
            Static::Embedding => self.weights[&Matrix::Embedding].device_ptr(main).0,
            Static::Tokens => self.tokens.device_ptr(main).0,
            Static::Positions => self.positions.device_ptr(main).0,
            Static::Keys(layer) => self.caches.device_ptr(main).0 + 2 * layer as u64 * ring,
            Static::Values(layer) => self.address(Static::Keys(layer)) + ring,
            Static::History => self.history.device_ptr(main).0,
        }
    }

    pub fn launch(
        &self,
        on: On,
        kernel: &str,
        (width, height): (usize, usize),
        addresses: &[u64],
        numbers: &[usize],
    ) -> Result<()> {
        let config = LaunchConfig {
            grid_dim: (u32::try_from(width)?, u32::try_from(height)?, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let numbers = numbers.iter().map(|&number| number as u32).collect::<Vec<_>>();
        let mut launch = self.stream(on).launch_builder(&self.kernels[kernel]);
        for address in addresses {
            launch.arg(address);
        }
        for number in &numbers {
            launch.arg(number);
        }
        // SAFETY: the kernels take pointers and then `u32`s, as given; the buffers are as large as
        // the shape says, and streams wait for each other where they share one.
        unsafe { launch.launch(config) }?;
        Ok(())
    }

    /// Each row of the input, times the matrix. Both lie row after row, which to cuBLAS is column
    /// after column of the transposed.
    #[rustfmt::skip]
    pub fn multiply(
        &self,
        on: On,
        by: Matrix,
        (input, output): (u64, u64),
        batch: usize,
    ) -> Result<()> {
        let (rows, columns) = self.shape.dimensions(by);
        let (rows, columns, batch) = (rows as i32, columns as i32, batch as i32);
        let matrix = self.weights[&by].device_ptr(self.stream(on)).0;
        let handle = *self.blas[on as usize].handle();
        let (turned, straight) = (Operation::CUBLAS_OP_T, Operation::CUBLAS_OP_N);
        let (matrix, input, output) =
            (matrix as *const f32, input as *const f32, output as *mut f32);
        // SAFETY: the input has `batch` rows of `columns`, the output `batch` of `rows`.
        unsafe {
            cublas::result::sgemm(
                handle, turned, straight, rows, batch, columns, &1.0, matrix, columns, input,
                columns, &0.0, output, rows,
            )
        }?;
        Ok(())
    }

    /// Puts each row at a position, with its first token and nothing in the caches.
    pub fn reset(&self, batch: usize, position: usize) -> Result<()> {
        let caches = (self.address(Static::Keys(0)), self.caches.len());
        let history = (self.address(Static::History), 2 * self.history.len());
        for (address, words) in [caches, history] {
            let grid = (words.div_ceil(THREADS), 1);
            self.launch(On::Main, "clear", grid, &[address], &[words])?;
        }
        let inputs = [self.address(Static::Tokens), self.address(Static::Positions)];
        self.launch(On::Main, "begin", (1, 1), &inputs, &[batch, position])
    }

    /// Runs the steps. Returns row after row of each: a token in the lower half, a digest of its
    /// logits in the upper.
    pub fn generate(&self, batch: usize, launch: &Launch<'_>) -> Result<Vec<u64>> {
        self.reset(batch, 0)?;
        for _ in 0..self.shape.steps {
            launch()?;
        }
        let mut generated = self.stream(On::Main).clone_dtoh(&self.history)?;
        self.context.synchronize()?;
        generated.truncate(self.shape.steps * batch);
        Ok(generated)
    }

    /// The time of one launch, in ms, where so many follow each other and all caches are full.
    pub fn time(&self, batch: usize, launch: &Launch<'_>, launches: usize) -> Result<f64> {
        self.reset(batch, CONTEXT.max(self.shape.steps))?;
        launch()?;
        self.context.synchronize()?;
        let start = Instant::now();
        for _ in 0..launches {
            launch()?;
        }
        self.context.synchronize()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / launches as f64)
    }

    /// What the driver holds for memory nodes, in bytes.
    pub fn node_memory(&self) -> Result<u64> {
        let mut bytes = 0u64;
        let attribute = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        let (device, out) = (self.context.cu_device(), (&raw mut bytes).cast());
        // SAFETY: this attribute is a `u64`.
        unsafe { sys::cuDeviceGetGraphMemAttribute(device, attribute, out) }.result()?;
        Ok(bytes)
    }

    pub fn free_memory(&self) -> Result<u64> {
        self.context.synchronize()?;
        Ok(self.context.mem_get_info()?.0 as u64)
    }
}

/// What the compiler says, in lines.
fn readable(error: CompileError) -> String {
    match error {
        CompileError::CompileError { log, .. } => format!("kernels: {}", log.to_string_lossy()),
        other => format!("kernels: {other:?}"),
    }
}
