//! Pools and regions that give their memory back and get it again.

mod beside;
mod faults;
mod page_locks;
mod pools;
mod regions;
