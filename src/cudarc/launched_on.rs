//! On which stream a kernel is about to be launched.
//!
//! cudarc's launcher tells the stream to its own slices only: the field is private. But it derives
//! `Debug`, and its text begins with the stream and the stream's context. So that beginning is read.
//! Any other beginning, of another version for instance, gives nothing, and the buffer's memory is
//! lost then, which is safe; the first time that is warned of. The requirement of cudarc stays open to later
//! versions: a program has one cudarc, and one that is pinned here would be no other library's.

use std::fmt::{self, Debug, Write};

use super::owner::User;
use crate::driver::StreamHandle;

/// The bytes of the beginning that are kept; what is read is shorter.
const KEPT: usize = 160;

/// The stream of a launcher, from its `Debug` text.
#[inline]
pub(super) fn launched_on(launcher: &impl Debug) -> Option<User> {
    let mut beginning = Beginning { bytes: [0; KEPT], len: 0 };
    // It fails when there is enough, and that is meant.
    let _ = write!(beginning, "{launcher:?}");
    read(std::str::from_utf8(&beginning.bytes[..beginning.len]).ok()?)
}

/// Takes the beginning of a text and refuses the rest, so that it is not even formatted.
struct Beginning {
    bytes: [u8; KEPT],
    len: usize,
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = &mut self.bytes[self.len..];
        let taken = place.len().min(text.len());
        place[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if self.len == KEPT {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

fn read(text: &str) -> Option<User> {
    let text = text.strip_prefix("LaunchArgs { stream: CudaStream { cu_stream: 0x")?;
    let (stream, text) = text.split_once(", ")?;
    let text = text.strip_prefix("ctx: CudaContext { cu_device: ")?;
    let (device, text) = text.split_once(", ")?;
    device.parse::<i32>().ok()?;
    let (context, _) = text.strip_prefix("cu_ctx: 0x")?.split_once(", ")?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    Some(User::new(StreamHandle::from_bits(number(stream)?), number(context)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cudarc's launcher looks like, of which it shows its `Debug` text alone.
    #[derive(Debug)]
    #[allow(dead_code, reason = "read through Debug")]
    struct LaunchArgs<'a> {
        stream: &'a CudaStream,
        func: NotPrinted,
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "read through Debug")]
    struct CudaStream {
        cu_stream: *mut u8,
        ctx: std::sync::Arc<CudaContext>,
        owned: bool,
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "read through Debug")]
    struct CudaContext {
        cu_device: i32,
        cu_ctx: *mut u8,
        ordinal: usize,
        error_state: [u64; 16],
    }

    /// What must not be formatted: it may be long.
    struct NotPrinted;

    impl Debug for NotPrinted {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("more was formatted than is read");
        }
    }

    fn of(stream: usize, device: i32, context: usize) -> Option<User> {
        let ctx = CudaContext {
            cu_device: device,
            cu_ctx: context as *mut u8,
            ordinal: 0,
            error_state: [u64::MAX; 16],
        };
        let stream = CudaStream { cu_stream: stream as *mut u8, ctx: ctx.into(), owned: true };
        launched_on(&LaunchArgs { stream: &stream, func: NotPrinted })
    }

    #[test]
    fn the_stream_and_its_context_are_read() {
        let cases = [
            (0, 0, 0x5555_0000_1000),
            (0x7fff_1234_5678, 7, 0x5555_0000_1000),
            (usize::MAX, i32::MIN, usize::MAX),
        ];
        for (stream, device, context) in cases {
            let user = User::new(StreamHandle::from_bits(stream), context);
            assert_eq!(of(stream, device, context), Some(user));
        }
    }

    #[test]
    fn any_other_text_gives_nothing() {
        let texts = [
            "",
            "LaunchArgs { stream: CudaStream { cu_stream: 0x",
            "LaunchArgs { stream: CudaStream { cu_stream: 0x10, ctx: CudaContext { cu_device: 0, \
             cu_ctx: 0x20",
            "LaunchArgs { func: CudaFunction { cu_function: 0x30 }, stream: CudaStream { \
             cu_stream: 0x10, ctx: CudaContext { cu_device: 0, cu_ctx: 0x20, ordinal: 0",
            "LaunchArgs { stream: CudaStream { cu_stream: 0x10, id: 3, ctx: CudaContext { \
             cu_device: 0, cu_ctx: 0x20, ordinal: 0",
            "LaunchArgs { stream: CudaStream { cu_stream: 0xffffffffffffffff0, ctx: CudaContext { \
             cu_device: 0, cu_ctx: 0x20, ordinal: 0",
            "LaunchArgs {\n    stream: CudaStream {\n        cu_stream: 0x10,\n",
        ];
        for text in texts {
            assert_eq!(launched_on(&format_args!("{text}")), None, "{text}");
        }
        let known = "LaunchArgs { stream: CudaStream { cu_stream: 0x10, ctx: CudaContext { \
                     cu_device: 0, cu_ctx: 0x20, ordinal: 0";
        let user = User::new(StreamHandle::from_bits(0x10), 0x20);
        assert_eq!(launched_on(&format_args!("{known}")), Some(user));
    }
}
