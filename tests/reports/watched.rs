//! What an operator sees: messages, metrics, and what is written when memory is short.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use log::Level;
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{with_frames, Config, Engine, HostFrame, PoolConfig, Refusal, Spare};
use regraph::graphs::Pool;
use regraph::plan::Options;
use regraph::regions::{Regions, Tags};
use regraph::settings::Settings;
use regraph::snapshot::Snapshot;
use regraph::{MetricKind, Metrics};
use regraph_sim::Launch;
use serde_json::Value;

use super::{engine, graph, Device};
use crate::common::messages::{listening, messages_of};
use crate::common::{bench, MIB};

/// Asserts that messages with these words come in this order, others between them.
fn says(messages: &[(Level, String)], wanted: &[(Level, &[&str])]) {
    let mut left = messages.iter();
    for (level, words) in wanted {
        let found = left.any(|(of, text)| {
            of == level
                && text.starts_with("device 0: ")
                && words.iter().all(|word| text.contains(word))
        });
        assert!(found, "{words:?} are not said at {level} in their turn: {messages:#?}");
    }
}

pub(super) const DECODE: &str = "pool \"decode\" of region \"graphs\"";

/// Makes calls of most kinds that are told of.
pub(super) fn work(engine: &Arc<Engine<Device>>, stream: StreamHandle) {
    let regions = Regions::new(engine);
    let pool = Pool::new(engine, PoolConfig::default().name("decode").tag("graphs"));
    let graph = graph(engine, &pool, stream);
    drop(pool.lend(stream).unwrap());
    engine.host().set_spare(pool.id(), Spare::Kept).unwrap();
    regions.sleep(&["graphs"]).unwrap();
    regions.wake(&["graphs"]).unwrap();
    pool.suspend_discarding_outputs().unwrap();
    pool.resume().unwrap();
    assert!(pool.allocate(62 * MIB, stream).is_err());
    drop(graph);
}

#[test]
fn blocks_that_were_never_freed_are_told_with_their_sum_and_frames() {
    let frame = |filename: &str, line| HostFrame {
        filename: filename.to_owned(),
        line,
        name: "main".to_owned(),
    };
    let told = |frames: &[HostFrame]| {
        let messages = messages_of(|| {
            let (engine, stream) = engine(64, Config::default());
            let pool = engine.create_pool(PoolConfig::default());
            for frame in frames {
                let allocate = || engine.allocate(pool, MIB, stream).unwrap();
                with_frames(vec![frame.clone()], allocate);
            }
        });
        let warned = messages.into_iter().filter(|(level, _)| *level == Level::Warn);
        warned.map(|(_, text)| text).collect::<Vec<_>>().join("; ")
    };
    let one = told(&[frame("", 0)]);
    assert!(one.contains(": a block was never freed:\n  1 MiB at"), "{one}");
    // Where there is no debug information, frames have names alone.
    assert!(one.ends_with("\n    main"), "{one}");
    let two = told(&[frame("a.rs", 7), frame("a.rs", 7)]);
    assert!(two.contains("2 blocks, 2 MiB in all, were never freed:"), "{two}");
    assert!(two.ends_with("\n    main (a.rs:7)"), "{two}");
}

#[test]
fn what_happens_is_said_with_names_and_units() {
    let messages = messages_of(|| {
        let (engine, stream) = engine(64, Config::default());
        work(&engine, stream);
    });
    use Level::{Debug, Info};
    let wanted: [(Level, &[&str]); 14] = [
        (Info, &["engine ", " begins with the default settings"]),
        (Debug, &[DECODE, "was made"]),
        (Debug, &["capture ", " has begun on stream ", DECODE]),
        (Debug, &[DECODE, "has grown by 4 MiB in ", "and holds 4 MiB"]),
        (
            Info,
            &["capture ", " is verified, in ", "1 nodes and 1 blocks", "hold 4 MiB; it is graph "],
        ),
        (Debug, &[DECODE, "lends memory of its graphs to stream "]),
        (Debug, &["free memory of", DECODE, "is kept"]),
        (Info, &["regions graphs sleep: 4 MiB went back"]),
        (Info, &["regions graphs wake: 4 MiB came back"]),
        (Info, &[DECODE, "is suspended: 4 MiB went back"]),
        (Info, &[DECODE, "is resumed: 4 MiB came back"]),
        (Info, &["memory is short: ", DECODE, "needs 62 MiB"]),
        (Info, &["out of memory: 62 MiB requested on stream "]),
        (Debug, &["graph ", " is released"]),
    ];
    says(&messages, &wanted);
}

