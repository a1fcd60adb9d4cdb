//! Memory from allocators of the host's own: asked for and given back with nothing locked.
//!
//! An engine asks a pool's source with its lock held. A source of the host's may wait for a lock in turn,
//! Python's for one, which another thread holds while it calls the plug-in. So the engine meets a stand-in:
//!
//! * where the engine asks, the stand-in notes that and refuses, which ends the request. The plug-in asks the
//!   source when nothing is locked, and makes the request again: now the stand-in has the memory, or the
//!   source's refusal, behind which the engine gives back what it can and asks anew.
//! * what the engine gives back, and the sources of pools that are gone, the stand-in keeps until a call of
//!   the plug-in ends.
//!
//! Each thread has at most one such request under way: while its source is asked, none of it is kept here.

use std::cell::RefCell;
use std::sync::Arc;

use regraph::driver::{DriverError, ErrorKind, Result, Source, StreamHandle};
use regraph::snapshot::Action;
use regraph::sync::{must_hold_none, AtomicBool, Mutex, Ordering, Rank};
use regraph::{tell_later, Later};

use super::pools::PoolKey;
use super::watch::{Happening, Watch};

/// A source is asked so often for one request: more steps to get memory the engine does not have.
const ASKED: usize = 8;

/// What an engine wants of a source.
struct Wanted {
    source: Arc<dyn Source>,
    bytes: u64,
    stream: StreamHandle,
}

/// What a source has answered.
enum Answer {
    Given {
        source: Arc<dyn Source>,
        address: u64,
        bytes: u64,
    },
    /// With `lasts`, whatever else is asked for.
    Refused {
        error: DriverError,
        lasts: bool,
    },
}

/// A thread's request.
struct Asking {
    wanted: Option<Wanted>,
    answer: Option<Answer>,
}

thread_local! {
    static ASKING: RefCell<Asking> = const { RefCell::new(Asking { wanted: None, answer: None }) };
}

/// Looks at the calling thread's request; none where the thread is ending.
fn with_asking<R: Default>(look: impl FnOnce(&mut Asking) -> R) -> R {
    ASKING.try_with(|asking| look(&mut asking.borrow_mut())).unwrap_or_default()
}

/// Makes a request, and makes it again when a source was asked that it wants memory of.
#[inline]
pub(super) fn asking<T, E>(
    returned: &Returned,
    mut request: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let result = match request() {
        Err(error) => ask(returned, error, request),
        granted => granted,
    };
    // What a request wanted goes behind the look: its source's end is code of the host's.
    drop(with_asking(|asking| asking.wanted.take()));
    returned.give_back();
    result
}

#[cold]
fn ask<T, E>(
    returned: &Returned,
    error: E,
    mut request: impl FnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let mut result = Err(error);
    for left in (0..ASKED).rev() {
        let Some(Wanted { source, bytes, stream }) = with_asking(|asking| asking.wanted.take())
        else {
            break;
        };
        // It makes room, and must not be waited for.
        returned.give_back();
        must_hold_none("a source is asked");
        let answer = match source.allocate(bytes, stream) {
            Ok(address) => Answer::Given { source, address, bytes },
            Err(error) => Answer::Refused { error, lasts: left == 0 },
        };
        with_asking(|asking| asking.answer = Some(answer));
        result = request();
        // Another thread has given back what will do, or the request failed before.
        if let Some(Answer::Given { source, address, bytes }) =
            with_asking(|asking| asking.answer.take())
        {
            returned.add(source, Some((address, bytes)));
        }
        // It may have noted a want all the same: a layout's memory, without which the block was found elsewhere.
        if result.is_ok() {
            break;
        }
    }
    result
}

/// What a source is to take back.
#[derive(Debug)]
struct Return {
    /// Let go of as well: its end may wait for a lock of the host's too.
    source: Arc<dyn Source>,
    /// Address and bytes.
    memory: Option<(u64, u64)>,
}

/// What engines have given back of memory of the host's, and sources that they have let go of.
#[derive(Debug)]
pub(super) struct Returned {
    any: AtomicBool,
    list: Mutex<Vec<Return>>,
}

