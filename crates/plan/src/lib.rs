//! When the blocks of a capture were in use, the least memory that they need, and plans that give a capture its
//! memory at its end.
//!
//! * [`lifetimes`]: when blocks were in use, from a capture's journal.
//! * [`cover`]: the least memory for lifetimes, as a cover of an order by chains.
//! * [`minimum`]: the least memory of a capture.
//! * [`layout`]: a place for each block, for a capture that is captured again.
//! * [`plan`]: which physical memory lies behind which addresses.
//!
//! None of it calls a driver. No part of [regraph](https://docs.rs/regraph)'s interface but what that crate
//! exports: the rest may change in any release.
#![forbid(unsafe_code)]

pub mod cover;
pub mod layout;
pub mod lifetimes;
pub mod minimum;
mod numbers;
pub mod plan;
pub mod random;
