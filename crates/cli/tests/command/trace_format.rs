//! Format v1: what is read, what is refused and with which words, what is written.

use std::path::PathBuf;

use regraph::driver::{CaptureId, Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph_record::journal::{BlockNumber, Entry, Journal};
use regraph_trace::{Operation, Sources, Trace};

const TRACES: [&str; 4] = ["decoder_s1", "googlenet_s4", "moe_s6", "pipeline_s5"];

fn file(name: &str) -> Vec<u8> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/traces/{name}.jsonl"));
    std::fs::read(path).unwrap()
}

fn text(trace: &Trace) -> String {
    let mut text = Vec::new();
    regraph_trace::write(trace, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn real_traces_survive_a_round_trip_byte_for_byte() {
    for name in TRACES {
        let bytes = file(name);
        let trace = regraph_trace::read(bytes.as_slice()).unwrap();
        assert_eq!(text(&trace).as_bytes(), bytes, "{name}");
        assert_eq!(
            Trace::new(trace.operations().to_vec()).map(|it| it.operations().to_vec()),
            Ok(trace.operations().to_vec()),
            "{name}: the same rules hold for operations"
        );
    }
}

#[test]
fn real_traces_have_the_figures_of_their_table() {
    let figures: Vec<_> = TRACES
        .iter()
        .map(|name| {
            let trace = regraph_trace::read(file(name).as_slice()).unwrap();
            let mebibytes = (trace.total_bytes() + (1 << 19)) >> 20;
            (trace.captures(), trace.nodes(), trace.blocks(), mebibytes)
        })
        .collect();
    assert_eq!(
        figures,
        [(1, 209, 272, 1344), (1, 259, 379, 1849), (1, 569, 600, 2849), (1, 438, 432, 5184)]
    );
}

#[test]
fn every_form_survives_a_round_trip() {
    let lines = r#"{"format":"regraph trace","version":1}
{"op":"alloc","id":7,"bytes":1,"stream":65535}
{"op":"begin","stream":3,"pool":9}
{"op":"kernel","stream":3}
{"op":"kernel","stream":3,"uses":[7],"programmatic":true}
{"op":"wait","stream":1,"on":3}
{"op":"node","node":2,"after":[0,1],"kind":5,"uses":[7],"programmatic":[1]}
{"op":"terminals","stream":1,"nodes":[0,2]}
{"op":"terminals","stream":1,"nodes":[]}
{"op":"use","id":7,"stream":1}
{"op":"last_use","id":7,"stream":1}
{"op":"free","id":7}
{"op":"end"}
{"op":"begin","stream":0,"pool":0}
{"op":"node","node":0,"after":[]}
{"op":"end"}
"#;
    let trace = regraph_trace::read(lines.as_bytes()).unwrap();
    assert_eq!(text(&trace), lines);
    assert_eq!(trace.captures(), 2);
}

/// The examples of the specification, in order.
fn examples() -> Vec<String> {
    let page = include_str!("../../../trace/FORMAT.md");
    let blocks = page.split("```jsonl\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_specifications_examples_are_traces() {
    let traces: Vec<_> = examples()
        .iter()
        .map(|text| regraph_trace::read(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}")))
        .collect();
    let figures: Vec<_> =
        traces.iter().map(|it| (it.captures(), it.nodes(), it.blocks())).collect();
    assert_eq!(figures, [(0, 0, 0), (1, 2, 2), (1, 2, 2), (1, 1, 1)]);
    let labels = traces[3].labels();
    assert_eq!(labels.describe(7).unwrap(), "keys, model.py:31 forward");
    assert_eq!(labels.node_name(0, 0), Some("rope_f16"));
    // The first two say the same, in two forms: neither needs more than one block.
    for trace in &traces[1..3] {
        let least = regraph_trace::minimum::of_trace(trace, regraph::settings::Programmatic::Deny);
        assert_eq!(least[0].minimum_bytes, 1 << 20);
    }
    // Written as they stand, but for the raw form's fields that say nothing.
    assert_eq!(text(&traces[1]), examples()[1]);
    assert_eq!(text(&traces[3]), examples()[3]);
}

#[test]
fn the_specification_has_every_line_that_is_read() {
    let page = include_str!("../../../trace/FORMAT.md");
    let refused = refusal(&[ALLOC], "{\"op\":\"none\"}");
    let names = refused.split("one of the operations ").nth(1).unwrap().split(", found").next();
    let names: Vec<_> = names.unwrap().split(", ").collect();
    assert_eq!(names.len(), 12);
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is in no table");
    }
}

#[test]
fn labels_survive_a_round_trip_and_change_nothing() {
    let lines = r#"{"format":"regraph trace","version":1}
{"op":"alloc","id":7,"bytes":1,"stream":0}
{"op":"stack","stack":0,"frames":[{"filename":"/usr/lib/python3.12/site-packages/torch/nn.py","line":3,"name":"linear"},{"filename":"site-packages/torch/module.py","line":9,"name":"forward"},{"filename":"a \"b\".py","line":0,"name":""}]}
{"op":"label","block":7,"stack":0}
{"op":"begin","stream":3,"pool":9}
{"op":"kernel","stream":3}
{"op":"label","node":0,"name":"gemm"}
{"op":"alloc","id":8,"bytes":1,"stream":0}
{"op":"label","block":8,"name":"keys","stack":0}
{"op":"alloc","id":9,"bytes":1,"stream":0}
{"op":"label","block":9,"name":"values"}
{"op":"end"}
{"op":"begin","stream":3,"pool":9}
{"op":"node","node":0,"after":[]}
{"op":"label","node":0,"name":"rope"}
{"op":"end"}
"#;
    let trace = regraph_trace::read(lines.as_bytes()).unwrap();
    assert_eq!(text(&trace), lines);
    assert_eq!(trace.operations().len(), 9);
    let labels = trace.labels();
    assert_eq!(labels.describe(7).unwrap(), "a \"b\".py");
    assert_eq!(labels.describe(8).unwrap(), "keys, a \"b\".py");
    assert_eq!((labels.node_name(0, 0), labels.node_name(1, 0)), (Some("gemm"), Some("rope")));
    assert_eq!(labels.stack(7), labels.stack(8));
    assert_eq!(labels.describe(1), None);
    let groups = labels.group([(7, 10), (8, 20), (9, 5), (4, 9), (5, 9)]);
    let sums: Vec<_> =
        groups.iter().map(|(what, count, bytes)| (what.as_deref(), *count, *bytes)).collect();
    let expected = [
        (Some("keys, a \"b\".py"), 1, 20),
        (None, 2, 18),
        (Some("a \"b\".py"), 1, 10),
        (Some("values"), 1, 5),
    ];
    assert_eq!(sums, expected);
    assert_eq!(trace.scaled(200).unwrap().labels(), labels);
}

#[test]
fn labels_that_say_nothing_or_of_nothing_are_refused() {
    let stack = "{\"op\":\"stack\",\"stack\":0,\"frames\":[{\"filename\":\"a\",\"line\":1,\"name\":\"b\"}]}\n";
    let named = "{\"op\":\"label\",\"block\":0,\"name\":\"x\"}\n";
    let cases: &[(&[&str], &str, &str)] = &[
        (
            &[],
            "{\"op\":\"label\",\"block\":0,\"name\":\"x\"}",
            "expected a label of an allocated block, found block 0, which was never allocated",
        ),
        (
            &[ALLOC],
            "{\"op\":\"label\",\"node\":0,\"name\":\"x\"}",
            "expected `begin` before `label`, found `label` outside a capture",
        ),
        (
            &[BEGIN],
            "{\"op\":\"label\",\"node\":0,\"name\":\"x\"}",
            "expected no node in `node`, since the capture has none yet, found node 0",
        ),
        (
            &[ALLOC],
            "{\"op\":\"label\",\"block\":0}",
            "expected a name or a stack of block 0, found neither",
        ),
        (
            &[ALLOC],
            "{\"op\":\"label\",\"block\":0,\"stack\":0}",
            "expected a stack that a line above has, found stack 0",
        ),
        (
            &[ALLOC, named],
            "{\"op\":\"label\",\"block\":0,\"name\":\"y\"}",
            "expected one label for each block, found block 0 again",
        ),
        (
            &[ALLOC],
            "{\"op\":\"label\",\"name\":\"y\"}",
            "expected a label of a block or of a node, found one of neither",
        ),
        (&[stack], stack, "expected stack 1, the next number, found stack 0"),
        (
            &[],
            "{\"op\":\"stack\",\"stack\":0,\"frames\":[]}",
            "expected frames of stack 0, found none",
        ),
    ];
    for (good, bad, expected) in cases {
        let message = refusal(good, bad);
        assert_eq!(message, format!("line {}: {expected}", good.len() + 1), "{bad}");
    }
    let form = refusal(&[ALLOC], "{\"op\":\"label\",\"block\":0,\"title\":\"x\"}");
    assert!(form.contains("expected `label` with block or node"), "{form}");
    assert!(form.contains("unknown field `title`"), "{form}");
}

#[test]
fn the_version_stands_first_and_no_other_is_read() {
    const VERSION: &str = "{\"format\":\"regraph trace\",\"version\":1}\n";
    let read = |text: &str| regraph_trace::read(text.as_bytes());
    assert_eq!(read(&format!("\n {VERSION}{ALLOC}")).unwrap().blocks(), 1);
    assert_eq!(read(ALLOC).unwrap().blocks(), 1);
    let newer = read(&VERSION.replace('1', "2")).unwrap_err().to_string();
    let expected =
        "line 1: expected `regraph trace` of version 1, found `regraph trace` of version 2";
    assert_eq!(newer, expected);
    let other = read(&VERSION.replace("trace", "certificate")).unwrap_err().to_string();
    assert!(other.ends_with("found `regraph certificate` of version 1"), "{other}");
    let late = refusal(&[ALLOC], VERSION);
    assert!(late.starts_with("line 2: expected the version on the first line"), "{late}");
}

#[test]
fn compressed_and_binary_input_is_called_so() {
    let cases: &[(&[u8], &str)] = &[
        (b"\x1f\x8b\x08\0\0\0", "data compressed by gzip (unpack it first: `gzip -dc FILE`)"),
        (b"\x28\xb5\x2f\xfd\x04", "data compressed by zstd (unpack it first: `zstd -dc FILE`)"),
        (b"\x7fELF\x02\x01", "a program"),
        (b"\0\x01\x02\xff", "binary data"),
    ];
    for (start, words) in cases {
        let error = regraph_trace::read(*start).unwrap_err().to_string();
        assert_eq!(error, format!("line 1: expected a JSON object with `op`, found {words}"));
    }
}

#[test]
fn space_is_nothing() {
    let spaced = "\r\n  { \"op\" : \"begin\", \"pool\":0, \"stream\":0}\r\n\n{\"op\":\"end\"}";
    assert_eq!(regraph_trace::read(spaced.as_bytes()).unwrap().operations().len(), 2);
    assert!(regraph_trace::read("".as_bytes()).unwrap().operations().is_empty());
}

const BEGIN: &str = "{\"op\":\"begin\",\"stream\":0,\"pool\":0}\n";
const ALLOC: &str = "{\"op\":\"alloc\",\"id\":0,\"bytes\":8,\"stream\":0}\n";
const NODE: &str = "{\"op\":\"node\",\"node\":0,\"after\":[]}\n";

/// The message for some good lines and a bad one behind them.
fn refusal(good: &[&str], bad: &str) -> String {
    let text = good.concat() + bad;
    let error = regraph_trace::read(text.as_bytes()).expect_err(bad);
    assert_eq!(error.line(), good.len() as u64 + 1, "{error}");
    error.to_string()
}

#[test]
fn lines_out_of_form_are_refused_with_what_was_expected() {
    let cases: &[(&str, &[&str])] = &[
        ("{\"op\":\"allok\"}", &["one of the operations begin, kernel", "op \"allok\""]),
        ("{\"op\":7}", &["JSON object with `op`"]),
        ("{}", &["JSON object with `op`"]),
        ("[1,2]", &["JSON object with `op`", "[1,2]"]),
        ("[\"end\"]", &["JSON object with `op`"]),
        ("nonsense", &["JSON object with `op`", "nonsense"]),
        ("{\"op\":\"end\"", &["JSON object", "EOF"]),
        ("{\"op\":\"end\"} {}", &["JSON object", "trailing characters"]),
        ("{\"op\":\"end\",\"id\":1}", &["`end` with no other field", "unknown field `id`"]),
        ("{\"op\":\"free\"}", &["`free` with id", "missing field `id`"]),
        ("{\"op\":\"free\",\"id\":-1}", &["`free` with id", "-1"]),
        ("{\"op\":\"free\",\"id\":1.5}", &["`free` with id", "1.5"]),
        ("{\"op\":\"free\",\"id\":4294967296}", &["`free` with id", "4294967296"]),
        ("{\"op\":\"free\",\"id\":0,\"id\":0}", &["`free` with id", "duplicate field"]),
        ("{\"op\":\"free\",\"id\":0,\"bytes\":0}", &["`free` with id", "unknown field `bytes`"]),
        (
            "{\"op\":\"stack\",\"stack\":0,\"frames\":[{\"filename\":\"a\",\"line\":1,\"name\":\"\",\"column\":3}]}",
            &["unknown field `column`"],
        ),
        (
            "{\"op\":\"begin\",\"stream\":65536,\"pool\":0}",
            &["`begin` with stream (below 65536) and pool", "65536"],
        ),
        (
            "{\"op\":\"kernel\",\"stream\":0,\"programmatic\":[0]}",
            &["programmatic (bool)", "invalid type: sequence"],
        ),
        (
            "{\"op\":\"node\",\"node\":0,\"after\":[],\"programmatic\":true}",
            &["programmatic [node ids]", "invalid type: boolean"],
        ),
    ];
    for (bad, words) in cases {
        let message = refusal(&[ALLOC], bad);
        for word in *words {
            assert!(message.contains(word), "{bad}: {message}: lacks {word}");
        }
        assert!(message.starts_with("line 2: expected "), "{message}");
    }
    // What is cut off names nothing that it is not, and what a message cuts off has an ellipsis.
    let cut = refusal(&[ALLOC], "{\"op\":\"label\",\"node\":465,\"name\":\"_ZN2at6nat");
    let expected = "expected a JSON object with `op`, found EOF while parsing a string (column 43)";
    assert_eq!(cut, format!("line 2: {expected}"));
    let long = refusal(&[ALLOC], &format!("{{\"op\":\"free\",\"{}\":0}}", "x".repeat(200)));
    assert!(long.ends_with("xxx…"), "{long}");
    let short = refusal(&[ALLOC], &"x".repeat(120));
    let longer = refusal(&[ALLOC], &"x".repeat(121));
    assert!(short.ends_with("xxx\"") && longer.ends_with("xxx…\""), "{short}, {longer}");
}

#[test]
fn broken_rules_are_refused_with_what_was_expected() {
    let cases: &[(&[&str], &str, &str)] = &[
        (&[BEGIN], "{\"op\":\"begin\",\"stream\":1,\"pool\":0}", "expected `end` before the next capture begins, found a nested `begin`"),
        (&[], "{\"op\":\"end\"}", "expected `begin` before `end`, found `end` outside a capture"),
        (&[BEGIN, NODE], "", "expected `end` of the capture, found the end of the file"),
        (&[], "{\"op\":\"kernel\",\"stream\":0}", "expected `begin` before `kernel`, found `kernel` outside a capture"),
        (&[], "{\"op\":\"wait\",\"stream\":0,\"on\":1}", "expected `begin` before `wait`, found `wait` outside a capture"),
        (&[], "{\"op\":\"node\",\"node\":0,\"after\":[]}", "expected `begin` before `node`, found `node` outside a capture"),
        (&[], "{\"op\":\"terminals\",\"stream\":0,\"nodes\":[]}", "expected `begin` before `terminals`, found `terminals` outside a capture"),
        (&[BEGIN, NODE], "{\"op\":\"node\",\"node\":2,\"after\":[]}", "expected node 1, the next number of this capture, found node 2"),
        (&[BEGIN, NODE], "{\"op\":\"node\",\"node\":1,\"after\":[1]}", "expected nodes 0 to 0 in `after`, found node 1"),
        (&[BEGIN], "{\"op\":\"node\",\"node\":0,\"after\":[0]}", "expected no node in `after`, since the capture has none yet, found node 0"),
        (&[BEGIN, NODE], "{\"op\":\"node\",\"node\":1,\"after\":[0,0]}", "expected each node of `after` once, found node 0 twice"),
        (&[BEGIN, NODE], "{\"op\":\"node\",\"node\":1,\"after\":[],\"programmatic\":[0]}", "expected programmatic nodes that are also in `after`, found node 0, which is not in `after`"),
        (&[BEGIN, NODE], "{\"op\":\"node\",\"node\":1,\"after\":[],\"uses\":[0]}", "expected `uses` of allocated blocks, found block 0, which was never allocated"),
        (&[BEGIN], "{\"op\":\"kernel\",\"stream\":0,\"uses\":[4]}", "expected `uses` of allocated blocks, found block 4, which was never allocated"),
        (&[BEGIN, NODE], "{\"op\":\"terminals\",\"stream\":0,\"nodes\":[1]}", "expected nodes 0 to 0 in `nodes`, found node 1"),
        (&[BEGIN, NODE, "{\"op\":\"end\"}\n", BEGIN], "{\"op\":\"terminals\",\"stream\":0,\"nodes\":[0]}", "expected no node in `nodes`, since the capture has none yet, found node 0"),
        (&[], "{\"op\":\"alloc\",\"id\":0,\"bytes\":0,\"stream\":0}", "expected 1 to 2^60 - 1 bytes for block 0, found 0 bytes"),
        (&[], "{\"op\":\"alloc\",\"id\":0,\"bytes\":1152921504606846976,\"stream\":0}", "expected 1 to 2^60 - 1 bytes for block 0, found 1152921504606846976 bytes"),
        (&[ALLOC], ALLOC, "expected an id that no block has had, found block 0, which is live"),
        (&[ALLOC, "{\"op\":\"free\",\"id\":0}\n"], ALLOC, "expected an id that no block has had, found block 0, which was allocated and freed before"),
        (&[ALLOC], "{\"op\":\"free\",\"id\":1}", "expected a live block, found block 1, which was never allocated"),
        (&[ALLOC, "{\"op\":\"free\",\"id\":0}\n"], "{\"op\":\"free\",\"id\":0}", "expected a live block, found block 0, which has been freed"),
        (&[ALLOC, "{\"op\":\"free\",\"id\":0}\n"], "{\"op\":\"use\",\"id\":0,\"stream\":0}", "expected a live block, found block 0, which has been freed"),
        (&[ALLOC], "{\"op\":\"last_use\",\"id\":3,\"stream\":0}", "expected a live block, found block 3, which was never allocated"),
    ];
    for (good, bad, expected) in cases {
        let message = refusal(good, bad);
        assert_eq!(message, format!("line {}: {expected}", good.len() + 1));
    }
    // Their sum is a bound of what they need.
    let large = |id| {
        format!("{{\"op\":\"alloc\",\"id\":{id},\"bytes\":{},\"stream\":0}}\n", (1u64 << 60) - 1)
    };
    let good: Vec<String> = (0..8).map(large).collect();
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let expected = "expected less than 2^63 bytes in all blocks together, found 10376293541461622775 bytes with block 8";
    assert_eq!(refusal(&good, &large(8)), format!("line 9: {expected}"));
}

#[test]
fn an_endless_line_is_refused_without_being_kept() {
    let endless = std::io::BufReader::new(std::io::repeat(b' '));
    let error = regraph_trace::read(endless).unwrap_err();
    assert_eq!(error.line(), 1);
    assert!(error.to_string().contains("a line of at most 4194304 bytes"), "{error}");
}

fn stream(number: usize) -> StreamHandle {
    StreamHandle::from_bits(number)
}

fn node(number: usize) -> NodeHandle {
    NodeHandle::from_bits(number)
}

#[test]
fn a_journal_becomes_a_trace_in_the_raw_form() {
    let block = BlockNumber;
    let mut journal = Journal::new();
    let weak = |number, edge| Dependency { node: node(number), edge };
    journal.push(Entry::Standing { block: block(1), address: 0, bytes: 512 });
    journal.push(Entry::Terminals { stream: stream(50), terminals: (&[]).into() });
    journal.push(Entry::Allocate { block: block(4), stream: stream(50), address: 512, bytes: 512 });
    journal.push(Entry::Terminals {
        stream: stream(40),
        terminals: (&[Dependency::full(node(900)), weak(800, EdgeData::PROGRAMMATIC)]).into(),
    });
    journal.push(Entry::Node {
        node: node(900),
        dependencies: (&[
            weak(800, EdgeData::PROGRAMMATIC),
            weak(700, EdgeData::LAUNCH_ORDER),
            Dependency::full(node(600)),
        ])
            .into(),
    });
    journal.push(Entry::Node {
        node: node(800),
        dependencies: (&[Dependency::full(node(600))]).into(),
    });
    journal.push(Entry::Node { node: node(600), dependencies: (&[]).into() });
    journal.push(Entry::Allocate { block: block(9), stream: stream(40), address: 0, bytes: 1024 });
    journal.push(Entry::Use { block: block(4), stream: stream(40) });
    journal.push(Entry::LastUse { block: block(4), stream: stream(40) });
    journal.push(Entry::Outside { block: block(4) });
    journal.push(Entry::Outside { block: block(1) });
    journal.push(Entry::Free { block: block(4) });
    journal.push(Entry::Settled { block: block(1) });
    journal.push(Entry::Bound { address: 0, bytes: 1024, memory: 1, offset: 0 });
    journal.push(Entry::Shared { memory: 1, bytes: 1024, graph: CaptureId(1) });
    let trace = regraph_trace::from_journal(&journal, stream(60), 3, &Sources::default()).unwrap();
    assert_eq!(
        text(&trace),
        r#"{"format":"regraph trace","version":1}
{"op":"begin","stream":0,"pool":3}
{"op":"terminals","stream":1,"nodes":[]}
{"op":"alloc","id":0,"bytes":512,"stream":1}
{"op":"node","node":0,"after":[]}
{"op":"node","node":1,"after":[0]}
{"op":"node","node":2,"after":[1,0],"programmatic":[1]}
{"op":"terminals","stream":2,"nodes":[2,1]}
{"op":"terminals","stream":2,"nodes":[2]}
{"op":"alloc","id":1,"bytes":1024,"stream":2}
{"op":"use","id":0,"stream":2}
{"op":"terminals","stream":2,"nodes":[2,1]}
{"op":"last_use","id":0,"stream":2}
{"op":"use","id":0,"stream":3}
{"op":"free","id":0}
{"op":"end"}
"#
    );
}

#[test]
fn a_journal_that_no_trace_can_say_is_refused() {
    let mut circle = Journal::new();
    for (this, other) in [(1, 2), (2, 1)] {
        circle.push(Entry::Node {
            node: node(this),
            dependencies: (&[Dependency::full(node(other))]).into(),
        });
    }
    let error =
        regraph_trace::from_journal(&circle, stream(1), 0, &Sources::default()).unwrap_err();
    assert!(error.to_string().contains("depends on itself"), "{error}");

    let mut empty = Journal::new();
    empty.push(Entry::Allocate { block: BlockNumber(0), stream: stream(1), address: 0, bytes: 0 });
    let error = regraph_trace::from_journal(&empty, stream(1), 0, &Sources::default()).unwrap_err();
    assert!(error.to_string().contains("expected 1 to 2^60 - 1 bytes"), "{error}");
}

#[test]
fn operations_know_their_names_and_streams() {
    let wait = Operation::Wait { stream: 2, on: 5 };
    assert_eq!(wait.name(), "wait");
    assert_eq!(wait.streams().collect::<Vec<_>>(), [2, 5]);
    assert_eq!(Operation::End {}.streams().count(), 0);
}
