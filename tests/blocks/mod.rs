//! Blocks that are asked for and freed, in captures and outside them.

mod basics;
mod eager;
mod growth;
mod mapping_times;
mod overtaken;
