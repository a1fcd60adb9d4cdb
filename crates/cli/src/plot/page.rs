//! The page around the drawing.

use std::collections::BTreeMap;

use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde::Serialize;

use super::chart::{cut, plain, Chart, AREA, COLOURS, FIGURES, POINTS, TEXT_LIMIT, WIDTH};
use super::layout::{live_at_peak, Life};
use super::scale::{grouped, Unit};
use super::{Least, Series};
use regraph::Size;
use regraph_plan::minimum;
use regraph_trace::{Operation, Trace};

/// The colours' names for each scheme, the drawing, and the page around it.
const SCHEMES: &str = include_str!("colours.css");
const CHART_STYLE: &str = include_str!("chart.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

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

/// Rows of the table of what memory is made of, at most.
const ROWS: usize = 20;

/// What a page shows: a trace's memory over its operations, a panel for each series.
#[derive(Clone, Copy, Debug)]
pub struct Plot<'a> {
    /// Any text; it is escaped.
    pub title: &'a str,
    /// The trace.
    pub trace: &'a Trace,
    /// Each holds one sample an operation of the trace. Curves of more than 2,000 samples are thinned with
    /// [`super::thin()`]; of a layout the 5,000 stretches are drawn that take most bytes for most operations.
    pub series: &'a [Series],
    /// What no placement comes below.
    pub least: Option<&'a Least>,
}

impl Plot<'_> {
    /// A page of HTML that needs no other file and no network.
    pub fn html(&self) -> String {
        let &Self { title, trace, series, least } = self;
        let title = plain(title);
        let chart = Chart::new(trace, series, least);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) ": memory over operations" }
                    style { (PreEscaped(SCHEMES)) (PreEscaped(CHART_STYLE)) (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (title) }
                    p { (counts(trace)) }
                    (legend(&chart, least.is_some()))
                    div.wide { (chart.draw(false)) }
                    p #operation {
                        "Point at a block to read what it is; point at a panel, or press the arrow keys on it, to read \
                         an operation."
                    }
                    p #tip hidden {}
                    div.wide { (table(series, least, chart.unit)) }
                    (makers(trace, least, &chart))
                    p.note { (notes(series, &chart).join(" ")) }
                    script type="application/json" #data { (PreEscaped(data(trace, series, &chart))) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        page.into_string()
    }

    /// The drawing alone, as a file of SVG that needs no other file and no script: each block tells of itself where a
    /// viewer shows titles.
    pub fn svg(&self) -> String {
        /// Above and below the panels.
        const ABOVE: f64 = 92.0;
        const BELOW: f64 = 20.0;
        let &Self { title, trace, series, least } = self;
        let chart = Chart::new(trace, series, least);
        let notes = notes(series, &chart);
        let end = ABOVE + chart.height() + 10.0;
        let height = end + BELOW * notes.len() as f64;
        let keys = keys(&chart, least.is_some());
        // Of the width, as much as each one's sample and name need of all.
        let needs = keys.iter().map(|key| 50.0 + 8.0 * key.name.chars().count() as f64);
        let share = (WIDTH - 32.0) / needs.clone().sum::<f64>();
        let left =
            needs.scan(16.0, |next, needed| Some(std::mem::replace(next, *next + share * needed)));
        let drawing = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
                font-family="system-ui, sans-serif" font-size="13" {
                title { (plain(title)) }
                style { (PreEscaped(style_without_names())) }
                rect.ground width="100%" height="100%" {}
                text.title x="16" y="30" { (plain(title)) }
                text.mark x="16" y="52" { (counts(trace)) }
                @for (key, left) in keys.iter().zip(left) {
                    g transform=(format!("translate({left:.1} 66)")) {
                        (key.sample)
                        text.mark x="34" y="12" { (key.name) }
                    }
                }
                g transform=(format!("translate(0 {ABOVE})")) { (chart.panels(true)) }
                @for (note, line) in notes.iter().zip(0..) {
                    text.mark x="16" y=(format!("{}", end + BELOW * f64::from(line))) { (note) }
                }
            }
        };
        drawing.into_string()
    }
}