impl Returned {
    pub(super) fn new() -> Self {
        Self { any: AtomicBool::new(false), list: Mutex::new(Rank::Returned, Vec::new()) }
    }

    fn add(&self, source: Arc<dyn Source>, memory: Option<(u64, u64)>) {
        let mut list = self.list.lock();
        list.push(Return { source, memory });
        self.any.store(true, Ordering::Relaxed);
    }

    /// Gives all of it back. Nothing is locked: neither here nor by the caller. What a source does not take it
    /// is offered again when something is given back next.
    #[inline]
    pub(super) fn give_back(&self) {
        if self.any.load(Ordering::Relaxed) {
            self.give_back_all();
        }
    }

    #[cold]
    fn give_back_all(&self) {
        let mut list = self.list.lock();
        self.any.store(false, Ordering::Relaxed);
        let gone = std::mem::take(&mut *list);
        drop(list);
        if !gone.is_empty() {
            must_hold_none("a source takes back");
        }
        for Return { source, memory } in gone {
            let Some((address, bytes)) = memory else { continue };
            if source.free(address, bytes).is_err() {
                let mut list = self.list.lock();
                list.push(Return { source, memory });
            }
        }
    }

    /// Gives it back when a call ends, and has observers told then of what failed: declared before the call's locks, and
    /// so dropped behind them.
    pub(super) fn at_end(&self) -> AtEnd<'_> {
        AtEnd { returned: self, _told: tell_later() }
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        self.give_back_all();
    }
}

/// See [`Returned::at_end`].
pub(super) struct AtEnd<'a> {
    returned: &'a Returned,
    _told: Later,
}

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.returned.give_back();
    }
}

/// What stands in for a source of the host's where an engine asks. What comes and goes is told to those who watch.
#[derive(Debug)]
pub(super) struct StandIn {
    source: Arc<dyn Source>,
    device: u32,
    key: PoolKey,
    watch: Arc<Watch>,
    returned: Arc<Returned>,
}

impl StandIn {
    pub(super) fn new(
        source: Arc<dyn Source>,
        (device, key): (u32, PoolKey),
        watch: Arc<Watch>,
        returned: Arc<Returned>,
    ) -> Self {
        Self { source, device, key, watch, returned }
    }

    fn tell(&self, action: Action, (address, bytes): (u64, u64), stream: StreamHandle) {
        if self.watch.is_on() {
            let &Self { device, key, .. } = self;
            self.watch.tell(&Happening { action, device, address, bytes, stream, key });
        }
    }

    /// What the source has answered to the calling thread's request; an error where it is still to be asked.
    fn answered(&self, bytes: u64, stream: StreamHandle) -> Result<u64> {
        with_asking(|asking| {
            let is_mine = |answer: &Answer| match answer {
                Answer::Given { source, bytes: given, .. } => {
                    Arc::ptr_eq(source, &self.source) && *given == bytes
                }
                Answer::Refused { .. } => true,
            };
            if let Some(Answer::Refused { error, lasts: true }) = &asking.answer {
                return Some(Err(error.clone()));
            }
            match asking.answer.take_if(|answer| is_mine(answer)) {
                Some(Answer::Given { address, .. }) => Some(Ok(address)),
                Some(Answer::Refused { error, .. }) => Some(Err(error)),
                None => {
                    let source = Arc::clone(&self.source);
                    asking.wanted = Some(Wanted { source, bytes, stream });
                    None
                }
            }
        })
        .unwrap_or_else(|| {
            let text = "a pool's own source is asked once nothing is locked".to_owned();
            Err(DriverError::new("Source::allocate", 0, ErrorKind::Other(text)))
        })
    }
}

impl Source for StandIn {
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<u64> {
        let address = self.answered(bytes, stream)?;
        self.watch.note_arrival(self.device, address, bytes);
        self.tell(Action::SegmentAlloc, (address, bytes), stream);
        Ok(address)
    }

    fn free(&self, address: u64, bytes: u64) -> Result<()> {
        self.tell(Action::SegmentFree, (address, bytes), StreamHandle::from_bits(0));
        self.watch.forget_arrival(self.device, address);
        self.returned.add(Arc::clone(&self.source), Some((address, bytes)));
        Ok(())
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.returned.add(Arc::clone(&self.source), None);
    }
}
