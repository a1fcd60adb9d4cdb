//! Captures as graphs, and `regraph graph`.

use std::collections::{BTreeSet, HashMap};

use petgraph::algo::tred::{dag_to_toposorted_adjacency_list, dag_transitive_reduction_closure};
use petgraph::algo::{dominators, has_path_connecting, toposort};
use petgraph::graph::NodeIndex as Place;
use petgraph::visit::EdgeFiltered;
use regraph::settings::Programmatic;
use regraph_cli::replay::{place, replay, Options};
use regraph_sim::{SimConfig, SimDriver};
use regraph_trace::graph::{dot, svg, Dag, Edge, Kind, Window};
use regraph_trace::{Operation, Trace};

use super::command::{regraph, scratch, stderr, stdout, trace};

const ALL: [&str; 4] = ["decoder_s1", "googlenet_s4", "pipeline_s5", "planned_after_set_back"];

fn load(name: &str) -> Trace {
    let file = std::fs::File::open(trace(name)).unwrap();
    regraph_trace::read(std::io::BufReader::new(file)).unwrap()
}

fn kernel(stream: u16, programmatic: bool) -> Operation {
    Operation::Kernel { stream, uses: vec![], programmatic }
}

/// Blocks at one address, of which the second follows the first on another stream behind such edges.
fn chain(early: [bool; 2]) -> Dag {
    let operations = vec![
        Operation::Begin { stream: 0, pool: 0 },
        Operation::Alloc { id: 0, bytes: 512, stream: 0 },
        kernel(0, false),
        Operation::Free { id: 0 },
        kernel(0, early[0]),
        Operation::Wait { stream: 1, on: 0 },
        Operation::Alloc { id: 1, bytes: 512, stream: 1 },
        kernel(1, early[1]),
        Operation::End {},
    ];
    Dag::new(&Trace::new(operations).unwrap(), 0).unwrap()
}

#[test]
fn kernels_and_blocks_have_the_names_of_the_trace() {
    let mut labels = regraph_trace::Labels::default();
    labels.name_node(0, 0, "gemm<float, \"4\">");
    labels.name_node(1, 0, "of another capture");
    labels.name_block(0, "keys & values");
    let operations = vec![
        Operation::Begin { stream: 0, pool: 0 },
        Operation::Alloc { id: 0, bytes: 512, stream: 0 },
        kernel(0, false),
        Operation::End {},
    ];
    let dag = Dag::new(&Trace::new(operations).unwrap().with_labels(labels), 0).unwrap();
    let picture = svg(&dag, &[], &Window(0..9), None);
    let document = roxmltree::Document::parse(&picture).unwrap();
    let titles: Vec<_> = document
        .descendants()
        .filter(|it| it.tag_name().name() == "title")
        .filter_map(|it| it.text())
        .collect();
    assert!(titles.iter().any(|it| it.starts_with("0 kernel\ngemm<float, \"4\">\n")), "{titles:?}");
    assert!(titles.iter().any(|it| it.contains("\nkeys & values\n")), "{titles:?}");
    let text = dot(&dag, &[], &Window(0..9), None);
    assert!(text.contains("tooltip=\"gemm<float, \\\"4\\\">\""), "{text}");
    assert!(!text.contains("another"), "{text}");
}

#[test]
fn nodes_tell_of_their_blocks() {
    let dag = chain([false; 2]);
    let nodes: Vec<_> = dag.graph().node_weights().collect();
    assert!(nodes.iter().all(|node| node.kind == Kind::Kernel));
    assert_eq!(
        nodes.iter().map(|node| node.stream).collect::<Vec<_>>(),
        [Some(0), Some(0), Some(1)]
    );
    assert_eq!(
        (&nodes[0].allocated[..], &nodes[0].used[..], &nodes[0].freed[..]),
        (&[0][..], &[0][..], &[0][..])
    );
    assert_eq!((nodes[1].used.len(), &nodes[2].allocated[..]), (0, &[1][..]));
    assert_eq!(dag.blocks()[0].markers.as_deref(), Some(&[0][..]));
    assert_eq!(dag.blocks()[1].markers, None);
}

