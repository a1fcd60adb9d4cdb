//! `regraph-lab sweep`, `import-csv`, `export-csv` and `layout`: exit statuses, messages, output.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_regraph-lab")).args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A number of a JSON object.
fn figure(row: &serde_json::Value, field: &str) -> u64 {
    row[field].as_u64().unwrap()
}

/// A file that this test run owns.
fn scratch(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn bad_usage_is_status_2() {
    for arguments in [&["--sizes", "huge"][..], &["--seed", "-1"], &["x"]] {
        let output = lab(&[&["sweep"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_csv_file_is_refused_and_not_kept() {
    let compressed = scratch("compressed.csv.gz", "").display().to_string();
    fs::write(&compressed, b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc").unwrap();
    for file in ["/dev/zero", "/dev/urandom", "/dev/full", &compressed] {
        let output = lab(&["import-csv", file]);
        assert_eq!(output.status.code(), Some(2), "{file}: {}", stderr(&output));
        assert!(stderr(&output).len() < 2000, "{file}: {}", stderr(&output));
    }
}

#[test]
fn a_sweep_has_24_rows_with_the_promised_fields() {
    let output = lab(&["sweep", "--driver", "sim", "--json", "--seed", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 24);
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut fields: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let mut expected = [
            "streams",
            "operations",
            "alloc",
            "free",
            "join",
            "sizes",
            "nodes",
            "blocks",
            "reserved_bytes",
            "minimum_bytes",
            "ratio",
            "deferred_bytes",
            "own_stream_bytes",
            "peak_allocated_bytes",
            "capture_ns",
            "alloc_ns",
            "free_ns",
            "replay_ns",
        ];
        expected.sort_unstable();
        assert_eq!(fields, expected);
        assert!(row["replay_ns"].is_null());
        assert!(row["reserved_bytes"].as_u64() <= row["own_stream_bytes"].as_u64());
        assert!(row["minimum_bytes"].as_u64() <= row["reserved_bytes"].as_u64());
        assert!(row["ratio"].as_f64() >= Some(1.0));
        assert!(row["own_stream_bytes"].as_u64() <= row["deferred_bytes"].as_u64());
    }
}

#[test]
fn a_sweep_has_other_shapes() {
    for (shape, rows, streams) in [("layers", 9, [2, 4, 8]), ("pipelines", 6, [4, 4, 8])] {
        let output = lab(&["sweep", "--driver", "sim", "--json", "--shape", shape]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        let found: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(found.len(), rows, "{shape}");
        for row in &found {
            assert!(streams.contains(&row["streams"].as_u64().unwrap()), "{row}");
            assert!(
                row["nodes"].as_u64().unwrap() >= 1_500 && row["blocks"].as_u64().unwrap() >= 1_000
            );
            assert!(row["ratio"].as_f64().unwrap() >= 1.0, "{row}");
            assert!(row["reserved_bytes"].as_u64() <= row["deferred_bytes"].as_u64(), "{row}");
        }
        let drawn = |row: &serde_json::Value| [&row["blocks"], &row["nodes"]].map(|it| it.as_u64());
        let drawn: BTreeSet<_> = found.iter().map(drawn).collect();
        assert!(drawn.len() > 3, "{shape}: seeds differ");
    }
    let output = lab(&["sweep", "--driver", "sim", "--shape", "round"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("steps, layers, pipelines"), "{}", stderr(&output));
}

#[test]
fn a_sweep_with_plans_comes_to_the_least_memory() {
    let rows = |sizes: &str| {
        let output =
            lab(&["sweep", "--driver", "sim", "--json", "--plan", "exact", "--sizes", sizes]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let lines = stdout(&output);
        let rows = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        let rows: Vec<serde_json::Value> = rows.collect();
        assert_eq!(rows.len(), 24);
        rows
    };
    for row in rows("fixed") {
        let minimum = figure(&row, "minimum_bytes").next_multiple_of(2 << 20);
        assert_eq!(figure(&row, "planned_minimum_bytes"), minimum, "{row}");
        assert_eq!(figure(&row, "planned_bytes"), minimum, "{row}");
        assert_eq!(row["planned_ratio"], 1.0, "{row}");
        assert!(figure(&row, "mappings") > 0 && row["planning_ns"].is_u64(), "{row}");
        assert!(row["binding_ns"].is_u64() && row["planned_replay_ns"].is_null(), "{row}");
    }
    // In pipelines streams never wait for those behind them.
    for shape in ["layers", "pipelines"] {
        let arguments = ["sweep", "--driver", "sim", "--json", "--plan", "exact", "--shape", shape];
        let output = lab(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        for line in stdout(&output).lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let minimum = figure(&row, "minimum_bytes").next_multiple_of(2 << 20);
            assert_eq!(figure(&row, "planned_bytes"), minimum, "{row}");
        }
    }
    // Blocks below half a unit have memory outside the plan, and outputs have whole units to themselves.
    for row in rows("mixed") {
        let (planned, least) =
            (figure(&row, "planned_bytes"), figure(&row, "planned_minimum_bytes"));
        assert!(least >= figure(&row, "minimum_bytes") && planned >= least, "{row}");
        assert!(row["planned_ratio"].as_f64().unwrap() < 1.25, "{row}");
    }
    let output = lab(&["sweep", "--driver", "sim", "--plan", "all"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("[possible values: none, learned, exact, twice]"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_planning_problem_becomes_a_trace() {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/minimalloc/A.1048576.csv");
    let set = set.to_str().unwrap();
    let path = scratch("imported.jsonl", "").display().to_string();
    let output = lab(&["import-csv", set, "-o", &path, "--unit", "4096"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let told = stdout(&output);
    assert!(told.contains(": 154 blocks, ") && told.contains("at most 4294967296 bytes"), "{told}");

    let written = fs::read_to_string(&path).unwrap();
    let output = lab(&["import-csv", set, "--unit", "4096"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), written.clone()));
    assert_eq!(regraph_trace::read(written.as_bytes()).unwrap().blocks(), 154);
}

#[test]
fn a_problem_that_cannot_be_read_is_status_2() {
    let path = scratch("bad.csv", "id,lower,upper,size\na,3,3,1\n").display().to_string();
    let output = lab(&["import-csv", &path]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "bad.csv: line 2: expected an interval that ends after it begins, found [3, 3)";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert!(output.stdout.is_empty());

    for arguments in [
        &["import-csv"][..],
        &["import-csv", &path, "--unit", "0"],
        &["import-csv", "/nowhere/problem.csv"],
        &["import-csv", env!("CARGO_MANIFEST_DIR")],
    ] {
        assert_eq!(lab(arguments).status.code(), Some(2), "{arguments:?}");
    }
    let good = scratch("same.csv", "id,lower,upper,size\na,3,4,1\n").display().to_string();
    let output = lab(&["import-csv", &good, "-o", &good]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("expected another file"), "{}", stderr(&output));
}

#[test]
fn a_capture_becomes_a_problem_that_gets_a_layout() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/decoder_s1.jsonl");
    let output = lab(&["export-csv", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let problem = scratch("exported.csv", &stdout(&output)).display().to_string();
    let placed = scratch("placed.csv", "").display().to_string();
    let output = lab(&["layout", &problem, "--json", "-o", &placed]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let figures: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((figure(&figures, "minimum"), figure(&figures, "height")), (45 << 20, 45 << 20));
    let placed = fs::read_to_string(&placed).unwrap();
    assert_eq!(placed.lines().count() as u64, figure(&figures, "blocks") + 1);
    let ends = placed.lines().skip(1).map(|line| {
        let numbers: Vec<u64> = line.split(',').skip(3).map(|it| it.parse().unwrap()).collect();
        numbers.iter().sum::<u64>()
    });
    assert_eq!(ends.max(), Some(45 << 20));

    let output = lab(&["layout", &problem]);
    assert!(stdout(&output).contains("minimum    47185920, in "), "{}", stdout(&output));
    let output = lab(&["layout", &problem, "-o", &problem]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("expected another file"), "{}", stderr(&output));
    for command in ["layout", "export-csv", "import-csv"] {
        let bad = scratch("vector.csv", "id,lower,upper,size\na,3:1,4,1\n").display().to_string();
        assert_eq!(lab(&[command, &bad]).status.code(), Some(2), "{command}");
        assert_eq!(lab(&[command, "/nowhere/problem.csv"]).status.code(), Some(2), "{command}");
    }
    let two = r#"{"op":"begin","stream":0,"pool":0}
{"op":"end"}
"#;
    let two = scratch("two.jsonl", &two.repeat(2)).display().to_string();
    let output = lab(&["export-csv", &two]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected one capture, found 2"), "{}", stderr(&output));
}

/// Each way over the least memory and over no plan, which is never above itself.
#[test]
fn compare_prints_a_line_for_each_way() {
    let output = lab(&["compare", "--driver", "sim", "--count", "2", "--each"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = stdout(&output);
    let lines: Vec<Vec<&str>> = printed.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(lines[..2].iter().map(|it| it.len()).collect::<Vec<_>>(), [9, 9], "{printed}");
    let ways: Vec<&str> = lines[3..].iter().map(|it| it[0]).collect();
    assert_eq!(ways, ["none", "learned", "exact", "twice", "heard", "once"], "{printed}");
    assert_eq!(lines[3][3..], ["1.000", "1.000", "0", "of", "2"], "{printed}");
}
