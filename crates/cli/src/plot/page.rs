//! The page around the drawing.

use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde::Serialize;

use super::chart::{Chart, AREA, FIGURES, POINTS};
use super::scale::{grouped, Unit};
use super::Series;
use regraph_trace::{Operation, Trace};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// An operation's text is cut here, in characters.
const TEXT_LIMIT: usize = 160;

/// What each curve is, in the order of the legend.
const LEGEND: [(&str, &str); 3] = [
    ("reserved", "held from the driver."),
    ("allocated", "in blocks that have not been freed, as placed (rounded up to 512 bytes)."),
    (
        "waiting",
        "freed, but not free for the stream that asked: what the stream of the latest allocation \
         could not take then, because an order is not proven or the policy keeps it back. Behind a \
         capture's end: what no stream may take.",
    ),
];

/// Draws a trace's memory: a page of HTML that needs no other file and no network.
///
/// Each series holds one sample an operation of the trace. Curves of more than 2,000 samples are
/// thinned with [`super::thin()`]. `title` is any text; it is escaped.
pub fn render(title: &str, trace: &Trace, series: &[Series]) -> String {
    let chart = Chart::new(trace, series);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) ": memory over operations" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p { (counts(trace)) }
                (legend())
                div.wide { (chart.draw()) }
                p #operation { "Point at a panel, or press the arrow keys on it, to read an operation." }
                div.wide { (table(series, chart.unit)) }
                p.note {
                    "Peak allocated is each pool's own, summed over pools."
                    @if trace.operations().len() > POINTS {
                        " Curves are thinned to " (grouped(POINTS)) " points: of each stretch the \
                         lowest and the highest are kept."
                    }
                }
                script type="application/json" #data { (PreEscaped(data(trace, series, &chart))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn counts(trace: &Trace) -> String {
    let count = |number: usize, what: &str| {
        format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
    };
    format!(
        "{}: {}, {}, {}",
        count(trace.operations().len(), "operation"),
        count(trace.captures(), "capture"),
        count(trace.nodes(), "node"),
        count(trace.blocks(), "block")
    )
}

fn legend() -> Markup {
    html! {
        ul.legend {
            @for (class, words) in LEGEND {
                li {
                    svg viewBox="0 0 28 14" aria-hidden="true" {
                        @let sample = if class == AREA { "M1 13V3H27V13Z" } else { "M1 8H27" };
                        path class=(format!("sample {class}")) d=(sample) {}
                    }
                    b { (class) } ": " (words)
                }
            }
            li {
                svg viewBox="0 0 28 14" aria-hidden="true" { g.captures { path d="M1 9H27" {} } }
                b { "capture" } ": from its begin to its end."
            }
        }
    }
}

fn table(series: &[Series], unit: Unit) -> Markup {
    let bytes = |bytes: u64| html! { data value=(bytes) { (unit.text(bytes)) } };
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "policy" }
                    th scope="col" { "peak reserved" }
                    th scope="col" { "peak allocated" }
                    th scope="col" { "reserved over allocated" }
                    th scope="col" { "highest waiting" }
                }
            }
            tbody {
                @for series in series {
                    tr {
                        th scope="row" { (series.name) }
                        td { (bytes(series.peak_reserved())) }
                        td { (bytes(series.peak_allocated)) }
                        td { (series.reserved_over_allocated().map_or_else(|| "–".to_owned(), |r| format!("{r:.2}"))) }
                        td { (bytes(series.peak_waiting())) }
                    }
                }
            }
        }
    }
}

/// What the script reads.
#[derive(Serialize)]
struct Data<'a> {
    unit: &'a str,
    unit_bytes: u64,
    /// What a panel's width stands for.
    operations: u64,
    width: f64,
    left: Vec<f64>,
    /// The operations that can be read, counted from 1, and their text.
    at: Vec<usize>,
    text: Vec<String>,
    /// By series and figure: bytes behind each of those operations.
    figures: Vec<[Vec<u64>; 3]>,
    names: [&'a str; 3],
}

fn data(trace: &Trace, series: &[Series], chart: &Chart<'_>) -> String {
    let mut drawn = chart.drawn();
    drawn.retain(|&place| place < trace.operations().len());
    let figures = |series: &Series| {
        FIGURES.map(|(_, figure)| {
            drawn.iter().map(|&place| series.samples.get(place).map_or(0, figure)).collect()
        })
    };
    let data = Data {
        unit: chart.unit.name,
        unit_bytes: chart.unit.bytes,
        operations: chart.operations.top,
        width: chart.width,
        left: (0..series.len()).map(|panel| chart.left(panel)).collect(),
        at: drawn.iter().map(|&place| place + 1).collect(),
        text: drawn.iter().map(|&place| text(&trace.operations()[place])).collect(),
        figures: series.iter().map(figures).collect(),
        names: FIGURES.map(|(name, _)| name),
    };
    let json = serde_json::to_string(&data).expect("numbers and strings are always JSON");
    // Nothing in it may look like the end of the element that it stands in.
    json.replace('<', "\\u003c")
}

/// An operation as in a file, cut where it is long.
fn text(operation: &Operation) -> String {
    let line = serde_json::to_string(operation).expect("an operation is always JSON");
    match line.char_indices().nth(TEXT_LIMIT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
