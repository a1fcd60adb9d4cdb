//! Kernels that note that they ran.

use std::sync::{Arc, Mutex};

use regraph::driver::{NodePointer, StreamHandle};
use regraph_sim::{Kernel, KernelMemory, Launch, SimDriver};

/// The numbers of kernels that ran, in the order of their ends.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<u64>>>);

/// A kernel: its number stands for its parameters, all else for what it is.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    pub number: u64,
    pub function: usize,
    pub parameters: usize,
    pub attributes: u64,
    pub programmatic: bool,
}

#[derive(Debug)]
struct Noting {
    notes: Notes,
    kernel: Noted,
}

impl Kernel for Noting {
    fn ranges(&self) -> Vec<(u64, u64)> {
        vec![(0, 0); self.kernel.parameters]
    }

    fn pointers(&self) -> Vec<NodePointer> {
        Vec::new()
    }

    fn function(&self) -> usize {
        self.kernel.function
    }

    fn attributes(&self) -> u64 {
        self.kernel.attributes
    }

    fn start(&self, _: &mut KernelMemory<'_>) {}

    fn end(&self, _: &mut KernelMemory<'_>) {
        self.notes.0.lock().unwrap().push(self.kernel.number);
    }
}

impl Notes {
    pub fn launch(&self, driver: &SimDriver, stream: StreamHandle, kernel: Noted) {
        let programmatic = kernel.programmatic;
        let kernel = Some(self.kernel(kernel));
        driver.launch_kernel(stream, Launch { kernel, programmatic }).unwrap();
    }

    pub fn kernel(&self, kernel: Noted) -> Arc<dyn Kernel> {
        Arc::new(Noting { notes: self.clone(), kernel })
    }

    /// A kernel of the number and nothing else.
    pub fn note(&self, driver: &SimDriver, stream: StreamHandle, number: u64) {
        self.launch(driver, stream, Noted { number, ..Noted::default() });
    }

    /// What ran since the last call.
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}
