//! Callables that run as graphs: the counterpart of PyTorch's `make_graphed_callables`.
//!
//! A [`Callable`] is given a way to make static inputs for a shape, and one part or several that
//! work on them. At the first call with a shape it warms up, captures each part into a graph, and
//! keeps both with the inputs and outputs; each call fills the inputs, launches, and hands the
//! outputs out. Shapes may be rounded to buckets, so that few graphs serve many; of more than
//! [`Options::most_shapes`] the one that was unused longest goes.
//!
//! Several parts make partial graphs: forward and backward apart, say, with what the first leaves
//! for the second in their common outputs, and work that no graph holds between them: see
//! [`Callable::shape`] and [`Shape::inputs_and_outputs`].
//!
//! Callables that share a [`Pool`](crate::graphs::Pool) share its memory: their graphs never run at once.
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

mod callable;
mod shape;
mod stage;

pub use callable::{Callable, Options};
pub use shape::Shape;
pub use stage::Stage;
