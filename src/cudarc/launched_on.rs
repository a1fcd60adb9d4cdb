//! On which stream a kernel is about to be launched.
//!
//! cudarc's launcher tells the stream to its own slices only: the field is private. But it derives
//! `Debug`, and its text begins with the stream and the stream's context. So that beginning is read.
//! Any other beginning, of another version for instance, gives nothing, and the buffer's memory is
//! lost then, which is safe.

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
    Some(User { stream: StreamHandle::from_bits(number(stream)?), context: number(context)? })
}
