//! The `regraph` command.
fn main() {}
