//! What a capture leaves behind for those who judge it, and the few words and tables that all parts of
//! [regraph](https://docs.rs/regraph) share.
//!
//! The engine writes a [`journal`]; the checker (`regraph-check`) and the plans (`regraph-plan`) read it. [`policy`]
//! has the choices on which both sides draw conclusions of their own. [`index`] and [`recent`] are tables, [`effort`] counts
//! steps for tests.
//!
//! No part of regraph's interface but what that crate exports: the rest may change in any release.
#![forbid(unsafe_code)]

pub mod effort;
pub mod index;
pub mod journal;
pub mod policy;
pub mod recent;
