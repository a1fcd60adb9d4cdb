//! Pages that draw a trace's memory: what stands in them, and the command that writes them.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use proptest::prelude::*;
use regraph::engine::Config;
use regraph::settings::Reuse;
use regraph_cli::plot::{render, thin, Series};
use regraph_cli::replay::{replay, replay_sampled, Options, Sample};
use regraph_sim::{SimConfig, SimDriver};
use regraph_trace::{Operation, Trace};
use roxmltree::{Document, Node};

const NAMES: [&str; 4] = ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/traces/{name}.jsonl"))
}

fn read(name: &str) -> Trace {
    regraph_trace::read(BufReader::new(File::open(path(name)).unwrap())).unwrap()
}

fn device() -> Arc<SimDriver> {
    Arc::new(SimDriver::new(SimConfig::default()))
}

fn with(reuse: Reuse) -> Options {
    let mut config = Config::default();
    config.settings.reuse = reuse;
    Options { config, ..Options::default() }
}

fn all_series(trace: &Trace) -> Vec<Series> {
    Reuse::ALL.iter().map(|reuse| Series::run(&device(), trace, &with(*reuse)).unwrap()).collect()
}

/// Every element of that name, with all in it.
fn elements<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find(&open) {
        let end = start + rest[start..].find(&close).unwrap() + close.len();
        found.push(&rest[start..end]);
        rest = &rest[end..];
    }
    found
}

fn chart(page: &str) -> &str {
    elements(page, "svg").into_iter().find(|svg| svg.contains("id=\"chart\"")).unwrap()
}

fn of_class<'a, 'i>(node: Node<'a, 'i>, class: &str) -> Vec<Node<'a, 'i>> {
    let is = |n: &Node<'_, '_>| {
        n.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class))
    };
    node.descendants().filter(is).collect()
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

fn data(page: &str) -> serde_json::Value {
    let script = elements(page, "script")[0];
    let (start, end) = (script.find('>').unwrap() + 1, script.rfind("</").unwrap());
    serde_json::from_str(&script[start..end]).unwrap()
}