/// The drawing's style with its colours written out, for viewers of SVG that are no browsers: light, and dark where such a
/// viewer can tell.
fn style_without_names() -> String {
    let schemes = SCHEMES.split("@media print").next().unwrap_or_default();
    let (light, dark) =
        schemes.split_once("@media (prefers-color-scheme: dark)").unwrap_or_default();
    let written = |scheme: &str| {
        let colours = scheme.split([';', '{', '}']).filter_map(|it| it.trim().split_once(": "));
        colours.fold(CHART_STYLE.to_owned(), |style, (name, colour)| {
            style.replace(&format!("var({name})"), colour)
        })
    };
    format!("{}@media (prefers-color-scheme: dark) {{\n{}}}\n", written(light), written(dark))
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

/// One entry of the legend.
struct Key {
    name: String,
    sample: Markup,
    words: Option<&'static str>,
}

/// What each colour and line is.
fn keys(chart: &Chart<'_>, has_least: bool) -> Vec<Key> {
    let mut keys = Vec::new();
    let patch = |class: &str| html! { rect class=(class) x="1" y="2" width="26" height="11" {} };
    for (colour, stream) in chart.streams.iter().take(COLOURS).enumerate() {
        let others = colour == COLOURS - 1 && chart.streams.len() > COLOURS;
        let name = if others { "other streams".to_owned() } else { format!("stream {stream}") };
        keys.push(Key { name, sample: patch(&format!("s{colour}")), words: None });
    }
    let free = Some("on which no block lies: free, or not to be had by the stream that asked.");
    keys.push(Key { name: "memory held".to_owned(), sample: patch("held"), words: free });
    if has_least {
        let sample = html! { line.least x1="1" y1="8" x2="27" y2="8" {} };
        let words = "no placement that adds no edges to the graphs takes less; the outlined blocks are those that need \
                     it all at once.";
        keys.push(Key { name: "minimum".to_owned(), sample, words: Some(words) });
    }
    for (class, words) in LEGEND {
        let line = if class == AREA { "M1 13V3H27V13Z" } else { "M1 8H27" };
        let sample = html! { path class=(format!("sample {class}")) d=(line) {} };
        keys.push(Key { name: class.to_owned(), sample, words: Some(words) });
    }
    let sample = html! { g.captures { path d="M1 9H27" {} } };
    let words = Some("from its begin to its end.");
    keys.push(Key { name: "capture".to_owned(), sample, words });
    keys
}

fn legend(chart: &Chart<'_>, has_least: bool) -> Markup {
    let keys = keys(chart, has_least);
    let (colours, lines): (Vec<_>, Vec<_>) = keys.iter().partition(|key| key.words.is_none());
    let sample = |key: &Key| html! { svg viewBox="0 0 28 14" aria-hidden="true" { (key.sample) } };
    html! {
        ul.legend {
            @if !colours.is_empty() {
                li.streams { @for key in colours { span { (sample(key)) (key.name) } } }
            }
            @for key in lines {
                li { (sample(key)) b { (key.name) } ": " (key.words.unwrap_or_default()) }
            }
        }
    }
}

/// What is to be known of the drawing.
fn notes(series: &[Series], chart: &Chart<'_>) -> Vec<String> {
    let mut notes = vec![
        "Above: where blocks lie, address over operations, without the gaps between pieces of memory. Below: sums. Peak \
         allocated is each pool's own, summed over pools."
            .to_owned(),
    ];
    if chart.rows() > 1 {
        notes.push("Each row of panels has a scale of its own.".to_owned());
    }
    if chart.operations.top as usize > POINTS {
        notes.push(format!(
            "Curves are thinned to {} points: of each stretch the lowest and the highest are kept.",
            grouped(POINTS)
        ));
    }
    for (panel, series) in series.iter().enumerate() {
        if let Some((count, largest, share)) = chart.left_out(panel) {
            notes.push(format!(
                "{}: {} small or short-lived stretches of blocks are left out, none above {}, {:.2} % of all bytes times \
                 operations.",
                plain(&series.name),
                grouped(count),
                Size(largest),
                share * 100.0
            ));
        }
    }
    notes
}

fn table(series: &[Series], least: Option<&Least>, unit: Unit) -> Markup {
    let bytes = |bytes: u64| html! { data value=(bytes) { (unit.text(bytes)) } };
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.2}"));
    let over = |reserved: u64, least: &Least| ratio(minimum::ratio(reserved, least.bytes));
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "policy without a plan, or plan" }
                    th scope="col" { "peak reserved" }
                    th scope="col" { "peak allocated" }
                    th scope="col" { "reserved over allocated" }
                    th scope="col" { "highest waiting" }
                    @if least.is_some() {
                        th scope="col" { "minimum" }
                        th scope="col" { "reserved over minimum" }
                    }
                }
            }
            tbody {
                @for series in series {
                    tr {
                        th scope="row" { (plain(&series.name)) }
                        td { (bytes(series.peak_reserved())) }
                        td { (bytes(series.peak_allocated)) }
                        td { (ratio(series.reserved_over_allocated())) }
                        td { (bytes(series.peak_waiting())) }
                        @if let Some(least) = least {
                            td { (bytes(least.bytes)) }
                            td { (over(series.peak_reserved(), least)) }
                        }
                    }
                }
            }
        }
    }
}

