//! The plug-in, called as frameworks call it.

mod contexts;
mod costs;
mod hosts;
mod named_pools;
mod no_invalidation;
pub(crate) mod pytorch;
mod watch;
