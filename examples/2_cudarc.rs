//! With cudarc on a GPU: a matrix product by cuBLAS into a buffer, captured and launched as a graph, against the same
//! product without a graph.

use std::error::Error;

use cudarc::cublas::sys::{
    cublasOperation_t::CUBLAS_OP_N, cublasSetWorkspace_v2, is_culib_present,
};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig};
use cudarc::driver::{CudaContext, DevicePtrMut};
use regraph::cudarc::{capture, engine, untracked};
use regraph::driver::cuda::CudaDriver;
use regraph::driver::CaptureMode;
use regraph::engine::{Config, PoolConfig};
use regraph::graphs::Pool;

const SIDE: usize = 512;
/// The size of workspace that cuBLAS recommends for the newest devices, in bytes.
const WORKSPACE: usize = 32 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    // Without a driver cudarc would panic, so ask regraph's driver first.
    // SAFETY: each handle is passed to calls only while its object lives, and graphs run only while
    // the memory that they use lives.
    let name = match unsafe { CudaDriver::new(0) } {
        Ok(driver) => driver.device_name()?,
        Err(error) => {
            println!("There is no GPU to run this on: {error}.");
            return Ok(());
        }
    };
    // SAFETY: the call only opens the library.
    if !unsafe { is_culib_present() } {
        println!("There is no cuBLAS on this machine.");
        return Ok(());
    }
    println!("{name}");

    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    // SAFETY: each handle is passed to calls only while its object lives, and graphs run only while
    // the memory that they use lives.
    let engine = unsafe { engine(&context, Config::default()) }?;
    let pool = Pool::new(&engine, PoolConfig::default());
    let left = pool.clone_htod(&stream, &matrix(7))?;
    let right = pool.clone_htod(&stream, &matrix(11))?;

    let blas = CudaBlas::new(stream.clone())?;
    // In a capture cuBLAS must not allocate, so it gets a workspace before. The workspace is declared
    // before the graph, so it is dropped after it.
    let mut workspace = pool.alloc_zeros::<u8>(&stream, WORKSPACE)?;
    let (address, _) = workspace.device_ptr_mut(&stream);
    // SAFETY: the memory is cuBLAS's alone, and outlives its last use.
    unsafe { cublasSetWorkspace_v2(*blas.handle(), address as *mut _, WORKSPACE) }.result()?;

    let side = SIDE as i32;
    let product = GemmConfig {
        transa: CUBLAS_OP_N,
        transb: CUBLAS_OP_N,
        m: side,
        n: side,
        k: side,
        alpha: 1.0_f32,
        lda: side,
        ldb: side,
        beta: 0.0,
        ldc: side,
    };
    let mut expected = pool.alloc_zeros(&stream, SIDE * SIDE)?;
    // SAFETY: all matrices have the sides that the product names. This first product also makes cuBLAS
    // load its kernels, which a capture would forbid.
    unsafe { blas.gemm(product, &left, &right, &mut expected) }?;
    let expected = stream.clone_dtoh(&expected)?;
    stream.synchronize()?;

    let captured = {
        // SAFETY: there is one stream, which orders everything.
        let _untracked = unsafe { untracked(&context) };
        capture(&engine, &stream, &pool, CaptureMode::ThreadLocal, |capture| {
            let mut output = capture.alloc_zeros(&stream, SIDE * SIDE)?;
            // SAFETY: all matrices have the sides that the product names.
            unsafe { blas.gemm(product, &left, &right, &mut output) }?;
            Ok::<_, Box<dyn Error>>(output)
        })
    };
    let (graph, output) = captured?;
    for _ in 0..10 {
        graph.launch(&stream)?;
    }
    let values = stream.clone_dtoh(&output)?;
    stream.synchronize()?;

    let same = expected.iter().zip(&values).filter(|(a, b)| a.to_bits() == b.to_bits()).count();
    println!("output at {:#x}, {} nodes", output.address(), graph.report().nodes);
    println!("{same} of {} values are bit for bit as without the graph", SIDE * SIDE);
    if same == SIDE * SIDE {
        Ok(())
    } else {
        Err("the graph's product differs".into())
    }
}

/// A matrix of fixed numbers.
fn matrix(step: usize) -> Vec<f32> {
    (0..SIDE * SIDE).map(|at| (at * step % 97) as f32 / 97.0 - 0.5).collect()
}
