//! Other devices of the machine, and other contexts of this one: whose a stream is, events for their streams, access for
//! their kernels, waits for their work.
//!
//! A stream's device is asked for by its context. `cuStreamGetDevice` would say the same, but is
//! refused for a stream that captures.

use std::collections::btree_map::{BTreeMap, Entry};
use std::ffi::{c_char, CStr};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use cudarc::driver::CudaContext;

use super::super::{Driver, DriverError, ErrorKind, MemorySupport, Result, StreamHandle};
use super::error::{failure, nonsense};
use super::guard::{Current, Saved};
use super::raw::{self, AccessDesc, Pointer};
use super::symbols::Symbols;
use super::CudaDriver;

/// What a driver object knows of other devices.
pub(super) struct Neighbours {
    /// Their primary contexts, which live as long as events in them may.
    contexts: Mutex<BTreeMap<u32, Arc<CudaContext>>>,
    /// Those that may touch this device's memory.
    peers: Mutex<Peers>,
    /// Who may touch what is mapped: this device, and its peers.
    access: RwLock<Vec<AccessDesc>>,
    /// Contexts of this device beside the primary one whose streams this driver was asked about: their addresses by their
    /// numbers, of which the driver gives none twice.
    beside: Mutex<BTreeMap<u64, usize>>,
}

#[derive(Default)]
struct Peers {
    /// By ordinal, with whether the context was given access to whole allocations.
    contexts: BTreeMap<u32, (Arc<CudaContext>, bool)>,
    /// Whether there may be whole allocations.
    allocates: bool,
}

impl Neighbours {
    /// Those of a device that no other one may touch the memory of.
    pub(super) fn of(device: i32) -> Self {
        Self {
            contexts: Mutex::default(),
            peers: Mutex::default(),
            access: RwLock::new(vec![AccessDesc::read_write(device)]),
            beside: Mutex::default(),
        }
    }

