//! The plug-in, called as frameworks call it.

mod contexts;
mod costs;
mod executables;
pub(crate) mod host;
mod hosts;
mod named_pools;
mod no_invalidation;
mod pytorch;
mod watch;
