//! The least memory: against all antichains, and by laws.

mod captures;
mod laws;

use captures::{Capture, Step};
use regraph_plan::cover::{Cover, Entry, Item, Items, Row};

/// The cover, which must be right by what its own doc says.
pub fn cover(items: &Items) -> Cover {
    let cover = Cover::new(items);
    assert!(cover.is_proven(items));
    let all = items.items();
    let weight: u64 = cover.antichain.iter().map(|&item| all[item as usize].weight).sum();
    assert_eq!(weight, cover.minimum, "the antichain weighs the minimum");
    for &one in &cover.antichain {
        for &other in &cover.antichain {
            assert!(!items.precedes(one as usize, other as usize), "{one} precedes {other}");
        }
    }
    assert!(cover.antichain.is_sorted());
    let mut given = vec![0; all.len()];
    let mut new = 0;
    let mut seen: Vec<u32> = Vec::new();
    for row in &cover.rows {
        let mut available = 0_u128;
        for (at, &item) in row.items.iter().enumerate() {
            for entry in &row.entries[at] {
                assert!(items.precedes(entry.from as usize, item as usize));
                let before = at.checked_sub(1).map(|before| row.items[before] as usize);
                assert!(!before.is_some_and(|it| items.precedes(entry.from as usize, it)), "late");
                given[entry.from as usize] += entry.amount;
                available += u128::from(entry.amount);
            }
            available -= u128::from(row.taken[at]);
            new += all[item as usize].weight - row.taken[at];
        }
        assert_eq!(available, 0);
        seen.extend(&row.items);
    }
    assert_eq!(new, cover.minimum, "the rest is new");
    assert!(given.iter().zip(all).all(|(&given, item)| given <= item.weight));
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..all.len() as u32), "all in rows, once");
    assert!(Cover::at_once(items) >= cover.minimum);
    cover
}

/// All captures of up to three streams and six steps, but for the names of streams: with kernels,
/// waits that say something, blocks (each with its kernel; weights alike, and not), uses on other
/// streams, frees, and sets back to nothing.
#[test]
fn all_small_captures() {
    struct All {
        checked: usize,
    }
    impl All {
        fn go(&mut self, capture: &Capture, known: usize, left: usize) {
            let blocks = capture.blocks.len();
            let streams = capture.streams.len();
            let mut next = Vec::new();
            for stream in 0..streams.min(known + 1) {
                next.push((Step::Allocate { stream, weight: 1 }, stream));
                if left == 1 {
                    continue; // what comes after the last block says nothing
                }
                next.push((Step::Launch { stream }, stream));
                for on in (0..known).filter(|&on| on != stream) {
                    if capture.streams[on].0 & !capture.streams[stream].0 != 0 {
                        next.push((Step::Wait { stream, on }, stream));
                    }
                }
                for block in (0..blocks).filter(|&block| !capture.blocks[block].freed) {
                    if capture.blocks[block].stream != stream {
                        next.push((Step::Use { block, stream }, stream));
                    }
                    if stream == 0 {
                        next.push((Step::Free { block }, 0));
                    }
                }
                if capture.streams[stream].0 != 0 {
                    next.push((Step::SetBack { stream }, stream));
                }
            }
            for (step, stream) in next {
                let mut capture = capture.clone();
                capture.step(step);
                if blocks > 0 && matches!(step, Step::Allocate { .. }) {
                    self.check(&mut capture);
                }
                if left > 1 {
                    self.go(&capture, known.max(stream + 1), left - 1);
                }
            }
        }

        fn check(&mut self, capture: &mut Capture) {
            // With nothing given back there is nothing to find.
            if capture.blocks.iter().all(|block| !block.freed) {
                return;
            }
            for weights in [[1; 6], [3, 1, 2, 5, 1, 4], [0, 2, 7, 1, 3, 1]] {
                for (block, weight) in capture.blocks.iter_mut().zip(weights) {
                    block.weight = weight;
                }
                self.checked += 1;
                let cover = cover(&capture.items());
                assert_eq!(cover.minimum, capture.minimum(), "{capture:?}");
            }
        }
    }
    let mut all = All { checked: 0 };
    for streams in 1..=3 {
        all.go(&Capture::new(streams), 0, 6);
    }
    println!("{} captures", all.checked);
    assert!(all.checked > 80_000);
}

/// All sets of four boxes in two chains with numbers up to 2, in the order of what they know: here the
/// start is not always the end.
#[test]
fn all_sets_of_four_boxes() {
    let points: Vec<[u32; 2]> = (0..9).map(|at| [at / 3, at % 3]).collect();
    let mut boxes = Vec::new();
    for &known in &points {
        boxes.push((known, known, false));
        for &needed in &points {
            if needed != known && needed[0] >= known[0] && needed[1] >= known[1] {
                boxes.push((known, needed, true));
            }
        }
    }
    boxes.sort_by_key(|(known, needed, _)| (known[0] + known[1], *known, *needed));
    let (mut checked, mut improved) = (0, 0);
    let mut chosen = [0; 4];
    while chosen[0] < boxes.len() {
        let mut items = Items::new(2);
        for (at, (&one, weight)) in chosen.iter().zip([2, 1, 2, 1]).enumerate() {
            let (known, needed, freed) = boxes[one];
            items.push(Item::new(weight, at as u32 / 2, freed), &known, &needed);
        }
        let minimum = cover(&items).minimum;
        assert_eq!(minimum, heaviest(&items), "{items:?}");
        checked += 1;
        improved += usize::from(Cover::at_once(&items) > minimum);
        // The next that ascends.
        let last = (0..4).rfind(|&at| at == 0 || chosen[at] + 1 < boxes.len()).unwrap();
        let next = chosen[last] + 1;
        chosen[last..].fill(next);
    }
    println!("{checked} sets, {improved} of them improved");
    assert!(improved > 0);
}