    /// Who may touch what is mapped.
    pub(super) fn access(&self) -> RwLockReadGuard<'_, Vec<AccessDesc>> {
        self.access.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device of the machine, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaDevice {
    /// What [`CudaDriver::new`] opens it by.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its memory, in bytes.
    pub total_bytes: u64,
}

/// What the driver answers where there is no device (CUDA_ERROR_NO_DEVICE).
const NO_DEVICE: u32 = 100;

/// The devices that this process can open (`CUDA_VISIBLE_DEVICES`), in the order of their ordinals; none where
/// the machine has none. Makes no context.
///
/// # Errors
/// [`ErrorKind::NoDriver`] where libcuda cannot be loaded, [`ErrorKind::MissingFunction`] where it is older than
/// CUDA 12.3, and what the driver answers.
pub fn devices() -> Result<Vec<CudaDevice>> {
    let symbols = Symbols::load()?;
    let mut count = 0;
    // SAFETY: the first takes no pointers and may be called any number of times; the second writes one int.
    match unsafe { symbols.init(0).and_then(|()| symbols.device_count(&mut count)) } {
        Err(error) if error.code == NO_DEVICE => return Ok(Vec::new()),
        counted => counted?,
    }
    let describe = |ordinal: i32| {
        let (mut device, mut bytes) = (0, 0);
        // SAFETY: each writes one number.
        unsafe {
            symbols.device_get(&mut device, ordinal)?;
            symbols.device_bytes(&mut bytes, device)?;
        }
        let name = name(&symbols, device)?;
        Ok(CudaDevice { ordinal: ordinal.unsigned_abs(), name, total_bytes: bytes as u64 })
    };
    (0..count).map(describe).collect()
}

/// A device's name.
pub(super) fn name(symbols: &Symbols, device: i32) -> Result<String> {
    let mut name: [c_char; 256] = [0; 256];
    // SAFETY: writes at most the given length, nul included.
    unsafe { symbols.device_name(name.as_mut_ptr(), name.len() as i32 - 1, device) }?;
    // SAFETY: the array outlives the borrow and its last byte is still nul.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

/// Retains a device's primary context, and makes it current to a calling thread that had none.
pub(super) fn retain(symbols: &Symbols, ordinal: u32) -> Result<Arc<CudaContext>> {
    let before = Saved::now(symbols)?;
    // Makes it current, where it succeeds.
    let context = CudaContext::new(ordinal as usize)
        .map_err(|error| failure(symbols, "cuDevicePrimaryCtxRetain", error.0 as u32))?;
    if before.is(null_mut()) {
        std::mem::forget(before);
    }
    Ok(context)
}

impl CudaDriver {
    /// Gives other devices access to all memory that this driver hands out from now on, by their ordinals, so that
    /// their kernels can use it: an engine's blocks, where the engine is made on this driver afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] with a text, where a device cannot reach this one's memory; what the driver answers.
    pub fn with_peers(self, ordinals: &[u32]) -> Result<Self> {
        for &ordinal in ordinals {
            self.add_peer(ordinal)?;
        }
        if self.support == MemorySupport::Allocated {
            self.open_to_peers()?;
        }
        Ok(self)
    }

    /// Gives one more device access to all memory that is handed out from now on.
    pub(super) fn add_peer(&self, ordinal: u32) -> Result<()> {
        if ordinal == self.device() {
            return Ok(());
        }
        let context = self.neighbour(ordinal)?;
        let mut peers = self.peers();
        if let Entry::Vacant(vacant) = peers.contexts.entry(ordinal) {
            let peer = context.cu_device();
            let mut reaches = 0;
            // SAFETY: writes one int; takes no other pointers.
            unsafe { self.symbols.can_access_peer(&mut reaches, peer, self.device) }?;
            if reaches == 0 {
                return Err(out_of_reach(ordinal, self.device()));
            }
            vacant.insert((context, false));
            let mut access = self.neighbours.access.write().unwrap_or_else(PoisonError::into_inner);
            access.push(AccessDesc::read_write(peer));
        }
        if peers.allocates {
            self.open_all(&mut peers)?;
        }
        Ok(())
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        // No step leaves the table half changed.
        self.neighbours.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device that a stream belongs to, whichever it is.
    pub(super) fn owner(&self, stream: StreamHandle) -> Result<u32> {
        if stream.is_default() {
            return Ok(self.device());
        }
        let _relaxed = self.enter()?;
        let mut context: Pointer = null_mut();
        // SAFETY: the stream is the caller's and alive; writes one pointer.
        unsafe { self.symbols.stream_context(stream.as_raw(), &mut context) }?;
        if context == self.raw_context() {
            return Ok(self.device());
        }
        let _current = Current::enter(&self.symbols, context)?;
        let mut device = 0;
        // SAFETY: writes one int.
        unsafe { self.symbols.context_device(&mut device) }?;
        if device == self.device {
            self.note_beside(context)?;
        }
        // A device's handle is its ordinal.
        u32::try_from(device).map_err(|_| nonsense("cuCtxGetDevice", "a device below zero"))
    }

    /// Notes a context of this device beside the primary one, which lives: waits for the device are to cover its work.
    pub(super) fn note_beside(&self, context: Pointer) -> Result<()> {
        let mut number = 0;
        // SAFETY: the context lives; writes one number.
        unsafe { self.symbols.context_id(context, &mut number) }?;
        self.beside().insert(number, context as usize);
        Ok(())
    }

    /// The primary context, and those beside it that were noted and live. What a context was given that has been
    /// destroyed since is done.
    pub(super) fn contexts(&self) -> Vec<Pointer> {
        let mut beside = self.beside();
        beside.retain(|&number, context| {
            let mut now = 0;
            // SAFETY: writes one number. Of a context that was destroyed the driver says that it is (measured, CUDA 13).
            let known = unsafe { self.symbols.context_id(*context as Pointer, &mut now) };
            known.is_ok() && now == number
        });
        let beside = beside.values().map(|&context| context as Pointer);
        std::iter::once(self.raw_context()).chain(beside).collect()
    }

    fn beside(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        // No step leaves the table half changed.
        self.neighbours.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The primary context of another device, for events that are to be recorded on streams of that. It lives as long as
    /// this driver object.
    pub(super) fn neighbour(&self, ordinal: u32) -> Result<Arc<CudaContext>> {
        let contexts = &self.neighbours.contexts;
        let mut contexts = contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.get(&ordinal) {
            return Ok(Arc::clone(context));
        }
        let _relaxed = self.enter()?;
        let context = retain(&self.symbols, ordinal)?;
        contexts.insert(ordinal, Arc::clone(&context));
        Ok(context)
    }

    /// Gives the peers' contexts access to what `cuMemAlloc` gives; mapped memory has access of its
    /// own. Not before it is needed: from then on every allocation is mapped for all of them.
    pub(super) fn open_to_peers(&self) -> Result<()> {
        let mut peers = self.peers();
        peers.allocates = true;
        self.open_all(&mut peers)
    }

    fn open_all(&self, peers: &mut Peers) -> Result<()> {
        for (context, opened) in peers.contexts.values_mut().filter(|(_, opened)| !opened) {
            let _relaxed = self.enter()?;
            let _current = Current::enter(&self.symbols, context.cu_ctx().cast())?;
            // SAFETY: both contexts are alive; no flags are defined.
            match unsafe { (self.symbols.enable_peer_access)(self.raw_context(), 0) } {
                0 | raw::PEER_ACCESS_ALREADY_ENABLED => *opened = true,
                code => return Err(failure(&self.symbols, "cuCtxEnablePeerAccess", code)),
            }
        }
        Ok(())
    }
}

fn out_of_reach(peer: u32, device: u32) -> DriverError {
    let text = format!(
        "device {peer} cannot reach the memory of device {device}; leave it out, and copy between \
         them instead"
    );
    DriverError::new("cuDeviceCanAccessPeer", 0, ErrorKind::Other(text))
}
