//! The graph as a picture.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::ops::Range;

use petgraph::visit::EdgeRef;
use petgraph::Direction;
use regraph::Size;

use super::{at, dot, Dag, Edge, Reuse, Window, Wrong};
use crate::{BlockIndex, StreamIndex};

/// Sizes, in pixels.
const NODE: (f64, f64) = (104.0, 22.0);
const ROW: f64 = 38.0;
const LANE: f64 = 15.0;
const TOP: f64 = 86.0;
const LEFT: f64 = 24.0;
/// Between two streams.
const GAP: f64 = 46.0;

/// Of bars: neighbours in the order of allocation differ.
const COLORS: [&str; 8] =
    ["#aecbfa", "#fdd663", "#ccff90", "#fbbc9b", "#d7aefb", "#a7ffeb", "#fdcfe8", "#e6c9a8"];

const STYLE: &str = "text{font:11px sans-serif;fill:#202124}.small{font-size:9px}.head{font-size:13px;font-weight:bold}\
.node{fill:#fff;stroke:#5f6368}.block{stroke:#80868b}.stream{fill:#f6f8fa}.edge{fill:none;stroke:#9aa0a6;marker-end:url(#a)}\
.edge.proof{stroke:#188038;stroke-width:2;marker-end:url(#g)}.edge.early{stroke-dasharray:5 3}\
.reuse{fill:none;stroke:#188038;stroke-width:1.2;stroke-dasharray:2 3;marker-end:url(#g)}\
.reuse.wrong{stroke:#d93025;marker-end:url(#r)}.unordered{fill:none;stroke:#d93025;stroke-width:3}\
text.wrong{fill:#d93025}.node.wrong,.block.wrong{stroke:#d93025;stroke-width:3}.reuse:hover,.edge:hover{stroke-width:4}";

/// The nodes of a window as SVG: a column for each stream, launch order down, and beside the nodes a bar for each block
/// of the stream, from its first user to the last node that has to be completed before its memory is used again. Green
/// edges prove that; a dotted line leads from each block to the next one with its memory, in red where nothing
/// proves it. What is `wrong` is red too, and told in the head. What a line, bar or node stands for is told where a
/// pointer rests on it.
pub fn svg(dag: &Dag, reuses: &[Reuse], window: &Window, wrong: Option<&Wrong>) -> String {
    Picture::new(dag, window).draw(reuses, window.remark(dag), wrong)
}

/// A block's bar: its lane, and the rows of its ends.
#[derive(Clone, Copy)]
struct Bar {
    x: f64,
    top: f64,
    bottom: f64,
}

struct Picture<'a> {
    dag: &'a Dag,
    shown: Range<u32>,
    rows: HashMap<u32, usize>,
    /// The column of each stream: where it begins, and its number of lanes.
    columns: BTreeMap<Option<StreamIndex>, (f64, usize)>,
    bars: HashMap<BlockIndex, Bar>,
    width: f64,
    height: f64,
}

