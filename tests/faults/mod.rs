//! Calls of the driver that fail, each in turn.

mod driver;
mod host;
