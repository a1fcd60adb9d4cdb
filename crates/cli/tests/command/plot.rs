//! Pages that draw a trace's memory: what stands in them, and the command that writes them.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use proptest::prelude::*;
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::plot::{thin, Least, Plot, Series};
use regraph_cli::replay::{replay, replay_sampled, Options, Plan, Sample};
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
    Options { config: Config::default().reuse(reuse), ..Options::default() }
}

fn all_series(trace: &Trace) -> Vec<Series> {
    Reuse::ALL.iter().map(|reuse| Series::run(&device(), trace, &with(*reuse)).unwrap()).collect()
}

/// A page without the minimum.
fn render(title: &str, trace: &Trace, series: &[Series]) -> String {
    Plot { title, trace, series, least: None }.html()
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
                replay_sampled(&device(), &trace, &with(*reuse), |s| samples.push(s), |_| ())
                    .unwrap();
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
    let series = Series { name: title.to_owned(), ..Series::default() };
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
    let series = Series { name: "x".to_owned(), samples, peak_allocated: 999, ..Series::default() };
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

/// Every way to run a trace, and the minimum.
fn all_runs(trace: &Trace) -> (Vec<Series>, Least) {
    let programmatic = Programmatic::default();
    let series = Series::run_all(trace, Reuse::ALL, Plan::ALL, programmatic, |_| ()).unwrap();
    (series, Least::of(trace, programmatic))
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// The rectangles of a panel's blocks: left, upper, right and lower edge.
fn rectangles(panel: Node<'_, '_>) -> Vec<[f64; 4]> {
    let layout = of_class(panel, "layout")[0];
    let is_block =
        |it: &Node<'_, '_>| it.has_tag_name("rect") && it.attribute("class") != Some("held");
    let edges = |it: Node<'_, '_>| {
        let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(it, name));
        [x, y, x + width, y + height]
    };
    layout.descendants().filter(is_block).map(edges).collect()
}

/// Whether two rectangles have more in common than what is lost by rounding to hundredths.
fn overlap(one: &[f64; 4], other: &[f64; 4]) -> bool {
    let common = |low: usize| one[low + 2].min(other[low + 2]) - one[low].max(other[low]);
    common(0) > 0.03 && common(1) > 0.03
}

#[test]
fn live_blocks_do_not_overlap_in_any_panel() {
    for name in ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5", "towers_train_s2"] {
        let trace = read(name);
        let (series, least) = all_runs(&trace);
        let plot = Plot { title: name, trace: &trace, series: &series, least: Some(&least) };
        let page = plot.html();
        let document = Document::parse(chart(&page)).unwrap();
        let panels = of_class(document.root(), "panel");
        assert_eq!(panels.len(), 6, "{name}");
        for panel in panels {
            let policy = text(of_class(panel, "name")[0]);
            let blocks = rectangles(panel);
            // A block may lie on several pieces of memory.
            assert!(blocks.len() >= trace.blocks(), "{name}: {policy}: {}", blocks.len());
            for (index, one) in blocks.iter().enumerate() {
                if let Some(other) = blocks[..index].iter().find(|other| overlap(one, other)) {
                    panic!("{name}: {policy}: {one:?} and {other:?} overlap");
                }
            }
            let held = of_class(panel, "held")[0];
            let top = number(held, "y") - 0.02;
            assert!(blocks.iter().all(|block| block[1] >= top), "{name}: {policy}");
            // The memory in use at most is as high as a block is.
            let least_line = of_class(panel, "least");
            assert_eq!(least_line.len(), 2, "{name}");
            assert!(number(least_line[0], "y1") >= top, "{name}: {policy}");
        }
    }
}

#[test]
fn the_layouts_lie_within_the_memory_that_is_held() {
    for name in NAMES {
        let trace = read(name);
        for series in all_runs(&trace).0 {
            let (height, held) = (series.layout.height(), series.peak_reserved());
            assert!(height <= held, "{name}: {}: {height} of {held}", series.name);
            assert!(height >= series.peak_allocated.min(held), "{name}: {}", series.name);
        }
    }
}