/// A path proves a reuse where the policy lets its edges prove it.
#[test]
fn programmatic_edges_prove_what_the_policy_says() {
    use Programmatic::{Auto, Deny, Lag, Trust};
    for (early, proving) in [
        ([false, false], &[Auto, Deny, Lag, Trust][..]),
        ([true, false], &[Auto, Lag, Trust]),
        ([false, true], &[Auto, Lag, Trust]),
        ([true, true], &[Trust]),
    ] {
        let dag = chain(early);
        for policy in [Auto, Deny, Lag, Trust] {
            let reuses = dag.reuses(|_| Some(0), policy);
            assert_eq!((reuses.len(), reuses[0].from, reuses[0].to), (1, 0, 1));
            let path: &[u32] = if proving.contains(&policy) { &[0, 1, 2] } else { &[] };
            assert_eq!(reuses[0].proofs[0].path, path, "{early:?} {policy}");
        }
    }
}

/// What the engine hands out again, in captures that the checker accepts, is proven by a path of the graph.
#[test]
fn each_reuse_of_a_replay_is_proven() {
    for name in ALL {
        let trace = load(name);
        let driver = std::sync::Arc::new(SimDriver::new(SimConfig::default()));
        let run = replay(&driver, &trace, &Options::default()).unwrap();
        let places: HashMap<_, _> = run.placements.iter().map(|it| (it.id, it.address)).collect();
        let dag = Dag::new(&trace, 0).unwrap();
        let graph = dag.graph();
        assert_eq!(graph.node_count(), trace.nodes());
        assert_eq!(toposort(graph, None).unwrap().len(), trace.nodes());
        let reuses = dag.reuses(|id| places.get(&id).copied(), Programmatic::Auto);
        assert!(!reuses.is_empty(), "{name}");
        for proof in reuses.iter().flat_map(|reuse| &reuse.proofs) {
            assert!(!proof.path.is_empty(), "{name}: nothing proves {}", proof.marker);
            let mut full = 0;
            for pair in proof.path.windows(2) {
                let [from, to] = [0, 1].map(|end| Place::new(pair[end] as usize));
                let edge = graph.find_edge(from, to).expect("an edge of the graph");
                full += usize::from(graph[edge] == Edge::Full);
            }
            assert!(full > 0 && proof.path[0] == proof.marker);
        }
    }
}

/// What is not proven is told: a block that is placed over another one that has not been waited for.
#[test]
fn what_nothing_proves_is_told() {
    let trace = load("googlenet_s4");
    let dag = Dag::new(&trace, 0).unwrap();
    // All blocks at one place.
    let reuses = dag.reuses(|_| Some(0), Programmatic::Auto);
    let graph = dag.graph();
    let full = EdgeFiltered::from_fn(graph, |edge| *edge.weight() == Edge::Full);
    let (mut proven, mut wrong) = (0, 0);
    for reuse in &reuses {
        let to = dag.blocks().iter().find(|block| block.id == reuse.to).unwrap().first.unwrap();
        for proof in &reuse.proofs {
            let [marker, to] = [proof.marker, to].map(|node| Place::new(node as usize));
            // The trace has full edges alone.
            assert_eq!(
                !proof.path.is_empty(),
                marker != to && has_path_connecting(&full, marker, to, None)
            );
            *(if proof.path.is_empty() { &mut wrong } else { &mut proven }) += 1;
        }
    }
    assert!(proven > 0 && wrong > 0, "{proven} {wrong}");
    let text = svg(&dag, &reuses, &Window(0..u32::MAX), None);
    assert!(text.contains("no path proves it"));
    assert!(dot(&dag, &reuses, &Window(0..u32::MAX), None).contains("#d93025"));
}

/// The trace, but the nodes of the operations that `keep` leaves out do without the first of their edges.
fn without_edges(name: &str, keep: impl Fn(usize) -> bool) -> Trace {
    let lines = load(name).operations().to_vec().into_iter().enumerate().map(|(at, operation)| {
        match operation {
            Operation::Node { node, after, kind, uses, programmatic } if !keep(at) => {
                let after = after[1..].to_vec();
                let programmatic = programmatic.into_iter().filter(|it| after.contains(it));
                Operation::Node { node, kind, uses, programmatic: programmatic.collect(), after }
            }
            other => other,
        }
    });
    Trace::new(lines.collect()).unwrap()
}

