//! A small transformer decoder in cudarc and cuBLAS, two streams a layer, captured as a CUDA graph for each of many
//! batch sizes; and what its memory comes to, beside the same program on cudarc's own allocation.
//!
//! `cargo bench -p regraph-benches --bench decoder -- [--sizes 8,4,1] [--layers N] [--hidden N]
//! [--vocabulary N] [--steps N]`
//!
//! The decoder is written once, in [`step`], over a [`Memory`] that its temporaries come from: this
//! crate, cudarc itself (in a capture the driver makes memory nodes of its allocations), or a probe
//! without a device, which says beforehand how much memory the graphs will take.
//!
//! All tokens and logits are compared bit for bit with those of a run without graphs and without
//! reuse. Without a GPU only the probe runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use cudarc::cublas::sys::cublasOperation_t as Operation;
use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUgraphMem_attribute};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::{self, CompileError};
use regraph::cudarc::{engine, untracked};
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, PoolConfig};
use regraph::graphs::Submit;
use regraph::graphs::{Capture, Memory as Block, Pool};
use regraph_sim::probe::Probe;
use regraph_sim::SimDriver;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HEADS: usize = 8;
/// Tokens that a row remembers.
const CONTEXT: usize = 256;
/// Threads in a block of every kernel.
const THREADS: usize = 256;
/// For each stream's cuBLAS, which then allocates nothing in captures and always decides the same.
const WORKSPACE_BYTES: usize = 32 << 20;
/// How often each graph's time is taken, and how long that takes at least, in ms.
const TURNS: usize = 20;
const TURN_MS: f64 = 40.0;

/// After `#define`s of the dimensions. A block of 256 threads works on a row (`blockIdx.x`), on a
/// head of a row (`blockIdx.x` of `blockIdx.y`), or on 256 elements.
const KERNELS: &str = include_str!("decoder.cu");

/// Their names.
const NAMES: [&str; 12] = [
    "fill",
    "clear",
    "begin",
    "embed",
    "normalize",
    "append",
    "score",
    "attend",
    "add",
    "multiply",
    "silu",
    "choose",
];

/// The decoder's dimensions.
#[derive(Clone, Debug)]
struct Shape {
    layers: usize,
    hidden: usize,
    vocabulary: usize,
    /// Tokens that are generated of each row.
    steps: usize,
    /// The batch sizes, the largest first.
    sizes: Vec<usize>,
}

impl Shape {
    fn from_arguments() -> Result<Self> {
        let sizes = vec![256, 128, 64, 32, 16, 8, 4, 2, 1];
        let mut shape = Self { layers: 6, hidden: 1024, vocabulary: 8192, steps: 16, sizes };
        // Cargo passes `--bench`.
        let mut arguments = std::env::args().skip(1).filter(|it| it != "--bench");
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let numbers = value.split(',').map(|number| match number.parse() {
                Ok(number @ 1..=1_000_000) => Ok(number),
                _ => Err(format!("{name} {value}: expected numbers from 1 to 1000000")),
            });
            let numbers = numbers.collect::<std::result::Result<Vec<usize>, _>>()?;
            match (name.as_str(), &numbers[..]) {
                ("--sizes", _) => shape.sizes = numbers,
                ("--layers", &[number]) => shape.layers = number,
                ("--hidden", &[number]) => shape.hidden = number,
                ("--vocabulary", &[number]) => shape.vocabulary = number,
                ("--steps", &[number]) => shape.steps = number,
                _ => return Err(format!("{name} {value}: no such option; see the source").into()),
            }
        }
        shape.sizes.sort_unstable_by(|a, b| b.cmp(a));
        shape.sizes.dedup();
        let widest = shape.vocabulary.max(shape.inner());
        let largest = shape.cache_len().max(widest * shape.hidden.max(shape.largest()));
        if !shape.hidden.is_multiple_of(THREADS) || largest.max(shape.history_len()) >= 1 << 31 {
            return Err("expected --hidden in steps of 256, and no buffer of 2^31 elements".into());
        }
        Ok(shape)
    }

    fn largest(&self) -> usize {
        self.sizes[0]
    }

    /// The width between a layer's gate and its way down.
    fn inner(&self) -> usize {
        4 * self.hidden
    }

    /// Elements of one layer's keys, or values.
    fn ring_len(&self) -> usize {
        self.largest() * CONTEXT * self.hidden
    }

    fn cache_len(&self) -> usize {
        2 * self.layers * self.ring_len()
    }

    fn history_len(&self) -> usize {
        self.steps * self.largest()
    }

    /// Rows (outputs) and columns (inputs).
    fn dimensions(&self, matrix: Matrix) -> (usize, usize) {
        match matrix {
            Matrix::Embedding => (self.vocabulary, self.hidden),
            Matrix::Qkv(_) => (3 * self.hidden, self.hidden),
            Matrix::Output(_) => (self.hidden, self.hidden),
            Matrix::Gate(_) | Matrix::Up(_) => (self.inner(), self.hidden),
            Matrix::Down(_) => (self.hidden, self.inner()),
        }
    }

    fn matrices(&self) -> impl Iterator<Item = Matrix> {
        use Matrix::{Down, Embedding, Gate, Output, Qkv, Up};
        let layer = |layer| [Qkv(layer), Output(layer), Gate(layer), Up(layer), Down(layer)];
        std::iter::once(Embedding).chain((0..self.layers).flat_map(layer))
    }
}

