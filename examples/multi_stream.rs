//! Two streams of one capture share memory by fork and join: who takes over whose place, and when.
//!
//! On the machine's first GPU with cudarc's own streams and kernels, where there is one; the same
//! story on the simulated driver otherwise.

use std::error::Error;

use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{self, Pool};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "cudarc")]
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    match unsafe { regraph::driver::cuda::CudaDriver::new(0) } {
        Ok(driver) => {
            println!("on {}", driver.device_name()?);
            return gpu::run();
        }
        Err(error) => println!("on the simulated driver, for there is no GPU ({error})"),
    }
    simulated()
}

/// Where the story's blocks came to lie.
struct Places {
    first: u64,
    second: u64,
    third: u64,
}

impl Places {
    fn tell(&self) {
        let Self { first, second, third } = self;
        println!("first   {first:#x}  written by a, read by b, and dropped");
        let why = if second == first { "the first's place" } else { "new: b may still be reading" };
        println!("second  {second:#x}  for a, before the join: {why}");
        let why = if third == first { "the first's place: b has read it" } else { "new" };
        println!("third   {third:#x}  for a, after the join: {why}");
    }
}

fn simulated() -> Result<(), Box<dyn Error>> {
    const BYTES: u64 = 4 << 20;
    let config = Config::default();
    let engine = std::sync::Arc::new(Engine::new(SimDriver::new(SimConfig::default()), config));
    let pool = Pool::new(&engine, PoolConfig::default());
    let driver = engine.driver();
    let (a, b) = (driver.create_stream()?, driver.create_stream()?);

    let (graph, places) = engine.capture(a, &pool, CaptureMode::ThreadLocal, |capture| {
        let first = capture.allocate(BYTES, a)?;
        driver.launch(a, Work::default(), false)?; // writes it
        driver.wait(b, a)?; // the fork
        driver.launch(b, Work::default(), false)?; // reads it
        first.record_stream(b)?;
        let place = first.address();
        drop(first);

        let second = capture.allocate(BYTES, a)?;
        driver.launch(a, Work::default(), false)?;
        driver.wait(a, b)?; // the join
        let third = capture.allocate(BYTES, a)?;
        driver.launch(a, Work::default(), false)?;
        Ok::<_, graphs::Error>(Places {
            first: place,
            second: second.address(),
            third: third.address(),
        })
    })?;
    places.tell();
    graph.launch(a)?;
    println!("{} nodes, {} bytes reserved", graph.report().nodes, pool.reserved()?);
    Ok(())
}

#[cfg(feature = "cudarc")]
mod gpu {
    use std::error::Error;
    use std::sync::Arc;

    use cudarc::driver::{
        CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg,
    };
    use cudarc::nvrtc::Ptx;
    use regraph::cudarc::{engine, Buf};
    use regraph::driver::CaptureMode;
    use regraph::engine::{Config, PoolConfig};
    use regraph::graphs::Pool;

    use super::Places;

    const COUNT: usize = 1 << 20;

    pub fn run() -> Result<(), Box<dyn Error>> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(include_str!("kernels/affine.ptx")))?;
        let kernel = module.load_function("affine")?;
        let (a, b) = (context.new_stream()?, context.new_stream()?);
        // SAFETY: handles are given to calls while what they name lives, and graphs run while what
        // they use does.
        let engine = unsafe { engine(&context, Config::default()) }?;
        let pool = Pool::new(&engine, PoolConfig::default());
        let ones = pool.clone_htod(&a, &vec![1.0; COUNT])?;
        // The kernel's first launch loads it, which a capture may forbid.
        affine(&kernel, &a, &ones, 1.0, 0.0, &mut pool.alloc_zeros(&a, COUNT)?)?;

        // Only buffers of regraph are used in it, so cudarc's event tracking may stay on.
        let capture = engine.capture(&a, &pool, CaptureMode::ThreadLocal, |capture| {
            // SAFETY: every buffer is written before it is read.
            let alloc = |stream| unsafe { capture.alloc::<f32>(stream, COUNT) };
            let mut first = alloc(&a)?;
            affine(&kernel, &a, &ones, 2.0, 1.0, &mut first)?;
            b.join(&a)?; // the fork
            let mut seen = alloc(&b)?;
            affine(&kernel, &b, &first, 10.0, 0.0, &mut seen)?; // this records `b` for it
            let place = first.address();
            drop(first);

            let mut second = alloc(&a)?;
            affine(&kernel, &a, &ones, 5.0, 0.0, &mut second)?;
            a.join(&b)?; // the join
            let mut third = alloc(&a)?;
            affine(&kernel, &a, &seen, 1.0, 7.0, &mut third)?;
            let places = Places { first: place, second: second.address(), third: third.address() };
            Ok::<_, Box<dyn Error>>((third, places))
        });
        let (graph, (output, places)) = capture?;
        places.tell();
        for _ in 0..100 {
            graph.launch(&a)?;
        }
        let values = a.clone_dtoh(&output)?;
        a.synchronize()?;
        let right = values.iter().filter(|&&value| value == 37.0).count();
        println!("{} nodes, {} bytes reserved", graph.report().nodes, pool.reserved()?);
        println!("100 launches: {right} of {COUNT} values are 37");
        Ok(())
    }

    /// Launches output = input * factor + offset.
    fn affine(
        kernel: &CudaFunction,
        stream: &Arc<CudaStream>,
        input: &Buf<f32>,
        factor: f32,
        offset: f32,
        output: &mut Buf<f32>,
    ) -> Result<(), DriverError> {
        let (count, rounds) = (COUNT as u32, 0_u32);
        let mut launcher = stream.launch_builder(kernel);
        launcher.arg(output).arg(input).arg(&factor).arg(&offset).arg(&count).arg(&rounds);
        // SAFETY: these are the kernel's parameters, and both buffers have `count` elements.
        unsafe { launcher.launch(LaunchConfig::for_num_elems(count)) }.map(|_| ())
    }
}
