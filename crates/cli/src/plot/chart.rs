//! The drawing: a panel a series, at most three in a row, with one scale for all.

use std::fmt::Write;

use maud::{html, Markup};

use super::scale::{self, grouped, Axis, Unit};
use super::{thin, Series};
use crate::replay::Sample;
use regraph_trace::{Operation, Trace};

/// Points of a curve at most.
pub(super) const POINTS: usize = 2_000;

/// Of the drawing's units this many make its width.
const WIDTH: f64 = 1200.0;
const COLUMNS: usize = 3;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const GAP: f64 = 32.0;
/// From a row's top to its panels: a name and a line of figures.
const HEAD: f64 = 56.0;
const HEIGHT: f64 = 300.0;
/// From a panel's lower edge to its row's: marks, captures, what the axis is.
const FOOT: f64 = 74.0;
/// Where captures stand below a panel.
const CAPTURES: f64 = 32.0;
/// A capture wider than this is named.
const NAMED: f64 = 70.0;

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
    series: &'a [Series],
    pub(super) operations: Axis,
    bytes: Axis,
    pub(super) unit: Unit,
    /// First and last operation of each capture, counted from 1.
    captures: Vec<(usize, usize)>,
    /// By series and figure: the samples that are drawn.
    kept: Vec<[Vec<usize>; 3]>,
    /// Of a panel.
    pub(super) width: f64,
}

impl<'a> Chart<'a> {
    pub(super) fn new(trace: &Trace, series: &'a [Series]) -> Self {
        let highest = series.iter().map(Series::peak_reserved).max().unwrap_or(0);
        let (bytes, unit) = scale::bytes(highest);
        let columns = series.len().clamp(1, COLUMNS) as f64;
        let kept = |series: &Series| {
            FIGURES.map(|(_, figure)| {
                let values: Vec<u64> = series.samples.iter().map(figure).collect();
                thin(&values, POINTS)
            })
        };
        Self {
            series,
            operations: Axis::up_to(trace.operations().len() as u64, 4),
            bytes,
            unit,
            captures: captures(trace),
            kept: series.iter().map(kept).collect(),
            width: (WIDTH - LEFT - RIGHT - GAP * (columns - 1.0)) / columns,
        }
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
        (panel / COLUMNS) as f64 * (HEAD + HEIGHT + FOOT) + HEAD
    }

    /// From a panel's left edge.
    fn across(&self, operation: usize) -> f64 {
        operation as f64 / self.operations.top as f64 * self.width
    }

    /// From a panel's upper edge.
    fn down(&self, bytes: u64) -> f64 {
        HEIGHT * (1.0 - bytes as f64 / self.bytes.top as f64)
    }

    pub(super) fn draw(&self) -> Markup {
        let rows = self.series.len().div_ceil(COLUMNS).max(1);
        let height = rows as f64 * (HEAD + HEIGHT + FOOT);
        html! {
            svg #chart viewBox=(format!("0 0 {WIDTH} {height}")) role="img" tabindex="0"
                aria-label="Memory over operations, a panel for each policy" {
                @for (panel, series) in self.series.iter().enumerate() {
                    g.panel transform=(format!("translate({:.2} {})", self.left(panel), Self::top(panel))) {
                        (self.head(series))
                        (self.grid(panel % COLUMNS == 0))
                        (self.curves(panel))
                        (self.capture_marks())
                        line.cursor x1="0" y1="0" x2="0" y2=(HEIGHT) visibility="hidden" {}
                    }
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

    fn grid(&self, labelled: bool) -> Markup {
        let unit = self.unit;
        html! {
            @for mark in self.bytes.marks() {
                @let y = format!("{:.2}", self.down(mark));
                line.grid x1="0" y1=(y) x2=(format!("{:.2}", self.width)) y2=(y) {}
                @if labelled {
                    text.mark x="-8" y=(y) dy="0.35em" text-anchor="end" {
                        (grouped((mark / unit.bytes) as usize)) " " (unit.name)
                    }
                }
            }
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
                let (x, y) = (self.across(place + 1), self.down(value));
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