/// The weights, each of its layer. The embedding turns tokens into rows and rows into logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Matrix {
    Embedding,
    Qkv(usize),
    Output(usize),
    Gate(usize),
    Up(usize),
    Down(usize),
}

/// What is there from the beginning, for kernels: weights, inputs, a layer's caches, outputs.
#[derive(Clone, Copy, Debug)]
enum Static {
    Embedding,
    Tokens,
    Positions,
    Keys(usize),
    Values(usize),
    History,
}

/// A stream of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Main,
    Side,
}

/// Where the temporaries of a step come from, and whether there is a device to do it on.
trait Memory {
    /// So many `f32`, freed when it is dropped.
    type Buffer;

    fn alloc(&self, len: usize, on: On) -> Result<Self::Buffer>;
    /// The buffer's address, for a stream to use.
    fn address(&self, buffer: &Self::Buffer, on: On) -> Result<u64>;
    /// Does what launches something on a stream, if there is a device.
    fn submit(&self, on: On, work: impl FnOnce(&Device) -> Result<()>) -> Result<()>;
    /// Makes `on` wait for what `other` holds so far.
    fn join(&self, on: On, other: On) -> Result<()>;
}

/// A device with an `alloc`: a regraph capture's, or that of cudarc's streams.
struct OnDevice<'a, F> {
    device: &'a Device,
    alloc: F,
}

impl<B, E, F> Memory for OnDevice<'_, F>
where
    B: DevicePtr<f32>,
    E: Error + 'static,
    F: Fn(&Arc<CudaStream>, usize) -> std::result::Result<B, E>,
{
    type Buffer = B;

    fn alloc(&self, len: usize, on: On) -> Result<B> {
        Ok((self.alloc)(self.device.stream(on), len)?)
    }

    fn address(&self, buffer: &B, on: On) -> Result<u64> {
        // A buffer of this crate remembers the stream here.
        Ok(buffer.device_ptr(self.device.stream(on)).0)
    }

    fn submit(&self, _: On, work: impl FnOnce(&Device) -> Result<()>) -> Result<()> {
        work(self.device)
    }

    fn join(&self, on: On, other: On) -> Result<()> {
        Ok(self.device.stream(on).join(self.device.stream(other))?)
    }
}

/// A regraph capture without a device.
struct Probed<'a> {
    capture: &'a Capture<SimDriver>,
    streams: [StreamHandle; 2],
}

impl Memory for Probed<'_> {
    type Buffer = (Block<SimDriver>, On);

    fn alloc(&self, len: usize, on: On) -> Result<Self::Buffer> {
        let bytes = (len * size_of::<f32>()) as u64;
        Ok((self.capture.allocate(bytes, self.streams[on as usize])?, on))
    }

    fn address(&self, (block, own): &Self::Buffer, on: On) -> Result<u64> {
        if on != *own {
            block.record_stream(self.streams[on as usize])?;
        }
        Ok(block.address())
    }

    fn submit(&self, on: On, _: impl FnOnce(&Device) -> Result<()>) -> Result<()> {
        self.capture.engine().driver().submit(self.streams[on as usize], &[], || Ok(()))
    }

    fn join(&self, on: On, other: On) -> Result<()> {
        let [on, other] = [on, other].map(|on| self.streams[on as usize]);
        Ok(self.capture.engine().driver().wait(on, other)?)
    }
}

/// A temporary of the decoder.
type Buffer<M> = Rc<<M as Memory>::Buffer>;

