//! The checker, or tags of kernels outside captures, show when the engine leaves out a safety rule: a search by random
//! programs. `tests/rules/tables/left_out.rows` has a program for each rule. Plans that are wrong are in
//! `tests/plans/plan_safety.rs`; rules that only the source can leave out are mutants (`crates/xtask/mutants`).

use regraph::engine::Flaw;
use regraph_testing::{flawed_graphs, graphs, Features};

/// Random bytes, the same in each run.
fn bytes() -> impl FnMut() -> u8 {
    let mut state = 1_u64;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }
}

/// Random programs until kernels find that the flawed engine gave memory away too early. They find nothing of that kind
/// with the sound engine: the search would panic.
#[test]
fn a_search_finds_every_flaw_outside_captures() {
    let mut next = bytes();
    for flaw in [Flaw::StreamOrder, Flaw::Events, Flaw::Lending] {
        let found = (0..400).find(|_| {
            let program: Vec<u8> = (0..600).map(|_| next()).collect();
            let found = flawed_graphs(&program, Features::EAGER, flaw);
            if found {
                graphs(&program, Features::EAGER);
            }
            found
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}

/// Random programs until the checker refuses one of the flawed engine's captures that it has no
/// reason to refuse otherwise. What it accepts is safe all the same: the search would panic.
#[test]
fn a_search_finds_every_flaw() {
    let mut next = bytes();
    for flaw in [
        Flaw::Proof,
        Flaw::OwnMarker,
        Flaw::ForeignMarkers,
        Flaw::SetBack,
        Flaw::EdgeKinds,
        Flaw::EarlyLaunches,
        Flaw::OutsideUses,
        Flaw::NestedCapture,
        Flaw::Hold,
        Flaw::OlderBlocks,
        Flaw::InputMarkers,
    ] {
        let found = (0..4_000).find(|_| {
            let program: Vec<u8> = (0..700).map(|_| next()).collect();
            let refused = regraph_testing::flawed_engine(&program, flaw).refused;
            refused > 0 && refused > regraph_testing::sound_engine(&program).refused
        });
        assert!(found.is_some(), "{flaw:?} was not found");
        println!("{flaw:?} after {}", found.unwrap());
    }
}

/// Of packages that are built at once each has the features that any of them asks for, and the random programs ask for
/// engines that can leave rules out.
#[test]
fn only_builds_with_debug_assertions_can_leave_rules_out() {
    let program = std::env::current_exe().and_then(std::fs::read).expect("a program that runs");
    // In two parts, so that the test itself does not contain it.
    let text = ["this program can leave ", "safety rules out"].concat();
    let found = program.windows(text.len()).any(|part| part == text.as_bytes());
    assert_eq!(found, cfg!(debug_assertions));
}
