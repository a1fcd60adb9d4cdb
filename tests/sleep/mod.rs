//! Pools and regions that give their memory back and get it again.

mod faults;
mod page_locks;
mod pools;
mod regions;
