//! Counts of calls, and calls that fail on demand.

use super::refusal::Fallible;
use regraph::driver::ErrorKind;

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $name:literal;)*) => {
        /// The calls of [`Driver`](regraph::driver::Driver) that can fail.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Call {
            $($(#[$doc])* $call,)*
        }

        impl Call {
            /// Every call.
            pub const ALL: &'static [Self] = &[$(Self::$call),*];

            /// The CUDA driver's name of the call.
            pub const fn driver_name(self) -> &'static str {
                match self {
                    $(Self::$call => $name,)*
                }
            }
        }
    };
}

calls! {
    /// Asking for a stream's capture status.
    CaptureStatus = "cuStreamGetCaptureInfo";
    /// Asking for a stream's device.
    DeviceOfStream = "cuStreamGetCtx";
    /// Asking for a node's dependencies.
    Dependencies = "cuGraphNodeGetDependencies";
    /// Asking for a graph's nodes.
    Nodes = "cuGraphGetNodes";
    /// Asking for a node's type.
    NodeKind = "cuGraphNodeGetType";
    /// Asking for the addresses among a node's parameters.
    Pointers = "cuGraphKernelNodeGetParams";
    /// Asking for free and total memory.
    MemoryInfo = "cuMemGetInfo";
    /// Reserving address space.
    Reserve = "cuMemAddressReserve";
    /// Giving address space back.
    Unreserve = "cuMemAddressFree";
    /// Creating physical memory.
    Create = "cuMemCreate";
    /// Releasing physical memory.
    Release = "cuMemRelease";
    /// Mapping.
    Map = "cuMemMap";
    /// Granting access.
    SetAccess = "cuMemSetAccess";
    /// Unmapping.
    Unmap = "cuMemUnmap";
    /// Allocating.
    Allocate = "cuMemAlloc";
    /// Freeing.
    Free = "cuMemFree";
    /// Creating an event.
    CreateEvent = "cuEventCreate";
    /// Recording an event.
    RecordEvent = "cuEventRecord";
    /// Asking whether an event is complete.
    QueryEvent = "cuEventQuery";
    /// Waiting for an event.
    SynchronizeEvent = "cuEventSynchronize";
    /// Destroying an event.
    DestroyEvent = "cuEventDestroy";
}

#[derive(Debug)]
struct Injection {
    /// `None` counts calls of every kind.
    call: Option<Call>,
    remaining: u64,
    kind: ErrorKind,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [u64; Call::ALL.len()],
    injections: Vec<Injection>,
}

impl Faults {
    /// Counts a call, and fails it where that was asked for.
    #[inline]
    pub(super) fn enter(&mut self, call: Call) -> Fallible<()> {
        self.counts[call as usize] += 1;
        if !self.are_pending() {
            return Ok(());
        }
        self.fire(call)
    }

    /// Whether some coming call is to fail.
    #[inline]
    pub(super) fn are_pending(&self) -> bool {
        !self.injections.is_empty()
    }

    #[cold]
    fn fire(&mut self, call: Call) -> Fallible<()> {
        let mut fired = None;
        for (position, injection) in self.injections.iter_mut().enumerate() {
            if injection.call.is_some_and(|only| only != call) {
                continue;
            }
            if injection.remaining > 0 {
                injection.remaining -= 1;
            } else if fired.is_none() {
                fired = Some(position);
            }
        }
        match fired {
            Some(position) => Err(self.injections.remove(position).kind.into()),
            None => Ok(()),
        }
    }

    pub(super) fn inject(&mut self, call: Option<Call>, remaining: u64, kind: ErrorKind) {
        self.injections.push(Injection { call, remaining, kind });
    }

    pub(super) fn forget(&mut self) {
        self.injections.clear();
    }

    pub(super) fn count(&self, call: Call) -> u64 {
        self.counts[call as usize]
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