/// The decoder at work on so many rows.
struct Decoder<'a, M: Memory> {
    memory: &'a M,
    shape: &'a Shape,
    batch: usize,
    /// All buffers, where none is to be reused.
    held: Option<RefCell<Vec<Buffer<M>>>>,
}

impl<M: Memory> Decoder<'_, M> {
    /// A buffer of `width` elements a row.
    fn alloc(&self, width: usize, on: On) -> Result<Buffer<M>> {
        let buffer = Rc::new(self.memory.alloc(self.batch * width, on)?);
        if let Some(held) = &self.held {
            held.borrow_mut().push(buffer.clone());
        }
        Ok(buffer)
    }

    fn launch(
        &self,
        on: On,
        kernel: &str,
        grid: (usize, usize),
        buffers: &[&Buffer<M>],
        statics: &[Static],
    ) -> Result<()> {
        let addresses = buffers.iter().map(|buffer| self.memory.address(buffer, on));
        let mut addresses = addresses.collect::<Result<Vec<_>>>()?;
        self.memory.submit(on, |device| {
            addresses.extend(statics.iter().map(|&of| device.address(of)));
            device.launch(on, kernel, grid, &addresses, &[])
        })
    }

    fn by_row(&self, kernel: &str, buffers: &[&Buffer<M>], statics: &[Static]) -> Result<()> {
        self.launch(On::Main, kernel, (self.batch, 1), buffers, statics)
    }

    fn by_head(&self, kernel: &str, buffers: &[&Buffer<M>], statics: &[Static]) -> Result<()> {
        self.launch(On::Main, kernel, (HEADS, self.batch), buffers, statics)
    }

    /// For each of `width` elements a row.
    fn by_element(&self, on: On, kernel: &str, width: usize, buffers: &[&Buffer<M>]) -> Result<()> {
        self.launch(on, kernel, (self.batch * width / THREADS, 1), buffers, &[])
    }

    fn multiply(&self, on: On, by: Matrix, input: &Buffer<M>, output: &Buffer<M>) -> Result<()> {
        let input = self.memory.address(input, on)?;
        let output = self.memory.address(output, on)?;
        self.memory.submit(on, |device| device.multiply(on, by, (input, output), self.batch))
    }

    fn normalized(&self, input: &Buffer<M>) -> Result<Buffer<M>> {
        let output = self.alloc(self.shape.hidden, On::Main)?;
        self.by_row("normalize", &[input, &output], &[])?;
        Ok(output)
    }

    fn added(&self, a: Buffer<M>, b: Buffer<M>) -> Result<Buffer<M>> {
        let output = self.alloc(self.shape.hidden, On::Main)?;
        self.by_element(On::Main, "add", self.shape.hidden, &[&a, &b, &output])?;
        Ok(output)
    }

    fn attention(&self, layer: usize, input: Buffer<M>) -> Result<Buffer<M>> {
        let hidden = self.shape.hidden;
        let (keys, values) = (Static::Keys(layer), Static::Values(layer));
        let qkv = self.alloc(3 * hidden, On::Main)?;
        self.multiply(On::Main, Matrix::Qkv(layer), &input, &qkv)?;
        drop(input);
        self.by_row("append", &[&qkv], &[keys, values, Static::Positions])?;
        let scores = self.alloc(HEADS * CONTEXT, On::Main)?;
        self.by_head("score", &[&qkv, &scores], &[keys, Static::Positions])?;
        drop(qkv);
        let mixed = self.alloc(hidden, On::Main)?;
        self.by_head("attend", &[&scores, &mixed], &[values, Static::Positions])?;
        drop(scores);
        let output = self.alloc(hidden, On::Main)?;
        self.multiply(On::Main, Matrix::Output(layer), &mixed, &output)?;
        Ok(output)
    }

    /// The gate on the second stream, beside the way up on the first.
    fn feed_forward(&self, layer: usize, input: Buffer<M>) -> Result<Buffer<M>> {
        let inner = self.shape.inner();
        // Before the fork: cudarc's memory is there for a stream that is behind its allocation.
        let gate = self.alloc(inner, On::Main)?;
        self.memory.join(On::Side, On::Main)?;
        let raw = self.alloc(inner, On::Side)?;
        self.multiply(On::Side, Matrix::Gate(layer), &input, &raw)?;
        self.by_element(On::Side, "silu", inner, &[&raw, &gate])?;
        drop(raw);
        let up = self.alloc(inner, On::Main)?;
        self.multiply(On::Main, Matrix::Up(layer), &input, &up)?;
        self.memory.join(On::Main, On::Side)?;
        // After the join: cudarc frees on the first stream, which must be behind the second's use.
        drop(input);
        let product = self.alloc(inner, On::Main)?;
        self.by_element(On::Main, "multiply", inner, &[&gate, &up, &product])?;
        drop((gate, up));
        let output = self.alloc(self.shape.hidden, On::Main)?;
        self.multiply(On::Main, Matrix::Down(layer), &product, &output)?;
        Ok(output)
    }
}

