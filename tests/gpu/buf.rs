//! Buffers under cudarc's launcher, copies and cuBLAS, on a real GPU.

use std::sync::{Arc, MutexGuard};

use crate::device::gpu::turn;
use cudarc::cublas::sys::{
    cublasOperation_t::CUBLAS_OP_N, cublasSetWorkspace_v2, is_culib_present,
};
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DevicePtr, DevicePtrMut, LaunchArgs, LaunchConfig,
    PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use regraph::cudarc::{
    capture, engine, retire_stream, untracked, Buf, BufView, BufViewMut, Error, PoolRefusal,
    StreamRefusal,
};
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{AsStream, CaptureMode};
use regraph::engine::{Config, Engine, FreeRange, PoolConfig, Refusal};
use regraph::graphs::{self, Capture, Pool};

const SIDE: usize = 64;
const COUNT: usize = SIDE * SIDE;
/// So many rounds of the kernel take far longer than the host's next few calls.
const LONG: u32 = 200_000;

struct Gpu {
    context: Arc<CudaContext>,
    engine: Arc<Engine<CudaDriver>>,
    pool: Pool<CudaDriver>,
    a: Arc<CudaStream>,
    b: Arc<CudaStream>,
    affine: CudaFunction,
    _turn: MutexGuard<'static, ()>,
}

fn gpu() -> Gpu {
    let turn = turn();
    let context = CudaContext::new(0).unwrap();
    let (a, b) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let source = Ptx::from_src(include_str!("affine.ptx"));
    let affine = context.load_module(source).unwrap().load_function("affine").unwrap();
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let engine = unsafe { engine(&context, Config::default().report_leaks(false)) }.unwrap();
    let pool = Pool::new(&engine, PoolConfig::default());
    let gpu = Gpu { context, engine, pool, a, b, affine, _turn: turn };
    // The kernel's first launch loads it, which a capture may forbid.
    let input = gpu.numbers();
    let mut output = gpu.pool.alloc_zeros(&gpu.a, COUNT).unwrap();
    gpu.launch(&gpu.a, &input, &mut output, 0);
    gpu.a.synchronize().unwrap();
    gpu
}

impl Gpu {
    /// output = input * 3 + 1, by the launcher.
    fn launch(
        &self,
        stream: &Arc<CudaStream>,
        input: &Buf<f32>,
        output: &mut Buf<f32>,
        rounds: u32,
    ) {
        let mut launcher = stream.launch_builder(&self.affine);
        launcher.arg(output).arg(input);
        submit(&mut launcher, rounds);
    }

    fn launch_views(
        &self,
        stream: &Arc<CudaStream>,
        input: &BufView<'_, f32>,
        output: &mut BufViewMut<'_, f32>,
        rounds: u32,
    ) {
        let mut launcher = stream.launch_builder(&self.affine);
        launcher.arg(output).arg(input);
        submit(&mut launcher, rounds);
    }

    fn numbers(&self) -> Buf<f32> {
        self.pool.clone_htod(&self.a, &numbers()).unwrap()
    }

    /// Every free range of the pool as a stream sees it.
    fn explain(&self, stream: &CudaStream) -> Vec<FreeRange> {
        self.engine.explain(self.pool.id(), stream.as_stream()).unwrap()
    }

    fn captured<R>(
        &self,
        mut body: impl FnMut(&Capture<CudaDriver>) -> R,
    ) -> (graphs::Graph<CudaDriver>, R) {
        let captured =
            self.engine.capture(&self.a, &self.pool, CaptureMode::ThreadLocal, |capture| {
                Ok::<_, graphs::Error>(body(capture))
            });
        captured.unwrap()
    }
}

