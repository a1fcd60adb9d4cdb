//! The C interface: its header, its programs, its symbols, its installation.
#![allow(clippy::unwrap_used)]

mod header;
mod installed;
mod layout;
mod programs;
mod support;
mod symbols;
