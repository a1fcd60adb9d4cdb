//! Problems of static planners, with intervals and with vector clocks: what is read, what is found, what captures become.

use std::path::PathBuf;

use proptest::prelude::*;
use regraph::settings::Programmatic;
use regraph_lab::problem::Problem;
use regraph_trace::minimum;

fn read(text: &str) -> Problem {
    Problem::read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn text(problem: &Problem, offsets: Option<&[u64]>) -> String {
    let mut text = Vec::new();
    problem.write(&mut text, offsets).unwrap();
    String::from_utf8(text).unwrap()
}

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

/// A block, as tests know it.
#[derive(Clone, Debug)]
struct Block {
    lower: Vec<i64>,
    upper: Vec<i64>,
    size: u64,
}

impl Block {
    fn precedes(&self, other: &Self) -> bool {
        self.upper.iter().zip(&other.lower).all(|(upper, lower)| upper <= lower)
    }
}

fn file(blocks: &[Block]) -> String {
    let clock = |clock: &[i64]| clock.iter().map(i64::to_string).collect::<Vec<_>>().join(":");
    let rows = blocks.iter().enumerate().map(|(id, Block { lower, upper, size })| {
        format!("{id},{},{},{size}\n", clock(lower), clock(upper))
    });
    std::iter::once("id,lower,upper,size\n".to_owned()).chain(rows).collect()
}

/// The heaviest of all sets of blocks in which none precedes another.
fn heaviest(blocks: &[Block]) -> u64 {
    let sets = 0..1_u32 << blocks.len();
    let weights = sets.filter_map(|set| {
        let chosen: Vec<_> =
            blocks.iter().enumerate().filter(|it| set >> it.0 & 1 == 1).map(|it| it.1).collect();
        let apart = |one: &&Block| chosen.iter().all(|other| !one.precedes(other));
        chosen.iter().all(apart).then(|| chosen.iter().map(|block| block.size).sum())
    });
    weights.max().unwrap()
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    (1_usize..4).prop_flat_map(|threads| {
        let clock = |range| proptest::collection::vec(range, threads);
        let block = (clock(-3_i64..6), clock(0_i64..4), 0..threads, 1_u64..9);
        let block = block.prop_map(|(lower, more, sure, size)| {
            let mut upper: Vec<_> = lower.iter().zip(more).map(|(it, more)| it + more).collect();
            upper[sure] = upper[sure].max(lower[sure] + 1);
            Block { lower, upper, size }
        });
        proptest::collection::vec(block, 1..10)
    })
}

proptest! {
    #[test]
    fn the_minimum_is_the_heaviest_antichain_and_no_places_collide(blocks in blocks()) {
        let problem = read(&file(&blocks));
        let solution = problem.solve();
        prop_assert_eq!(solution.minimum, heaviest(&blocks));
        let ends = solution.offsets.iter().zip(&blocks).map(|(offset, block)| offset + block.size);
        prop_assert_eq!(ends.max(), Some(solution.height));
        for (one, first) in blocks.iter().enumerate() {
            for (other, second) in blocks.iter().enumerate().skip(one + 1) {
                let (low, high) = (solution.offsets[one], solution.offsets[other]);
                let apart = low + first.size <= high || high + second.size <= low;
                prop_assert!(apart || first.precedes(second) || second.precedes(first));
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again(blocks in blocks()) {
        let file = file(&blocks);
        prop_assert_eq!(text(&read(&file), None), file);
    }
}

#[test]
fn a_block_behind_both_threads_lies_where_theirs_lay() {
    let problem = read("id,lower,upper,size\n\"a,b\",0:0,1:0,3\nb,0:0,0:1,5\nc,1:1,2:1,8\n");
    assert_eq!((problem.blocks(), problem.threads()), (3, 2));
    let solution = problem.solve();
    assert_eq!((solution.minimum, solution.height), (8, 8));
    let [a, b, c] = solution.offsets[..] else { panic!("{:?}", solution.offsets) };
    let rows = format!("\"a,b\",0:0,1:0,3,{a}\nb,0:0,0:1,5,{b}\nc,1:1,2:1,8,{c}\n");
    let placed = text(&problem, Some(&solution.offsets));
    assert_eq!(placed, format!("id,lower,upper,size,offset\n{rows}"));
}

#[test]
fn minimallocs_sets_have_their_load() {
    for (name, load) in [("A", 1_048_576), ("C", 1_039_360), ("D", 986_112), ("J", 989_184)] {
        let path = tests().join(format!("minimalloc/{name}.1048576.csv"));
        let solution = read(&std::fs::read_to_string(path).unwrap()).solve();
        assert_eq!(solution.minimum, load, "{name}");
        assert!(solution.height >= load, "{name}");
    }
}

#[test]
fn captures_become_problems_of_their_least_memory() {
    for name in ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5", "towers_train_s2"] {
        let trace = std::fs::read(tests().join(format!("traces/{name}.jsonl"))).unwrap();
        let trace = regraph_trace::read(trace.as_slice()).unwrap();
        let policy = Programmatic::default();
        let [certificate] = &minimum::of_trace(&trace, policy)[..] else { panic!("{name}") };
        let [lifetimes] = &minimum::lifetimes(&trace, policy)[..] else { panic!("{name}") };
        let problem = read(&text(&Problem::of_capture(lifetimes), None));
        assert_eq!(problem.solve().minimum, certificate.minimum_bytes, "{name}");
    }
}

#[test]
fn an_output_ends_behind_all_others_and_an_unused_block_is_left_out() {
    let trace = r#"{"op":"begin","stream":0,"pool":0}
{"op":"alloc","id":4,"bytes":512,"stream":0}
{"op":"kernel","stream":0}
{"op":"free","id":4}
{"op":"wait","stream":1,"on":0}
{"op":"alloc","id":7,"bytes":100,"stream":1}
{"op":"alloc","id":8,"bytes":100,"stream":1}
{"op":"free","id":8}
{"op":"kernel","stream":1}
{"op":"wait","stream":0,"on":1}
{"op":"end"}
"#;
    let trace = regraph_trace::read(trace.as_bytes()).unwrap();
    let [lifetimes] = &minimum::lifetimes(&trace, Programmatic::default())[..] else { panic!() };
    let problem = Problem::of_capture(lifetimes);
    let written = text(&problem, None);
    let rows: Vec<Vec<&str>> = written.lines().map(|line| line.split(',').collect()).collect();
    let [_, first, output] = &rows[..] else { panic!("{written}") };
    assert_eq!((first[0], first[3], output[0], output[3]), ("4", "512", "7", "512"));
    let all = |clock: &str| clock.split(':').map(|it| it.parse().unwrap()).collect::<Vec<i64>>();
    let most = all(first[1]).into_iter().chain(all(first[2])).chain(all(output[1])).max().unwrap();
    assert!(all(output[2]).iter().all(|&end| end > most), "{written}");
    assert_eq!(read(&written).solve().minimum, 512);
}

#[test]
fn what_cannot_be_read_says_where_and_why() {
    for (rows, expected) in [
        ("a,1:x,2:3,4", "line 2: expected the begin of the interval as whole numbers of 64 bits with colons between"),
        ("a,1:2,3,4", "line 2: expected as many numbers in the interval's end as in its begin, found [1:2, 3)"),
        ("a,1:2,3:1,4", "line 2: expected an interval that ends after it begins, found [1:2, 3:1)"),
        ("a,1:2,1:2,4", "line 2: expected an interval that ends after it begins, found [1:2, 1:2)"),
        ("a,1:2,2:2,4\nb,1,2,4", "line 3: expected the begin of the interval as 2 whole numbers of 64 bits with colons"),
        ("a,1,2,2251799813685247\n\nb,1,2,1", "line 4: expected sizes of at most 2251799813685247 together, found more"),
    ] {
        let error = Problem::read(format!("id,lower,upper,size\n{rows}\n").as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{rows}: {error}");
    }
}
