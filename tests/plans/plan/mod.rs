//! Plans: valid, of the least memory, and of few mappings.

mod placed;
mod valid;

use std::collections::BTreeSet;

use placed::{lifetimes, recorded, Shape, PAGE, RECORDED_PAGE};
use proptest::prelude::*;
use regraph::plan::{Costs, Held, Options, Plan};
use regraph_plan::lifetimes::Lifetimes;

fn shapes() -> impl Strategy<Value = Shape> {
    (any::<u64>(), 1..400usize, 1..12u64, any::<bool>(), 0..40u32)
        .prop_map(|(seed, steps, pages, aligned, kept)| Shape { seed, steps, pages, aligned, kept })
}

fn options(max_mappings: Option<usize>, max_piece_bytes: Option<u64>) -> Options {
    let whole = Options::default().pool_graphs(Some(1));
    whole.max_mappings(max_mappings).max_piece_bytes(max_piece_bytes)
}

fn exact(lifetimes: &Lifetimes, page: u64) -> Plan {
    Plan::new(lifetimes, page, &[], &options(None, None))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn memory_is_the_least_and_shared_in_order(shape in shapes()) {
        let lifetimes = lifetimes(&shape);
        let plan = exact(&lifetimes, PAGE);
        valid::check(&plan, &lifetimes, PAGE, &[]);
        prop_assert_eq!(plan.bytes(), plan.minimum_bytes);
        prop_assert_eq!((plan.excess_bytes, plan.over_budget), (0, false));
        prop_assert_eq!(&plan, &exact(&lifetimes, PAGE));
    }

    #[test]
    fn pieces_are_no_larger_than_allowed(shape in shapes(), most in 1..5u64) {
        let lifetimes = lifetimes(&shape);
        let plan = Plan::new(&lifetimes, PAGE, &[], &options(None, Some(most * PAGE)));
        valid::check(&plan, &lifetimes, PAGE, &[]);
        prop_assert_eq!(plan.bytes(), plan.minimum_bytes);
        prop_assert!(plan.pieces.iter().all(|piece| piece.bytes <= most * PAGE));
    }

    #[test]
    fn held_pages_are_all_used(shape in shapes(), held in 0..60usize, free in 0..60usize) {
        let lifetimes = lifetimes(&shape);
        let pages = |count, lasting| vec![Held { bytes: PAGE, lasting }; count];
        let held = [pages(held, false), pages(free, true)].concat();
        let plan = Plan::new(&lifetimes, PAGE, &held, &options(None, None));
        valid::check(&plan, &lifetimes, PAGE, &held);
        let lasting = valid::lasting(&lifetimes, PAGE) * PAGE;
        let (there, free) = ((held.len() - free) as u64 * PAGE, free as u64 * PAGE);
        let rest = (plan.minimum_bytes - lasting).saturating_sub(there);
        let new = lasting.saturating_sub(free) + rest.saturating_sub(free.saturating_sub(lasting));
        prop_assert_eq!(plan.new_bytes(), new);
        prop_assert_eq!(plan.excess_bytes, 0);
        prop_assert_eq!(plan.bytes(), plan.minimum_bytes);
    }

    #[test]
    fn held_pieces_of_any_size_are_used_where_they_fit(
        shape in shapes(),
        sizes in prop::collection::vec((0..8u64, any::<bool>()), 0..40),
        budget in prop::option::of(0..80usize),
    ) {
        let lifetimes = lifetimes(&shape);
        let sizes = sizes.iter().map(|&(pages, lasting)| (pages * PAGE, lasting));
        let sizes = sizes.chain([(PAGE + 1, false), (PAGE + 1, true)]);
        let held: Vec<Held> = sizes.map(|(bytes, lasting)| Held { bytes, lasting }).collect();
        let plan = Plan::new(&lifetimes, PAGE, &held, &options(budget, None));
        valid::check(&plan, &lifetimes, PAGE, &held);
        let there = |lasting| -> u64 {
            let held = held.iter().filter(|held| held.lasting == lasting && held.bytes != PAGE + 1);
            held.map(|held| held.bytes).sum()
        };
        let lasting = valid::lasting(&lifetimes, PAGE) * PAGE;
        let others = there(false) + there(true).saturating_sub(lasting);
        let needed = lasting.saturating_sub(there(true))
            + (plan.minimum_bytes - lasting).saturating_sub(others);
        prop_assert_eq!(plan.new_bytes(), needed + plan.excess_bytes);
        let budget = budget.unwrap_or(usize::MAX).max(valid::runs(&lifetimes, PAGE));
        prop_assert!(plan.mappings.len() <= budget);
    }

    #[test]
    fn new_pieces_are_divided_so_that_sums_of_them_have_every_size(
        shape in shapes(),
        held in prop::collection::vec((1..8u64, any::<bool>()), 0..20),
        budget in prop::option::of(0..200usize),
    ) {
        let lifetimes = lifetimes(&shape);
        let held: Vec<Held> =
            held.iter().map(|&(pages, lasting)| Held { bytes: pages * PAGE, lasting }).collect();
        let whole = Plan::new(&lifetimes, PAGE, &held, &options(budget, None));
        let divided = options(budget, None).pool_graphs(None);
        let plan = Plan::new(&lifetimes, PAGE, &held, &divided);
        valid::check(&plan, &lifetimes, PAGE, &held);
        prop_assert_eq!((plan.bytes(), plan.new_bytes()), (whole.bytes(), whole.new_bytes()));
        let most = budget.unwrap_or(usize::MAX).max(whole.mappings.len());
        prop_assert!(plan.mappings.len() <= most);
        if budget.is_none() {
            let mut parts = plan.pieces.iter();
            for (number, piece) in whole.pieces.iter().enumerate() {
                let mut sizes = BTreeSet::from([0]);
                while !sizes.contains(&piece.bytes) {
                    let part = parts.next().unwrap();
                    prop_assert_eq!((part.held, part.lasting), (piece.held, piece.lasting));
                    sizes.extend(sizes.clone().iter().map(|size| size + part.bytes));
                }
                let uses = whole.mappings.iter().filter(|it| it.piece as usize == number).count();
                let pages = piece.bytes / PAGE;
                if piece.held.is_none() && uses as u64 <= pages {
                    prop_assert!(sizes.into_iter().eq((0..=pages).map(|pages| pages * PAGE)));
                } else {
                    prop_assert_eq!(sizes.len(), 2, "it is whole");
                }
            }
        }
    }

    #[test]
    fn a_pool_of_pages_holds_what_its_largest_graph_needs(
        shapes in prop::collection::vec(shapes(), 1..8),
    ) {
        let mut held: Vec<Held> = Vec::new();
        let (mut total, mut all_lasting, mut largest) = (0, 0, 0);
        for shape in shapes {
            let lifetimes = lifetimes(&shape);
            let plan = Plan::new(&lifetimes, PAGE, &held, &options(None, Some(PAGE)));
            valid::check(&plan, &lifetimes, PAGE, &held);
            let lasting = valid::lasting(&lifetimes, PAGE) * PAGE;
            all_lasting += lasting;
            largest = largest.max(plan.minimum_bytes - lasting);
            total += plan.new_bytes();
            let new = plan.pieces.iter().filter(|piece| piece.held.is_none() && !piece.lasting);
            held.extend(new.map(|piece| Held { bytes: piece.bytes, lasting: false }));
        }
        prop_assert_eq!(total, all_lasting + largest);
    }

    #[test]
    fn mappings_keep_within_the_budget(shape in shapes(), share in 0..110usize) {
        let lifetimes = lifetimes(&shape);
        let least = exact(&lifetimes, PAGE);
        let runs = valid::runs(&lifetimes, PAGE);
        let budget = least.mappings.len() * share / 100;
        let plan = Plan::new(&lifetimes, PAGE, &[], &options(Some(budget), None));
        valid::check(&plan, &lifetimes, PAGE, &[]);
        prop_assert!(plan.mappings.len() <= budget.max(runs));
        prop_assert_eq!(plan.over_budget, budget < runs);
        prop_assert_eq!(plan.minimum_bytes, least.minimum_bytes);
        prop_assert!(plan.bytes() >= least.bytes());
        prop_assert_eq!(plan.excess_bytes, plan.bytes() - least.bytes());
    }
}

