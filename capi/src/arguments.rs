//! Pointers that callers pass.

use std::ffi::{c_char, CStr};
use std::ptr::NonNull;

use crate::failure::{Failure, Fallible};

/// Made only when it is needed: dropping a failure that was made in advance costs as much as all
/// other checks of the fast calls.
#[cold]
pub(crate) fn null(argument: &'static str) -> Failure {
    Failure::Null(argument)
}

/// What a pointer points to.
///
/// # Safety
/// It is null, or points to a value that does not change while the reference lives.
#[inline]
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, argument: &'static str) -> Fallible<&'a T> {
    // SAFETY: as the caller promised.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(argument))
}

/// What a pointer points to, to change it.
///
/// # Safety
/// It is null, or points to a value that has no other user while the reference lives.
pub(crate) unsafe fn changed<'a, T>(
    pointer: *mut T,
    argument: &'static str,
) -> Fallible<&'a mut T> {
    // SAFETY: as the caller promised.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(argument))
}

/// A place for a result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// A place that must not be null; checked before the call does anything.
    ///
    /// # Safety
    /// It is null, or room for a `T` that has no other user during the call.
    #[inline]
    pub(crate) unsafe fn needed(pointer: *mut T, argument: &'static str) -> Fallible<Self> {
        NonNull::new(pointer).map(Self).ok_or_else(|| null(argument))
    }

    /// Writes the result, without reading or dropping what was there.
    #[inline]
    pub(crate) fn put(self, value: T) {
        // SAFETY: room for it, as was promised when this was made.
        unsafe { self.0.write(value) }
    }
}

/// Writes a result, unless the pointer is null.
///
/// # Safety
/// `pointer` is null, or room for a `T` that has no other user during the call.
pub(crate) unsafe fn put_if_wanted<T>(pointer: *mut T, value: T) {
    if let Some(pointer) = NonNull::new(pointer) {
        // SAFETY: room for it, as the caller promised.
        unsafe { pointer.write(value) }
    }
}

/// Text.
///
/// # Safety
/// It is null, or ends with a nul and is not changed for as long as the reference lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, argument: &'static str) -> Fallible<&'a str> {
    if pointer.is_null() {
        return Err(Failure::Null(argument));
    }
    // SAFETY: not null, and as the caller promised.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|source| Failure::Text { argument, source })
}

/// Text that need not be there.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn text_if_any<'a>(
    pointer: *const c_char,
    argument: &'static str,
) -> Fallible<Option<&'a str>> {
    // SAFETY: as the caller promised.
    (!pointer.is_null()).then(|| unsafe { text(pointer, argument) }).transpose()
}

/// Takes back what [`give`] gave and drops it; nothing for null.
///
/// # Safety
/// `pointer` is null, or came from [`give`] and was not taken back before.
pub(crate) unsafe fn take_back<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as the caller promised.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Moves a value to the heap for the caller, who passes it to [`take_back`] later.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}
