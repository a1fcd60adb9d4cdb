//! What a profiler is shown by NVTX, with a library in a profiler's place that writes it down.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, PoolConfig};
use regraph::graphs::{Capture, Error, Pool};
use regraph::plan::Options;
use regraph::settings::Settings;

use super::watched::{work, DECODE};
use super::{engine, graph};
use crate::common::bench;
use crate::common::messages::messages_of;

/// The library that a program loads is the same for all that the process does: each case has a process of its own.
const CASE: &str = "REGRAPH_PROFILED";

/// The compiled library, in a folder of its own.
fn library() -> PathBuf {
    let folder = env::temp_dir().join(format!("regraph-profiler-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let library = folder.join("profiler.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/profiler.c");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut compile = Command::new(compiler);
    compile.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    assert!(compile.arg(&library).arg(source).status().expect("a C compiler").success());
    library
}

/// What the profiler is shown in a case, a line each; `None` where its library is not even loaded.
fn shown_in(case: &str, library: &Path) -> Option<Vec<String>> {
    let profile = library.with_file_name(case);
    let test = "reports::profiler::in_a_process_of_its_own";
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    child.env(CASE, case).env("PROFILE", &profile).env("NVTX_INJECTION64_PATH", library);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(profile).ok().map(|text| text.lines().map(str::to_owned).collect())
}

/// The texts of marks, and how many ranges have each text: each was ended, once.
fn marks_and_ranges(lines: &[String]) -> (Vec<String>, BTreeMap<String, usize>) {
    let (mut marks, mut ranges) = (Vec::new(), BTreeMap::<String, usize>::new());
    let mut open = BTreeSet::new();
    for line in lines {
        let mut parts = line.splitn(3, ' ');
        let (what, id, text) =
            (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let named = || text.strip_prefix("device 0: ").unwrap_or_else(|| panic!("{line}"));
        match what {
            "mark" => marks.push(named().to_owned()),
            "start" => {
                assert!(open.insert(id.to_owned()), "{line}");
                *ranges.entry(named().to_owned()).or_default() += 1;
            }
            "end" => assert!(open.remove(id), "{line} ends nothing"),
            _ => panic!("{line}"),
        }
    }
    assert!(open.is_empty(), "{open:?} are never ended");
    (marks, ranges)
}

/// A text with all numbers alike, and pools too.
fn plain(text: &str) -> String {
    let text = text.replace(DECODE, "pool 1");
    let number = |word: &str| match word.starts_with(|first: char| first.is_ascii_digit()) {
        true => word
            .trim_start_matches(|it: char| it.is_ascii_hexdigit() || "x…".contains(it))
            .to_owned(),
        false => word.to_owned(),
    };
    text.split(' ').map(number).collect::<Vec<_>>().join(" ")
}

/// Makes the calls of a case.
#[test]
fn in_a_process_of_its_own() {
    let Ok(case) = env::var(CASE) else { return };
    let shown = Settings::parse("nvtx:True").unwrap();
    let config = Config::default().settings(shown.clone());
    match case.as_str() {
        "calls" => {
            let (engine, stream) = engine(64, config);
            work(&engine, stream);
            let planned = Pool::new(&engine, PoolConfig::default().plan(Options::default()));
            drop(graph(&engine, &planned, stream));
            planned.compact().unwrap();
        }
        "ends" => {
            // Judged on a thread of its own, refused, abandoned by a panic, and under way at the engine's end.
            let (engine, stream) = engine(64, config.clone().judge_aside(0));
            let pool = Pool::new(&engine, PoolConfig::default());
            drop(graph(&engine, &pool, stream));
            let panics = |_: &Capture<_>| -> Result<(), Error> { panic!("the program's own") };
            let run = || engine.capture(stream, &pool, CaptureMode::Relaxed, panics).map(drop);
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            let driver = Arc::clone(engine.driver());
            driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
            engine.begin_capture(pool.id(), stream).unwrap();
            drop((pool, engine));
            let (b, [stream], capture) = bench(config).capturing();
            b.reuse_without_edge(stream);
            assert!(b.try_finish(stream, capture).is_err());
        }
        "off" => {
            let (engine, stream) = engine(64, Config::default());
            work(&engine, stream);
        }
        "broken" => {
            let messages = messages_of(|| drop(engine(64, config)));
            let warned = messages.iter().filter(|(level, _)| *level == log::Level::Warn);
            let warned: Vec<_> = warned.map(|(_, text)| text.as_str()).collect();
            let [text] = warned[..] else { panic!("{messages:?}") };
            assert!(text.starts_with("device 0: no profiler is shown what happens: "), "{text}");
            assert!(text.contains("cannot be loaded: "), "{text}");
        }
        case => panic!("{case}"),
    }
}

#[test]
fn a_profiler_is_shown_what_is_said_and_how_long_it_takes() {
    let library = library();
    let (marks, ranges) = marks_and_ranges(&shown_in("calls", &library).unwrap());
    for words in [
        "begins with nvtx:True",
        "is verified, in ",
        "has grown by 4 MiB",
        "regions graphs sleep: 4 MiB went back",
        "is planned: it runs on 4 MiB",
        "out of memory: 62 MiB requested on stream ",
    ] {
        assert!(marks.iter().any(|text| text.contains(words)), "{words} is not in {marks:#?}");
    }
    // All that the page says, and nothing else.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../OPERATING.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| range | ").expect("a table of ranges");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let listed: BTreeSet<String> =
        rows.map(|row| plain(row.split('`').nth(1).expect("a range"))).collect();
    let seen: BTreeSet<String> = ranges.keys().map(|text| plain(text)).collect();
    assert_eq!(listed, seen, "{ranges:#?}");

    let (marks, ranges) = marks_and_ranges(&shown_in("ends", &library).unwrap());
    assert!(marks.iter().any(|text| text.contains(" is refused: ")), "{marks:#?}");
    let captures: usize = ranges
        .iter()
        .filter_map(|(text, count)| text.starts_with("capture ").then_some(*count))
        .sum();
    let verdicts: usize = ranges
        .iter()
        .filter_map(|(text, count)| text.starts_with("verdict on ").then_some(*count))
        .sum();
    assert_eq!((captures, verdicts), (4, 2), "{ranges:#?}");

    assert_eq!(shown_in("off", &library), None);
    assert_eq!(shown_in("broken", &library.with_file_name("missing.so")), None);
    fs::remove_dir_all(library.parent().unwrap()).unwrap();
}
