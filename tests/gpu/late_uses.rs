//! What nodes' parameters show on a real GPU, and late uses that are found by it.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, MutexGuard};

use crate::device::{gpu::turn, graph_of};
use regraph::driver::{
    Access, CaptureMode, Driver, GraphHandle, HostApi, NodeHandle, NodeKind, NodePointer,
    StreamHandle,
};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph_tagged::CudaProgram;

type Pointer = *mut c_void;
type Fill = unsafe extern "C" fn(u64, u8, usize, Pointer) -> u32;
type Copy = unsafe extern "C" fn(u64, u64, usize, Pointer) -> u32;
type Load = unsafe extern "C" fn(*mut Pointer, *const c_void) -> u32;
type Find = unsafe extern "C" fn(*mut Pointer, Pointer, *const c_char) -> u32;
type Launch = unsafe extern "C" fn(
    Pointer,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    Pointer,
    *mut Pointer,
    *mut Pointer,
) -> u32;
type AddChild = unsafe extern "C" fn(*mut Pointer, Pointer, *const Pointer, usize, Pointer) -> u32;

const BYTES: u64 = 4 << 20;
const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// Does nothing with an int, a pointer, and a structure of three words.
const SOURCE: &std::ffi::CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry regraph_parameters(
    .param .u32 number,
    .param .u64 pointer,
    .param .align 8 .b8 structure[24]
)
{
    ret;
}
";

/// The kernel's parameters as they lie in one buffer.
#[repr(C)]
struct Parameters {
    number: u32,
    pointer: u64,
    structure: [u64; 3],
}

struct Gpu {
    driver: Arc<CudaProgram>,
    kernel: Pointer,
    _turn: MutexGuard<'static, ()>,
}

/// A function of libcuda.
///
/// # Safety
/// `F` must be the C prototype of the function.
unsafe fn raw<F: std::marker::Copy>(name: &str) -> F {
    for library in ["libcuda.so.1", "libcuda.so", "nvcuda.dll"] {
        // SAFETY: opens libcuda, which the driver object keeps open.
        if let Ok(library) = unsafe { libloading::Library::new(library) } {
            // SAFETY: the caller's part.
            return *unsafe { library.get::<F>(name) }.unwrap();
        }
    }
    panic!("no libcuda");
}

fn gpu() -> Gpu {
    let turn = turn();
    let driver = Arc::new(CudaProgram::new(0).unwrap());
    driver.context().bind_to_thread().unwrap();
    let (mut module, mut kernel) = (null_mut(), null_mut());
    // SAFETY: the prototypes are those of cuda.h, the texts have an end.
    unsafe {
        assert_eq!(raw::<Load>("cuModuleLoadData")(&mut module, SOURCE.as_ptr().cast()), 0);
        let find = raw::<Find>("cuModuleGetFunction");
        assert_eq!(find(&mut kernel, module, c"regraph_parameters".as_ptr()), 0);
    }
    Gpu { driver, kernel, _turn: turn }
}

impl Gpu {
    fn graph(&self, stream: StreamHandle) -> GraphHandle {
        graph_of(&self.driver, stream)
    }

    fn last(&self, stream: StreamHandle) -> NodeHandle {
        let mut terminals = Vec::new();
        self.driver.capture_status(stream, &mut terminals).unwrap();
        assert_eq!(terminals.len(), 1);
        terminals[0].node
    }

    fn fill(&self, stream: StreamHandle, address: u64) -> NodeHandle {
        // SAFETY: the prototype is that of cuda.h; the memory is the test's.
        let code = unsafe { raw::<Fill>("cuMemsetD8Async")(address, 7, 512, stream.as_raw()) };
        assert_eq!(code, 0);
        self.last(stream)
    }

    fn copy(&self, stream: StreamHandle, to: u64, from: u64) -> NodeHandle {
        // SAFETY: as above.
        let code = unsafe { raw::<Copy>("cuMemcpyDtoDAsync_v2")(to, from, 512, stream.as_raw()) };
        assert_eq!(code, 0);
        self.last(stream)
    }

    /// Launches the kernel, its parameters one by one or in one buffer.
    fn launch(&self, stream: StreamHandle, [one, two]: [u64; 2], buffer: bool) -> NodeHandle {
        let mut it = Parameters { number: 3, pointer: one, structure: [1, two, 2] };
        let mut each: [Pointer; 3] = [
            (&raw mut it.number).cast(),
            (&raw mut it.pointer).cast(),
            (&raw mut it.structure).cast(),
        ];
        let mut bytes = std::mem::size_of::<Parameters>();
        let mut extra: [Pointer; 5] =
            [1 as Pointer, (&raw mut it).cast(), 2 as Pointer, (&raw mut bytes).cast(), null_mut()];
        let parameters = if buffer { null_mut() } else { each.as_mut_ptr() };
        let extra = if buffer { extra.as_mut_ptr() } else { null_mut() };
        // SAFETY: the prototype is that of cuda.h, the parameters those of the kernel; they are
        // copied by the call.
        let code = unsafe {
            let launch = raw::<Launch>("cuLaunchKernel");
            launch(self.kernel, 1, 1, 1, 1, 1, 1, 0, stream.as_raw(), parameters, extra)
        };
        assert_eq!(code, 0);
        self.last(stream)
    }