/// The corners of a curve: operations from its panel's left edge and height above its axis, both in
/// units of the drawing.
fn corners(curve: Node<'_, '_>) -> Vec<(f64, f64)> {
    let path = curve.attribute("d").unwrap().trim_start_matches("M0 ").trim_end_matches('Z');
    let mut corners = Vec::new();
    let mut bottom = None;
    let mut x = 0.0;
    for step in path.split('H') {
        let mut levels = step.split('V').map(|number| number.parse::<f64>().unwrap());
        let first = levels.next().unwrap();
        match bottom {
            None => bottom = Some(first),
            Some(bottom) => {
                x = first;
                corners.push((x, bottom - levels.next().unwrap()));
            }
        }
    }
    assert!(corners.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{x}");
    corners
}

#[test]
fn pages_of_real_traces_are_whole_and_load_nothing() {
    for name in NAMES {
        let trace = read(name);
        let page = render(name, &trace, &all_series(&trace));
        assert!(page.starts_with("<!DOCTYPE html>"), "{name}");
        for outside in ["http", "src=", "href", "url(", "@import", "fetch(", "<link"] {
            assert!(!page.contains(outside), "{name}: {outside}");
        }
        for part in ["svg", "table", "ul", "h1"].iter().flat_map(|part| elements(&page, part)) {
            Document::parse(part).unwrap_or_else(|error| panic!("{name}: {error}: {part}"));
        }
        assert_eq!(elements(&page, "h1"), [format!("<h1>{name}</h1>")]);
    }
}

#[test]
fn each_policy_has_a_panel_with_a_curve_for_each_figure() {
    for name in NAMES {
        let trace = read(name);
        let series = all_series(&trace);
        let page = render(name, &trace, &series);
        let document = Document::parse(chart(&page)).unwrap();
        let panels = of_class(document.root(), "panel");
        assert_eq!(panels.len(), 3, "{name}");
        // One scale for all: the same height for a byte.
        let mut scales = Vec::new();
        for ((panel, series), reuse) in panels.into_iter().zip(&series).zip(Reuse::ALL) {
            assert_eq!(text(of_class(panel, "name")[0]), reuse.to_string());
            assert_eq!(of_class(panel, "captures").len(), 1);
            for (class, figure) in [
                ("reserved", (|s| s.reserved) as fn(&Sample) -> u64),
                ("allocated", |s| s.allocated),
                ("waiting", |s| s.waiting),
            ] {
                let curves = of_class(panel, class);
                assert_eq!(curves.len(), 1, "{name}: {class}");
                let corners = corners(curves[0]);
                assert!(corners.len() <= 2_000);
                let drawn = corners.iter().map(|corner| corner.1).fold(0.0, f64::max);
                let highest = series.samples.iter().map(figure).max().unwrap() as f64;
                if highest > 0.0 {
                    scales.push((drawn / highest, highest));
                } else {
                    assert_eq!(drawn, 0.0);
                }
            }
        }
        let scale = scales[0].0;
        for (other, highest) in scales {
            assert!(((other - scale) * highest).abs() < 0.02, "{name}: {other} {scale}");
        }
    }
}

#[test]
fn the_tables_peaks_are_those_of_a_replay() {
    for name in NAMES {
        let trace = read(name);
        let page = render(name, &trace, &all_series(&trace));
        let tables = elements(&page, "table");
        let document = Document::parse(tables[0]).unwrap();
        let rows: Vec<_> = document.descendants().filter(|node| node.has_tag_name("tr")).collect();
        assert_eq!(rows.len(), 4, "{name}");
        for (row, reuse) in rows[1..].iter().zip(Reuse::ALL) {
            let replayed = replay(&device(), &trace, &with(*reuse)).unwrap();
            let cells: Vec<_> = row.children().map(text).collect();
            assert_eq!(cells[0], reuse.to_string());
            let bytes: Vec<u64> = row
                .descendants()
                .filter(|node| node.has_tag_name("data"))
                .map(|node| node.attribute("value").unwrap().parse().unwrap())
                .collect();
            assert_eq!(bytes[..2], [replayed.reserved_bytes, replayed.peak_allocated_bytes]);
            let ratio = replayed.reserved_bytes as f64 / replayed.peak_allocated_bytes as f64;
            assert_eq!(cells[3], format!("{ratio:.2}"), "{name}");
        }
    }
}

#[test]
fn sampling_changes_no_placement_and_its_figures_add_up() {
    for name in NAMES {
        let trace = read(name);
        for reuse in Reuse::ALL {
            let plain = replay(&device(), &trace, &with(*reuse)).unwrap();
            let mut samples = Vec::new();
            let sampled =
                replay_sampled(&device(), &trace, &with(*reuse), |s| samples.push(s)).unwrap();
            assert_eq!(sampled.placements, plain.placements, "{name}: {reuse}");
            assert_eq!(sampled.reserved_bytes, plain.reserved_bytes);
            assert_eq!(samples.len(), trace.operations().len());
            assert!(samples.iter().all(|s| s.allocated + s.waiting <= s.reserved), "{name}");
            assert_eq!(samples.last().unwrap().reserved, plain.reserved_bytes);
            assert_eq!(samples.iter().map(|s| s.allocated).max(), Some(plain.peak_allocated_bytes));
        }
    }
}

/// Two streams: a block of the first is freed, and the second asks before and behind its wait.
#[test]
fn what_waits_is_what_the_asking_stream_could_not_take() {
    let kernel = |stream| Operation::Kernel { stream, uses: vec![], programmatic: false };
    let alloc = |id, stream| Operation::Alloc { id, bytes: 4 << 20, stream };
    let trace = Trace::new(vec![
        Operation::Begin { stream: 0, pool: 0 },
        Operation::Wait { stream: 1, on: 0 },
        alloc(0, 0),
        kernel(0),
        Operation::Free { id: 0 },
        kernel(1),
        alloc(1, 1),
        Operation::Wait { stream: 1, on: 0 },
        alloc(2, 1),
        Operation::End {},
    ])
    .unwrap();
    let waiting = |reuse| -> Vec<u64> {
        let series = Series::run(&device(), &trace, &with(reuse)).unwrap();
        series.samples.iter().map(|sample| sample.waiting >> 20).collect()
    };
    assert_eq!(waiting(Reuse::CrossStream), [0, 0, 0, 0, 0, 0, 4, 4, 0, 0]);
    assert_eq!(waiting(Reuse::OwnStream), [0, 0, 0, 0, 0, 0, 4, 4, 4, 0]);
}

#[test]
fn text_is_escaped_and_an_empty_trace_has_a_page() {
    let title = "</script><script>alert(\"&\")</script>";
    let trace = Trace::new(vec![]).unwrap();
    let series = Series { name: title.to_owned(), samples: vec![], peak_allocated: 0 };
    for series in [vec![], vec![series]] {
        let page = render(title, &trace, &series);
        assert!(!page.contains("<script>alert"), "{page}");
        let document = Document::parse(chart(&page)).unwrap();
        for name in of_class(document.root(), "name") {
            assert_eq!(text(name), title);
        }
        assert_eq!(data(&page)["at"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn a_pointer_reads_the_operation_and_the_figures_behind_it() {
    let trace = read("pipeline_s5");
    let series = all_series(&trace);
    let page = render("x", &trace, &series);
    let data = data(&page);
    let at = data["at"].as_array().unwrap();
    assert_eq!(at.len(), trace.operations().len());
    for (index, at) in at.iter().enumerate() {
        let operation = &trace.operations()[at.as_u64().unwrap() as usize - 1];
        let line = serde_json::to_string(operation).unwrap();
        assert!(line.starts_with(data["text"][index].as_str().unwrap().trim_end_matches('…')));
        for (panel, series) in series.iter().enumerate() {
            let sample = series.samples[index];
            let figures = [sample.allocated, sample.waiting, sample.reserved];
            for (figure, bytes) in figures.into_iter().enumerate() {
                assert_eq!(data["figures"][panel][figure][index], bytes);
            }
        }
    }
    assert_eq!(data["names"], serde_json::json!(["allocated", "waiting", "reserved"]));
}

#[test]
fn a_long_traces_page_stays_small_and_keeps_its_peaks() {
    let count = 100_000;
    let trace = Trace::new(
        (0..count / 2)
            .flat_map(|id| [Operation::Alloc { id, bytes: 1, stream: 0 }, Operation::Free { id }])
            .collect(),
    )
    .unwrap();
    let mut samples: Vec<Sample> = (0..u64::from(count))
        .map(|i| Sample { reserved: i, allocated: i * 7919 % 1000, waiting: i % 3 })
        .collect();
    samples[77_777].waiting = 90_000;
    let series = Series { name: "x".to_owned(), samples, peak_allocated: 999 };
    let page = render("long", &trace, &[series]);
    assert!(page.len() < 2 << 20, "{}", page.len());
    let document = Document::parse(chart(&page)).unwrap();
    let high = |class| {
        let corners = corners(of_class(document.root(), class)[0]);
        assert!(corners.len() <= 2_000);
        corners.into_iter().map(|corner| corner.1).fold(0.0, f64::max)
    };
    assert!((high("waiting") / high("reserved") - 90_000.0 / 99_999.0).abs() < 1e-3);
    assert!(data(&page)["at"].as_array().unwrap().contains(&77_778.into()));
}

proptest! {
    #[test]
    fn thinning_keeps_ends_and_extremes(
        values in prop::collection::vec(0..50u64, 0..400),
        limit in 0..120usize,
    ) {
        let kept = thin(&values, limit);
        prop_assert!(kept.len() <= limit.max(4));
        prop_assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert_eq!(kept.first(), (!values.is_empty()).then_some(&0));
        prop_assert_eq!(kept.last().map(|last| last + 1).unwrap_or(0), values.len());
        let seen = || kept.iter().map(|&place| values[place]);
        prop_assert_eq!(seen().max(), values.iter().copied().max());
        prop_assert_eq!(seen().min(), values.iter().copied().min());
        if values.len() <= limit {
            prop_assert_eq!(kept.len(), values.len());
        }
    }

    /// Where a spike stands one is kept within a stretch: several in one stretch are one peak.
    #[test]
    fn thinning_keeps_a_spike_in_its_place(
        spikes in prop::collection::btree_set(0..10_000usize, 1..8),
        deep in any::<bool>(),
    ) {
        let level = if deep { 0 } else { 9 };
        let mut values = vec![5; 10_000];
        for &spike in &spikes {
            values[spike] = level;
        }
        let kept = thin(&values, 202);
        for spike in spikes {
            prop_assert!(
                kept.iter().any(|&k| values[k] == level && k.abs_diff(spike) <= 100),
                "{}", spike
            );
        }
    }
}

fn regraph(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_regraph"));
    command.current_dir(folder).arg("plot").args(arguments).output().unwrap()
}

/// An empty folder that this test owns.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_command_writes_a_page_and_says_where() {
    let folder = folder("plot_writes");
    let file = path("decoder_s1").display().to_string();
    for round in 0..2 {
        let output = regraph(&folder, &[&file]);
        assert_eq!(output.status.code(), Some(0), "{round}: {}", said(&output.stderr));
        assert_eq!(said(&output.stdout), "written to decoder_s1.html\n");
    }
    let page = std::fs::read_to_string(folder.join("decoder_s1.html")).unwrap();
    assert_eq!(elements(&page, "h1"), ["<h1>decoder_s1.jsonl</h1>"]);
    assert_eq!(page.matches("class=\"panel\"").count(), 3);

    let some = ["--policy", "deferred,cross-stream,deferred", "-o", "two.html", "--programmatic"];
    let output = regraph(&folder, &[&[file.as_str()], &some[..], &["lag"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    assert_eq!(said(&output.stdout), "written to two.html\n");
    let page = std::fs::read_to_string(folder.join("two.html")).unwrap();
    let document = Document::parse(chart(&page)).unwrap();
    let names: Vec<_> = of_class(document.root(), "name").into_iter().map(text).collect();
    assert_eq!(names, ["deferred", "cross-stream"]);
}

#[test]
fn the_commands_failures_have_their_statuses() {
    let folder = folder("plot_fails");
    let file = path("decoder_s1").display().to_string();
    std::fs::write(folder.join("bad.jsonl"), "{\"op\":\"allok\"}\n").unwrap();
    std::fs::copy(&file, folder.join("own.html")).unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 2, "TRACE"),
        (&[&file, "--policy", "always"], 2, "expected one of cross-stream, own-stream, deferred"),
        (&["none.jsonl"], 2, "none.jsonl: expected a trace"),
        (&["bad.jsonl"], 2, "bad.jsonl: line 1: expected one of the operations"),
        (&[&file, "-o", "none/page.html"], 1, "none/page.html: "),
        (&["own.html"], 1, "own.html: expected another file than the trace"),
    ];
    for (arguments, status, message) in cases {
        let output = regraph(&folder, arguments);
        let text = said(&output.stderr);
        assert_eq!(output.status.code(), Some(*status), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
    }
}