/// One step: the next token of each of `batch` rows.
fn step<M: Memory>(memory: &M, shape: &Shape, batch: usize, reuse: bool) -> Result<()> {
    let held = (!reuse).then(RefCell::default);
    let decoder = Decoder { memory, shape, batch, held };
    let mut rows = decoder.alloc(shape.hidden, On::Main)?;
    decoder.by_row("embed", &[&rows], &[Static::Embedding, Static::Tokens])?;
    for layer in 0..shape.layers {
        let attended = decoder.attention(layer, decoder.normalized(&rows)?)?;
        rows = decoder.added(rows, attended)?;
        let fed = decoder.feed_forward(layer, decoder.normalized(&rows)?)?;
        rows = decoder.added(rows, fed)?;
    }
    let normalized = decoder.normalized(&rows)?;
    drop(rows);
    let logits = decoder.alloc(shape.vocabulary, On::Main)?;
    decoder.multiply(On::Main, Matrix::Embedding, &normalized, &logits)?;
    decoder.by_row("choose", &[&logits], &[Static::Tokens, Static::Positions, Static::History])
}

/// The GPU with all that is there from the beginning.
struct Device {
    context: Arc<CudaContext>,
    shape: Shape,
    streams: [Arc<CudaStream>; 2],
    blas: [CudaBlas; 2],
    /// cuBLAS's, dropped after its handles.
    _workspaces: [CudaSlice<u8>; 2],
    kernels: BTreeMap<&'static str, CudaFunction>,
    weights: BTreeMap<Matrix, CudaSlice<f32>>,
    tokens: CudaSlice<u32>,
    positions: CudaSlice<u32>,
    caches: CudaSlice<f32>,
    history: CudaSlice<u64>,
}

