//! The drawing: a panel a series, at most three in a row, with one scale for a row. A panel has the blocks where they lie,
//! address over operations, and below them the sums.

use std::collections::BTreeMap;
use std::fmt::Write;

use maud::{html, Markup};

use super::layout::{lives, Life, Part};
use super::scale::{self, grouped, Axis, Unit};
use super::{thin, Least, Series};
use crate::replay::Sample;
use regraph::Size;
use regraph_trace::{BlockIndex, Labels, Operation, StreamIndex, Trace};

/// Points of a curve at most.
pub(super) const POINTS: usize = 2_000;
/// Stretches of blocks in a panel at most.
pub(super) const PARTS: usize = 5_000;

/// Of the drawing's units this many make its width.
pub(super) const WIDTH: f64 = 1200.0;
const COLUMNS: usize = 3;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const GAP: f64 = 32.0;
/// From a row's top to its panels: a name and a line of figures.
const HEAD: f64 = 56.0;
/// Of the blocks, and between them and the curves.
const LAYOUT: f64 = 320.0;
const BETWEEN: f64 = 20.0;
/// Of the curves.
const HEIGHT: f64 = 160.0;
/// From a panel's lower edge to its row's: marks, captures, what the axis is.
const FOOT: f64 = 74.0;
const ROW: f64 = HEAD + LAYOUT + BETWEEN + HEIGHT + FOOT;
/// Where captures stand below a panel.
const CAPTURES: f64 = 32.0;
/// A capture wider than this is named.
const NAMED: f64 = 70.0;
/// A block is named if its name has this width a character, and this height, and some room.
const LETTER: f64 = 5.6;
const LINE: f64 = 12.0;

/// Of a stack so many frames are told.
const FRAMES: usize = 24;
/// A name, a frame and an operation are cut here, in characters: a trace may have one text of megabytes for each block.
pub(super) const TEXT_LIMIT: usize = 160;

/// How many colours there are for streams; the last is for all others.
pub(super) const COLOURS: usize = 8;

/// A figure of a sample, in bytes.
pub(super) type Figure = fn(&Sample) -> u64;

/// The figures that are drawn, in this order, and the classes of their curves.
pub(super) const FIGURES: [(&str, Figure); 3] = [
    ("allocated", |sample| sample.allocated),
    ("waiting", |sample| sample.waiting),
    ("reserved", |sample| sample.reserved),
];

/// The curve that is filled.
pub(super) const AREA: &str = "allocated";

/// Where everything stands.
pub(super) struct Chart<'a> {
    trace: &'a Trace,
    series: &'a [Series],
    least: Option<&'a Least>,
    pub(super) operations: Axis,
    /// By row.
    bytes: Vec<(Axis, Unit)>,
    /// Of all figures that are no marks.
    pub(super) unit: Unit,
    /// First and last operation of each capture, counted from 1.
    captures: Vec<(usize, usize)>,
    /// By series and figure: the samples that are drawn.
    kept: Vec<[Vec<usize>; 3]>,
    pub(super) lives: Vec<Life>,
    /// The place of each block among those.
    rows: BTreeMap<BlockIndex, usize>,
    /// Streams that have blocks.
    pub(super) streams: Vec<StreamIndex>,
    /// By series: the stretches that are drawn.
    parts: Vec<Vec<Part>>,
    /// Of a panel.
    pub(super) width: f64,
}