fn heaviest(items: &Items) -> u64 {
    let count = items.items().len();
    let sets = (0..1_usize << count).filter(|set| {
        let chosen = || (0..count).filter(|item| set >> item & 1 == 1);
        chosen().all(|one| chosen().all(|other| !items.precedes(one, other)))
    });
    let weight = |set: usize| {
        let chosen = (0..count).filter(|item| set >> item & 1 == 1);
        chosen.map(|item| items.items()[item].weight).sum()
    };
    sets.map(weight).max().unwrap()
}

#[test]
fn a_plan_needs_more_than_is_ever_in_use_at_once() {
    // The first block is used on both streams; each knows of its own use only.
    let steps = [
        Step::Allocate { stream: 0, weight: 1 },
        Step::Use { block: 0, stream: 1 },
        Step::Free { block: 0 },
        Step::Allocate { stream: 0, weight: 1 },
        Step::Allocate { stream: 1, weight: 1 },
    ];
    let capture = Capture::run(2, &steps);
    assert_eq!(capture.most_live(), 2);
    assert_eq!(cover(&capture.items()).minimum, 3);
}

#[test]
fn nothing_needs_nothing() {
    for items in [Items::new(0), Items::new(3)] {
        let cover = cover(&items);
        assert_eq!((cover.minimum, cover.antichain.len(), cover.rows.len()), (0, 0, 0));
    }
}

#[test]
fn who_needs_no_more_than_it_knows_gives_nothing() {
    let mut items = Items::new(1);
    items.push(Item::new(5, 0, true), &[2], &[2]);
    items.push(Item::new(5, 0, true), &[2], &[1]);
    items.push(Item::new(5, 0, true), &[2], &[3]);
    items.push(Item::new(5, 0, false), &[3], &[3]);
    assert!(items.items()[..2].iter().all(|item| !item.freed));
    assert_eq!(cover(&items).minimum, 15);
}

#[test]
#[should_panic(expected = "the least memory fits in 64 bits")]
fn more_than_64_bits_is_refused() {
    let mut items = Items::new(1);
    for _ in 0..2 {
        items.push(Item::new(u64::MAX, 0, false), &[0], &[0]);
    }
    Cover::new(&items);
}

#[test]
fn sums_of_weights_may_be_large() {
    let mut items = Items::new(1);
    for at in 0..10 {
        items.push(Item::new(u64::MAX, 0, true), &[at], &[at + 1]);
    }
    assert_eq!(cover(&items).minimum, u64::MAX);
}

#[test]
fn long_exchanges_need_no_deep_stack() {
    // Block after block fits two others, and the greedy start takes the wrong one somewhere.
    let mut items = Items::new(2);
    for at in 0..100_000_u32 {
        let weight = 1 + u64::from(at % 7);
        items.push(Item::new(weight, at % 2, true), &[at, at / 3 * 2], &[at + 3, at / 2 + 2]);
    }
    let cover = Cover::new(&items);
    assert!(cover.is_proven(&items));
}

/// A block that goes to the next, and one that stays.
fn three() -> (Items, Cover) {
    let mut items = Items::new(2);
    items.push(Item::new(4, 0, true), &[0, 0], &[1, 0]);
    items.push(Item::new(3, 0, false), &[1, 0], &[1, 0]);
    items.push(Item::new(2, 1, false), &[0, 0], &[0, 0]);
    let cover = cover(&items);
    (items, cover)
}

#[test]
fn a_wrong_cover_is_not_proven() {
    type Change = fn(&mut Cover);
    let changes: [(&str, Change); 14] = [
        ("less", |cover| cover.minimum -= 1),
        ("more", |cover| cover.minimum += 1),
        ("an antichain of less", |cover| _ = cover.antichain.pop()),
        ("twice in the antichain", |cover| cover.antichain = vec![0, 0]),
        ("no antichain", |cover| cover.antichain = vec![0, 1]),
        ("no item of this number in the antichain", |cover| cover.antichain = vec![0, 7]),
        ("takes more than is there", |cover| cover.rows[0].taken[1] += 1),
        ("takes less than comes", |cover| cover.rows[0].taken[1] -= 1),
        ("gives more than it is", |cover| {
            cover.rows[0].entries[1][0].amount = 5;
            cover.rows[0].taken[1] = 5;
        }),
        ("gives too early", |cover| cover.rows[1].entries[0].push(Entry { from: 0, amount: 0 })),
        ("from no item", |cover| cover.rows[0].entries[1][0].from = 7),
        ("twice in rows", |cover| cover.rows[1].items[0] = 0),
        ("in no row", |cover| _ = cover.rows.pop()),
        ("of different lengths", |cover| _ = cover.rows[0].taken.pop()),
    ];
    for (name, change) in changes {
        let (items, mut cover) = three();
        change(&mut cover);
        assert!(!cover.is_proven(&items), "{name}");
    }
    let (items, mut cover) = three();
    cover.rows = vec![Row {
        items: vec![0, 1, 2],
        entries: vec![vec![], vec![Entry { from: 0, amount: 3 }], vec![]],
        taken: vec![0, 3, 0],
    }];
    assert!(!cover.is_proven(&items), "a row that knows less further on");
}