#[test]
fn plans_and_refusals_are_said() {
    let messages = messages_of(|| {
        let (engine, stream) = engine(64, Config::default());
        let pool = Pool::new(&engine, PoolConfig::default().plan(Options::default()));
        graph(&engine, &pool, stream);
    });
    let planned = ["is planned: it runs on 4 MiB of pool 0 in ", " mappings, 4 MiB of it new"];
    says(&messages, &[(Level::Info, &planned), (Level::Info, &[" is verified, in "])]);
    let b = bench(Config::default());
    let messages = messages_of(|| {
        let [stream] = b.streams();
        let capture = b.begin(stream);
        b.reuse_without_edge(stream);
        assert!(b.try_finish(stream, capture).is_err());
    });
    says(&messages, &[(Level::Info, &["capture ", " is refused: "])]);
}

/// What a call does behind its wait for the device is said by that call.
#[test]
fn what_follows_a_wait_is_said_at_once() {
    let settings = Settings::default().caching(false);
    let (engine, stream) = engine(64, Config::default().settings(settings));
    let pool = engine.create_pool(PoolConfig::default());
    let block = engine.allocate(pool, 4 * MIB, stream).unwrap();
    engine.driver().launch_kernel(stream, Launch::default()).unwrap();
    let messages = messages_of(|| engine.free(block.id).unwrap());
    says(&messages, &[(Level::Debug, &["has given back 4 MiB"])]);
}

/// A logger may make any call: no lock is held while it runs.
#[test]
fn loggers_may_call_the_library() {
    let (engine, stream) = engine(64, Config::default());
    let (asked, told) = (Arc::clone(&engine), Rc::new(Cell::new(0)));
    let count = Rc::clone(&told);
    listening(
        move |_, _| {
            count.set(count.get() + 1);
            asked.statistics().unwrap();
            for pool in asked.pools().unwrap() {
                // Some are on their way.
                let _ = asked.pool_statistics(pool.id);
            }
            Metrics::of(&asked).unwrap();
        },
        || work(&engine, stream),
    );
    assert!(told.get() > 10);
}

#[test]
fn metrics_are_those_of_the_list() {
    let (engine, stream) = engine(64, Config::default());
    engine.set_memory_limit(Some(32 * MIB)).unwrap();
    let pool = Pool::new(&engine, PoolConfig::default().name("a \"b\"\\\n").tag("graphs"));
    let first = graph(&engine, &pool, stream);
    let _second = graph(&engine, &pool, stream);
    assert!(pool.allocate(128 * MIB, stream).is_err());
    let regions = Regions::new(&engine);
    regions.sleep(Tags::All).unwrap();
    let mut metrics = Metrics::of(&engine).unwrap();
    metrics.add_regions(&regions);
    let text = metrics.to_string();
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(names.insert(rest.split_once(' ').unwrap().0.to_owned()), "{rest} comes twice");
        }
    }
    let listed: BTreeSet<_> = Metrics::LIST.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(names, listed);
    assert_eq!(listed.len(), Metrics::LIST.len());
    for metric in Metrics::LIST {
        let ends = metric.name.ends_with("_total");
        assert_eq!(ends, metric.kind == MetricKind::Counter, "{metric:?}");
    }
    let labels = r#"{device="0",pool="0",name="a \"b\"\\\n",region="graphs"}"#;
    for sample in [
        "regraph_reserved_bytes{device=\"0\"} 0\n".to_owned(),
        "regraph_reserved_bytes_peak{device=\"0\"} 4194304\n".to_owned(),
        "regraph_suspended_bytes{device=\"0\"} 4194304\n".to_owned(),
        "regraph_memory_limit_bytes{device=\"0\"} 33554432\n".to_owned(),
        "regraph_captures_verified_total{device=\"0\"} 2\n".to_owned(),
        "regraph_captures_refused_total{device=\"0\"} 0\n".to_owned(),
        "regraph_out_of_memory_total{device=\"0\"} 1\n".to_owned(),
        "regraph_region_asleep_bytes{device=\"0\",region=\"graphs\"} 4194304\n".to_owned(),
        format!("regraph_pool_graphs{labels} 2\n"),
        format!("regraph_pool_suspended_bytes{labels} 4194304\n"),
    ] {
        assert!(text.contains(&sample), "{sample} is not in {text}");
    }
    let seconds = text.lines().find(|line| line.starts_with("regraph_check_seconds_total{"));
    let (_, seconds) = seconds.unwrap().rsplit_once(' ').unwrap();
    assert!(seconds.parse::<f64>().unwrap() > 0.0);
    // Without a limit there is no such sample.
    engine.set_memory_limit(None).unwrap();
    assert!(!Metrics::of(&engine).unwrap().to_string().contains("limit"));
    drop(first);
}

