//! Pages that lie on one page of memory at the same time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use regraph::plan::{Held, Options, Plan};
use regraph::settings::PlanShare;
use regraph::BlockNumber;
use regraph_plan::lifetimes::{Lifetime, Lifetimes};

use super::random::{self, Shape};
use super::{shapes, valid};

/// No line of so many bytes is in use at two addresses at the same time.
const LINE: u64 = 512;
/// The page of these captures, in bytes: the random ones' with each byte a line.
const PAGE: u64 = random::PAGE * LINE;

fn options() -> Options {
    Options::default().share(PlanShare::Bytes)
}

/// The random capture with each byte a line.
fn lifetimes(shape: &Shape) -> Lifetimes {
    let bytes = random::lifetimes(shape);
    let mut lines = Lifetimes::new(bytes.chains());
    for (number, block) in bytes.blocks().iter().enumerate() {
        let mut block = *block;
        (block.address, block.bytes) = (block.address * LINE, block.bytes * LINE);
        lines.push(block, bytes.known(number), bytes.needed(number));
    }
    lines
}

/// Each page in one of so many sets, whatever lies there.
fn any_sets(lifetimes: &Lifetimes, seed: u64, count: usize) -> Vec<Vec<u64>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sets = vec![Vec::new(); count];
    for page in valid::pages(lifetimes, PAGE).into_keys() {
        sets[random.usize(..count)].push(page * PAGE);
    }
    sets
}

/// Sets of pages, each the first page that fits into one that is there: with a line for each byte in use.
fn good_sets(lifetimes: &Lifetimes) -> Vec<Vec<u64>> {
    let pages = valid::pages(lifetimes, PAGE);
    let mut sets: Vec<Vec<u64>> = Vec::new();
    for page in pages.keys() {
        let fits = |set: &&mut Vec<u64>| {
            set.len() < 4
                && set.iter().all(|other| {
                    valid::beside(lifetimes, &pages, (*page, other / PAGE), (PAGE, LINE))
                })
        };
        match sets.iter_mut().find(fits) {
            Some(set) => set.push(page * PAGE),
            None => sets.push(vec![page * PAGE]),
        }
    }
    sets
}

/// How many pages of memory lie at two addresses with blocks that are in no order.
fn joint(plan: &Plan, lifetimes: &Lifetimes) -> usize {
    let pages = valid::pages(lifetimes, PAGE);
    let mut at: BTreeMap<(u32, u64), Vec<u64>> = BTreeMap::new();
    for mapping in &plan.mappings {
        for offset in 0..plan.pieces[mapping.piece as usize].bytes / PAGE {
            at.entry((mapping.piece, offset)).or_default().push(mapping.address / PAGE + offset);
        }
    }
    let unordered =
        |one: &u64, other: &u64| !valid::in_order(lifetimes, &pages[one], &pages[other]);
    let joint = at.values().filter(|at| {
        at.iter().enumerate().any(|(nth, one)| at[nth + 1..].iter().any(|it| unordered(one, it)))
    });
    joint.count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    /// Whatever the host says of who may lie beside whom, the plan proves it.
    #[test]
    fn what_is_told_wrongly_is_left_out(shape in shapes(), seed: u64, count in 1..40usize) {
        let lifetimes = lifetimes(&shape);
        let sets = any_sets(&lifetimes, seed, count);
        let plan = Plan::joint(&lifetimes, PAGE, &[], &options(), &sets, true);
        valid::check_bytes(&plan, &lifetimes, (PAGE, LINE), &[]);
        prop_assert_eq!(&plan, &Plan::joint(&lifetimes, PAGE, &[], &options(), &sets, true));
        let without = Plan::joint(&lifetimes, PAGE, &[], &Options::default(), &sets, true);
        valid::check(&without, &lifetimes, PAGE, &[]);
        prop_assert!(plan.bytes() <= without.bytes());
    }

    #[test]
    fn what_is_told_rightly_saves_memory_within_all_bounds(
        shape in shapes(),
        held in prop::collection::vec((1..8u64, any::<bool>()), 0..20),
        budget in prop::option::of(0..200usize),
        most in prop::option::of(1..5u64),
    ) {
        let lifetimes = lifetimes(&shape);
        let sets = good_sets(&lifetimes);
        let held: Vec<Held> =
            held.iter().map(|&(pages, lasting)| Held { bytes: pages * PAGE, lasting }).collect();
        let bounded = options().max_mappings(budget).max_piece_bytes(most.map(|it| it * PAGE));
        let plan = Plan::joint(&lifetimes, PAGE, &held, &bounded, &sets, true);
        valid::check_bytes(&plan, &lifetimes, (PAGE, LINE), &held);
        let without =
            Plan::joint(&lifetimes, PAGE, &held, &bounded.share(PlanShare::Pages), &sets, true);
        prop_assert!(plan.minimum_bytes <= without.minimum_bytes);
        prop_assert_eq!(plan.over_budget, without.over_budget);
        let budget = budget.unwrap_or(usize::MAX).max(valid::runs(&lifetimes, PAGE));
        prop_assert!(plan.mappings.len() <= budget || most.is_some());
        if held.is_empty() {
            prop_assert!(plan.bytes() <= without.bytes());
            prop_assert_eq!(plan.excess_bytes, plan.bytes() - plan.minimum_bytes);
        }
    }
}