fn submit<'a>(launcher: &mut LaunchArgs<'a>, rounds: u32) {
    const FACTOR: &f32 = &3.0;
    const OFFSET: &f32 = &1.0;
    const SIZE: &u32 = &(COUNT as u32);
    // Of its own, for the launcher points to it until the launch.
    let rounds: &'static u32 = Box::leak(Box::new(rounds));
    launcher.arg(FACTOR).arg(OFFSET).arg(SIZE).arg(rounds);
    // SAFETY: these are the kernel's parameters; both buffers hold at least so many values.
    unsafe { launcher.launch(LaunchConfig::for_num_elems(COUNT as u32)) }.unwrap();
}

fn numbers() -> Vec<f32> {
    (0..COUNT).map(|at| (at * 7 % 97) as f32 / 97.0 - 0.5).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn read(stream: &Arc<CudaStream>, buf: &impl DevicePtr<f32>) -> Vec<u32> {
    let values = stream.clone_dtoh(buf).unwrap();
    stream.synchronize().unwrap();
    bits(&values)
}

/// A use of a buffer on a stream: to read, the whole of it, into another.
type Use<'a> = &'a dyn Fn(&Arc<CudaStream>, &mut Buf<f32>, &mut Buf<f32>);

/// In a capture, `b` uses a block of `a` that is then dropped. Until the join no stream but `b` may have
/// its place; after it, `a` may.
fn is_recorded(gpu: &Gpu, name: &str, used: Use<'_>) {
    let (a, b) = (&gpu.a, &gpu.b);
    let mut other = gpu.pool.alloc_zeros(b, COUNT).unwrap();
    b.synchronize().unwrap();
    gpu.captured(|capture| {
        let mut first = capture.alloc_zeros::<f32>(a, COUNT).unwrap();
        b.join(a).unwrap();
        used(b, &mut first, &mut other);
        assert!(!first.is_lost(), "{name}");
        let place = first.address();
        drop(first);

        let ranges = gpu.explain(a);
        let range = ranges
            .iter()
            .find(|range| (range.address..range.address + range.bytes).contains(&place))
            .unwrap_or_else(|| panic!("{name}: {ranges:?}"));
        assert!(matches!(range.refusal, Some(Refusal::Marker { .. })), "{name}: {range:?}");
        let second = capture.alloc_zeros::<f32>(a, COUNT).unwrap();
        assert_ne!(second.address(), place, "{name}: handed out while {b:?} may use it");

        a.join(b).unwrap();
        let third = capture.alloc_zeros::<f32>(a, COUNT).unwrap();
        assert_eq!(third.address(), place, "{name}");
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_use_on_another_stream_is_recorded() {
    let gpu = gpu();
    is_recorded(&gpu, "argument to read", &|b, first, other| gpu.launch(b, first, other, 0));
    is_recorded(&gpu, "argument to write", &|b, first, other| gpu.launch(b, other, first, 0));
    is_recorded(&gpu, "view as an argument", &|b, first, other| {
        gpu.launch_views(b, &first.slice(..), &mut other.slice_mut(..), 0);
    });
    is_recorded(&gpu, "view to write as an argument", &|b, first, other| {
        gpu.launch_views(b, &other.slice(..), &mut first.slice_mut(..), 0);
    });
    is_recorded(&gpu, "argument with its stream named", &|b, first, other| {
        let mut output = other.on_mut(b).unwrap();
        gpu.launch_views(b, &first.on(b).unwrap(), &mut output, 0);
    });
    is_recorded(&gpu, "copy from", &|b, first, other| b.memcpy_dtod(first, other).unwrap());
    is_recorded(&gpu, "copy to", &|b, first, other| b.memcpy_dtod(other, first).unwrap());
    is_recorded(&gpu, "copy from a view", &|b, first, other| {
        b.memcpy_dtod(&first.slice(10..20), &mut other.slice_mut(..10)).unwrap();
    });
    is_recorded(&gpu, "fill", &|b, first, _| b.memset_zeros(first).unwrap());
    is_recorded(&gpu, "fill of one of two halves", &|b, first, _| {
        b.memset_zeros(&mut first.split_at_mut(COUNT / 2).1).unwrap();
    });
    is_recorded(&gpu, "other types", &|b, first, _| {
        // SAFETY: any four bytes are an integer.
        let mut integers = unsafe { first.transmute_mut::<u32>(COUNT) }.unwrap();
        b.memset_zeros(&mut integers).unwrap();
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_use_after_a_last_use_counts_again() {
    let gpu = gpu();
    let (a, b) = (&gpu.a, &gpu.b);
    is_recorded(&gpu, "a last use and then another", &|b, first, other| {
        gpu.launch(b, first, other, 0);
        first.record_use(b).unwrap();
        gpu.launch(b, first, other, 0);
    });
    // Without the second use the join need not come after what `b` did later.
    let mut other = gpu.pool.alloc_zeros(b, COUNT).unwrap();
    b.synchronize().unwrap();
    gpu.captured(|capture| {
        let mut first = capture.alloc_zeros::<f32>(a, COUNT).unwrap();
        b.join(a).unwrap();
        gpu.launch(b, &first, &mut other, 0);
        first.record_use(b).unwrap();
        a.join(b).unwrap();
        b.memset_zeros(&mut other).unwrap();
        let place = first.address();
        drop(first);
        assert_eq!(capture.alloc_zeros::<f32>(a, COUNT).unwrap().address(), place);
        a.join(b).unwrap();
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_computes_what_the_streams_do_bit_for_bit() {
    let gpu = gpu();
    let (a, b) = (&gpu.a, &gpu.b);
    let input = gpu.numbers();
    let program = |alloc: &dyn Fn(&Arc<CudaStream>) -> Buf<f32>| {
        let mut output = alloc(a);
        let mut first = alloc(a);
        gpu.launch(a, &input, &mut first, 0);
        for _ in 0..20 {
            b.join(a).unwrap();
            let mut left = alloc(a);
            gpu.launch(a, &first, &mut left, 10);
            let mut right = alloc(b);
            gpu.launch(b, &first, &mut right, 1_000);
            drop(first);
            first = alloc(a);
            gpu.launch_views(a, &left.slice(..), &mut first.as_view_mut(), 0);
            drop(left);
            a.join(b).unwrap();
            a.memcpy_dtod(&right.slice(..COUNT / 2), &mut first.slice_mut(COUNT / 2..)).unwrap();
        }
        a.memcpy_dtod(&first, &mut output).unwrap();
        output
    };
    let expected = program(&|stream| gpu.pool.alloc_zeros(stream, COUNT).unwrap());
    let expected = read(a, &expected);
    let (graph, output) = gpu.captured(|capture| {
        // SAFETY: the program writes every buffer before it reads it.
        program(&|stream| unsafe { capture.alloc(stream, COUNT) }.unwrap())
    });
    assert!(graph.report().verified);
    for launch in 0..50 {
        let stream = if launch % 2 == 0 { a } else { b };
        graph.launch(stream).unwrap();
        assert_eq!(read(stream, &output), expected, "launch {launch}");
    }
    drop(graph);
    assert_eq!(read(a, &output), expected, "the output outlives its graph");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cublas_writes_into_a_captured_buffer() {
    let gpu = gpu();
    let (a, b) = (&gpu.a, &gpu.b);
    // SAFETY: only opens the library.
    if !unsafe { is_culib_present() } {
        println!("there is no cuBLAS on this machine");
        return;
    }
    let mut blas = CudaBlas::new(a.clone()).unwrap();
    let mut workspace = gpu.pool.alloc_zeros::<u8>(a, 32 << 20).unwrap();
    let side = SIDE as i32;
    let config = GemmConfig {
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
    let mut work_on = |blas: &mut CudaBlas, stream: &Arc<CudaStream>| {
        // SAFETY: the streams are joined between products, and the workspace outlives the handle.
        unsafe { blas.set_stream(stream.clone()) }.unwrap();
        let (address, _) = workspace.device_ptr_mut(stream);
        // SAFETY: so many bytes are cuBLAS's alone.
        unsafe { cublasSetWorkspace_v2(*blas.handle(), address as *mut _, 32 << 20) }
            .result()
            .unwrap();
    };
    let input = gpu.numbers();
    work_on(&mut blas, a);
    let mut expected = gpu.pool.alloc_zeros(a, COUNT).unwrap();
    // SAFETY: all are square, with the side that the product names.
    unsafe { blas.gemm(config, &input, &input, &mut expected) }.unwrap();
    let expected = read(a, &expected);

    let (graph, output) = gpu.captured(|capture| {
        let mut output = capture.alloc_zeros::<f32>(a, COUNT).unwrap();
        // SAFETY: as above.
        unsafe { blas.gemm(config, &input, &input, &mut output) }.unwrap();
        output
    });
    for _ in 0..10 {
        graph.launch(a).unwrap();
        assert_eq!(read(a, &output), expected);
    }
    b.join(a).unwrap();
    work_on(&mut blas, b);
    is_recorded(&gpu, "a factor", &|_, first, other| {
        // SAFETY: as above.
        unsafe { blas.gemm(config, first, &first.slice(..), other) }.unwrap();
    });
    is_recorded(&gpu, "a product", &|_, first, other| {
        // SAFETY: as above.
        unsafe { blas.gemm(config, &*other, &*other, first) }.unwrap();
    });
    gpu.context.synchronize().unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_drop_on_another_thread_waits_for_the_stream_that_uses_it() {
    let gpu = gpu();
    let (a, b) = (&gpu.a, &gpu.b);
    for _ in 0..10 {
        let input = gpu.numbers();
        let mut output = gpu.pool.alloc_zeros::<f32>(b, COUNT).unwrap();
        b.join(a).unwrap();
        gpu.launch(b, &input, &mut output, LONG);
        std::thread::spawn(move || drop(input)).join().unwrap();
        // What `a` is given now is written at once.
        let others: Vec<_> =
            (0..8).map(|_| gpu.pool.clone_htod(a, &vec![f32::NAN; COUNT]).unwrap()).collect();
        let expected: Vec<f32> = numbers().iter().map(|value| value.mul_add(3.0, 1.0)).collect();
        assert_eq!(read(b, &output), bits(&expected));
        drop(others);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_a_graph_uses_from_outside_can_be_kept() {
    let gpu = gpu();
    let a = &gpu.a;
    let input = Arc::new(gpu.numbers());
    let (graph, output) = gpu.captured(|capture| {
        let mut output = capture.alloc_zeros::<f32>(a, COUNT).unwrap();
        gpu.launch(a, &input, &mut output, 0);
        capture.keep(Arc::clone(&input));
        output
    });
    drop(input);
    let others: Vec<_> =
        (0..8).map(|_| gpu.pool.clone_htod(a, &vec![f32::NAN; COUNT]).unwrap()).collect();
    graph.launch(a).unwrap();
    let expected: Vec<f32> = numbers().iter().map(|value| value.mul_add(3.0, 1.0)).collect();
    assert_eq!(read(a, &output), bits(&expected));
    drop(others);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn event_tracking_is_refused_and_can_be_held_off() {
    let gpu = gpu();
    let a = &gpu.a;
    let slice = a.clone_htod(&numbers()).unwrap();
    a.synchronize().unwrap();
    let run = || {
        capture(&gpu.engine, a, &gpu.pool, CaptureMode::ThreadLocal, |capture| {
            let mut output = capture.alloc_zeros::<f32>(a, COUNT)?;
            a.memcpy_dtod(&slice, &mut output)?;
            Ok::<_, Error>(output)
        })
    };
    assert!(gpu.context.is_managing_stream_synchronization());
    assert!(matches!(run(), Err(Error::Tracking)));
    let graph = {
        // SAFETY: nothing runs beside it.
        let first = unsafe { untracked(&gpu.context) };
        // SAFETY: as above.
        let second = unsafe { untracked(&gpu.context) };
        drop(first);
        assert!(!gpu.context.is_event_tracking());
        let graph = run().unwrap();
        drop(second);
        graph
    };
    assert!(gpu.context.is_event_tracking());
    let (graph, output) = graph;
    graph.launch(a).unwrap();
    assert_eq!(read(a, &output), bits(&numbers()));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_cannot_be_right_is_refused() {
    let gpu = gpu();
    let a = &gpu.a;
    // SAFETY: never read.
    let long = unsafe { gpu.pool.alloc::<f32>(a, usize::MAX / 2) };
    assert!(matches!(long, Err(Error::TooLong { call: "alloc", .. })));

    if CudaContext::device_count().unwrap() > 1 {
        let stream = CudaContext::new(1).unwrap().new_stream().unwrap();
        let refused = gpu.pool.alloc_zeros::<f32>(&stream, COUNT);
        assert!(matches!(
            refused,
            Err(Error::Stream { call: "alloc_zeros", why: StreamRefusal::Foreign, .. })
        ));
        // Its default stream has the handle of this one's.
        let mut buf = gpu.pool.alloc_zeros::<f32>(a, COUNT).unwrap();
        let refused = buf.record_use(&stream.context().default_stream());
        assert!(matches!(
            refused,
            Err(Error::Stream { call: "record_use", why: StreamRefusal::Foreign, .. })
        ));
        assert!(buf.is_lost());
        gpu.context.bind_to_thread().unwrap();
    }

    let per_thread = gpu.context.per_thread_stream();
    assert!(gpu.pool.alloc_zeros::<f32>(&per_thread, COUNT).is_err());
    let mut buf = gpu.pool.alloc_zeros::<f32>(a, COUNT).unwrap();
    assert!(buf.record_use(&per_thread).is_err() && buf.is_lost());

    let captured = gpu.engine.capture(a, &gpu.pool, CaptureMode::ThreadLocal, |capture| {
        // A capture copies nothing from the host, nor does its pool while it is under way.
        capture.alloc_zeros::<f32>(a, 1)?;
        gpu.pool.clone_htod(a, &[1.0_f32]).map(|_| ())
    });
    assert!(matches!(captured, Err(Error::Stream { why: StreamRefusal::CopyWhileCapturing, .. })));

    let empty = gpu.pool.alloc_zeros::<f32>(a, 0).unwrap();
    assert_eq!((empty.address(), empty.block(), empty.num_bytes()), (0, None, 0));
    assert!(empty.try_slice(..1).is_none());
    assert!(gpu.pool.clone_htod::<f32>(a, &[]).unwrap().is_empty());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_use_that_cannot_be_recorded_loses_the_memory() {
    let gpu = gpu();
    let a = &gpu.a;
    let mut buf = gpu.pool.alloc_zeros::<f32>(a, COUNT).unwrap();
    a.synchronize().unwrap();
    gpu.context.per_thread_stream().memset_zeros(&mut buf).unwrap();
    assert!(buf.is_lost());
    let place = buf.address();
    drop(buf);
    assert_ne!(gpu.pool.alloc_zeros::<f32>(a, COUNT).unwrap().address(), place);

    let buf = gpu.pool.alloc_zeros::<f32>(a, COUNT).unwrap();
    let place = buf.leak();
    assert_ne!(gpu.pool.alloc_zeros::<f32>(a, COUNT).unwrap().address(), place);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_stream_is_kept_until_it_is_retired() {
    let gpu = gpu();
    let stream = gpu.context.new_stream().unwrap();
    let held = Arc::downgrade(&stream);
    let buf = gpu.pool.alloc_zeros::<f32>(&stream, COUNT).unwrap();
    drop(buf);
    drop(stream);
    let stream = held.upgrade().unwrap();
    stream.synchronize().unwrap();
    retire_stream(&gpu.engine, stream).unwrap();
    assert!(held.upgrade().is_none());

    let stream = gpu.context.new_stream().unwrap();
    let buf = gpu.pool.alloc_zeros::<f32>(&gpu.a, COUNT).unwrap();
    gpu.a.synchronize().unwrap();
    buf.record_stream(&stream).unwrap();
    let refused = retire_stream(&gpu.engine, stream).unwrap_err();
    assert!(matches!(refused.error, Error::Stream { why: StreamRefusal::InUse, .. }), "{refused}");
    let own = gpu.pool.alloc_zeros::<f32>(&refused.stream, COUNT).unwrap();
    drop(buf);
    let refused = retire_stream(&gpu.engine, refused.stream).unwrap_err();
    assert!(matches!(refused.error, Error::Stream { why: StreamRefusal::Held, .. }), "{refused}");
    drop(own);
    refused.stream.synchronize().unwrap();
    retire_stream(&gpu.engine, refused.stream).unwrap();

    // Each call gives the default stream as if that had no other owner.
    let refused = retire_stream(&gpu.engine, gpu.context.default_stream()).unwrap_err();
    assert!(matches!(refused.error, Error::Stream { why: StreamRefusal::Held, .. }), "{refused}");
}

/// Copies have memory of their own, also of what cudarc allocated, and in a capture.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_are_equal_and_apart() {
    let gpu = gpu();
    assert_eq!(gpu.numbers().context(), &gpu.context);
    let original = gpu.numbers();
    let copy = original.try_clone().unwrap();
    assert_ne!(copy.address(), original.address());
    assert_eq!(gpu.a.clone_dtoh(&copy).unwrap(), numbers());
    let slice = gpu.a.clone_htod(&numbers()).unwrap();
    let taken = gpu.pool.clone_dtod(&gpu.a, &slice).unwrap();
    drop(slice);
    assert_eq!(gpu.a.clone_dtoh(&taken).unwrap(), numbers());
    let (graph, output) = gpu.captured(|_| original.try_clone().unwrap());
    graph.launch(&gpu.a).unwrap();
    assert_eq!(gpu.a.clone_dtoh(&output).unwrap(), numbers());
    assert_eq!(gpu.pool.clone_dtod::<f32>(&gpu.a, &output.slice(..0)).unwrap().len(), 0);
}

/// Buffers go to other threads, as their elements may.
#[test]
fn buffers_are_sent_and_shared() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Buf<f32>>();
    check::<BufView<'static, f32>>();
    check::<BufViewMut<'static, f32>>();
}

/// Buffers of what a pool's graphs do not keep, for the lending's stream alone.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn borrowed_buffers_lie_in_memory_of_the_graph() {
    let gpu = gpu();
    let a = &gpu.a;
    let (graph, address) = gpu
        .engine
        .capture(a, &gpu.pool, CaptureMode::ThreadLocal, |capture| {
            let temporary = capture.alloc_zeros::<f32>(a, COUNT)?;
            Ok::<_, Error>(temporary.address())
        })
        .unwrap();
    graph.launch(a).unwrap();
    let lending = gpu.pool.lend(a).unwrap();
    let other = lending.alloc_zeros::<f32>(&gpu.b, COUNT);
    assert!(matches!(other, Err(Error::OtherStream { .. })), "{other:?}");
    let borrowed = lending.clone_htod(a, &numbers()).unwrap();
    assert_eq!(borrowed.address(), address);
    assert_eq!(a.clone_dtoh(&borrowed).unwrap(), numbers());
    let refused = graph.launch(a);
    assert!(matches!(refused, Err(Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. })));
    drop(borrowed);
    graph.launch(a).unwrap();
    a.synchronize().unwrap();
}
