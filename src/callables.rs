//! Callables that run as graphs: the counterpart of PyTorch's `make_graphed_callables`.
//!
//! A [`Callable`] is given a way to make static inputs for a shape, and one part or several that work on them. At the
//! first call with a shape it warms up, captures each part into a graph, and keeps the graphs with the inputs and
//! outputs. Each call fills the inputs, launches the graphs, and returns the outputs. Shapes may be rounded to buckets,
//! so that few graphs serve many; beyond [`Options::most_shapes`] shapes, the shape that was unused longest is dropped.
//!
//! Several parts make partial graphs, such as forward and backward, which pass values on in their common outputs. Work
//! that no graph holds can run between them: see [`Callable::shape`] and [`Shape::inputs_and_outputs`].
//!
//! Callables that share a [`Pool`] share its memory: their graphs never run at once.
//!
//! ```
//! use std::sync::Arc;
//!
//! use regraph::callables::{Callable, Options};
//! use regraph_sim::{Launch, SimConfig, SimDriver};
//! use regraph::driver::HostApi;
//! use regraph::engine::{Config, Engine, PoolConfig};
//! use regraph::graphs::{Error, Memory, Pool};
//!
//! # fn main() -> Result<(), Error> {
//! let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
//! let driver = engine.driver();
//! let (pool, stream) = (Pool::new(&engine, PoolConfig::default()), driver.create_stream()?);
//! let mut double = Callable::new(&pool, Options::default(), |stage, rows: &u64| {
//!     stage.allocate(rows * 4096) // the static input of so many rows
//! })
//! .bucket(|rows| rows.next_power_of_two())
//! .part(|stage, rows, _input, output: &mut Option<Memory<_>>| {
//!     *output = Some(stage.allocate(rows * 8192)?);
//!     Ok(driver.launch_kernel(stage.stream(), Launch::default())?)
//! });
//! for rows in [3, 4, 7] {
//!     let output = double.call(&stream, &rows, |_input| Ok(()))?; // copies the input in
//!     assert!(output.is_some());
//! }
//! assert_eq!(double.shapes(), 2);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::num::NonZeroUsize;

use crate::driver::{AsStream, CaptureMode, HostApi, StreamHandle};
use crate::engine::{setters, Attempt, PoolConfig};
use crate::graphs::{Capture, Error, Event, Graph, Memory, Pool};
use crate::shown::shown;

/// Choices for a callable.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How captures are made. Default: thread-local.
    pub mode: CaptureMode,
    /// How often all parts run before they are captured, so that libraries which initialise themselves at their first
    /// call do so outside the capture. Default: 1.
    pub warm_ups: usize,
    /// The most shapes that are kept; the shape that was unused longest is dropped. Default: 64.
    pub most_shapes: NonZeroUsize,
}

impl Default for Options {
    fn default() -> Self {
        const MOST: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");
        Self { mode: CaptureMode::ThreadLocal, warm_ups: 1, most_shapes: MOST }
    }
}

impl Options {
    setters! { [mode: CaptureMode, warm_ups: usize, most_shapes: NonZeroUsize] }
}

type Make<'f, D, K, I, E> = Box<dyn FnMut(&Stage<'_, D>, &K) -> Result<I, E> + Send + 'f>;
type Bucket<'f, K> = Box<dyn Fn(&K) -> K + Send + 'f>;
type Part<'f, D, K, I, O, E> =
    Box<dyn FnMut(&Stage<'_, D>, &K, &mut I, &mut O) -> Result<(), E> + Send + 'f>;

/// A function over static inputs that runs as graphs, one for each of its parts and each shape.
///
/// `K` tells shapes apart, `I` are the static inputs, `O` the outputs with all that one part leaves for the next.
///
/// Calls return errors of the parts and of captures.
///
/// It is `Send` where these types are. A thread that calls it on a stream which another thread has used names the
/// stream first ([`Engine::mark_stream`](crate::engine::Engine::mark_stream)).
pub struct Callable<'f, D: HostApi, K, I, O, E = Error> {
    pool: Pool<D>,
    options: Options,
    make: Make<'f, D, K, I, E>,
    bucket: Option<Bucket<'f, K>>,
    /// What they own their graphs may use, so they go after the shapes.
    parts: Vec<Part<'f, D, K, I, O, E>>,
    /// The latest used first.
    shapes: Vec<(K, Shape<D, I, O>)>,
}

impl<D: HostApi, K, I, O, E> Drop for Callable<'_, D, K, I, O, E> {
    fn drop(&mut self) {
        self.shapes.clear();
        if self.pool.synchronize().is_err() {
            // It is unknown when the last launch ends.
            mem::forget(mem::take(&mut self.parts));
        }
    }
}