/// Two blocks of a page and a half, in use at the same time: `apart` lines lie between their ends.
fn two_ends(apart: i64) -> (Lifetimes, Vec<Vec<u64>>) {
    let mut lifetimes = Lifetimes::new(2);
    let half = PAGE / 2;
    let second = (9 * PAGE + half).wrapping_add_signed(apart * LINE as i64);
    for (number, address, end) in [(0, PAGE, 2 * PAGE + half), (1, second, 11 * PAGE)] {
        let place = (address, end - address);
        let block = Lifetime::new(BlockNumber(number), place, number as u32, true);
        let own = |value| if number == 0 { [value, 0] } else { [0, value] };
        lifetimes.push(block, &[0, 0], &own(3));
    }
    (lifetimes, vec![vec![2 * PAGE, 9 * PAGE]])
}

#[test]
fn ends_lie_beside_each_other_in_other_lines() {
    for (apart, pages) in [(0, 3), (1, 3), (-1, 4)] {
        let (lifetimes, sets) = two_ends(apart);
        let plan = Plan::joint(&lifetimes, PAGE, &[], &options(), &sets, true);
        valid::check_bytes(&plan, &lifetimes, (PAGE, LINE), &[]);
        assert_eq!((plan.bytes(), plan.minimum_bytes), (pages * PAGE, pages * PAGE), "{apart}");
        assert_eq!((joint(&plan, &lifetimes), plan.mappings.len()), ((4 - pages) as usize, 4));
        // Nothing of it without the option, or with mappings for the runs of addresses only.
        for options in [Options::default(), options().max_mappings(Some(2))] {
            let plan = Plan::joint(&lifetimes, PAGE, &[], &options, &sets, true);
            valid::check(&plan, &lifetimes, PAGE, &[]);
            assert_eq!(plan.bytes(), 4 * PAGE);
        }
    }
}

/// Beside two blocks that are in use at the same time, two that follow each other: their pages go from one to the
/// other whole, and need no mappings of their own.
#[test]
fn what_saves_nothing_is_not_joined() {
    let (both, mut sets) = two_ends(0);
    let mut lifetimes = Lifetimes::new(3);
    for (number, block) in both.blocks().iter().enumerate() {
        let wider = |of: &[u32]| [of[0], of[1], 0];
        let (known, needed) = (wider(both.known(number)), wider(both.needed(number)));
        lifetimes.push(*block, &known, &needed);
    }
    for (number, address, known) in [(2, 20 * PAGE, 0), (3, 29 * PAGE + PAGE / 2, 3)] {
        let place = (address, PAGE + PAGE / 2);
        let block = Lifetime::new(BlockNumber(number), place, 2, true);
        lifetimes.push(block, &[0, 0, known], &[0, 0, known + 3]);
    }
    sets.push(vec![21 * PAGE, 29 * PAGE]);
    let plan = Plan::joint(&lifetimes, PAGE, &[], &options(), &sets, false);
    valid::check_bytes(&plan, &lifetimes, (PAGE, LINE), &[]);
    assert_eq!((plan.bytes(), plan.minimum_bytes), (5 * PAGE, 5 * PAGE));
    assert_eq!((joint(&plan, &lifetimes), plan.mappings.len()), (1, 6));
}

/// A page that is told of in no multiple of the granularity, or twice, or where nothing lies.
#[test]
fn sets_may_be_odd() {
    let (lifetimes, mut sets) = two_ends(0);
    sets[0].extend([PAGE + 1, 77 * PAGE, 2 * PAGE]);
    sets.extend([vec![9 * PAGE, PAGE], Vec::new()]);
    let plan = Plan::joint(&lifetimes, PAGE, &[], &options(), &sets, true);
    valid::check_bytes(&plan, &lifetimes, (PAGE, LINE), &[]);
    assert_eq!(plan.bytes(), 3 * PAGE);
}

/// What lasts at one address lasts at all.
#[test]
fn a_joint_page_lasts_as_long_as_any_of_its_blocks() {
    let (both, sets) = two_ends(0);
    for kept in 0..2 {
        let mut lifetimes = Lifetimes::new(2);
        for (number, block) in both.blocks().iter().enumerate() {
            let mut block = *block;
            block.freed = number != kept;
            lifetimes.push(block, both.known(number), both.needed(number));
        }
        let held = [Held { bytes: PAGE, lasting: false }; 3];
        let plan = Plan::joint(&lifetimes, PAGE, &held, &options(), &sets, true);
        valid::check_bytes(&plan, &lifetimes, (PAGE, LINE), &held);
        let lasting = plan.pieces.iter().filter(|piece| piece.lasting);
        let lasting: u64 = lasting.map(|piece| piece.bytes / PAGE).sum();
        assert_eq!((plan.bytes() / PAGE, lasting), (3, 2));
        assert_eq!(plan.new_bytes(), 2 * PAGE, "the page of the other one is there");
    }
}

#[test]
fn random_captures_have_joint_pages() {
    let mut all = (0, 0, 0);
    for seed in 0..40 {
        let shape = Shape { seed, streams: 3, steps: 300, pages: 3, aligned: false, kept: 5 };
        let lifetimes = lifetimes(&shape);
        let plan =
            |options| Plan::joint(&lifetimes, PAGE, &[], &options, &good_sets(&lifetimes), true);
        let (with, without) = (plan(options()), plan(Options::default()));
        valid::check_bytes(&with, &lifetimes, (PAGE, LINE), &[]);
        all.0 += joint(&with, &lifetimes);
        all.1 += with.bytes() / PAGE;
        all.2 += without.bytes() / PAGE;
    }
    println!("{} joint pages; {} pages for {}", all.0, all.1, all.2);
    assert!(all.0 > 100 && all.1 < all.2, "{all:?}");
}
