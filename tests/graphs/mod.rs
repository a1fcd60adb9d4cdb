//! Graphs that own their memory.

mod lives;
mod state;
mod submitted;
