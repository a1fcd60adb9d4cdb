//! Kernels of the simulated device: what they do to memory when they start and when they end.

use std::fmt;
use std::sync::Arc;

use super::contents::Contents;
use super::memory::{Memory, Stretch};
use regraph::driver::{Access, NodeKind, NodePointer};

/// What a simulated kernel does.
///
/// A kernel that follows another one by an ordinary edge starts after that one's end; by a
/// programmatic edge it starts after the other's start and ends after the other's end.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// The device memory that stands in its parameters, each range as its address and its length in bytes.
    fn ranges(&self) -> Vec<(u64, u64)>;

    /// The type that its nodes have. One that stands for a copy or a fill is launched and ordered like any other.
    fn kind(&self) -> NodeKind {
        NodeKind::KERNEL
    }

    /// What the driver tells of its parameters: by default where its ranges begin, as of a kernel's.
    fn pointers(&self) -> Vec<NodePointer> {
        let unknown = |(address, _)| NodePointer { address, access: Access::Unknown };
        self.ranges().into_iter().map(unknown).collect()
    }

    /// Which function it is: by default all kernels of one type are of one.
    fn function(&self) -> usize {
        let name = std::any::type_name::<Self>().bytes();
        name.fold(0, |sum: usize, byte| sum.rotate_left(5).wrapping_mul(31) ^ usize::from(byte))
    }

    /// What its nodes have that an update of an executable does not change, such as whether it is cooperative.
    fn attributes(&self) -> u64 {
        0
    }

    /// What it does first.
    fn start(&self, memory: &mut KernelMemory<'_>);

    /// What it does last.
    fn end(&self, memory: &mut KernelMemory<'_>);
}

/// How a kernel is launched.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// What it does; `None` touches no memory.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// Whether it may start before the last kernel of its stream has ended (programmatic stream serialization).
    pub programmatic: bool,
}

/// The device's memory as a kernel sees it. Every 512 bytes hold one number, at first 0; memory is told apart by what
/// is mapped, not by address, so two addresses of the same memory see each other's writes.
///
/// An access to memory that is not mapped, or mapped without access for the kernel's device, makes
/// the next `synchronize` fail.
#[derive(Debug)]
pub struct KernelMemory<'a> {
    pub(super) device: u32,
    pub(super) memory: &'a Memory,
    pub(super) contents: &'a mut Contents,
    /// Kept for its capacity.
    pub(super) stretches: &'a mut Vec<Stretch>,
    pub(super) failures: &'a mut u64,
    pub(super) illegal: &'a mut bool,
}

impl KernelMemory<'_> {
    /// Calls `each` with every run of equal numbers in a range, in order: the number, and how many
    /// times 512 bytes it fills. `address` is a multiple of 512; `bytes` is rounded up to one.
    pub fn read(&mut self, address: u64, bytes: u64, mut each: impl FnMut(u64, u64)) {
        if self.memory.translate(self.device, (address, bytes), self.stretches).is_none() {
            *self.illegal = true;
            return;
        }
        for stretch in &*self.stretches {
            self.contents.read(*stretch, &mut each);
        }
    }

    /// Writes a number into every 512 bytes of a range; `address` and `bytes` as for [`KernelMemory::read`].
    pub fn fill(&mut self, address: u64, bytes: u64, number: u64) {
        if self.memory.translate(self.device, (address, bytes), self.stretches).is_none() {
            *self.illegal = true;
            return;
        }
        for stretch in &*self.stretches {
            self.contents.write(*stretch, number);
        }
    }

    /// Counts failed checks of the kernel's own ([`SimDriver::take_failed_checks`]).
    ///
    /// [`SimDriver::take_failed_checks`]: super::SimDriver::take_failed_checks
    pub fn fail(&mut self, checks: u64) {
        *self.failures += checks;
    }
}
