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
    /// Exporting physical memory.
    Export = "cuMemExportToShareableHandle";
    /// Importing it.
    Import = "cuMemImportFromShareableHandle";
    /// Naming an allocation for other processes.
    ExportAllocation = "cuIpcGetMemHandle";
    /// Mapping what was named so.
    OpenAllocation = "cuIpcOpenMemHandle";
    /// Unmapping it.
    CloseAllocation = "cuIpcCloseMemHandle";
    /// Giving another device access.
    OpenTo = "cuDeviceCanAccessPeer";
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
    /// Calls of the host's.
    host_calls: u64,
    /// How many more of them succeed before one fails.
    host: Option<(u64, ErrorKind)>,
    /// How many more calls of any kind succeed before all fail.
    lost: Option<(u64, ErrorKind)>,
}

impl Faults {
    /// Counts a call, and fails it where that was asked for.
    #[inline]
    pub(super) fn enter(&mut self, call: Call) -> Fallible<()> {
        self.counts[call as usize] += 1;
        self.enter_any()?;
        if !self.are_pending() {
            return Ok(());
        }
        self.fire(call)
    }

    /// Whether some coming call is to fail.
    #[inline]
    pub(super) fn are_pending(&self) -> bool {
        !self.injections.is_empty() || self.lost.is_some()
    }

    /// Counts a call of the host's, and fails it where that was asked for.
    pub(super) fn enter_host(&mut self) -> Fallible<()> {
        self.host_calls += 1;
        self.enter_any()?;
        match &mut self.host {
            Some((0, kind)) => {
                let refusal = kind.clone().into();
                self.host = None;
                Err(refusal)
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Fails a call of a device that is lost.
    #[inline]
    fn enter_any(&mut self) -> Fallible<()> {
        match &mut self.lost {
            None => Ok(()),
            Some((0, kind)) => Err(kind.clone().into()),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    pub(super) fn fail_host(&mut self, remaining: u64, kind: ErrorKind) {
        self.host = Some((remaining, kind));
    }

    pub(super) fn lose(&mut self, remaining: u64, kind: ErrorKind) {
        self.lost = Some((remaining, kind));
    }

    pub(super) fn host_calls(&self) -> u64 {
        self.host_calls
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
        (self.host, self.lost) = (None, None);
    }

    pub(super) fn count(&self, call: Call) -> u64 {
        self.counts[call as usize]
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}
