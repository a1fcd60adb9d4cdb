//! What must hold of random captures.

use proptest::prelude::*;
use regraph_plan::cover::{Cover, Heaviest, Item, Items};

use super::captures::{Capture, Step};
use super::cover;
use crate::cases::cases;

fn step(streams: usize, most: u64) -> impl Strategy<Value = Step> {
    let stream = 0..streams;
    let weight = prop_oneof![1 => Just(0), 6 => 0..=most];
    let block = 0..40_usize;
    prop_oneof![
        3 => stream.clone().prop_map(|stream| Step::Launch { stream }),
        4 => (stream.clone(), stream.clone()).prop_map(|(stream, on)| Step::Wait { stream, on }),
        6 => (stream.clone(), weight).prop_map(|(stream, weight)| Step::Allocate { stream, weight }),
        2 => (stream.clone(), block.clone()).prop_map(|(stream, block)| Step::Use { block, stream }),
        9 => block.prop_map(|block| Step::Free { block }),
        1 => stream.prop_map(|stream| Step::SetBack { stream }),
    ]
}

fn capture(steps: usize) -> impl Strategy<Value = Capture> {
    (1..=5_usize, prop_oneof![Just(1), Just(4), Just(1_u64 << 50)]).prop_flat_map(
        move |(streams, most)| {
            let steps = proptest::collection::vec(step(streams, most), 0..steps);
            steps.prop_map(move |steps| Capture::run(streams, &steps))
        },
    )
}

fn chance() -> impl Strategy<Value = fastrand::Rng> {
    any::<u64>().prop_map(fastrand::Rng::with_seed)
}

/// Items that can be changed one by one.
#[derive(Clone, Debug)]
struct Boxes(Vec<(Item, Vec<u32>, Vec<u32>)>);

impl Boxes {
    fn of(capture: &Capture) -> Self {
        let items = capture.items();
        let one =
            |at: usize| (items.items()[at], items.known(at).to_vec(), items.needed(at).to_vec());
        Self((0..items.items().len()).map(one).collect())
    }

    fn items(&self) -> Items {
        let mut items = Items::new(self.0.first().map_or(0, |first| first.1.len()));
        self.0.iter().for_each(|(item, known, needed)| items.push(*item, known, needed));
        items
    }

    fn minimum(&self) -> u64 {
        cover(&self.items()).minimum
    }

    /// Each with those that follow it and are marked as one, and the first of each.
    fn joined(&self, marked: &[bool]) -> (Self, Vec<usize>) {
        let (mut joined, mut firsts) = (Self(Vec::new()), Vec::new());
        for (at, part) in self.0.iter().enumerate() {
            match joined.0.last_mut().filter(|_| marked[at]) {
                Some((item, known, needed)) => {
                    item.weight += part.0.weight;
                    item.freed &= part.0.freed;
                    known.iter_mut().zip(&part.1).for_each(|(one, other)| *one = *other.min(one));
                    needed.iter_mut().zip(&part.2).for_each(|(one, other)| *one = *other.max(one));
                }
                None => {
                    joined.0.push(part.clone());
                    firsts.push(at);
                }
            }
        }
        (joined, firsts)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn it_is_the_heaviest_antichain(capture in capture(60)) {
        prop_assert_eq!(cover(&capture.items()).minimum, capture.minimum());
    }

    #[test]
    fn what_flowed_may_flow_between_parts(capture in capture(60), mut random in chance()) {
        let boxes = Boxes::of(&capture);
        let mut marked: Vec<bool> = boxes.0.iter().map(|_| random.u8(..) < 200).collect();
        let mut before: Option<(Vec<usize>, Heaviest)> = None;
        for _ in 0..4 {
            let (joined, firsts) = boxes.joined(&marked);
            let items = joined.items();
            let heaviest = match &before {
                Some((wholes, heaviest)) => {
                    let mut parts = vec![Vec::new(); wholes.len()];
                    for (part, first) in (0..).zip(&firsts) {
                        parts[wholes.partition_point(|whole| whole <= first) - 1].push(part);
                    }
                    heaviest.of_parts(&items, |item| &parts[item as usize])
                }
                None => Heaviest::of(&items),
            };
            let cover = cover(&items);
            prop_assert_eq!((heaviest.minimum, &heaviest.antichain), (cover.minimum, &cover.antichain));
            marked.iter_mut().for_each(|marked| *marked &= random.bool());
            before = Some((firsts, heaviest));
        }
    }

    #[test]
    fn what_precedes_has_no_user_left(capture in capture(60)) {
        let items = capture.items();
        for (one, earlier) in capture.blocks.iter().enumerate() {
            for (other, later) in capture.blocks.iter().enumerate() {
                prop_assert_eq!(items.precedes(one, other), earlier.precedes(later));
            }
        }
    }

    #[test]
    fn rows_chains_and_order_are_names(capture in capture(100), mut random in chance()) {
        let boxes = Boxes::of(&capture);
        let mut other = boxes.clone();
        let mut chains: Vec<usize> = (0..capture.items().chains()).collect();
        random.shuffle(&mut chains);
        for (item, known, needed) in &mut other.0 {
            item.row = random.u32(0..3) * 1_000_000;
            *known = chains.iter().map(|&chain| known[chain]).collect();
            *needed = chains.iter().map(|&chain| needed[chain]).collect();
        }
        prop_assert_eq!(other.minimum(), boxes.minimum());
        random.shuffle(&mut other.0);
        prop_assert_eq!(other.minimum(), boxes.minimum());
    }
}

/// The laws say little of the search if its start is its end.
#[test]
fn random_captures_need_exchanges() {
    let mut improved = 0;
    cases(4_000, 32..=256, |u| {
        let mut random = fastrand::Rng::with_seed(u.arbitrary()?);
        let steps = (0..90).map(|_| {
            let (stream, on) = (random.usize(0..3), random.usize(0..3));
            let block = random.usize(0..30);
            match random.u32(0..10) {
                0 => Step::Wait { stream, on },
                1 => Step::Use { block, stream },
                2..6 => Step::Allocate { stream, weight: random.u64(1..10) },
                _ => Step::Free { block },
            }
        });
        let items = Capture::run(3, &steps.collect::<Vec<_>>()).items();
        improved += usize::from(Cover::at_once(&items) > cover(&items).minimum);
        Ok(())
    });
    assert!(improved > 0);
}
