//! Problems of static planners as traces: what is read, what is refused, which lifetimes come out.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use regraph::driver::MemorySupport;
use regraph_cli::replay::{replay, Options, Plan};
use regraph_lab::import;
use regraph_sim::{SimConfig, SimDriver};
use regraph_trace::{BlockIndex, NodeIndex, Operation, Trace};

/// MiniMalloc's sets: name, blocks, and the most that lives at a time, of a capacity of 2^20.
const SETS: [(&str, usize, u128); 11] = [
    ("A", 154, 1_048_576),
    ("B", 170, 1_048_576),
    ("C", 203, 1_039_360),
    ("D", 213, 986_112),
    ("E", 215, 1_048_576),
    ("F", 296, 1_048_576),
    ("G", 308, 1_048_576),
    ("H", 316, 1_048_576),
    ("I", 374, 1_048_576),
    ("J", 409, 989_184),
    ("K", 454, 1_048_576),
];

fn set(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path.join(format!("../../tests/minimalloc/{name}.1048576.csv"))).unwrap()
}

fn unit(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).unwrap()
}

fn read(text: &str) -> Trace {
    import::csv(text.as_bytes(), unit(1)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn message(text: &str, bytes: u64) -> String {
    import::csv(text.as_bytes(), unit(bytes)).expect_err(text).to_string()
}

fn text(trace: &Trace) -> String {
    let mut text = Vec::new();
    regraph_trace::write(trace, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// The kernels that run while each block lives: the first, and the first after its free.
fn lives(trace: &Trace) -> HashMap<BlockIndex, (u64, NodeIndex, NodeIndex)> {
    let mut lives = HashMap::new();
    let mut kernels = 0;
    for operation in trace.operations() {
        match *operation {
            Operation::Alloc { id, bytes, stream: 0 } => {
                lives.insert(id, (bytes, kernels, NodeIndex::MAX));
            }
            Operation::Free { id } => lives.get_mut(&id).unwrap().2 = kernels,
            Operation::Kernel { stream: 0, programmatic: false, .. } => kernels += 1,
            Operation::Begin { stream: 0, .. } | Operation::End {} => {}
            ref other => panic!("{other:?}"),
        }
    }
    lives
}

#[test]
fn the_readers_own_example() {
    let trace = read("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n");
    let expected = r#"{"format":"regraph trace","version":1}
{"op":"begin","stream":0,"pool":0}
{"op":"alloc","id":0,"bytes":4,"stream":0}
{"op":"label","block":0,"name":"b1"}
{"op":"alloc","id":2,"bytes":4,"stream":0}
{"op":"label","block":2,"name":"b3"}
{"op":"alloc","id":4,"bytes":4,"stream":0}
{"op":"label","block":4,"name":"b5"}
{"op":"kernel","stream":0,"uses":[0,2,4]}
{"op":"free","id":0}
{"op":"alloc","id":1,"bytes":4,"stream":0}
{"op":"label","block":1,"name":"b2"}
{"op":"kernel","stream":0,"uses":[1,2]}
{"op":"free","id":1}
{"op":"free","id":2}
{"op":"alloc","id":3,"bytes":4,"stream":0}
{"op":"label","block":3,"name":"b4"}
{"op":"kernel","stream":0,"uses":[3,4]}
{"op":"free","id":3}
{"op":"free","id":4}
{"op":"end"}
"#;
    assert_eq!(text(&trace), expected);
    assert_eq!(trace.peak_bytes(), 12);
}

#[test]
fn minimallocs_sets_have_their_load_and_run() {
    for (name, blocks, load) in SETS {
        let bytes = set(name);
        let trace = import::csv(bytes.as_slice(), unit(1)).unwrap();
        assert_eq!((trace.captures(), trace.blocks()), (1, blocks), "{name}");
        assert_eq!(trace.peak_bytes(), load, "{name}");
        let scaled = import::csv(bytes.as_slice(), unit(2048)).unwrap();
        assert_eq!(scaled.peak_bytes(), 2048 * load, "{name}");

        // Every size is a multiple of 512 bytes, so that none is rounded.
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let replayed = replay(&driver, &trace, &Options::default()).unwrap();
        assert!(replayed.verified, "{name}");
        assert_eq!(u128::from(replayed.peak_allocated_bytes), load, "{name}");
    }
}

#[test]
fn minimallocs_sets_get_plans_of_their_load() {
    const GRANULARITY: u64 = 2 << 20;
    for (name, _, load) in SETS {
        // Every size is then a multiple of 2 MiB, the granularity.
        let trace = import::csv(set(name).as_slice(), unit(2048)).unwrap();
        let load = u64::try_from(load).unwrap() * 2048;
        let support = MemorySupport::Mapped { granularity: GRANULARITY };
        let driver = SimDriver::new(SimConfig { total_bytes: 2 * load, support });
        let options = Options { plan: Plan::Exact, ..Options::default() };
        let replayed = replay(&Arc::new(driver), &trace, &options).unwrap();
        assert!(replayed.verified, "{name}");
        let [plan] = replayed.plans[..] else { panic!("{name}: {:?}", replayed.plans) };
        assert_eq!((plan.bytes, plan.minimum_bytes), (load, load), "{name}");
        assert_eq!(replayed.reserved_bytes, load, "{name}");
    }
}

#[test]
fn columns_stand_in_any_order_and_under_other_names() {
    let plain = read("id,lower,upper,size\na,-5,3,4\nb,3,9,7\n");
    for other in [
        "size,upper,lower,id\n4,3,-5,a\n7,9,3,b\n",
        "buffer_id,start,end,size\na,-5,2,4\nb,3,8,7\n",
        "buffer,begin,upper,size\na,-5,3,4\nb,3,9,7",
        " id , lower , upper , size \r\n\r\n a , -5 , 3 , 4 \r\nb,3,9,7\r\n\r\n",
        "\u{feff}id,lower,upper,size,alignment,hint,gaps\na,-5,3,4,512,-1,\nb,3,9,7,1,0, \n",
    ] {
        assert_eq!(read(other), plain, "{other}");
    }
}

#[test]
fn a_file_without_rows_is_a_capture_without_blocks() {
    assert_eq!(read("id,lower,upper,size\n").operations().len(), 2);
}

#[test]
fn a_time_without_blocks_has_no_kernel() {
    let trace = read("id,lower,upper,size\na,0,1,4\nb,5,6,4\n");
    assert_eq!(lives(&trace), HashMap::from([(0, (4, 0, 1)), (1, (4, 1, 2))]));
}

#[test]
fn what_cannot_be_read_says_where_and_why() {
    let header = "line 1: expected a header with the columns id, lower, upper and size";
    for (text, expected) in [
        ("", format!("{header}, found the end of the file")),
        ("id,lower,upper", format!("{header}, found none with `size`")),
        ("lower,upper,size", format!("{header}, found none with `id`")),
        ("id,lower,size", format!("{header}, found none with `upper`")),
        (
            "id,lower,upper,size,weight",
            format!(
                "{header}, and at most alignment, hint and gaps besides, found a column `weight`"
            ),
        ),
        (
            "0,1,2,4",
            format!("{header}, and at most alignment, hint and gaps besides, found a column `0`"),
        ),
        (
            "id,lower,begin,upper,size",
            "line 1: expected each column once, found a second column `begin`".into(),
        ),
        (
            "id,lower,upper,end,size",
            "line 1: expected one of the columns `upper` and `end`, found both".into(),
        ),
        (
            "id,lower,upper,size,offset",
            "line 1: expected no column `offset`, since a trace fixes no addresses, found one"
                .into(),
        ),
    ] {
        assert_eq!(message(text, 1), expected);
    }
}

#[test]
fn wrong_rows_say_which_line() {
    let least = i64::MIN;
    let rows: &[(&str, &str)] = &[
        ("b,1,2", "expected 4 fields, as the header has, found 3"),
        ("b,1,2,3,4", "expected 4 fields, as the header has, found 5"),
        ("b,x,2,3", "expected the begin of the interval as a whole number of 64 bits, found `x`"),
        ("b,1,2.5,3", "expected the end of the interval as a whole number of 64 bits, found `2.5`"),
        ("b,1,9223372036854775808,3", "of 64 bits, found `9223372036854775808`"),
        ("b,1,,3", "expected the end of the interval as a whole number of 64 bits, found ``"),
        ("b,1,2,many", "expected a size of 1 to 1152921504606846975 as a number, found `many`"),
        ("b,1,2,0", "as a number, found `0`"),
        ("b,1,2,-4", "as a number, found `-4`"),
        ("b,1,2,1152921504606846976", "as a number, found `1152921504606846976`"),
        (",1,2,3", "expected an id, found none"),
        ("a,1,2,3", "expected an id that no row above has, found `a` again"),
        ("b,2,2,3", "expected an interval that ends after it begins, found [2, 2)"),
        ("b,3,-2,3", "expected an interval that ends after it begins, found [3, -2)"),
    ];
    for (row, expected) in rows {
        let text = format!("id,lower,upper,size\na,{least},{},1\n\n{row}\n", i64::MAX);
        let message = message(&text, 1);
        assert!(message.starts_with("line 4: ") && message.ends_with(expected), "{row}: {message}");
    }
    let long = format!("id,lower,upper,size\na,{},1,1\n", "é".repeat(10_000));
    assert!(message(&long, 1).len() < 300);
}

#[test]
fn what_depends_on_the_unit_is_refused_in_bytes() {
    let text = "id,lower,upper,size\na,0,1,1048576\n";
    assert_eq!(import::csv(text.as_bytes(), unit((1 << 40) - 1)).unwrap().blocks(), 1);
    assert_eq!(
        message(text, 1 << 40),
        "line 2: expected a size of 1 to 1048575 as a number, found `1048576`"
    );
    assert!(message(text, u64::MAX).starts_with("line 2: expected a size"));

    let text = "id,lower,upper,size,alignment\na,0,1,4,8\n";
    assert_eq!(import::csv(text.as_bytes(), unit(64)).unwrap().blocks(), 1);
    assert_eq!(
        message(text, 128),
        "line 2: expected an alignment that divides 512 bytes, found `8`"
    );
    for alignment in ["0", "-1", "3", "1024", "x", "18446744073709551615"] {
        let text = text.replace(",8", &format!(",{alignment}"));
        assert!(message(&text, 1).contains("an alignment"), "{alignment}");
    }
}

#[test]
fn ends_are_the_last_time_and_gaps_are_refused() {
    assert!(message("id,lower,end,size\na,0,-1,4\n", 1).contains("found [0, 0)"));
    let last = format!("id,lower,end,size\na,0,{},4\n", i64::MAX);
    assert!(message(&last, 1).starts_with("line 2: expected the last time"));
    assert_eq!(
        message("id,lower,upper,size,gaps\na,0,9,4,3-5@0:2\n", 1),
        "line 2: expected no gaps, since a block has its memory throughout, found `3-5@0:2`"
    );
}

#[test]
fn an_endless_line_is_refused_without_being_kept() {
    let endless = std::io::BufReader::new(std::io::repeat(b','));
    let message = import::csv(endless, unit(1)).unwrap_err().to_string();
    assert!(message.contains("line 1: expected a line of at most 4194304 bytes"), "{message}");
}

#[test]
fn input_that_is_no_text_is_refused() {
    let error = import::csv(b"id,lower,upper,size\na,0,\xff,1\n".as_slice(), unit(1)).unwrap_err();
    assert_eq!(error.line(), 2);
}

fn any_rows() -> impl Strategy<Value = Vec<(i64, i64, u64)>> {
    let times = prop_oneof![-4..12_i64, any::<i64>()];
    let row = (times.clone(), times, 1..1_u64 << 37)
        .prop_filter("an interval", |(one, other, _)| one != other)
        .prop_map(|(one, other, size)| (one.min(other), one.max(other), size));
    prop::collection::vec(row, 0..40)
}

proptest! {
    #[test]
    fn blocks_live_as_the_file_says(rows in any_rows(), bytes in 1..1_u64 << 20) {
        let lines = rows.iter().enumerate().map(|(id, (lower, upper, size))| {
            format!("block {id},{lower},{upper},{size}\n")
        });
        let text = format!("id,lower,upper,size\n{}", lines.collect::<String>());
        let trace = import::csv(text.as_bytes(), unit(bytes)).unwrap();
        prop_assert_eq!(&regraph_trace::read(self::text(&trace).as_bytes()).unwrap(), &trace);

        let lives = lives(&trace);
        prop_assert_eq!(lives.len(), rows.len());
        for (id, &(lower, upper, size)) in (0..).zip(&rows) {
            let (found, first, end) = lives[&id];
            prop_assert_eq!(found, size * bytes);
            // Work runs while it lives.
            prop_assert!(first < end);
            for (other, &(after, ..)) in (0..).zip(&rows) {
                // A block is over before another begins just as in the file.
                prop_assert_eq!(end <= lives[&other].1, upper <= after, "{} {}", lower, other);
            }
        }
        let load = rows.iter().map(|&(time, ..)| {
            let live = rows.iter().filter(|(lower, upper, _)| (*lower..*upper).contains(&time));
            live.map(|(.., size)| u128::from(size * bytes)).sum()
        });
        prop_assert_eq!(trace.peak_bytes(), load.max().unwrap_or(0));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-0-9a-z,\n\\.]{0,80}") {
        let text = format!("id,lower,upper,size,gaps\n{text}");
        if let Err(error) = import::csv(text.as_bytes(), unit(3)) {
            prop_assert!(error.line() > 1);
        }
    }
}
