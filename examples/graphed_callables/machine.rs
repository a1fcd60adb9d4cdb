//! What runs the kernels of a step: a GPU, or a probe that only allocates.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use regraph::cudarc::{Buf, Error};
use regraph::driver::cuda::CudaDriver;
use regraph::driver::sim::SimDriver;
use regraph::driver::{AsStream, StreamHandle};
use regraph::graphs::{Memory, Pool};
use regraph::probe::{Probe, Submit};

/// Threads of a block of a kernel.
const THREADS: u32 = 256;

/// All products have as many columns.
pub const COLUMNS: u32 = 64;

/// Each thread makes one number.
const KERNELS: &str = include_str!("kernels.ptx");

/// One of the kernels, with its numbers.
pub enum Kernel {
    /// `out[i] = a[i] + scale * b[i % period]`.
    AddScaled { period: u32, scale: f32 },
    /// `out[i] = a[i]` where `b[i]` is above zero, else zero.
    Gate,
    /// The product of two matrices.
    Product { terms: u32, a: Strides, b: Strides },
}

/// How far apart a matrix has the numbers of neighbouring rows, for `a`, or columns, for `b`, and
/// those of neighbouring terms of a sum.
pub struct Strides {
    pub place: u32,
    pub term: u32,
}

/// What runs a step: a GPU, or a probe that only allocates.
pub trait Machine {
    type Driver: Submit;
    type Buffer;

    fn stream(&self) -> StreamHandle;

    /// A buffer of `len` numbers, unset.
    fn buffer(&self, pool: &Pool<Self::Driver>, len: usize) -> Result<Self::Buffer, Error>;

    fn write(&self, values: &[f32], to: &mut Self::Buffer) -> Result<(), Error>;

    fn read(&self, from: &Self::Buffer) -> Result<Vec<f32>, Error>;

    fn copy(&self, from: &Self::Buffer, to: &mut Self::Buffer) -> Result<(), Error>;

    /// Launches a kernel that writes all of `out`.
    fn launch(&self, kernel: &Kernel, buffers: [&Self::Buffer; 3]) -> Result<(), Error>;
}

pub struct Gpu {
    stream: Arc<CudaStream>,
    add_scaled: CudaFunction,
    gate: CudaFunction,
    product: CudaFunction,
}

impl Gpu {
    pub fn new(driver: &CudaDriver) -> Result<Self, Error> {
        let stream = driver.context().new_stream()?;
        let module = driver.context().load_module(Ptx::from_src(KERNELS))?;
        Ok(Self {
            stream,
            add_scaled: module.load_function("add_scaled")?,
            gate: module.load_function("gate")?,
            product: module.load_function("product")?,
        })
    }
}

impl Machine for Gpu {
    type Driver = CudaDriver;
    type Buffer = Buf<f32>;

    fn stream(&self) -> StreamHandle {
        self.stream.as_stream()
    }

    fn buffer(&self, pool: &Pool<CudaDriver>, len: usize) -> Result<Buf<f32>, Error> {
        // SAFETY: every buffer is written, by a copy or as a kernel's first, before it is read.
        unsafe { pool.alloc(&self.stream, len) }
    }

    fn write(&self, values: &[f32], to: &mut Buf<f32>) -> Result<(), Error> {
        Ok(self.stream.memcpy_htod(values, to)?)
    }

    fn read(&self, from: &Buf<f32>) -> Result<Vec<f32>, Error> {
        Ok(self.stream.clone_dtoh(from)?)
    }

    fn copy(&self, from: &Buf<f32>, to: &mut Buf<f32>) -> Result<(), Error> {
        Ok(self.stream.memcpy_dtod(from, to)?)
    }

    fn launch(&self, kernel: &Kernel, [out, a, b]: [&Buf<f32>; 3]) -> Result<(), Error> {
        let function = match kernel {
            Kernel::AddScaled { .. } => &self.add_scaled,
            Kernel::Gate => &self.gate,
            Kernel::Product { .. } => &self.product,
        };
        let count = out.len() as u32;
        let mut launcher = self.stream.launch_builder(function);
        launcher.arg(out).arg(a).arg(b).arg(&count);
        match kernel {
            Kernel::AddScaled { period, scale } => {
                launcher.arg(period).arg(scale);
            }
            Kernel::Gate => {}
            Kernel::Product { terms, a, b } => {
                launcher.arg(&COLUMNS).arg(terms);
                launcher.arg(&a.place).arg(&a.term).arg(&b.place).arg(&b.term);
            }
        }
        let shape = LaunchConfig {
            grid_dim: (count.div_ceil(THREADS), 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the arguments are those that the kernel declares, and the buffers are as long as
        // the numbers say, which all come from the shapes of one network.
        unsafe { launcher.launch(shape) }?;
        Ok(())
    }
}

/// What stands for a GPU in a probe: nothing is computed.
pub struct Simulated<'p> {
    pub probe: &'p Probe,
    pub stream: StreamHandle,
}

impl Machine for Simulated<'_> {
    type Driver = SimDriver;
    type Buffer = Memory<SimDriver>;

    fn stream(&self) -> StreamHandle {
        self.stream
    }

    fn buffer(&self, pool: &Pool<SimDriver>, len: usize) -> Result<Memory<SimDriver>, Error> {
        Ok(pool.allocate((len * size_of::<f32>()) as u64, &self.stream)?)
    }

    fn write(&self, _: &[f32], _: &mut Memory<SimDriver>) -> Result<(), Error> {
        Ok(())
    }

    fn read(&self, _: &Memory<SimDriver>) -> Result<Vec<f32>, Error> {
        Ok(Vec::new())
    }

    fn copy(&self, _: &Memory<SimDriver>, _: &mut Memory<SimDriver>) -> Result<(), Error> {
        Ok(())
    }

    fn launch(&self, _: &Kernel, _: [&Memory<SimDriver>; 3]) -> Result<(), Error> {
        self.probe.engine().driver().submit(&self.stream, || Ok(()))
    }
}