/// What a refused capture is refused for are two nodes of the picture without a path between them, and two blocks that
/// they may use, at one place.
#[test]
fn a_refused_capture_is_drawn_with_what_is_wrong() {
    let mut refused = 0;
    for name in ["googlenet_s4", "pipeline_s5", "moe_s6"] {
        let all = load(name);
        let node = |(_, it): &(usize, &Operation)| matches!(it, Operation::Node { after, .. } if !after.is_empty());
        let nodes = all.operations().iter().enumerate().filter(node).map(|(at, _)| at);
        for dropped in nodes.step_by(150) {
            let trace = without_edges(name, |at| at != dropped);
            let driver = std::sync::Arc::new(SimDriver::new(SimConfig::default()));
            let placed = place(&driver, &trace, &Options::default()).unwrap();
            let Some(refusal) = placed.refusal else { continue };
            let dag = Dag::new(&trace, 0).unwrap();
            // Two without an order, or one that may use any block.
            let pair = <[u32; 2]>::try_from(refusal.nodes.as_slice()).ok();
            if let Some(pair) = pair {
                refused += 1;
                let [one, other] = pair.map(|node| Place::new(node as usize));
                assert!(!has_path_connecting(dag.graph(), one, other, None), "{name} {dropped}");
            }
            assert_eq!((refusal.capture, refusal.blocks.len()), (0, 2));
            let places = [0, 1].map(|end| {
                let block = dag.blocks().iter().find(|it| it.id == refusal.blocks[end]).unwrap();
                assert!(
                    pair.is_none_or(|pair| block.users.contains(&pair[end])),
                    "{name} {dropped}"
                );
                let at = placed.placements.iter().find(|it| it.id == block.id).unwrap().address;
                at..at + block.bytes
            });
            assert!(places[0].start < places[1].end && places[1].start < places[0].end);

            let mut text = Vec::new();
            regraph_trace::write(&trace, &mut text).unwrap();
            let file = format!("graph_refused_{name}_{dropped}.jsonl");
            let path = scratch(&file, std::str::from_utf8(&text).unwrap()).display().to_string();
            let picture = regraph(&["graph", &path, "--format", "svg"]);
            assert_eq!(picture.status.code(), Some(3), "{}", stderr(&picture));
            assert!(stderr(&picture).contains(": capture 0: "), "{}", stderr(&picture));
            let svg = stdout(&picture);
            let svg = roxmltree::Document::parse(&svg).unwrap();
            let red =
                |class| svg.descendants().filter(|it| it.attribute("class") == Some(class)).count();
            let (nodes, links) = (refusal.nodes.len(), usize::from(pair.is_some()));
            assert_eq!(
                (red("node wrong"), red("block wrong"), red("unordered")),
                (nodes, 2, links)
            );
            assert_eq!(red("wrong"), 1, "the head says why");
            let dot = regraph(&["graph", &path]);
            assert_eq!(dot.status.code(), Some(3));
            let dot = stdout(&dot);
            if let Some([one, other]) = pair {
                let link = format!("  n{one} -> n{other} [style=bold, dir=none");
                assert!(dot.contains(&link) && dot.contains("label=\"refused: blocks "), "{dot}");
            }
            assert_eq!(dot.matches("penwidth=3").count(), nodes, "{dot}");
        }
    }
    assert!(refused >= 4, "{refused}");
}

/// A capture is drawn though a later one is refused, with nothing in red.
#[test]
fn another_capture_than_the_refused_one_is_drawn_too() {
    let capture = |early| {
        [
            Operation::Begin { stream: 0, pool: 0 },
            Operation::Alloc { id: 2 * u32::from(early), bytes: 512, stream: 0 },
            kernel(0, false),
            Operation::Free { id: 2 * u32::from(early) },
            Operation::Alloc { id: 2 * u32::from(early) + 1, bytes: 512, stream: 0 },
            kernel(0, early),
            Operation::Free { id: 2 * u32::from(early) + 1 },
            Operation::End {},
        ]
    };
    let trace = Trace::new([capture(false), capture(true)].concat()).unwrap();
    let mut text = Vec::new();
    regraph_trace::write(&trace, &mut text).unwrap();
    let path = scratch("graph_second.jsonl", std::str::from_utf8(&text).unwrap());
    let path = path.display().to_string();
    for (number, red) in [("0", 0), ("1", 2)] {
        let arguments = ["graph", &path, "--capture", number, "--programmatic", "deny"];
        let output = regraph(&arguments);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(stderr(&output).contains("graph_second.jsonl: capture 1: "), "{}", stderr(&output));
        assert_eq!(stdout(&output).matches("penwidth=3").count(), red);
    }
}

