//! Graphs that own their memory, on a real GPU.
//!
//! ```text
//! cargo test --release --test gpu graphs:: -- --ignored
//! ```
//!
//! Every test has a twin on the simulated driver, where work is run in a random order that is free
//! in every way in which streams and events leave it free; that one runs without `--ignored`.
//!
//! * [`callables`]: shapes, parts and pools of callables;
//! * [`captures`]: how captures end, well or not;
//! * [`executables`]: graphs of one shape that share an executable;
//! * [`launches`]: graphs of one pool, launched on many streams;
//! * [`lending`]: threads that launch, and others that borrow what graphs do not keep between launches;
//! * [`lives`]: outputs, graphs and pools that go while work runs;
//! * [`state`]: what only the run of a capture wrote.

mod callables;
mod captures;
mod executables;
mod launches;
mod lending;
mod lives;
mod state;

use std::sync::Arc;

use crate::bench::{range, Bench, MIB};
use crate::device::{launch, Device};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::graphs::{Capture, Error, Graph, Memory};

const KIB: u64 = 1 << 10;

type Shared<P> = Arc<P>;
type Chain<P> = (Graph<Shared<P>>, Memory<Shared<P>>);
/// The first tag, how many steps, bytes, and how long each kernel takes.
type ChainOf = (u64, usize, u64, u32);

impl<P: Device> Bench<P> {
    /// A graph on two streams whose blocks hold tags of its own: see [`Bench::submit_chain`].
    fn chain(&self, streams: [StreamHandle; 2], chain: ChainOf) -> Result<Chain<P>, Error> {
        let body = |capture: &Capture<Shared<P>>| self.submit_chain(capture, streams, chain);
        self.engine.capture(streams[0], &self.pool, CaptureMode::ThreadLocal, body)
    }

    /// Submits a chain of `steps` blocks of about `bytes`, each written by one stream and read by the other. The last one
    /// is returned, and holds the last of the tags from `tag` on.
    fn submit_chain(
        &self,
        capture: &Capture<Shared<P>>,
        [first, second]: [StreamHandle; 2],
        (tag, steps, bytes, delay): ChainOf,
    ) -> Result<Memory<Shared<P>>, Error> {
        let driver = &*self.driver;
        let mut last: Option<(Memory<_>, u64)> = None;
        for step in 0..steps {
            let (writer, reader) = if step % 2 == 0 { (first, second) } else { (second, first) };
            if step == 0 {
                driver.wait(second, first)?;
            }
            let memory = capture.allocate(bytes + step as u64 * 64 * KIB, writer)?;
            let own = tag + step as u64;
            let inputs: Vec<_> = last.iter().map(|(memory, tag)| range(memory, *tag)).collect();
            launch(driver, writer, (&inputs, &[range(&memory, own)]), delay);
            if let Some((last, _)) = &last {
                last.record_stream(writer)?;
            }
            driver.wait(reader, writer)?;
            last = Some((memory, own));
        }
        driver.wait(first, second)?;
        Ok(last.unwrap().0)
    }
}
