//! Plans and layouts: the least memory of a capture, and captures that lie by a plan.
#![allow(clippy::unwrap_used)]

#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/device.rs"]
mod device;

mod batch_sizes;
mod compact;
mod cover;
mod layout;
mod learned;
mod minimum;
mod paged;
mod plan;
mod plan_faults;
mod plan_safety;
mod recorded;
mod twice;