impl<'a> Picture<'a> {
    fn new(dag: &'a Dag, window: &Window) -> Self {
        let shown = window.of(dag);
        let mut rows: HashMap<u32, usize> = HashMap::new();
        let mut last: BTreeMap<Option<StreamIndex>, usize> = BTreeMap::new();
        // Below all that it depends on, and below its stream's node before it.
        for number in shown.clone() {
            let stream = dag.graph[at(number)].stream;
            let before = dag.graph.neighbors_directed(at(number), Direction::Incoming);
            let above = before.filter_map(|node| rows.get(&(node.index() as u32)));
            let row = above.chain(last.get(&stream)).max().map_or(0, |row| row + 1);
            rows.insert(number, row);
            last.insert(stream, row);
        }
        let count = rows.values().max().map_or(0, |row| row + 1);
        let mut picture = Self {
            dag,
            shown,
            rows,
            columns: BTreeMap::new(),
            bars: HashMap::new(),
            width: 0.0,
            height: TOP + count as f64 * ROW + 20.0,
        };
        let mut lanes: BTreeMap<Option<StreamIndex>, Vec<usize>> =
            last.keys().map(|&stream| (stream, Vec::new())).collect();
        let mut spans: Vec<_> = (0..dag.blocks.len())
            .filter_map(|row| picture.span(row, count).map(|span| (span, row)))
            .collect();
        spans.sort_by_key(|&((from, to), row)| (from, to, row));
        let mut placed = Vec::new();
        for ((from, to), row) in spans {
            let block = &dag.blocks[row];
            let ends = lanes.entry(Some(block.stream)).or_default();
            let lane = ends.iter().position(|&end| end < from).unwrap_or(ends.len());
            if lane == ends.len() {
                ends.push(0);
            }
            ends[lane] = to;
            placed.push((block, lane, from, to));
        }
        let mut x = LEFT;
        for (stream, ends) in &lanes {
            picture.columns.insert(*stream, (x, ends.len()));
            x += NODE.0 + 8.0 + LANE * ends.len() as f64 + GAP;
        }
        for (block, lane, from, to) in placed {
            let (begin, _) = picture.columns[&Some(block.stream)];
            let x = begin + NODE.0 + 8.0 + LANE * lane as f64;
            let (top, bottom) = (TOP + from as f64 * ROW, TOP + to as f64 * ROW + NODE.1);
            picture.bars.insert(block.id, Bar { x, top, bottom });
        }
        picture.width = (x - GAP + LEFT).max(920.0);
        picture
    }

    /// The rows of a block's first user and last marker among those that are shown.
    fn span(&self, row: usize, count: usize) -> Option<(usize, usize)> {
        let block = &self.dag.blocks[row];
        let row_of = |node: &u32| self.rows.get(node).copied();
        let last = block.markers.as_ref().map_or(count.checked_sub(1), |markers| {
            let shown = markers.iter().chain(&block.users).filter_map(row_of);
            let later = markers.iter().any(|&marker| marker >= self.shown.end);
            if later {
                count.checked_sub(1)
            } else {
                shown.max()
            }
        })?;
        let before = block.users.first().is_some_and(|&user| user < self.shown.start);
        let first = block.users.iter().filter_map(row_of).min();
        let first = if before { Some(0) } else { first };
        // A block whose life does not meet what is shown has no bar.
        let meets = block.users.first().is_some_and(|&user| user < self.shown.end);
        first.filter(|&first| meets && first <= last).map(|first| (first, last))
    }

    fn place(&self, number: u32) -> (f64, f64) {
        let stream = self.dag.graph[at(number)].stream;
        let (x, row) = (self.columns[&stream].0, self.rows[&number]);
        (x, TOP + row as f64 * ROW)
    }

