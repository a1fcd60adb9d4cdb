//! Captures whose memory comes at their end, on the simulated driver and on a real GPU.
//!
//! ```text
//! cargo test --release --test gpu plans:: -- --ignored
//! ```
//!
//! Every kernel checks tags that others wrote, so memory that is shared wrongly shows.
//!
//! * [`many`]: graphs of one pool, in every order;
//! * [`one`]: what one capture comes to, and what must not be shared or moved;
//! * [`ends`]: memory that is short, and blocks that outlive their graph.

mod ends;
mod many;
mod one;

use std::sync::Arc;

use crate::bench::{range, Bench, MIB};
use crate::device::{launch, Device};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::PoolConfig;
use regraph::graphs::{Capture, Error, Graph, Memory};
use regraph::plan::Options;

/// The granularity of both devices, in bytes.
const PAGE: u64 = 2 * MIB;

type Shared<P> = Arc<P>;
type Block<P> = Memory<Shared<P>>;

/// With a pool whose captures get their memory at their end.
fn planned<P: Device>(driver: &Arc<P>, options: Options) -> Bench<P> {
    Bench::with(driver, PoolConfig::default().plan(options))
}

impl<P: Device> Bench<P> {
    fn capture<R>(
        &self,
        stream: StreamHandle,
        body: impl FnMut(&Capture<Shared<P>>) -> Result<R, Error>,
    ) -> Result<(Graph<Shared<P>>, R), Error> {
        self.engine.capture(stream, &self.pool, CaptureMode::ThreadLocal, body)
    }

    /// Blocks of so many bytes one after the other, each read by the kernel that writes the next one.
    /// The last is returned.
    fn line(
        &self,
        capture: &Capture<Shared<P>>,
        stream: StreamHandle,
        (tag, sizes): (u64, &[u64]),
    ) -> Result<Block<P>, Error> {
        let mut last: Option<(Block<P>, u64)> = None;
        for (step, &bytes) in sizes.iter().enumerate() {
            let memory = capture.allocate(bytes, stream)?;
            let own = tag + step as u64;
            let inputs: Vec<_> = last.iter().map(|(memory, tag)| range(memory, *tag)).collect();
            launch(&*self.driver, stream, (&inputs, &[range(&memory, own)]), 2_000);
            last = Some((memory, own));
        }
        Ok(last.unwrap().0)
    }
}

/// Pieces that fit any later plan.
fn granules() -> Options {
    Options::default().max_piece_bytes(Some(PAGE))
}