/// A trace whose names need escaping everywhere.
fn named() -> Trace {
    let frame = |filename: &str, line, name: &str| {
        let (filename, name) = (filename.to_owned(), name.to_owned());
        regraph::snapshot::Frame { filename, line, name }
    };
    let trace = Trace::new(vec![
        Operation::Begin { stream: 0, pool: 0 },
        Operation::Alloc { id: 5, bytes: 4 << 20, stream: 0 },
        Operation::Kernel { stream: 0, uses: vec![], programmatic: false },
        Operation::Alloc { id: 6, bytes: 3000, stream: 1 },
        Operation::Free { id: 5 },
        Operation::End {},
    ]);
    let mut labels = regraph_trace::Labels::default();
    labels.name_block(5, "</script><b>\"keys\" & 'values'\u{1}");
    let library = "/usr/lib/python3.11/site-packages/torch/nn/functional.py";
    labels.place_block(5, vec![frame(library, 9, "linear"), frame("a<b>.py", 31, "<lambda>")]);
    labels.name_node(0, 0, "gemm<float, 4>");
    trace.unwrap().with_labels(labels)
}

#[test]
fn blocks_tell_their_names_and_stacks_and_all_of_it_is_escaped() {
    let trace = named();
    let (series, least) = all_runs(&trace);
    let plot = Plot { title: "<x>", trace: &trace, series: &series, least: Some(&least) };
    let page = plot.html();
    assert!(!page.contains("<b>\"keys") && !page.contains('\u{1}'));
    let blocks = data(&page)["blocks"].as_array().unwrap().clone();
    let told: Vec<&str> = blocks.iter().map(|block| block.as_str().unwrap()).collect();
    assert_eq!(told.len(), 2);
    let lines: Vec<&str> = told[0].lines().collect();
    assert_eq!(
        lines,
        [
            "block 5: 4 MiB (4,194,304 bytes) on stream 0",
            "operations 2 to 5",
            "one of the blocks that make the minimum",
            "</script><b>\"keys\" & 'values'\u{fffd}",
            "/usr/lib/python3.11/site-packages/torch/nn/functional.py:9 linear",
            "a<b>.py:31 <lambda>",
        ]
    );
    assert_eq!(told[1].lines().nth(1), Some("from operation 4 on, never freed"));
    let texts = data(&page)["text"].to_string();
    assert!(texts.contains("gemm<float, 4>"), "{texts}");
    // The table leads back to the line that is not the library's.
    let tables = elements(&page, "table");
    let table = Document::parse(tables[1]).unwrap();
    let rows: Vec<String> =
        table.descendants().filter(|it| it.attribute("scope") == Some("row")).map(text).collect();
    assert!(rows[0].ends_with(", a<b>.py:31 <lambda>"), "{rows:?}");

    // In the block itself too, as much as there is room for.
    let drawn = Document::parse(chart(&page)).unwrap();
    let captions: Vec<_> = of_class(drawn.root(), "caption").into_iter().map(text).collect();
    assert!(captions.iter().any(|it| it.starts_with("</script><b>\"keys\"")), "{captions:?}");

    let drawing = plot.svg();
    let document = Document::parse(&drawing).unwrap();
    let titles: Vec<String> = document
        .descendants()
        .filter(|it| it.has_tag_name(("http://www.w3.org/2000/svg", "title")))
        .map(text)
        .collect();
    assert_eq!(titles[0], "<x>");
    assert!(titles[1..].contains(&told[0].to_owned()), "{titles:?}");
    // Viewers that are no browsers know no names of colours.
    for outside in ["href", "url(", "@import", "<script", "var("] {
        assert!(!drawing.contains(outside), "{outside}");
    }
    assert!(drawing.contains("text { fill: #1b1e23; }"), "light");
    assert!(drawing.contains("text { fill: #e9eaec; }"), "dark");
}