impl<'a> Chart<'a> {
    pub(super) fn new(trace: &'a Trace, series: &'a [Series], least: Option<&'a Least>) -> Self {
        let highest = |series: &[Series]| {
            let all = series.iter().map(|it| it.peak_reserved().max(it.layout.height()));
            all.chain(least.map(|least| least.bytes)).max().unwrap_or(0)
        };
        let bytes = series.chunks(COLUMNS).map(|row| scale::bytes(highest(row))).collect();
        let (_, unit) = scale::bytes(highest(series));
        let columns = series.len().clamp(1, COLUMNS) as f64;
        let kept = |series: &Series| {
            FIGURES.map(|(_, figure)| {
                let values: Vec<u64> = series.samples.iter().map(figure).collect();
                thin(&values, POINTS)
            })
        };
        let lives = lives(trace);
        let rows: BTreeMap<_, _> = lives.iter().map(|life| life.block).zip(0..).collect();
        let mut streams: Vec<StreamIndex> = lives.iter().map(|life| life.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let mut chart = Self {
            trace,
            series,
            least,
            operations: Axis::up_to(trace.operations().len() as u64, 4),
            bytes,
            unit,
            captures: captures(trace),
            kept: series.iter().map(kept).collect(),
            lives,
            rows,
            streams,
            parts: Vec::new(),
            width: (WIDTH - LEFT - RIGHT - GAP * (columns - 1.0)) / columns,
        };
        chart.parts = series.iter().map(|series| chart.largest(series)).collect();
        chart
    }

    /// The stretches that take most bytes for most operations, in order of allocation.
    fn largest(&self, series: &Series) -> Vec<Part> {
        let mut order: Vec<(u128, usize)> =
            series.layout.parts().iter().map(|part| self.weight(part)).zip(0..).collect();
        if order.len() > PARTS {
            order.sort_unstable_by_key(|&(weight, row)| (std::cmp::Reverse(weight), row));
            order.truncate(PARTS);
            order.sort_unstable_by_key(|&(_, row)| row);
        }
        order.into_iter().map(|(_, row)| series.layout.parts()[row]).collect()
    }

    /// Bytes times operations.
    fn weight(&self, part: &Part) -> u128 {
        let (from, until) = self.span(self.life(part));
        u128::from(part.bytes) * (until - from) as u128
    }

    /// How many stretches a panel leaves out, what the largest of them takes in bytes, and their part of all bytes times
    /// operations; `None` where all are drawn.
    pub(super) fn left_out(&self, panel: usize) -> Option<(usize, u64, f64)> {
        let (all, drawn) = (self.series[panel].layout.parts(), &self.parts[panel]);
        if all.len() == drawn.len() {
            return None;
        }
        let sum = |parts: &[Part]| parts.iter().map(|part| self.weight(part)).sum::<u128>();
        let mut rest = drawn.iter().peekable();
        let left = all.iter().filter(|part| rest.next_if(|next| next == part).is_none());
        let largest = left.map(|part| part.bytes).max().unwrap_or(0);
        let share = 1.0 - sum(drawn) as f64 / sum(all).max(1) as f64;
        Some((all.len() - drawn.len(), largest, share))
    }

    /// The blocks of which anything is drawn, by their places among the lives.
    pub(super) fn drawn_blocks(&self) -> Vec<usize> {
        let mut rows: Vec<usize> =
            self.parts.iter().flatten().map(|part| self.rows[&part.block]).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn life(&self, part: &Part) -> &Life {
        &self.lives[self.rows[&part.block]]
    }

    /// Behind which operations a block began and ended to live.
    fn span(&self, life: &Life) -> (usize, usize) {
        (life.from, life.until.unwrap_or(self.trace.operations().len() + 1))
    }

    /// The samples that some curve draws, in order.
    pub(super) fn drawn(&self) -> Vec<usize> {
        let mut drawn: Vec<usize> = self.kept.iter().flatten().flatten().copied().collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }

    /// A panel's left edge.
    pub(super) fn left(&self, panel: usize) -> f64 {
        LEFT + (panel % COLUMNS) as f64 * (self.width + GAP)
    }

    fn top(panel: usize) -> f64 {
        (panel / COLUMNS) as f64 * ROW + HEAD
    }

    /// How many rows of panels there are.
    pub(super) fn rows(&self) -> usize {
        self.series.len().div_ceil(COLUMNS)
    }

    pub(super) fn height(&self) -> f64 {
        self.rows().max(1) as f64 * ROW
    }

    /// From a panel's left edge.
    fn across(&self, operation: usize) -> f64 {
        operation as f64 / self.operations.top as f64 * self.width
    }

    /// From a panel's upper edge, of those that are so high.
    fn down(&self, bytes: u64, height: f64, panel: usize) -> f64 {
        let (axis, _) = self.bytes[panel / COLUMNS];
        height * (1.0 - bytes as f64 / axis.top as f64)
    }

    /// `titled`: whether each block tells of itself; else the page's script does.
    pub(super) fn draw(&self, titled: bool) -> Markup {
        let height = self.height();
        html! {
            svg #chart viewBox=(format!("0 0 {WIDTH} {height}")) role="img" tabindex="0"
                aria-label="Blocks and memory over operations, a panel for each policy and plan" {
                (self.panels(titled))
            }
        }
    }

    pub(super) fn panels(&self, titled: bool) -> Markup {
        html! {
            @for (panel, series) in self.series.iter().enumerate() {
                g.panel transform=(format!("translate({:.2} {})", self.left(panel), Self::top(panel))) {
                    (self.head(series))
                    g.layout { (self.layout(panel, titled)) }
                    g transform=(format!("translate(0 {})", LAYOUT + BETWEEN)) {
                        (self.grid(panel, HEIGHT, 2))
                        (self.curves(panel))
                        (self.least_line(HEIGHT, panel))
                        (self.operation_marks())
                        (self.capture_marks())
                    }
                    line.cursor x1="0" y1="0" x2="0" y2=(LAYOUT + BETWEEN + HEIGHT) visibility="hidden" {}
                }
            }
        }
    }

    fn head(&self, series: &Series) -> Markup {
        let peak = self.unit.text(series.peak_reserved());
        html! {
            text.name x="0" y="-32" { (series.name) }
            text.readout x="0" y="-12" { "at most " (peak) " reserved" }
        }
    }

    fn grid(&self, panel: usize, height: f64, every: usize) -> Markup {
        let (axis, unit) = self.bytes[panel / COLUMNS];
        let labelled = panel.is_multiple_of(COLUMNS);
        html! {
            @for mark in axis.marks().step_by(every) {
                @let y = format!("{:.2}", self.down(mark, height, panel));
                line.grid x1="0" y1=(y) x2=(format!("{:.2}", self.width)) y2=(y) {}
                @if labelled {
                    text.mark x="-8" y=(y) dy="0.35em" text-anchor="end" {
                        (grouped((mark / unit.bytes) as usize)) " " (unit.name)
                    }
                }
            }
        }
    }

    fn operation_marks(&self) -> Markup {
        html! {
            @for mark in self.operations.marks() {
                @let x = format!("{:.2}", self.across(mark as usize));
                line.tick x1=(x) y1=(HEIGHT) x2=(x) y2=(HEIGHT + 5.0) {}
                text.mark x=(x) y=(HEIGHT + 20.0) text-anchor="middle" {
                    (grouped(mark as usize))
                }
            }
            text.mark x=(format!("{:.2}", self.width / 2.0)) y=(HEIGHT + 62.0) text-anchor="middle" {
                "operation"
            }
        }
    }

    /// Below which no placement comes.
    fn least_line(&self, height: f64, panel: usize) -> Markup {
        let Some(least) = self.least else { return html! {} };
        let y = format!("{:.2}", self.down(least.bytes, height, panel));
        html! { line.least x1="0" y1=(y) x2=(format!("{:.2}", self.width)) y2=(y) {} }
    }

    fn layout(&self, panel: usize, titled: bool) -> Markup {
        let series = &self.series[panel];
        let held = self.down(series.peak_reserved().max(series.layout.height()), LAYOUT, panel);
        let rows = self.drawn_blocks();
        html! {
            rect.held x="0" y=(format!("{held:.2}")) width=(format!("{:.2}", self.width))
                height=(format!("{:.2}", LAYOUT - held)) {}
            (self.grid(panel, LAYOUT, 1))
            @for part in &self.parts[panel] {
                @let life = self.life(part);
                @let (x, y, width, height) = self.rectangle(part, panel);
                rect class=(self.class(life)) x=(format!("{x:.2}")) y=(format!("{y:.2}"))
                    width=(format!("{width:.2}")) height=(format!("{height:.2}"))
                    data-b=[(!titled).then(|| rows.partition_point(|&row| row < self.rows[&part.block]))] {
                    @if titled { title { (self.about(life)) } }
                }
            }
            @for part in &self.parts[panel] { (self.caption(part, panel)) }
            (self.least_line(LAYOUT, panel))
        }
    }

    /// Left, upper edge, width and height.
    fn rectangle(&self, part: &Part, panel: usize) -> (f64, f64, f64, f64) {
        let (from, until) = self.span(self.life(part));
        let x = self.across(from);
        let y = self.down(part.offset + part.bytes, LAYOUT, panel);
        let width = self.across(until.min(self.trace.operations().len())) - x;
        (x, y, width.max(0.0), self.down(part.offset, LAYOUT, panel) - y)
    }

    /// The colour of a stream, and whether the block is one of those that make the least.
    fn class(&self, life: &Life) -> String {
        let colour = self.colour(life.stream);
        match self.least.is_some_and(|least| least.blocks.contains(&life.block)) {
            true => format!("s{colour} tight"),
            false => format!("s{colour}"),
        }
    }

    fn colour(&self, stream: StreamIndex) -> usize {
        let place = self.streams.iter().position(|&it| it == stream);
        place.unwrap_or(COLOURS).min(COLOURS - 1)
    }

    /// Its name in it, where there is room.
    fn caption(&self, part: &Part, panel: usize) -> Markup {
        let (x, y, width, height) = self.rectangle(part, panel);
        let room = ((width - 6.0) / LETTER).max(0.0) as usize;
        if height < LINE + 1.0 || room < 3 {
            return html! {};
        }
        let name = short(self.trace.labels(), part.block).replace('\n', " ");
        let cut = cut(&name, room);
        html! {
            text.caption x=(format!("{:.2}", x + 3.0)) y=(format!("{:.2}", y + height / 2.0 + 3.5)) {
                (cut)
            }
        }
    }

    /// A block in words.
    pub(super) fn about(&self, life: &Life) -> String {
        let labels = self.trace.labels();
        let lived = match life.until {
            Some(until) => format!("operations {} to {}", grouped(life.from), grouped(until)),
            None => format!("from operation {} on, never freed", grouped(life.from)),
        };
        let mut lines = vec![
            format!("block {}: {} on stream {}", life.block, size(life.bytes), life.stream),
            lived,
        ];
        if self.least.is_some_and(|least| least.blocks.contains(&life.block)) {
            lines.push("one of the blocks that make the minimum".to_owned());
        }
        let of_frame = |frame| cut(&regraph_trace::line(frame), TEXT_LIMIT);
        lines.extend(labels.block_name(life.block).map(|name| cut(name, TEXT_LIMIT)));
        lines.extend(labels.stack(life.block).iter().take(FRAMES).map(of_frame));
        lines.join("\n")
    }

    fn curves(&self, panel: usize) -> Markup {
        html! {
            @for ((class, figure), kept) in FIGURES.iter().zip(&self.kept[panel]) {
                @let line = self.curve(panel, *figure, kept);
                // The one area is closed along the axis.
                @let close = if *class == AREA { format!("V{HEIGHT}Z") } else { String::new() };
                path class=(format!("curve {class}")) d={ (line) (close) } {}
            }
        }
    }

    /// A line of steps.
    fn curve(&self, panel: usize, figure: Figure, kept: &[usize]) -> String {
        let samples = &self.series[panel].samples;
        let mut path = format!("M0 {HEIGHT}");
        let mut level = 0;
        for &place in kept {
            let value = figure(&samples[place]);
            let last = place + 1 == samples.len();
            // A level is one line, however many operations it lasts.
            if value != level || last {
                let (x, y) = (self.across(place + 1), self.down(value, HEIGHT, panel));
                // Writing to a string does not fail.
                let _ = write!(path, "H{x:.2}V{y:.2}");
                level = value;
            }
        }
        path
    }

    fn capture_marks(&self) -> Markup {
        let mut path = String::new();
        for &(first, last) in &self.captures {
            let (from, to) = (self.across(first - 1), self.across(last));
            // A gap tells one from the next, where there is room for it.
            let _ = write!(path, "M{from:.2} {CAPTURES}h{:.2}", (to - from - 2.0).max(0.5));
        }
        let wide = |&(first, last): &(usize, usize)| self.across(last + 1 - first) > NAMED;
        html! {
            g.captures transform=(format!("translate(0 {HEIGHT})")) {
                path d=(path) {}
                @for (number, capture) in self.captures.iter().enumerate().filter(|(_, c)| wide(c)) {
                    @let middle = (self.across(capture.0 - 1) + self.across(capture.1)) / 2.0;
                    text x=(format!("{middle:.2}")) y=(CAPTURES + 13.0) text-anchor="middle" {
                        "capture " (number + 1)
                    }
                }
            }
        }
    }
}

/// Bytes in a unit that suits them, and as they are.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => Size(bytes).to_string(),
        _ => format!("{} ({} bytes)", Size(bytes), grouped(bytes as usize)),
    }
}

/// Text without what a document may not hold.
pub(super) fn plain(text: &str) -> String {
    let is_bad = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    text.replace(is_bad, "\u{fffd}")
}

/// Text that a document may hold, of at most `limit` characters: what is longer ends in a mark.
pub(super) fn cut(text: &str, limit: usize) -> String {
    if text.char_indices().nth(limit).is_none() {
        return plain(text);
    }
    let kept: String = text.chars().take(limit.saturating_sub(1)).collect();
    plain(&kept) + "…"
}

/// A block's name, its line of code without folders, or its number.
fn short(labels: &Labels, block: BlockIndex) -> String {
    match (labels.block_name(block), labels.frame(block)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(frame)) => {
            let file = frame.filename.rsplit(['/', '\\']).next().unwrap_or_default();
            format!("{file}:{} {}", frame.line, frame.name)
        }
        (None, None) => block.to_string(),
    }
}

fn captures(trace: &Trace) -> Vec<(usize, usize)> {
    let mut captures = Vec::new();
    let mut first = 0;
    for (index, operation) in trace.operations().iter().enumerate() {
        match operation {
            Operation::Begin { .. } => first = index + 1,
            Operation::End {} => captures.push((first, index + 1)),
            _ => {}
        }
    }
    captures
}