    fn pointers(&self, node: NodeHandle) -> Vec<u64> {
        self.told(node).iter().map(|pointer| pointer.address).collect()
    }

    fn does(&self, node: NodeHandle) -> Vec<Access> {
        self.told(node).iter().map(|pointer| pointer.access).collect()
    }

    fn told(&self, node: NodeHandle) -> Vec<NodePointer> {
        let mut pointers = Vec::new();
        self.driver.pointers(node, &mut pointers).unwrap();
        pointers
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn addresses_among_parameters_are_told() {
    let gpu = gpu();
    let driver = &gpu.driver;
    let memory = driver.allocate(BYTES).unwrap();
    for mode in MODES {
        let stream = driver.create_stream().unwrap();
        driver.begin_capture(stream, mode).unwrap();
        let fill = gpu.fill(stream, memory + 512);
        let copy = gpu.copy(stream, memory + 1024, memory + 2048);
        let kernel = gpu.launch(stream, [memory + 4096, memory + 8192], false);
        let buffer = gpu.launch(stream, [memory + 4608, memory + 8704], true);
        let expect = |values: Vec<u64>, wanted: &[u64]| {
            for address in wanted {
                assert!(values.contains(address), "{wanted:x?} in {values:x?}");
            }
        };
        let judge = || {
            assert_eq!(gpu.pointers(fill), [memory + 512]);
            assert_eq!(gpu.pointers(copy), [memory + 2048, memory + 1024]);
            assert_eq!(gpu.does(fill), [Access::Writes]);
            assert_eq!(gpu.does(copy), [Access::Reads, Access::Writes]);
            assert!(gpu.does(kernel).iter().all(|&it| it == Access::Unknown));
            expect(gpu.pointers(kernel), &[memory + 4096, memory + 8192]);
            expect(gpu.pointers(buffer), &[memory + 4608, memory + 8704]);
            assert_eq!(driver.kernel_name(kernel).as_deref(), Some("regraph_parameters"));
            assert_eq!(driver.kernel_name(fill), None);
        };
        // While the capture lasts, which it must survive, and on the finished graph.
        judge();
        let graph = driver.end_capture(stream).unwrap();
        judge();

        driver.begin_capture(stream, mode).unwrap();
        let outer = driver.end_capture(stream).unwrap();
        let mut child = null_mut();
        // SAFETY: the prototype is that of cuda.h; both graphs live.
        let code = unsafe {
            let add = raw::<AddChild>("cuGraphAddChildGraphNode");
            add(&mut child, outer.as_raw(), std::ptr::null(), 0, graph.as_raw())
        };
        assert_eq!(code, 0);
        let all = [512, 1024, 2048, 4096, 8192, 4608, 8704].map(|offset| memory + offset);
        let child = NodeHandle::from_raw(child);
        expect(gpu.pointers(child), &all);
        assert!(gpu.does(child).iter().all(|&it| it == Access::Unknown));

        driver.destroy_graph(outer).unwrap();
        driver.destroy_graph(graph).unwrap();
        driver.destroy_stream(stream).unwrap();
    }
    driver.free(memory).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn late_uses_are_found() {
    let gpu = gpu();
    let driver = &gpu.driver;
    let config = Config::default().find_late_uses(true);
    let engine = Engine::new(driver.clone(), config);
    let pool = engine.create_pool(PoolConfig::default());
    for flawed in [false, true] {
        let [s, t] = [(); 2].map(|()| driver.create_stream().unwrap());
        driver.begin_capture(s, CaptureMode::ThreadLocal).unwrap();
        let capture = engine.begin_capture(pool, s).unwrap();
        let [one, two] = [(); 2].map(|()| engine.allocate(pool, BYTES, s).unwrap());
        gpu.fill(s, one.address);
        gpu.copy(s, two.address, one.address);
        driver.wait(t, s).unwrap();
        gpu.launch(t, [one.address, two.address + 4096], false);
        engine.record_use(one.id, t).unwrap();
        if !flawed {
            engine.record_stream(two.id, t).unwrap();
        }
        let late = flawed.then(|| gpu.fill(t, one.address + 4096));
        engine.free(one.id).unwrap();
        engine.free(two.id).unwrap();
        driver.wait(s, t).unwrap();
        let report = engine.end_capture(capture, gpu.graph(s)).unwrap();
        let graph = driver.end_capture(s).unwrap();
        for late in &report.late_uses {
            println!("{late}");
        }
        if let Some(late) = late {
            let [kernel, fill] = &report.late_uses[..] else { panic!("{report:?}") };
            assert_eq!(kernel.block.block, two.id.number());
            assert_eq!((kernel.offset, kernel.kind), (4096, Some(NodeKind::KERNEL)));
            assert_eq!(kernel.kernel.as_deref(), Some("regraph_parameters"));
            assert_eq!(fill.block.block, one.id.number());
            assert_eq!((fill.node, fill.offset, fill.kind), (late, 4096, Some(NodeKind::FILL)));
        } else {
            assert!(report.late_uses.is_empty());
        }
        engine.release_graph(report.graph).unwrap();
        driver.destroy_graph(graph).unwrap();
        for stream in [s, t] {
            engine.retire_stream(stream).unwrap();
            driver.destroy_stream(stream).unwrap();
        }
    }
}