/// Work of a call on a stream. What of it no launch follows is marked, so that its inputs live as long as it may run.
struct Filling<D: HostApi> {
    pool: Pool<D>,
    stream: StreamHandle,
    followed: bool,
}

impl<D: HostApi> Drop for Filling<D> {
    fn drop(&mut self) {
        if !self.followed {
            self.pool.cover(self.stream);
        }
    }
}

impl<'f, D, K, I, O, E> Callable<'f, D, K, I, O, E>
where
    D: HostApi,
    K: Clone + PartialEq,
    O: Default,
    E: From<Error>,
{
    /// A callable without parts. `make` allocates the static inputs of a shape, and writes values into them that
    /// warm-ups can work on; it runs outside captures.
    pub fn new(
        pool: &Pool<D>,
        options: Options,
        make: impl FnMut(&Stage<'_, D>, &K) -> Result<I, E> + Send + 'f,
    ) -> Self {
        Self {
            pool: pool.clone(),
            options,
            make: Box::new(make),
            bucket: None,
            parts: Vec::new(),
            shapes: Vec::new(),
        }
    }

    /// Rounds shapes: a call with a shape is served by the graphs for `bucket(shape)`. Inputs are made for the rounded
    /// shape, and parts see it.
    #[must_use]
    pub fn bucket(mut self, bucket: impl Fn(&K) -> K + Send + 'f) -> Self {
        self.bucket = Some(Box::new(bucket));
        self
    }

    /// Adds a part, which becomes a graph of its own. Parts are captured in the order in which they
    /// were added, and a call launches them in that order.
    ///
    /// A part stores its results in the outputs. A block that stays there is the graph's output, which no graph that is
    /// captured later overwrites (see [`Graph`]). A part must do the same work each time it runs: after
    /// [`Error::CaptureAgain`] all parts are captured again, with new outputs.
    #[must_use]
    pub fn part(
        mut self,
        part: impl FnMut(&Stage<'_, D>, &K, &mut I, &mut O) -> Result<(), E> + Send + 'f,
    ) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Fills the static inputs of a shape by `fill`, launches all parts on `stream`, and returns the outputs, which
    /// hold until the next call of a callable of the pool. At a shape's first call its graphs are captured.
    ///
    /// `fill` works on `stream`, which by then is ordered after every earlier launch of the pool.
    ///
    /// Where a shape has to be dropped for a new one, the host waits until all launches of the pool's graphs have
    /// completed. The capture of a shape waits for its warm-up.
    ///
    /// # Errors
    /// Those of the parts, of `fill`, of captures and launches. A shape whose capture failed is not kept; other shapes
    /// are, except one that was dropped for it. [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended) before
    /// `fill` is called.
    pub fn call(
        &mut self,
        stream: impl AsStream,
        shape: &K,
        fill: impl FnOnce(&mut I) -> Result<(), E>,
    ) -> Result<&O, E> {
        let stream = stream.as_stream();
        let pool = self.pool.clone();
        let shape = self.shape(stream, shape)?;
        pool.follow(stream)?;
        let mut filling = Filling { pool, stream, followed: false };
        fill(shape.inputs())?;
        for graph in shape.graphs() {
            graph.launch(stream)?;
            filling.followed = true;
        }
        drop(filling);
        Ok(shape.outputs())
    }

    /// The graphs of a shape, for launching parts one by one. A new shape is captured on `stream`, with the waits and
    /// errors of [`Callable::call`].
    pub fn shape(&mut self, stream: impl AsStream, shape: &K) -> Result<&mut Shape<D, I, O>, E> {
        let shape = self.bucket.as_ref().map_or_else(|| shape.clone(), |bucket| bucket(shape));
        match self.shapes.iter().position(|(known, _)| *known == shape) {
            // The latest used first.
            Some(position) => self.shapes[..=position].rotate_right(1),
            None => {
                // Before the new one comes, so that it may have the memory.
                self.shapes.truncate(self.options.most_shapes.get() - 1);
                let captured = self.capture(stream.as_stream(), &shape)?;
                self.shapes.insert(0, (shape, captured));
            }
        }
        Ok(&mut self.shapes[0].1)
    }

    /// How many shapes are kept.
    pub fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Drops all shapes, after a wait for their launches.
    pub fn clear(&mut self) {
        self.shapes.clear();
    }

    /// The pool of the graphs.
    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    fn capture(&mut self, stream: StreamHandle, shape: &K) -> Result<Shape<D, I, O>, E> {
        let mut inputs = (self.make)(&Stage { pool: &self.pool, stream, capture: None }, shape)?;
        self.warm_up(stream, shape, &mut inputs)?;
        let mut attempts = vec![Attempt::First; self.parts.len()];
        loop {
            let mut outputs = O::default();
            let mut graphs = Vec::with_capacity(self.parts.len());
            for (part, attempt) in self.parts.iter_mut().zip(&mut attempts) {
                let mode = self.options.mode;
                let capture = Capture::begin_attempt(&self.pool, stream, mode, *attempt)?;
                let stage = Stage { pool: &self.pool, stream, capture: Some(&capture) };
                part(&stage, shape, &mut inputs, &mut outputs)?;
                match capture.finish() {
                    Ok(graph) => graphs.push(graph),
                    Err(error) => {
                        *attempt = attempt.after(error)?;
                        break;
                    }
                }
            }
            if graphs.len() == self.parts.len() {
                let (inputs, outputs) = (ManuallyDrop::new(inputs), ManuallyDrop::new(outputs));
                return Ok(Shape { pool: self.pool.clone(), graphs, inputs, outputs });
            }
        }
    }

    fn warm_up(&mut self, stream: StreamHandle, shape: &K, inputs: &mut I) -> Result<(), E> {
        if self.options.warm_ups == 0 {
            return Ok(());
        }
        let engine = self.pool.engine().clone();
        let pool = Pool::new(&engine, PoolConfig::default());
        let stage = Stage { pool: &pool, stream, capture: None };
        let result = (0..self.options.warm_ups).try_for_each(|_| {
            let mut outputs = O::default();
            self.parts.iter_mut().try_for_each(|part| part(&stage, shape, inputs, &mut outputs))
        });
        // So that the pool's memory goes back, and that of the inputs is settled.
        Event::behind(&engine, stream)
            .and_then(|event| event.synchronize())
            .map_err(Error::from)?;
        result
    }
}

shown!([D: HostApi, K: fmt::Debug, I, O, E] Callable<'_, D, K, I, O, E>: |it|
    pool = it.pool, options = it.options, shapes = it.shapes);

/// The graphs of one shape, with the inputs that they read and the outputs that they write.
pub struct Shape<D: HostApi, I, O> {
    pool: Pool<D>,
    /// One for each part.
    graphs: Vec<Graph<D>>,
    inputs: ManuallyDrop<I>,
    outputs: ManuallyDrop<O>,
}

impl<D: HostApi, I, O> Shape<D, I, O> {
    /// The static inputs. Write them on a stream that is ordered after the last launch ([`Pool::follow`]) and before
    /// the next.
    pub fn inputs(&mut self) -> &mut I {
        &mut self.inputs
    }

    /// The outputs, as of the last launch.
    pub fn outputs(&self) -> &O {
        &self.outputs
    }

    /// Inputs and outputs at once, for work between two parts that no graph holds. Writes to the inputs follow the rule
    /// of [`Shape::inputs`].
    pub fn inputs_and_outputs(&mut self) -> (&mut I, &O) {
        (&mut self.inputs, &self.outputs)
    }

    /// The graph of each part.
    pub fn graphs(&self) -> &[Graph<D>] {
        &self.graphs
    }

    /// Launches one part, by its number from 0.
    ///
    /// # Errors
    /// Those of [`Graph::launch`].
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

shown!([D: HostApi, I, O] Shape<D, I, O>: |it| graphs = it.graphs);

/// The environment of a part while it runs: outside captures to warm up, then in the capture.
///
/// Blocks come from [`Stage::pool`]. During warm-ups that is a separate pool, which is gone before the capture, so that
/// graphs share their pool with nothing else. Typed buffers (`regraph::cudarc`) are made by the pool too, for a stream
/// that the program holds.
pub struct Stage<'a, D: HostApi> {
    pool: &'a Pool<D>,
    stream: StreamHandle,
    capture: Option<&'a Capture<D>>,
}

impl<'a, D: HostApi> Stage<'a, D> {
    /// The stream to work on. Other streams are forked from it and joined to it.
    pub fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// The pool from which blocks come.
    pub fn pool(&self) -> &'a Pool<D> {
        self.pool
    }

    /// The capture; `None` while warming up, and while static inputs are made.
    pub fn capture(&self) -> Option<&'a Capture<D>> {
        self.capture
    }

    /// A block for the stage's stream.
    pub fn allocate(&self, bytes: u64) -> Result<Memory<D>, Error> {
        self.pool.allocate(bytes, self.stream)
    }
}

shown!([D: HostApi] Stage<'_, D>: |it|
    pool = it.pool, stream = it.stream, captures = it.capture.is_some());