#[test]
fn a_capture_of_100_000_blocks_has_a_page_that_says_what_it_leaves_out() {
    let count = 100_000;
    let mut operations = vec![Operation::Begin { stream: 0, pool: 0 }];
    for id in 0..count {
        // A window of live blocks, now and then a large one.
        let bytes = if id % 100 == 0 { 1 << 20 } else { 512 + u64::from(id % 7) * 512 };
        operations.push(Operation::Alloc { id, bytes, stream: (id % 3) as u16 });
        operations.push(Operation::Kernel { stream: 0, uses: vec![], programmatic: false });
        if id >= 50 {
            operations.push(Operation::Free { id: id - 50 });
        }
    }
    operations.push(Operation::End {});
    let trace = Trace::new(operations).unwrap();
    let series = [Series::run(&device(), &trace, &with(Reuse::OwnStream)).unwrap()];
    let least = Least::of(&trace, Programmatic::default());
    let page = Plot { title: "many", trace: &trace, series: &series, least: Some(&least) }.html();
    assert!(page.len() < 4 << 20, "{}", page.len());
    let document = Document::parse(chart(&page)).unwrap();
    let drawn = rectangles(of_class(document.root(), "panel")[0]);
    assert_eq!(drawn.len(), 5_000);
    assert_eq!(data(&page)["blocks"].as_array().unwrap().len(), 5_000);
    assert!(page.contains("own-stream: 95,000 small or short-lived stretches"), "{page:.2000}");
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
    // Three policies, and three plans.
    assert_eq!(page.matches("class=\"panel\"").count(), 6);

    let some = ["--policy", "deferred,cross-stream,deferred", "-o", "two.html", "--programmatic"];
    let output = regraph(&folder, &[&[file.as_str()], &some[..], &["lag"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output.stderr));
    assert_eq!(said(&output.stdout), "written to two.html\n");
    let page = std::fs::read_to_string(folder.join("two.html")).unwrap();
    let document = Document::parse(chart(&page)).unwrap();
    let names: Vec<_> = of_class(document.root(), "name").into_iter().map(text).collect();
    assert_eq!(names, ["deferred", "cross-stream", "learned", "exact", "twice"]);

    let output = regraph(&folder, &[&file, "--plan", "exact,none", "--format", "svg"]);
    assert_eq!(said(&output.stdout), "written to decoder_s1.svg\n", "{}", said(&output.stderr));
    let drawing = std::fs::read_to_string(folder.join("decoder_s1.svg")).unwrap();
    assert_eq!(of_class(Document::parse(&drawing).unwrap().root(), "panel").len(), 4);
    let output = regraph(&folder, &[&file, "--plan", "learned", "-o", "plan.svg"]);
    assert_eq!(said(&output.stdout), "written to plan.svg\n", "{}", said(&output.stderr));
    let drawing = std::fs::read_to_string(folder.join("plan.svg")).unwrap();
    assert_eq!(of_class(Document::parse(&drawing).unwrap().root(), "panel").len(), 1);
    let output = regraph(&folder, &[&file, "--plan", "learned", "-o", "-", "--format", "svg"]);
    assert_eq!(said(&output.stdout), drawing);
    assert!(!folder.join("-").exists());
    let output = regraph(&folder, &[&file, "-o", "LOUD.HTM"]);
    assert_eq!(said(&output.stdout), "written to LOUD.HTM\n", "{}", said(&output.stderr));
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
        (&[&file, "-o", "none/page.html"], 1, "none/page.html: cannot be written: "),
        (&[&file, "-o", "page.png"], 2, "a file of HTML or SVG, not of .png; --format says which"),
        (&["own.html"], 1, "own.html: expected another file than own.html"),
    ];
    for (arguments, status, message) in cases {
        let output = regraph(&folder, arguments);
        let text = said(&output.stderr);
        assert_eq!(output.status.code(), Some(*status), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
    }
}
