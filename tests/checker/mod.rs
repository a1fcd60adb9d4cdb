//! What the checker of finished captures accepts, refuses and finds.

mod check;
mod early_reads;
// Only builds with debug assertions can leave rules out.
#[cfg(debug_assertions)]
mod flaws;
mod journal;
mod late_uses;
mod manifests;
mod pages;
mod small;
mod unseen;
mod ways;
