//! What the checker of finished captures accepts, refuses and finds.
#![allow(clippy::unwrap_used)]

#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

mod check;
mod early_reads;
// Only builds with debug assertions can leave rules out.
#[cfg(debug_assertions)]
mod flaws;
mod journal;
mod late_uses;
mod mutants;
mod ways;

/// Of packages that are built at once each has the features that any of them asks for, and those of tests ask for
/// engines that can leave rules out.
#[test]
fn only_builds_with_debug_assertions_can_leave_rules_out() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    // In two parts, so that the test itself does not contain it.
    let text = ["this program can leave ", "safety rules out"].concat();
    let found = program.windows(text.len()).any(|part| part == text.as_bytes());
    assert_eq!(found, cfg!(debug_assertions));
}