impl Device {
    fn new(context: &Arc<CudaContext>, shape: &Shape) -> Result<Self> {
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
        for name in NAMES {
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

    fn stream(&self, on: On) -> &Arc<CudaStream> {
        &self.streams[on as usize]
    }

    fn address(&self, of: Static) -> u64 {
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

    fn launch(
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
    fn multiply(
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
    fn reset(&self, batch: usize, position: usize) -> Result<()> {
        let caches = (self.address(Static::Keys(0)), self.caches.len());
        let history = (self.address(Static::History), 2 * self.history.len());
        for (address, words) in [caches, history] {
            let grid = (words.div_ceil(THREADS), 1);
            self.launch(On::Main, "clear", grid, &[address], &[words])?;
        }
        let inputs = [self.address(Static::Tokens), self.address(Static::Positions)];
        self.launch(On::Main, "begin", (1, 1), &inputs, &[batch, position])
    }

    /// Runs the steps. Returns row after row of each: a token in the lower half, a digest of its logits in the upper.
    fn generate(&self, batch: usize, launch: &Launch<'_>) -> Result<Vec<u64>> {
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
    fn time(&self, batch: usize, launch: &Launch<'_>, launches: usize) -> Result<f64> {
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
    fn node_memory(&self) -> Result<u64> {
        let mut bytes = 0u64;
        let attribute = CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        let (device, out) = (self.context.cu_device(), (&raw mut bytes).cast());
        // SAFETY: this attribute is a `u64`.
        unsafe { sys::cuDeviceGetGraphMemAttribute(device, attribute, out) }.result()?;
        Ok(bytes)
    }

    fn free_memory(&self) -> Result<u64> {
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

/// Whether what everything else is compared with can be right.
fn examine(generated: &[u64], batch: usize) -> Result<()> {
    if generated.iter().any(|&of| of >> 32 == 0) {
        return Err(format!("batch {batch}: a logit is not a number, or was never made").into());
    }
    if batch > 1 && generated.iter().all(|&of| of as u32 == generated[0] as u32) {
        return Err(format!("batch {batch}: all tokens are {}", generated[0] as u32).into());
    }
    Ok(())
}

/// Does one step.
type Launch<'a> = Box<dyn Fn() -> Result<()> + 'a>;

/// The graphs of one kind of memory, by batch size. All in bytes.
struct Captured {
    name: &'static str,
    graphs: BTreeMap<usize, Launch<'static>>,
    /// Held for the largest alone, and for all.
    held: (u64, u64),
    /// By how much the device's free memory shrank in all, executables included.
    taken: u64,
}

/// Captures every size, the largest first, and launches each once.
fn capture_all(
    device: &Device,
    name: &'static str,
    capture: impl Fn(usize) -> Result<Launch<'static>>,
    held: impl Fn() -> Result<u64>,
) -> Result<Captured> {
    let free = device.free_memory()?;
    let mut captured = Captured { name, graphs: BTreeMap::new(), held: (0, 0), taken: 0 };
    for &batch in &device.shape.sizes {
        let launched = capture(batch).and_then(|launch| {
            device.reset(batch, 0)?;
            launch()?;
            device.context.synchronize()?;
            Ok(launch)
        });
        let launch = launched.map_err(|error| format!("{name}, batch {batch}: {error}"))?;
        captured.graphs.insert(batch, launch);
        captured.held.1 = held()?;
        if batch == device.shape.largest() {
            captured.held.0 = captured.held.1;
        }
    }
    captured.taken = free.saturating_sub(device.free_memory()?);
    Ok(captured)
}

/// A step as a graph that owns its memory, from a pool that all of them share.
fn with_regraph(
    device: &Device,
    pool: &Pool<CudaDriver>,
    batch: usize,
    reuse: bool,
) -> Result<Launch<'static>> {
    let stream = device.stream(On::Main).clone();
    let body = |capture: &Capture<CudaDriver>| {
        // SAFETY: any bits are an `f32`, and every kernel's output is written before it is read.
        let alloc = |stream: &Arc<CudaStream>, len| unsafe { capture.alloc::<f32>(stream, len) };
        step(&OnDevice { device, alloc }, &device.shape, batch, reuse)
    };
    let mode = CaptureMode::ThreadLocal;
    let (graph, ()) = regraph::cudarc::capture(pool.engine(), &stream, pool, mode, body)?;
    Ok(Box::new(move || Ok(graph.launch(&stream)?)))
}

/// A step with cudarc's own slices.
fn with_cudarc(device: &Device, batch: usize, reuse: bool) -> Result<()> {
    // SAFETY: as above.
    let alloc = |stream: &Arc<CudaStream>, len| unsafe { stream.alloc::<f32>(len) };
    step(&OnDevice { device, alloc }, &device.shape, batch, reuse)
}

/// That as a graph, as cudarc captures it. The driver makes nodes of what is allocated and freed.
fn with_nodes(device: &Device, batch: usize) -> Result<Launch<'static>> {
    let stream = device.stream(On::Main);
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let captured = with_cudarc(device, batch, true);
    // What the driver refused to free.
    let freed = device.context.check_err();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0));
    captured?;
    freed?;
    let graph = graph?.ok_or("the capture gave no graph")?;
    Ok(Box::new(move || Ok(graph.launch()?)))
}

/// What the graphs would hold: for the largest alone, and for all.
fn probe(shape: &Shape, device: Option<&CudaDriver>, reuse: bool) -> Result<(u64, u64)> {
    let config = Config::from_environment()?;
    let probe = match device {
        Some(device) => Probe::like(device, config)?,
        None => Probe::new(config),
    };
    let streams = [probe.stream()?, probe.stream()?];
    let (mut graphs, mut held) = (Vec::new(), Vec::new());
    for &batch in &shape.sizes {
        let body =
            |capture: &Capture<SimDriver>| step(&Probed { capture, streams }, shape, batch, reuse);
        let mode = CaptureMode::ThreadLocal;
        graphs.push(probe.engine().capture(streams[0], probe.pool(), mode, body)?);
        held.push(probe.reserved()?);
    }
    Ok((held[0], held[held.len() - 1]))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn print_held(name: &str, (largest, all): (u64, u64)) {
    println!("{name:<32} {:>12.1} {:>12.1}", mib(largest), mib(all));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Takes the graphs' times by turns, so that what changes over time changes for all.
fn print_times(device: &Device, captured: &[&Captured]) -> Result<()> {
    println!("\n{:<32} {:>12} {:>12}   of the first's", "one replay", "batch", "ms");
    for batch in [device.shape.largest(), device.shape.sizes[device.shape.sizes.len() - 1]] {
        let graphs = captured.iter().map(|of| &of.graphs[&batch]).collect::<Vec<_>>();
        let launches = (TURN_MS / device.time(batch, graphs[0], 5)?) as usize;
        let mut times = vec![Vec::new(); graphs.len()];
        for turn in 0..TURNS * graphs.len() {
            // Each goes first in some turns.
            let which = (turn + turn / graphs.len()) % graphs.len();
            times[which].push(device.time(batch, graphs[which], launches.clamp(5, 200))?);
        }
        for (of, own) in captured.iter().zip(&times) {
            let ratios = own.iter().zip(&times[0]).map(|(time, first)| time / first);
            let (ratio, time) = (median(ratios.collect()), median(own.clone()));
            println!("{:<32} {batch:>12} {time:>12.4}   {ratio:.3}", of.name);
        }
    }
    Ok(())
}

fn run() -> Result<()> {
    let shape = Shape::from_arguments()?;
    println!("{} layers of {}, batch sizes {:?}", shape.layers, shape.hidden, shape.sizes);
    // First of all: cudarc panics where there is no driver.
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let driver = unsafe { CudaDriver::new(0) };
    let [said, said_without] =
        [true, false].map(|reuse| probe(&shape, driver.as_ref().ok(), reuse));
    println!("{:<32} {:>12} {:>12}", "graph memory in MiB, for", "the largest", "all sizes");
    let (said, said_without) = (said?, said_without?);
    print_held("a probe says: regraph", said);
    print_held("a probe says: without reuse", said_without);
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => {
            println!("There is no GPU to run this on: {error}.");
            return Ok(());
        }
    };
    println!("on {}:", driver.device_name()?);
    let context = driver.context().clone();
    // SAFETY: the program orders its two streams itself; cudarc's own events would ruin captures.
    let _untracked = unsafe { untracked(&context) };
    let device = Device::new(&context, &shape)?;

    // What is right. It also makes cuBLAS and the kernels ready for captures.
    let mut right = BTreeMap::new();
    for &batch in &shape.sizes {
        let launch: Launch<'_> = Box::new(|| with_cudarc(&device, batch, false));
        let generated = device.generate(batch, &launch)?;
        examine(&generated, batch)?;
        right.insert(batch, generated);
    }

    let config = Config::from_environment()?;
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let pool = Pool::new(&unsafe { engine(&context, config.clone()) }?, PoolConfig::default());
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let without = Pool::new(&unsafe { engine(&context, config) }?, PoolConfig::default());
    // SAFETY: takes no pointers.
    unsafe { sys::cuDeviceGraphMemTrim(context.cu_device()) }.result()?;
    let capture = |batch| with_nodes(&device, batch);
    let nodes =
        capture_all(&device, "cudarc's own, as memory nodes", capture, || device.node_memory())?;
    let capture = |batch| with_regraph(&device, &without, batch, false);
    let none = capture_all(&device, "regraph without reuse", capture, || Ok(without.reserved()?))?;
    let capture = |batch| with_regraph(&device, &pool, batch, true);
    let reuse = capture_all(&device, "regraph", capture, || Ok(pool.reserved()?))?;
    let captured = [&none, &reuse, &nodes];
    for of in captured {
        print_held(of.name, of.held);
    }
    for of in captured {
        println!("{}: free memory shrank by {:.1} MiB in all", of.name, mib(of.taken));
    }
    println!("(the driver's own for regraph's executables: {:.1} MiB)", mib(pool.driver_bytes()));
    let [largest, all] = [(reuse.held.0, nodes.held.0), (reuse.held.1, nodes.held.1)]
        .map(|(ours, theirs)| ours as f64 / theirs as f64);
    println!("regraph holds {largest:.2} of cudarc's own for the largest, {all:.2} for all sizes");
    if (said, said_without) != (reuse.held, none.held) {
        println!("the probe was wrong");
    }

    let mut wrong = 0;
    for of in captured {
        for (&batch, right) in &right {
            let generated = device.generate(batch, &of.graphs[&batch])?;
            let Some(first) = (0..right.len()).find(|&at| generated[at] != right[at]) else {
                continue;
            };
            let (step, row) = (first / batch, first % batch);
            eprintln!("{}, batch {batch}: wrong from step {step}, row {row}, on", of.name);
            wrong += 1;
        }
    }
    if wrong > 0 {
        return Err(format!("{wrong} graphs differ from a run without graphs and reuse").into());
    }
    let graphs = captured.len() * right.len();
    println!("{graphs} graphs, {} tokens a row: each bit as without graphs and reuse", shape.steps);
    print_times(&device, &captured)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("decoder: {error}");
            ExitCode::FAILURE
        }
    }
}
