//! Whether a plan keeps what it promises, by brute force.

use std::collections::BTreeMap;

use regraph::plan::{Held, Plan};
use regraph_plan::lifetimes::Lifetimes;

/// The blocks of every page that has to be mapped.
fn pages(lifetimes: &Lifetimes, page: u64) -> BTreeMap<u64, Vec<usize>> {
    let mut pages: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, block) in lifetimes.blocks().iter().enumerate() {
        if block.worked || !block.freed {
            for at in block.address / page..=(block.address + block.bytes - 1) / page {
                pages.entry(at).or_default().push(index);
            }
        }
    }
    pages
}

/// How many pages have a block that is not freed.
pub fn lasting(lifetimes: &Lifetimes, page: u64) -> u64 {
    let lasts = |blocks: &&Vec<usize>| blocks.iter().any(|it| !lifetimes.blocks()[*it].freed);
    pages(lifetimes, page).values().filter(lasts).count() as u64
}

/// How many runs the pages fall into.
pub fn runs(lifetimes: &Lifetimes, page: u64) -> usize {
    let pages = pages(lifetimes, page);
    pages.keys().filter(|at| **at == 0 || !pages.contains_key(&(**at - 1))).count()
}

/// Whether all blocks of one page precede all of another.
fn in_order(lifetimes: &Lifetimes, one: &[usize], other: &[usize]) -> bool {
    let all_precede = |one: &[usize], other: &[usize]| {
        one.iter().all(|one| other.iter().all(|other| lifetimes.precedes(*one, *other)))
    };
    all_precede(one, other) || all_precede(other, one)
}

/// Checks everything that must hold of any plan.
pub fn check(plan: &Plan, lifetimes: &Lifetimes, page: u64, held: &[Held]) {
    let expected = pages(lifetimes, page);
    let mut mapped: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    for mapping in &plan.mappings {
        assert_eq!(mapping.address % page, 0);
        let bytes = plan.pieces[mapping.piece as usize].bytes;
        assert!(bytes > 0 && bytes.is_multiple_of(page));
        for offset in 0..bytes / page {
            let before = mapped.insert(mapping.address / page + offset, (mapping.piece, offset));
            assert!(before.is_none(), "mapped twice");
        }
    }
    assert!(plan.mappings.is_sorted_by(|one, other| one.address < other.address));
    assert!(mapped.keys().eq(expected.keys()), "what is used is mapped, and nothing else");

    let mut names: Vec<u32> = plan.pieces.iter().filter_map(|piece| piece.held).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, other| one < other), "a held piece is used once");
    for piece in &plan.pieces {
        let Some(held) = piece.held.map(|name| held[name as usize]) else { continue };
        assert!(held.lasting || !piece.lasting, "what lasts lies where it may");
        assert_eq!(held.bytes, piece.bytes);
    }

    let mut users: BTreeMap<(u32, u64), Vec<u64>> = BTreeMap::new();
    for (at, physical) in &mapped {
        users.entry(*physical).or_default().push(*at);
    }
    let mut lasting = vec![false; plan.pieces.len()];
    for ((piece, _), users) in &users {
        for (nth, one) in users.iter().enumerate() {
            for other in &users[nth + 1..] {
                let ordered = in_order(lifetimes, &expected[one], &expected[other]);
                assert!(ordered, "shared unordered");
            }
        }
        let kept = |at: &u64| expected[at].iter().any(|it| !lifetimes.blocks()[*it].freed);
        lasting[*piece as usize] |= users.iter().any(kept);
    }
    assert!(plan.pieces.iter().zip(lasting).all(|(piece, lasts)| piece.lasting == lasts));
    let pieces: u64 = plan.pieces.iter().map(|piece| piece.bytes / page).sum();
    assert_eq!(users.len() as u64, pieces, "every piece is mapped");
}
