//! A callable's graphs for one shape.

use std::fmt;
use std::mem::ManuallyDrop;

use crate::driver::{AsStream, HostApi};
use crate::graphs::{Error, Graph, Pool};

/// The graphs of one shape, with the inputs that they read and the outputs that they write.
pub struct Shape<D: HostApi, I, O> {
    pool: Pool<D>,
    /// One for each part.
    graphs: Vec<Graph<D>>,
    inputs: ManuallyDrop<I>,
    outputs: ManuallyDrop<O>,
}

impl<D: HostApi, I, O> Shape<D, I, O> {
    pub(super) fn new(pool: &Pool<D>, graphs: Vec<Graph<D>>, inputs: I, outputs: O) -> Self {
        let (inputs, outputs) = (ManuallyDrop::new(inputs), ManuallyDrop::new(outputs));
        Self { pool: pool.clone(), graphs, inputs, outputs }
    }

    /// The static inputs. They are written on a stream that comes after the last launch
    /// ([`Pool::follow`]), and before the next.
    pub fn inputs(&mut self) -> &mut I {
        &mut self.inputs
    }

    /// The outputs, as of the last launch.
    pub fn outputs(&self) -> &O {
        &self.outputs
    }

    /// Both at once, for work that no graph holds between two parts. What is written to the inputs is
    /// subject to [`Shape::inputs`].
    pub fn inputs_and_outputs(&mut self) -> (&mut I, &O) {
        (&mut self.inputs, &self.outputs)
    }

    /// The graph of each part.
    pub fn graphs(&self) -> &[Graph<D>] {
        &self.graphs
    }

    /// Launches one part.
    ///
    /// # Errors
    /// As [`Graph::launch`].
    ///
    /// # Panics
    /// If there is no such part.
    pub fn launch(&self, part: usize, stream: impl AsStream) -> Result<(), Error> {
        self.graphs[part].launch(stream)
    }
}

impl<D: HostApi, I, O> Drop for Shape<D, I, O> {
    fn drop(&mut self) {
        // A launch may be under way on a stream that the inputs were never recorded for.
        if self.pool.synchronize().is_err() {
            // It is unknown when the launch ends, so the inputs stay.
            return;
        }
        self.graphs.clear();
        // SAFETY: both are dropped here and nowhere else, and not used again.
        unsafe {
            ManuallyDrop::drop(&mut self.inputs);
            ManuallyDrop::drop(&mut self.outputs);
        }
    }
}

impl<D: HostApi, I, O> fmt::Debug for Shape<D, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shape").field("graphs", &self.graphs).finish_non_exhaustive()
    }
}
