//! The calling thread's context and capture mode.

use std::marker::PhantomData;
use std::ptr::null_mut;

use super::super::Result;
use super::raw::{Pointer, MODE_RELAXED};
use super::symbols::Symbols;

/// Makes `context` current to the calling thread, unless it is.
#[inline]
pub(super) fn bind(symbols: &Symbols, context: Pointer) -> Result<()> {
    let mut current: Pointer = null_mut();
    // SAFETY: writes one pointer.
    unsafe { symbols.current_context(&mut current) }?;
    if current == context {
        return Ok(());
    }
    // SAFETY: the driver object that calls this keeps the context alive.
    unsafe { symbols.set_context(context) }
}

/// While this lives, the calling thread is in the relaxed capture mode: calls that a capture
/// forbids neither fail nor invalidate it.
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
        // SAFETY: reads and writes one mode, the one that the driver gave. There is nobody to
        // tell about a failure, and none is documented for a valid mode.
        let _ = unsafe { (self.symbols.exchange_mode)(&mut mode) };
    }
}