#[test]
fn refused_captures_are_counted() {
    let (b, [stream], capture) = bench(Config::default()).capturing();
    b.reuse_without_edge(stream);
    assert!(b.try_finish(stream, capture).is_err());
    let counts = b.engine.statistics().unwrap().counts;
    assert_eq!((counts.num_captures_refused, counts.num_captures_verified), (1, 0));
    b.engine.reset_accumulated().unwrap();
    assert_eq!(b.engine.statistics().unwrap().counts.num_captures_refused, 0);
}

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("regraph-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_first_request_that_fails_is_written_to_a_file() {
    let folder = scratch("dump");
    let path = folder.join("oom-%p-%d.json");
    let text = format!("oom_dump:{}", path.display());
    let settings = Settings::parse(&text).unwrap();
    assert_eq!(settings.to_string(), text);
    let (engine, stream) = engine(64, Config::default().settings(settings));
    let pool = Pool::new(&engine, PoolConfig::default().name("weights"));
    let _held = [24, 8, 2].map(|size| pool.allocate(size * MIB, stream).unwrap());
    let messages = messages_of(|| {
        assert!(pool.allocate(48 * MIB, stream).is_err());
        assert!(pool.allocate(60 * MIB, stream).is_err());
    });
    let file = folder.join(format!("oom-{}-0.json", std::process::id()));
    let warned: Vec<_> = messages.iter().filter(|(level, _)| *level == Level::Warn).collect();
    assert!(
        matches!(&warned[..], [(_, text)] if text.contains(&*file.to_string_lossy())),
        "{warned:?}"
    );
    let dump: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let told = &dump["out_of_memory"];
    assert_eq!(told["requested"], 48 * MIB);
    assert_eq!(told["pool"]["name"], "weights");
    assert_eq!(told["pools"][0]["allocated"], 34 * MIB);
    let blocks = told["largest_blocks"].as_array().unwrap();
    let sizes: Vec<_> = blocks.iter().map(|block| block["bytes"].as_u64().unwrap() / MIB).collect();
    assert_eq!(sizes, [24, 8, 2]);
    assert!(told["text"].as_str().unwrap().starts_with("out of memory: 48 MiB requested on "));
    // It is a snapshot as well.
    let snapshot = Snapshot::read_json(&*fs::read(&file).unwrap()).unwrap();
    let reserved: u64 = snapshot.segments.iter().map(|segment| segment.allocated_size).sum();
    assert_eq!(reserved, 34 * MIB);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_dump_that_cannot_be_written_fails_nothing_else() {
    let settings = Settings::default().oom_dump(Some("/nonexistent/folder/dump".to_owned()));
    let (engine, stream) = engine(64, Config::default().settings(settings));
    let pool = Pool::new(&engine, PoolConfig::default());
    let messages = messages_of(|| {
        let error = pool.allocate(128 * MIB, stream).unwrap_err();
        assert!(error.out_of_memory().is_some());
    });
    says(&messages, &[(Level::Warn, &["/nonexistent/folder/dump, the dump, cannot be written: "])]);
}

/// What graphs keep is told from what waits for work, and the largest are named.
#[test]
fn out_of_memory_names_holders_and_what_waits() {
    let (engine, stream) = engine(64, Config::default());
    let other = engine.driver().create_stream().unwrap();
    let graphs = Pool::new(&engine, PoolConfig::default().name("decode"));
    let weights = Pool::new(&engine, PoolConfig::default().name("weights"));
    let _empty = Pool::new(&engine, PoolConfig::default().name("empty"));
    let _graph = graph(&engine, &graphs, stream);
    let _held = weights.allocate(16 * MIB, stream).unwrap();
    let freed = graphs.allocate(8 * MIB, stream).unwrap();
    // Work that has not completed uses it.
    engine.driver().launch_kernel(stream, Launch::default()).unwrap();
    drop(freed);
    let mark = engine.driver().create_stream().unwrap();
    engine.driver().begin_capture(mark, CaptureMode::Relaxed).unwrap();
    let capture = engine.begin_capture(graphs.id(), mark).unwrap();
    let error = graphs.allocate(48 * MIB, other).unwrap_err();
    let report = error.out_of_memory().unwrap();
    assert_eq!(report.kept_by_graphs, 4 * MIB);
    assert_eq!(report.blocks[0].bytes, 16 * MIB);
    let names: Vec<_> = report.holders.iter().map(|it| it.pool.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["weights", "decode"]);
    assert!(report.waits.iter().all(|range| range.refusal != Some(Refusal::UsedByGraph)));
    let text = report.to_string();
    for words in [
        "\n  the largest pools: pool \"weights\" holds 16 MiB: 16 MiB allocated, 0 graphs",
        "\n  the largest blocks: 16 MiB at 0x",
        "4 MiB free that its graphs use as long as they live",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    engine.abandon_capture(capture).unwrap();
    let error = weights.allocate(1 << 50, stream).unwrap_err();
    assert!(error.to_string().contains("; that is more than the device has\n"), "{error}");
}

#[test]
fn figures_are_shown_in_units() {
    let (engine, stream) = engine(64, Config::default());
    let pool = Pool::new(&engine, PoolConfig::default());
    let held = pool.allocate(3 * MIB, stream).unwrap();
    drop(pool.allocate(MIB, stream).unwrap());
    let statistics = pool.statistics().unwrap();
    assert_eq!(statistics.to_string(), "6 MiB reserved; 1 blocks of 3 MiB, 4 MiB at most");
    let table = engine.statistics().unwrap().to_string();
    let line = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("blocks"), "blocks 1 2 2 1");
    assert_eq!(line("allocated bytes"), "allocated bytes 3 MiB 4 MiB 4 MiB 1 MiB");
    assert!(table.lines().last().unwrap().starts_with("driver calls: "));
    drop(held);
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(Path::new(crate::ROOT).join(path)).unwrap()
}

/// The rows of the table of a page that begins with `head`, as cells.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let (_, table) = page.split_once(head).unwrap_or_else(|| panic!("no table begins with {head}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let row = row.strip_prefix('|').unwrap().strip_suffix('|').unwrap();
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn the_pages_list_of_metrics_is_the_codes() {
    assert!(read("OPERATING.md").contains(&Metrics::table()), "put in: {}", Metrics::table());
}

/// Each quoted name of an environment variable in code that is shipped.
fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    const BEGINS: [&str; 9] =
        ["REGRAPH_", "PYTORCH_", "TMS_", "VLLM_", "NCCL_", "NVTX_", "CUDA_", "XDG_", "TORCH_NCCL_"];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            variables(&path, found);
            continue;
        }
        let code = path.extension().is_some_and(|ending| ending == "rs" || ending == "py");
        if !code {
            continue;
        }
        for word in fs::read_to_string(&path).unwrap().split('"') {
            let upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let named =
                BEGINS.iter().any(|begin| word.starts_with(begin)) && word.chars().all(upper);
            // Constants of C, which messages for its callers name.
            let constant = ["REGRAPH_ERROR_", "REGRAPH_BACKUP_"];
            if (named || word == "CXX") && !constant.iter().any(|begin| word.starts_with(begin)) {
                found.insert(word.to_owned());
            }
        }
    }
}

