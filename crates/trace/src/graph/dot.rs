//! The graph in Graphviz's language.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use petgraph::visit::EdgeRef;

use super::{at, Dag, Edge, Reuse, Window, Wrong};

/// The nodes of a window in DOT, a cluster for each stream, with the blocks that begin and end at each node. Edges that
/// prove a reuse are green, programmatic ones dashed; reuses that nothing proves are red, and so is what is `wrong`.
pub fn dot(dag: &Dag, reuses: &[Reuse], window: &Window, wrong: Option<&Wrong>) -> String {
    let shown = window.of(dag);
    let mut text =
        String::from("digraph capture {\n  node [shape=box, fontname=\"sans-serif\"];\n");
    let proving = proving(reuses);
    let mut streams: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for number in shown.clone() {
        streams.entry(dag.graph[at(number)].stream).or_default().push(number);
    }
    // Writing to a string never fails.
    let mut line =
        |arguments: std::fmt::Arguments<'_>| _ = text.write_fmt(format_args!("{arguments}\n"));
    for (stream, numbers) in streams {
        if let Some(stream) = stream {
            line(format_args!("  subgraph cluster_{stream} {{\n    label=\"stream {stream}\";"));
        }
        for number in numbers {
            let node = &dag.graph[at(number)];
            let name = node.kind.name();
            let blocks = |sign: &str, blocks: &[u32]| match blocks {
                [] => String::new(),
                _ => {
                    let all: Vec<_> = blocks.iter().map(|id| format!("{sign}b{id}")).collect();
                    format!("\\n{}", all.join(" "))
                }
            };
            let (from, until) = (blocks("+", &node.allocated), blocks("-", &node.freed));
            let red = wrong.is_some_and(|wrong| wrong.nodes.contains(&number));
            let red = if red { ", color=\"#d93025\", penwidth=3" } else { "" };
            let tip = node.label.as_deref().map(escaped);
            let tip = tip.map_or_else(String::new, |text| format!(", tooltip=\"{text}\""));
            line(format_args!("    n{number} [label=\"{number} {name}{from}{until}\"{tip}{red}];"));
        }
        if stream.is_some() {
            line(format_args!("  }}"));
        }
    }
    for edge in dag.graph.edge_references() {
        let (from, to) = (edge.source().index() as u32, edge.target().index() as u32);
        if shown.contains(&from) && shown.contains(&to) {
            let style = if *edge.weight() == Edge::Programmatic { "dashed" } else { "solid" };
            let color = if proving.contains(&(from, to)) { "#188038" } else { "#5f6368" };
            line(format_args!("  n{from} -> n{to} [style={style}, color=\"{color}\"];"));
        }
    }
    for reuse in reuses {
        let to = dag.blocks.iter().find(|block| block.id == reuse.to).and_then(|block| block.first);
        for proof in &reuse.proofs {
            let Some(to) = to.filter(|to| shown.contains(to) && shown.contains(&proof.marker))
            else {
                continue;
            };
            let (marker, one, other) = (proof.marker, reuse.from, reuse.to);
            let color = if proof.path.is_empty() { "#d93025" } else { "#188038" };
            line(format_args!(
                "  n{marker} -> n{to} [style=dotted, constraint=false, color=\"{color}\", \
                 fontcolor=\"{color}\", label=\"b{one} to b{other}\"];"
            ));
        }
    }
    if let Some([one, other]) = wrong.and_then(|wrong| wrong.pair(&shown)) {
        line(format_args!(
            "  n{one} -> n{other} [style=bold, dir=none, constraint=false, color=\"#d93025\", \
             fontcolor=\"#d93025\", label=\"not ordered\"];"
        ));
    }
    // Behind the clusters, which would have the color too.
    let told = wrong.map(|wrong| escaped(&wrong.text));
    let remarks: Vec<_> = told.into_iter().chain(window.remark(dag)).collect();
    if !remarks.is_empty() {
        let color = if wrong.is_some() { "  fontcolor=\"#d93025\";" } else { "" };
        line(format_args!("  label=\"{}\";{color}", remarks.join("\\n")));
    }
    text.push_str("}\n");
    text
}

/// Text between quotation marks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The edges that lie on a path of a proof.
pub(super) fn proving(reuses: &[Reuse]) -> BTreeSet<(u32, u32)> {
    let paths = reuses.iter().flat_map(|reuse| &reuse.proofs).map(|proof| &proof.path);
    paths.flat_map(|path| path.windows(2).map(|pair| (pair[0], pair[1]))).collect()
}
