//! Plans and layouts: the least memory of a capture, and captures that lie by a plan.

mod batch_sizes;
mod compact;
mod cover;
mod heard;
mod layout;
mod learned;
mod minimum;
mod paged;
mod plan;
mod plan_safety;
mod programs;
mod recorded;
mod twice;
