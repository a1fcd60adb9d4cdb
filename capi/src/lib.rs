//! The C interface of regraph: the calls behind `include/regraph.h`.
//!
//! The header is generated from these sources and carries their documentation; `cargo test` compares the two, and
//! `REGRAPH_WRITE_HEADER=1 cargo test -p regraph-capi header` writes the header.
//!
//! * `call`: what the bodies of calls have in common; `error`, `failure`, `arguments`: how calls fail, and pointers
//!   that callers pass; `rows`: lists that callers read.
//! * `handles`: ids, and CUDA's handles; `config`, `engine`: making engines; `host`: an engine with
//!   the objects that callers name by id.
//! * `pools`, `blocks`, `captures`, `learning`, `graphs`, `loans`, `regions`, `explain`, `statistics`, `memory`, `leaks`,
//!   `observe`, `snapshot`: the calls on them.
//! * `devices`, `log`: the machine's devices, and the library's messages.
//! * `sim`: the driver calls of a host, on the simulated device; `version`.
//!
//! # Safety
//! One contract holds for every call, and the header's opening comment states it: a pointer is null, which is an error,
//! or what the call's documentation says it is. The macros of `call` rely on it for whole bodies of calls.
#![allow(non_camel_case_types, reason = "the types have their C names")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all, above")]

#[macro_use]
mod call;
#[macro_use]
mod engine;

mod arguments;
mod blocks;
mod captures;
mod config;
mod devices;
mod error;
mod estimates;
mod explain;
mod failure;
mod graphs;
mod handles;
mod host;
mod leaks;
mod learning;
mod loans;
mod log;
mod memory;
mod observe;
mod pools;
mod regions;
mod rows;
mod sim;
mod snapshot;
mod statistics;
mod version;

pub use blocks::*;
pub use captures::*;
pub use config::*;
pub use devices::*;
pub use engine::*;
pub use error::*;
pub use estimates::*;
pub use explain::*;
pub use graphs::*;
pub use handles::*;
pub use leaks::*;
pub use learning::*;
pub use loans::*;
pub use log::*;
pub use memory::*;
pub use observe::*;
pub use pools::*;
pub use regions::*;
pub use sim::*;
pub use snapshot::*;
pub use statistics::*;
pub use version::*;