#[test]
fn recorded_captures_need_the_least() {
    for (name, mebibytes, a_block) in [
        ("decoder_s1", 46, 1.7),
        ("moe_s6", 134, 1.65),
        ("googlenet_s4", 216, 1.7),
        ("pipeline_s5", 216, 1.8),
    ] {
        let lifetimes = recorded(name);
        let plan = exact(&lifetimes, RECORDED_PAGE);
        valid::check(&plan, &lifetimes, RECORDED_PAGE, &[]);
        let (blocks, mappings) = (lifetimes.blocks().len() as f64, plan.mappings.len() as f64);
        eprintln!("{name}: {} pieces, {mappings} mappings of {blocks} blocks", plan.pieces.len());
        assert_eq!(plan.bytes(), plan.minimum_bytes);
        assert_eq!(plan.bytes(), mebibytes << 20, "{name}");
        let divided = Plan::new(&lifetimes, RECORDED_PAGE, &[], &Options::default());
        valid::check(&divided, &lifetimes, RECORDED_PAGE, &[]);
        assert_eq!(divided.bytes(), plan.bytes());
        assert!(divided.mappings.len() <= 3 * plan.mappings.len(), "{name}");
        assert!(mappings <= a_block * blocks, "{name}: {mappings} mappings of {blocks} blocks");
    }
}

#[test]
fn recorded_captures_with_fewer_mappings() {
    for name in ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"] {
        let lifetimes = recorded(name);
        let least = exact(&lifetimes, RECORDED_PAGE);
        let blocks = lifetimes.blocks().len();
        for share in [75, 50, 25, 10, 0] {
            let budget = blocks * share / 50;
            let options = options(Some(budget), None);
            let plan = Plan::new(&lifetimes, RECORDED_PAGE, &[], &options);
            valid::check(&plan, &lifetimes, RECORDED_PAGE, &[]);
            let runs = valid::runs(&lifetimes, RECORDED_PAGE);
            assert!(plan.mappings.len() <= budget.max(runs));
            eprintln!(
                "{name}: {} MiB with {} mappings of {budget}, {} MiB with {}",
                plan.bytes() >> 20,
                plan.mappings.len(),
                least.bytes() >> 20,
                least.mappings.len(),
            );
        }
    }
}

#[test]
fn nothing_needs_nothing() {
    let plan = Plan::new(
        &Lifetimes::new(3),
        PAGE,
        &[Held { bytes: PAGE, lasting: true }],
        &options(Some(0), None),
    );
    assert_eq!(plan, Plan::default());
    assert!(plan.estimate(&Costs::default(), 0).is_zero());
}

#[test]
#[ignore = "takes long; for its time"]
fn a_hundred_thousand_blocks() {
    let shape = Shape { seed: 7, steps: 400_000, pages: 16, aligned: true, kept: 0 };
    let lifetimes = lifetimes(&shape);
    let start = std::time::Instant::now();
    let plan = exact(&lifetimes, PAGE);
    eprintln!(
        "{} blocks, {} mappings, {:?}",
        lifetimes.blocks().len(),
        plan.mappings.len(),
        start.elapsed()
    );
    assert_eq!(plan.bytes(), plan.minimum_bytes);
}