/// Blocks that are described alike.
#[derive(Default)]
struct Maker {
    at_peak: (usize, u64),
    in_least: (usize, u64),
}

/// What the memory is made of, by names and lines of code: at the peak, and in the minimum.
fn makers(trace: &Trace, least: Option<&Least>, chart: &Chart<'_>) -> Markup {
    let describe = |life: &Life| {
        trace.labels().describe(life.block).map_or_else(
            || {
                let size = Size(life.bytes);
                format!("blocks of {size} on stream {}", life.stream)
            },
            |text| cut(&text, TEXT_LIMIT),
        )
    };
    let mut makers: BTreeMap<String, Maker> = BTreeMap::new();
    for life in live_at_peak(&chart.lives) {
        let (count, bytes) = &mut makers.entry(describe(life)).or_default().at_peak;
        (*count, *bytes) = (*count + 1, *bytes + life.bytes);
    }
    let is_in = |life: &&Life| least.is_some_and(|least| least.blocks.contains(&life.block));
    for life in chart.lives.iter().filter(is_in) {
        let (count, bytes) = &mut makers.entry(describe(life)).or_default().in_least;
        (*count, *bytes) = (*count + 1, *bytes + life.bytes);
    }
    let mut rows: Vec<_> = makers.into_iter().collect();
    rows.sort_by_key(|(_, it)| std::cmp::Reverse((it.at_peak.1, it.in_least.1)));
    let cell = |(count, bytes): (usize, u64)| {
        html! { @if count > 0 { (chart.unit.text(bytes)) " in " (grouped(count)) } @else { "–" } }
    };
    html! {
        @if !rows.is_empty() {
            h2 { "What the memory is made of" }
            div.wide {
                table.makers {
                    thead {
                        tr {
                            th scope="col" { "name or line of code" }
                            th scope="col" { "live at the peak, the most first" }
                            @if least.is_some() { th scope="col" { "in the minimum" } }
                        }
                    }
                    tbody {
                        @for (what, maker) in rows.iter().take(ROWS) {
                            tr {
                                th scope="row" { (what) }
                                td { (cell(maker.at_peak)) }
                                @if least.is_some() { td { (cell(maker.in_least)) } }
                            }
                        }
                    }
                }
            }
            p.note {
                "Bytes as asked for, and in how many blocks. The peak is that of the host's order; "
                "the minimum's blocks need not have lived at once there."
                @if rows.len() > ROWS { " " (grouped(rows.len() - ROWS)) " smaller rows are left out." }
                @if trace.labels().is_empty() {
                    " This trace names no lines of code: those of regraph.torch.record_trace do, and of "
                    "regraph_trace::from_capture with the setting stacks."
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
    /// Of the blocks that are drawn, what each is.
    blocks: Vec<String>,
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
        text: text_of(trace, &drawn),
        figures: series.iter().map(figures).collect(),
        names: FIGURES.map(|(name, _)| name),
        blocks: chart
            .drawn_blocks()
            .into_iter()
            .map(|row| chart.about(&chart.lives[row]))
            .collect(),
    };
    let json = serde_json::to_string(&data).expect("numbers and strings are always JSON");
    // Nothing in it may look like the end of the element that it stands in.
    json.replace('<', "\\u003c")
}

/// Operations by their places, in order: as in a file, cut where they are long, with the names of nodes.
fn text_of(trace: &Trace, places: &[usize]) -> Vec<String> {
    let mut texts = Vec::with_capacity(places.len());
    let mut wanted = places.iter().peekable();
    let (mut captures, mut nodes) = (0, 0);
    for (place, operation) in trace.operations().iter().enumerate() {
        let mut name = None;
        match operation {
            Operation::Begin { .. } => (captures, nodes) = (captures + 1, 0),
            Operation::Kernel { .. } | Operation::Node { .. } => {
                name = trace.labels().node_name(captures - 1, nodes);
                nodes += 1;
            }
            _ => {}
        }
        if wanted.next_if_eq(&&place).is_some() {
            let mut text = text(operation);
            if let Some(name) = name {
                text = format!("{text} {}", cut(name, TEXT_LIMIT));
            }
            texts.push(text);
        }
    }
    texts
}

/// An operation as in a file, cut where it is long.
fn text(operation: &Operation) -> String {
    let line = serde_json::to_string(operation).expect("an operation is always JSON");
    cut(&line, TEXT_LIMIT)
}
