//! The kernel that `Program` launches: its code, its launch shape, its parameters.

use std::ffi::{c_void, CString};
use std::ptr::null_mut;

use regraph_driver::cuda::{CudaDriver, Pointer};
use regraph_driver::{DriverError, ErrorKind, Result};

use super::super::Work;
use super::functions::Functions;

const SOURCE: &str = include_str!("kernel.ptx");
const THREADS: u32 = 256;
const MAX_BLOCKS: u64 = 64;
const GRANULE: u64 = 512;

/// The loaded kernel, and the device counter of wrong tags.
pub(super) struct Kernel {
    module: usize,
    function: usize,
    /// Device address of the counter.
    pub wrong: u64,
}

impl Kernel {
    /// Compiles and loads. The context must be current and the thread relaxed.
    pub fn load(driver: &CudaDriver, functions: &Functions, compute_major: i32) -> Result<Self> {
        let image = CString::new(source(compute_major >= 9)).map_err(|_| {
            let what = ErrorKind::Other("the kernel's text has a nul byte".to_owned());
            DriverError::new("cuModuleLoadData", 0, what)
        })?;
        let mut module: Pointer = null_mut();
        // SAFETY: the image is nul-terminated PTX; the driver copies what it needs.
        unsafe { functions.module_load(driver, &mut module, image.as_ptr().cast()) }?;
        let mut kernel = Self { module: module as usize, function: 0, wrong: 0 };
        match kernel.fill(driver, functions) {
            Ok(()) => Ok(kernel),
            Err(error) => {
                kernel.unload(driver, functions);
                Err(error)
            }
        }
    }

    fn fill(&mut self, driver: &CudaDriver, functions: &Functions) -> Result<()> {
        let mut function: Pointer = null_mut();
        // SAFETY: the module is loaded and the name nul-terminated.
        unsafe {
            functions.module_function(
                driver,
                &mut function,
                self.module as Pointer,
                c"regraph_work".as_ptr(),
            )
        }?;
        self.function = function as usize;
        // SAFETY: writes one address.
        unsafe { functions.memory_allocate(driver, &mut self.wrong, 8) }?;
        let zero = 0u64;
        // SAFETY: copies eight bytes into the eight just allocated.
        unsafe { functions.copy_to_device(driver, self.wrong, (&raw const zero).cast(), 8) }
    }

    /// The driver's function handle.
    pub fn function(&self) -> Pointer {
        self.function as Pointer
    }

    /// Gives everything back. The context must be current, the thread relaxed, the device idle.
    pub fn unload(&mut self, driver: &CudaDriver, functions: &Functions) {
        if self.wrong != 0 {
            // SAFETY: allocated by `fill` and freed once; a failure leaks, nothing more.
            let _ = unsafe { functions.memory_free(driver, self.wrong) };
            self.wrong = 0;
        }
        // SAFETY: loaded by `load` and unloaded once; a failure leaks, nothing more.
        let _ = unsafe { functions.module_unload(driver, self.module as Pointer) };
    }
}

/// The text for a device that has programmatic launches, or for one that has not.
fn source(programmatic: bool) -> String {
    if !programmatic {
        return SOURCE.to_owned();
    }
    SOURCE
        .replace("\n.version 7.0\n", "\n.version 7.8\n")
        .replace("\n.target sm_70\n", "\n.target sm_90\n")
        .replace("//TRIGGER", "griddepcontrol.launch_dependents;")
}

/// Grid and block that a work's ranges ask for.
pub(super) fn shape(work: &Work<'_>) -> ([u32; 3], [u32; 3]) {
    let largest = work
        .inputs
        .iter()
        .chain(work.outputs)
        .map(|range| range.bytes.div_ceil(GRANULE))
        .max()
        .unwrap_or(0);
    let blocks = largest.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS);
    ([blocks as u32, 1, 1], [THREADS, 1, 1])
}

/// The kernel's parameters, in its order.
pub(super) struct Parameters {
    table: u64,
    wrong: u64,
    inputs: u32,
    outputs: u32,
    delay: u32,
    trigger: u32,
}

impl Parameters {
    /// The parameters of one launch.
    pub fn new(kernel: &Kernel, table: u64, work: &Work<'_>) -> Self {
        Self {
            table,
            wrong: kernel.wrong,
            inputs: work.inputs.len() as u32,
            outputs: work.outputs.len() as u32,
            delay: work.delay,
            trigger: u32::from(work.trigger_early),
        }
    }

    /// Pointers to the parameters, valid while `self` is borrowed. The driver copies the values and writes none.
    pub fn pointers(&self) -> [Pointer; 6] {
        fn erase<T>(value: &T) -> Pointer {
            std::ptr::from_ref(value).cast::<c_void>().cast_mut()
        }
        [
            erase(&self.table),
            erase(&self.wrong),
            erase(&self.inputs),
            erase(&self.outputs),
            erase(&self.delay),
            erase(&self.trigger),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tagged;

    #[test]
    fn the_newer_text_triggers_and_the_older_does_not() {
        let newer = source(true);
        assert!(newer.contains("\n.version 7.8\n.target sm_90\n"));
        assert!(newer.contains("    griddepcontrol.launch_dependents;\n"));
        let older = source(false);
        assert!(older.contains("\n.version 7.0\n.target sm_70\n"));
        assert!(!older.contains("griddepcontrol"));
    }

    #[test]
    fn shapes_follow_the_largest_range() {
        let range = |bytes| Tagged { address: 0, bytes, tag: 0 };
        assert_eq!(shape(&Work::default()).0[0], 1);
        for (bytes, blocks) in [(8, 1), (131_072, 1), (131_080, 2), (1 << 40, 64)] {
            let ranges = [range(bytes)];
            let work = Work { outputs: &ranges, ..Work::default() };
            assert_eq!(shape(&work).0[0], blocks);
        }
    }
}