/// An edge that others imply proves no more than they do: paths are as in the transitive reduction.
#[test]
fn the_graph_goes_through_petgraphs_algorithms() {
    let dag = chain([false; 2]);
    let order = toposort(dag.graph(), None).unwrap();
    let (list, _) = dag_to_toposorted_adjacency_list::<_, u32>(dag.graph(), &order);
    let (reduction, closure) = dag_transitive_reduction_closure(&list);
    assert_eq!((reduction.edge_count(), closure.edge_count()), (2, 3));
    let dominators = dominators::simple_fast(dag.graph(), order[0]);
    assert_eq!(dominators.immediate_dominator(order[2]), Some(order[1]));
}

#[test]
fn pictures_are_whole() {
    for name in ALL {
        let path = trace(name);
        let output = regraph(&["graph", &path, "--format", "svg"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        let document = roxmltree::Document::parse(&text).unwrap();
        let nodes =
            document.descendants().filter(|it| it.attribute("class") == Some("node")).count();
        assert_eq!(nodes, load(name).nodes().min(300), "{name}");
        assert_eq!(text.contains("; here nodes 0 to 299 of"), load(name).nodes() > 300, "{name}");
        // Nodes of a stream lie one below the other.
        let places = document.descendants().filter(|it| it.attribute("class") == Some("node"));
        let places: BTreeSet<_> = places.map(|it| (it.attribute("x"), it.attribute("y"))).collect();
        assert_eq!(places.len(), nodes, "{name}");
    }
}

#[test]
fn a_part_is_drawn_where_it_is_asked_for() {
    let path = trace("googlenet_s4");
    let output = stdout(&regraph(&["graph", &path, "--from", "10", "--nodes", "5"]));
    assert!(output.starts_with("digraph capture {") && output.ends_with("}\n"));
    let nodes = output
        .lines()
        .filter(|line| line.trim_start().starts_with('n') && line.contains("[label=\""));
    let nodes: Vec<_> =
        nodes.map(|line| line.trim().split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(nodes.len(), 5);
    assert!(nodes.contains(&"n10".to_owned()) && nodes.contains(&"n14".to_owned()));
    assert!(output.contains("label=\"nodes 10 to 14 of "));
}

#[test]
fn what_is_wrong_is_said() {
    let path = trace("decoder_s1");
    for (arguments, status, message) in [
        (&["--capture", "7"][..], 2, "expected a capture 7, found 1 of them"),
        (&["--from", "100000"], 2, "expected a node 100000 to begin with"),
        (&["--nodes", "0"], 2, "0 is not in 1.."),
        (&["-o", "/nowhere/at/all.svg"], 1, "/nowhere/at/all.svg: cannot be written: "),
        (&["-o", "x.png"], 2, "a graph is a file of DOT or SVG, not of .png; --format says which"),
        (&["-o", "x.svg.gz"], 2, "not of .gz"),
    ] {
        let output = regraph(&[&["graph", &path], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
    }
    let own = scratch("graph_of_itself.jsonl", &std::fs::read_to_string(&path).unwrap());
    let own = own.display().to_string();
    let output = regraph(&["graph", &own, "-o", &own]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).contains("expected another file than "), "{}", stderr(&output));
    let picture = scratch("graph.svg", "").display().to_string();
    let output = regraph(&["graph", &own, "-o", &picture]);
    assert_eq!(stdout(&output), format!("written to {picture}\n"));
    assert!(std::fs::read_to_string(&picture).unwrap().starts_with("<svg "));
    let loud = scratch("graph_loud.SVG", "").display().to_string();
    assert!(regraph(&["graph", &own, "-o", &loud]).status.success());
    assert!(std::fs::read_to_string(&loud).unwrap().starts_with("<svg "));
    let printed = stdout(&regraph(&["graph", &own, "-o", "-"]));
    assert!(printed.starts_with("digraph capture {") && printed.ends_with("}\n"), "{printed}");
}