#[test]
fn the_pages_table_of_settings_and_variables_is_the_codes() {
    let page = read("OPERATING.md");
    let rows = table(&page, "| variable or setting | default | in Python | what it says |");
    let name = |row: &[String]| row[0].trim_matches('`').to_owned();
    let (told, settings): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| !name(row).contains(|c: char| c.is_ascii_lowercase()));
    let mut found = BTreeSet::new();
    for folder in [
        "src",
        "capi/src",
        "crates/driver/src",
        "crates/plugin/src",
        "python/src",
        "python/regraph",
    ] {
        variables(&Path::new(crate::ROOT).join(folder), &mut found);
    }
    assert_eq!(told.iter().map(|row| name(row)).collect::<BTreeSet<_>>(), found);
    assert_eq!(told.len(), found.len(), "one comes twice");
    // Words stand for what the text cannot say.
    let value = |cell: &str| {
        cell.strip_prefix('`').and_then(|it| it.strip_suffix('`')).unwrap_or_default().to_owned()
    };
    let (rust, python) = (Settings::default(), regraph_plugin::of_hosts());
    let expected: Vec<_> = rust
        .values()
        .zip(python.values())
        .map(|((key, rust), (_, python))| {
            let other = if python == rust { String::new() } else { python };
            (key.to_owned(), rust, other)
        })
        .collect();
    let told: Vec<_> =
        settings.iter().map(|row| (name(row), value(&row[1]), value(&row[2]))).collect();
    assert_eq!(told, expected);
}
