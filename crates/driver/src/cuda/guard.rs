//! The calling thread's context and capture mode.

use std::marker::PhantomData;
use std::ptr::null_mut;

use super::super::Result;
use super::raw::{Pointer, MODE_RELAXED};
use super::symbols::Symbols;

/// Which context is current to the calling thread, or that none is. It is so again when this goes.
#[must_use]
pub(super) struct Saved<'a> {
    symbols: &'a Symbols,
    context: Pointer,
}

impl<'a> Saved<'a> {
    #[inline]
    pub fn now(symbols: &'a Symbols) -> Result<Self> {
        let mut context: Pointer = null_mut();
        // SAFETY: writes one pointer.
        unsafe { symbols.current_context(&mut context) }?;
        Ok(Self { symbols, context })
    }

    /// Whether it is this one.
    pub fn is(&self, context: Pointer) -> bool {
        self.context == context
    }
}

impl Drop for Saved<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it was current when this began, or none was. If the host has destroyed it since, the call
        // fails, and there is no caller to tell.
        let _ = unsafe { (self.symbols.set_context)(self.context) };
    }
}

/// While this lives, a context is current to the calling thread; afterwards what was so before is again.
#[must_use]
pub(super) struct Current<'a> {
    symbols: &'a Symbols,
    /// None where it was this context.
    _before: Option<Saved<'a>>,
}

impl<'a> Current<'a> {
    /// Makes `context`, which is alive, current to the calling thread, unless it is.
    #[inline]
    pub fn enter(symbols: &'a Symbols, context: Pointer) -> Result<Self> {
        Self::enter_if(symbols, context, || Ok(()))
    }

    /// As [`Current::enter`], if another context that is current may give way; `may` runs while it still is.
    #[inline]
    pub fn enter_if(
        symbols: &'a Symbols,
        context: Pointer,
        may: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let before = Saved::now(symbols)?;
        if before.is(context) {
            // Nothing to go back to.
            std::mem::forget(before);
            return Ok(Self { symbols, _before: None });
        }
        if !before.is(null_mut()) {
            may()?;
        }
        // SAFETY: the caller keeps the context alive.
        unsafe { symbols.set_context(context) }?;
        Ok(Self { symbols, _before: Some(before) })
    }
}

/// Both at once: a context is current, and the thread is in the relaxed mode.
#[must_use]
pub(super) struct Entered<'a> {
    _relaxed: Relaxed<'a>,
    _current: Current<'a>,
}

impl<'a> Entered<'a> {
    /// Makes the calling thread relaxed, to which a context was made current.
    pub fn enter(current: Current<'a>) -> Result<Self> {
        Ok(Self { _relaxed: Relaxed::enter(current.symbols)?, _current: current })
    }
}

/// While this lives, the calling thread is in the relaxed capture mode: calls that a capture
/// forbids neither fail nor invalidate it.
#[must_use]
pub(super) struct Relaxed<'a> {
    symbols: &'a Symbols,
    before: u32,
    /// The mode belongs to a thread, so the guard must not leave it.
    thread: PhantomData<*const ()>,
}

impl<'a> Relaxed<'a> {
    /// Switches the calling thread over.
    pub fn enter(symbols: &'a Symbols) -> Result<Self> {
        let mut mode = MODE_RELAXED;
        // SAFETY: reads and writes one mode.
        unsafe { symbols.exchange_mode(&mut mode) }?;
        Ok(Self { symbols, before: mode, thread: PhantomData })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        let mut mode = self.before;
        // SAFETY: reads and writes one mode, the one that the driver gave. There is no caller to
        // tell about a failure, and none is documented for a valid mode.
        let _ = unsafe { (self.symbols.exchange_mode)(&mut mode) };
    }
}
