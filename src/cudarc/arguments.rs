//! Buffers as kernel arguments.

use std::sync::Once;

use ::cudarc::driver::{LaunchArgs, PushKernelArg};

use super::buf::Buf;
use super::launched_on::launched_on;
use super::owner::BlockOwner;
use super::view::{BufView, BufViewMut};

/// Records the stream of a launcher. The launch itself comes later, but before the buffer can be
/// freed or a last use be recorded: the launcher borrows it.
#[inline]
fn record(owner: &BlockOwner, told: bool, launcher: &LaunchArgs<'_>) {
    match launched_on(launcher) {
        // A launcher has no way to fail here. Where the engine refuses, the memory is lost.
        Some(user) => drop(owner.record(user)),
        None if told => {}
        None => {
            warn();
            owner.lose();
        }
    }
}

/// Warns, once, that launchers do not tell their streams.
#[cold]
fn warn() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::warn!(
            target: "regraph",
            "this version of cudarc shows its launchers in a way that is not known here: memory of buffers that \
             are kernel arguments is never freed (Statistics::lost_bytes); pass Buf::on or Buf::on_mut, or use the \
             version of cudarc that regraph asks for"
        );
    });
}

macro_rules! argument {
    ($([$($outer:tt)*] $argument:ty;)*) => {$(
        // SAFETY: the argument is an address, `u64` as kernels take pointers, and it is borrowed for
        // as long as the launcher may read it.
        unsafe impl<'a, 'b: 'a, $($outer)* T> PushKernelArg<$argument> for LaunchArgs<'a> {
            #[inline(always)]
            fn arg(&mut self, argument: $argument) -> &mut Self {
                record(&argument.owner, argument.is_told(), self);
                <Self as PushKernelArg<&'b u64>>::arg(self, &argument.address)
            }
        }
    )*};
}

argument! {
    [] &'b Buf<T>;
    [] &'b mut Buf<T>;
    ['c: 'b,] &'b BufView<'c, T>;
    ['c: 'b,] &'b BufViewMut<'c, T>;
    ['c: 'b,] &'b mut BufViewMut<'c, T>;
}
