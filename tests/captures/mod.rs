//! What captures are given, how they end, and what happens beside them.

mod attempts;
mod beside;
mod estimates;
mod handed_over;
mod hard_cases;
mod lifecycle;
mod two_steps;
mod windows;
