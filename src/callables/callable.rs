//! Callables: shapes, kept in the order of their use.

use std::fmt;
use std::num::NonZeroUsize;

use super::shape::Shape;
use super::stage::Stage;
use crate::driver::{AsStream, CaptureMode, HostApi, StreamHandle};
use crate::engine::{Attempt, PoolConfig};
use crate::graphs::{Capture, Error, Event, Pool};

/// Choices for a callable.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How captures are made. Default: thread-local.
    pub mode: CaptureMode,
    /// How often all parts run before they are captured: libraries that set themselves up at their
    /// first call, which may not be captured, do so then. Default: 1.
    pub warm_ups: usize,
    /// The most shapes that are kept; the one that was unused longest goes. Default: 64.
    pub most_shapes: NonZeroUsize,
}

impl Default for Options {
    fn default() -> Self {
        const MOST: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");
        Self { mode: CaptureMode::ThreadLocal, warm_ups: 1, most_shapes: MOST }
    }
}

impl Options {
    /// Sets how captures are made.
    #[must_use]
    pub fn mode(mut self, mode: CaptureMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how often all parts run before they are captured.
    #[must_use]
    pub fn warm_ups(mut self, warm_ups: usize) -> Self {
        self.warm_ups = warm_ups;
        self
    }

    /// Sets the most shapes that are kept.
    #[must_use]
    pub fn most_shapes(mut self, most: NonZeroUsize) -> Self {
        self.most_shapes = most;
        self
    }
}

type Make<'f, D, K, I, E> = Box<dyn FnMut(&Stage<'_, D>, &K) -> Result<I, E> + Send + 'f>;
type Bucket<'f, K> = Box<dyn Fn(&K) -> K + Send + 'f>;
type Part<'f, D, K, I, O, E> =
    Box<dyn FnMut(&Stage<'_, D>, &K, &mut I, &mut O) -> Result<(), E> + Send + 'f>;

/// A function over static inputs that runs as graphs, one for each of its parts and each shape.
///
/// `K` is what a shape is told by, `I` the static inputs, `O` the outputs with all that one part
/// leaves for the next.
///
/// It is `Send` where these are: what it is given to call may go to another thread. A thread that calls it on a stream
/// which another one has used names that first ([`Engine::mark_stream`](crate::engine::Engine::mark_stream)).
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
            std::mem::forget(std::mem::take(&mut self.parts));
        }
    }
}

/// Work of a call on a stream: what of it no launch follows is marked, so that its inputs live as long
/// as it may run.
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
    /// A callable without parts. `make` allocates the static inputs of a shape and writes something
    /// sensible into them, which warming up works on; it runs outside captures.
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

    /// Lets one shape serve several: `bucket` says which. Inputs are then made for that, and parts
    /// see that.
    #[must_use]
    pub fn bucket(mut self, bucket: impl Fn(&K) -> K + Send + 'f) -> Self {
        self.bucket = Some(Box::new(bucket));
        self
    }

    /// Adds a part, which becomes a graph of its own. Parts are captured in the order in which they
    /// were added, and a call launches them in that order.
    ///
    /// A part writes what it is to leave into the outputs; a block that stays there is the graph's
    /// output, and is overwritten by no graph that is captured later (see
    /// [`Graph`](crate::graphs::Graph)). It must do the same each time it runs: after
    /// [`Error::CaptureAgain`](crate::Error::CaptureAgain) all parts are captured again, with new
    /// outputs.
    #[must_use]
    pub fn part(
        mut self,
        part: impl FnMut(&Stage<'_, D>, &K, &mut I, &mut O) -> Result<(), E> + Send + 'f,
    ) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Fills the static inputs of a shape by `fill`, launches all parts on `stream`, and returns the
    /// outputs, which hold until the next call of a callable of the pool. At a shape's first call its
    /// graphs are captured.
    ///
    /// `fill` works on `stream`, which comes after every earlier launch of the pool by then.
    ///
    /// Where a new shape has to have room, the host waits until the launches of the pool's graphs have completed,
    /// those of other shapes included, before the one that was unused longest goes. Capturing a shape waits for its
    /// warming up.
    ///
    /// # Errors
    /// Those of the parts, of `fill`, of captures and launches. A shape whose capture failed is not
    /// kept; the others are, but for one that had to make room.
    /// [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended) before `fill` is called.
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

    /// The graphs of a shape, captured on `stream` if it is new: for launching parts one by one. The host waits
    /// as in [`Callable::call`] where it is new.
    ///
    /// # Errors
    /// Those of the parts and of captures.
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

    /// Lets all shapes go, after their launches have finished.
    pub fn clear(&mut self) {
        self.shapes.clear();
    }

    /// The pool of the graphs.
    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    fn capture(&mut self, stream: StreamHandle, shape: &K) -> Result<Shape<D, I, O>, E> {
        let mut inputs = (self.make)(&Stage::new(&self.pool, stream, None), shape)?;
        self.warm_up(stream, shape, &mut inputs)?;
        let mut attempts = vec![Attempt::First; self.parts.len()];
        loop {
            let mut outputs = O::default();
            let mut graphs = Vec::with_capacity(self.parts.len());
            for (part, attempt) in self.parts.iter_mut().zip(&mut attempts) {
                let mode = self.options.mode;
                let capture = Capture::begin_attempt(&self.pool, stream, mode, *attempt)?;
                let stage = Stage::new(&self.pool, stream, Some(&capture));
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
                return Ok(Shape::new(&self.pool, graphs, inputs, outputs));
            }
        }
    }

    fn warm_up(&mut self, stream: StreamHandle, shape: &K, inputs: &mut I) -> Result<(), E> {
        if self.options.warm_ups == 0 {
            return Ok(());
        }
        let engine = self.pool.engine().clone();
        let pool = Pool::new(&engine, PoolConfig::default());
        let stage = Stage::new(&pool, stream, None);
        let mut result = Ok(());
        for _ in 0..self.options.warm_ups {
            let mut outputs = O::default();
            let mut parts = self.parts.iter_mut();
            result = parts.try_for_each(|part| part(&stage, shape, inputs, &mut outputs));
            if result.is_err() {
                break;
            }
        }
        // So that the pool's memory goes back, and that of the inputs is settled.
        Event::behind(&engine, stream)
            .and_then(|event| event.synchronize())
            .map_err(Error::from)?;
        result
    }
}

impl<D: HostApi, K: fmt::Debug, I, O, E> fmt::Debug for Callable<'_, D, K, I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callable")
            .field("pool", &self.pool)
            .field("options", &self.options)
            .field("shapes", &self.shapes)
            .finish_non_exhaustive()
    }
}
