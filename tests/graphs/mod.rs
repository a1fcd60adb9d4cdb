//! Graphs that own their memory.

mod executables;
mod lives;
mod state;
mod submitted;