    fn draw(&self, reuses: &[Reuse], remark: Option<String>, wrong: Option<&Wrong>) -> String {
        let mut text = String::new();
        // Writing to a string never fails.
        let mut line =
            |arguments: std::fmt::Arguments<'_>| _ = text.write_fmt(format_args!("{arguments}\n"));
        let (width, height) = (self.width, self.height);
        line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n<defs>"
        ));
        for (name, color) in [("a", "#9aa0a6"), ("g", "#188038"), ("r", "#d93025")] {
            line(format_args!(
                "<marker id=\"{name}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
                 markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{color}\"/></marker>"
            ));
        }
        line(format_args!("</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"));
        self.head(&mut line, reuses, remark);
        if let Some(wrong) = wrong {
            let text = escaped(&wrong.text);
            line(format_args!(
                "<g><title>{text}</title><text class=\"wrong\" x=\"16\" y=\"57\">{text}</text></g>"
            ));
        }
        for (stream, &(x, lanes)) in &self.columns {
            let width = NODE.0 + 16.0 + LANE * lanes as f64;
            line(format_args!(
                "<rect class=\"stream\" x=\"{}\" y=\"60\" width=\"{width}\" height=\"{}\" rx=\"6\"/>",
                x - 8.0,
                height - 68.0
            ));
            let name = stream.map_or("no stream".into(), |stream| format!("stream {stream}"));
            line(format_args!("<text class=\"head\" x=\"{x}\" y=\"77\">{name}</text>"));
        }
        self.edges(&mut line, reuses);
        self.blocks(&mut line, wrong);
        self.links(&mut line, reuses);
        if let Some(pair) = wrong.and_then(|wrong| wrong.pair(&self.shown)) {
            let [(x, y), (to_x, to_y)] = pair.map(|number| self.place(number));
            let (x, y, to_x, to_y) = (x + 6.0, y + NODE.1 / 2.0, to_x + 6.0, to_y + NODE.1 / 2.0);
            line(format_args!(
                "<path class=\"unordered\" d=\"M{x} {y}C{} {y} {} {to_y} {to_x} {to_y}\"><title>{} and {}: not ordered\
                 </title></path>",
                x - 40.0,
                to_x - 40.0,
                pair[0],
                pair[1]
            ));
        }
        for number in self.shown.clone() {
            let (x, y) = self.place(number);
            let node = &self.dag.graph[at(number)];
            let name = node.kind.name();
            let (allocated, used, freed) =
                (names(&node.allocated), names(&node.used), names(&node.freed));
            let red = red(wrong.map(|wrong| &wrong.nodes), number);
            let label = label(&node.label);
            line(format_args!(
                "<g><title>{number} {name}{label}\nallocated: {allocated}\ncan use: {used}\nfreed behind it: {freed}</title>\
                 <rect class=\"node{red}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\
                 <text x=\"{}\" y=\"{}\">{number} {name}</text></g>",
                NODE.0,
                NODE.1,
                x + 8.0,
                y + 15.0
            ));
        }
        text.push_str("</svg>\n");
        text
    }

    fn head(
        &self,
        line: &mut impl FnMut(std::fmt::Arguments<'_>),
        reuses: &[Reuse],
        remark: Option<String>,
    ) {
        let (nodes, blocks) = (self.dag.graph.node_count(), self.dag.blocks.len());
        let edges = self.dag.graph.edge_count();
        let remark = remark.map_or(String::new(), |remark| format!("; here {remark}"));
        line(format_args!(
            "<text class=\"head\" x=\"16\" y=\"22\">{nodes} nodes, {edges} edges, {blocks} blocks, {} reuses{remark}</text>",
            reuses.len()
        ));
        let key = [
            ("edge", "edge"),
            ("edge early", "programmatic edge"),
            ("edge proof", "edge that proves a reuse"),
            ("reuse", "memory goes on, proven"),
            ("reuse wrong", "not proven"),
        ];
        for (index, (class, name)) in key.into_iter().enumerate() {
            let x = 16.0 + 178.0 * index as f64;
            line(format_args!(
                "<path class=\"{class}\" d=\"M{x} 42H{}\"/><text class=\"small\" x=\"{}\" y=\"45\">{name}</text>",
                x + 28.0,
                x + 33.0
            ));
        }
    }

    fn edges(&self, line: &mut impl FnMut(std::fmt::Arguments<'_>), reuses: &[Reuse]) {
        let proving = dot::proving(reuses);
        for edge in self.dag.graph.edge_references() {
            let (from, to) = (edge.source().index() as u32, edge.target().index() as u32);
            if !self.shown.contains(&from) || !self.shown.contains(&to) {
                continue;
            }
            let early = if *edge.weight() == Edge::Programmatic { " early" } else { "" };
            let proof = if proving.contains(&(from, to)) { " proof" } else { "" };
            let ((x, y), (to_x, to_y)) = (self.place(from), self.place(to));
            let (x, y, to_x) = (x + NODE.0 / 2.0, y + NODE.1, to_x + NODE.0 / 2.0);
            let path = if x == to_x && to_y - y < ROW {
                format!("M{x} {y}V{to_y}")
            } else if x == to_x {
                // Around the nodes between, on the left.
                let (side, end) = (x - NODE.0 / 2.0, to_y + NODE.1 / 2.0);
                let y = y - NODE.1 / 2.0;
                format!("M{side} {y}C{0} {y} {0} {end} {side} {end}", side - 22.0)
            } else {
                let bend = ((to_y - y) / 2.0).clamp(8.0, 40.0);
                format!("M{x} {y}C{x} {} {to_x} {} {to_x} {to_y}", y + bend, to_y - bend)
            };
            line(format_args!(
                "<path class=\"edge{early}{proof}\" d=\"{path}\"><title>{from} to {to}</title></path>"
            ));
        }
    }

    fn blocks(&self, line: &mut impl FnMut(std::fmt::Arguments<'_>), wrong: Option<&Wrong>) {
        for block in &self.dag.blocks {
            let Some(Bar { x, top, bottom }) = self.bars.get(&block.id).copied() else { continue };
            let color = COLORS[block.id as usize % COLORS.len()];
            let (width, height) = (LANE - 3.0, bottom - top);
            let (id, bytes) = (block.id, Size(block.bytes));
            let red = red(wrong.map(|wrong| &wrong.blocks), id);
            let freed = match &block.markers {
                None => "not freed".to_owned(),
                Some(markers) => format!("free once completed: {}", numbers(markers)),
            };
            let label = label(&block.label);
            line(format_args!(
                "<g><title>block {id}, {bytes}{label}\nused by {}\n{freed}</title><rect class=\"block{red}\" x=\"{x}\" y=\"{top}\" width=\"{width}\" \
                 height=\"{height}\" rx=\"3\" fill=\"{color}\"/>",
                numbers(&block.users)
            ));
            let (x, y) = (x + 9.0, top + 3.0);
            // As much as fits along the bar.
            let label = format!("{id} {bytes}");
            let label = if height > 60.0 { label } else { id.to_string() };
            line(format_args!(
                "<text class=\"small\" text-anchor=\"end\" transform=\"translate({x} {y}) rotate(-90)\">{label}</text></g>"
            ));
        }
    }

    fn links(&self, line: &mut impl FnMut(std::fmt::Arguments<'_>), reuses: &[Reuse]) {
        for reuse in reuses {
            let (Some(from), Some(to)) = (self.bars.get(&reuse.from), self.bars.get(&reuse.to))
            else {
                continue;
            };
            let wrong =
                if reuse.proofs.iter().any(|proof| proof.path.is_empty()) { " wrong" } else { "" };
            let half = (LANE - 3.0) / 2.0;
            let (x, y, to_x, to_y) = (from.x + half, from.bottom, to.x + half, to.top);
            let bend = ((to_y - y).abs() / 2.0).clamp(6.0, 60.0);
            line(format_args!(
                "<path class=\"reuse{wrong}\" d=\"M{x} {y}C{x} {} {to_x} {} {to_x} {to_y}\"><title>block {} has memory of \
                 block {}",
                y + bend,
                to_y - bend,
                reuse.to,
                reuse.from
            ));
            for proof in &reuse.proofs {
                match proof.path.as_slice() {
                    [] => line(format_args!("node {}: no path proves it", proof.marker)),
                    path => line(format_args!("proven by {}", path_text(path))),
                }
            }
            line(format_args!("</title></path>"));
        }
    }
}

/// The class of what is wrong.
fn red(wrong: Option<&Vec<u32>>, number: u32) -> &'static str {
    if wrong.is_some_and(|wrong| wrong.contains(&number)) {
        " wrong"
    } else {
        ""
    }
}

/// What a trace says of a node or a block, on a line of a title.
fn label(label: &Option<String>) -> String {
    label.as_ref().map_or_else(String::new, |text| format!("\n{}", escaped(text)))
}

/// Text in a document, without what it may not hold.
fn escaped(text: &str) -> String {
    let text =
        text.replace(|c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'), "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn path_text(path: &[u32]) -> String {
    let all: Vec<_> = path.iter().map(u32::to_string).collect();
    all.join(" \u{2192} ")
}

/// The first of some nodes, and the number of the others.
fn numbers(nodes: &[u32]) -> String {
    const MOST: usize = 12;
    let all: Vec<_> = nodes.iter().take(MOST).map(u32::to_string).collect();
    let more = nodes.len().saturating_sub(MOST);
    match (all.is_empty(), more) {
        (true, _) => "no node".to_owned(),
        (_, 0) => all.join(", "),
        _ => format!("{} and {more} more", all.join(", ")),
    }
}

fn names(blocks: &[BlockIndex]) -> String {
    if blocks.is_empty() {
        return "none".to_owned();
    }
    numbers(blocks)
}
