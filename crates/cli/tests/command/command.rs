//! The command's manners: exit statuses, messages, output.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use regraph::driver::HostApi;
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::settings::Settings;
use regraph_sim::{SimConfig, SimDriver};

pub fn regraph(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_regraph")).args(arguments).output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn trace(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    path.join(format!("{name}.jsonl")).display().to_string()
}

/// A file that this test run owns.
pub fn scratch(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path
}

pub fn replay_sim(arguments: &[&str]) -> Output {
    regraph(&[&["replay", "--driver", "sim"], arguments].concat())
}

#[test]
fn bad_usage_is_status_2() {
    let file = trace("decoder_s1");
    let cases: &[&[&str]] = &[
        &[],
        &["reply"],
        &["replay"],
        &["replay", &file, &file],
        &["replay", &file, "--driver", "rocm"],
        &["replay", &file, "--policy", "always"],
        &["replay", &file, "--programmatic", "maybe"],
        &["replay", &file, "--placements"],
        &["plan", &file, "--mapping-us", "-1"],
        &["plan", &file, "--mapping-us", "nan"],
        &["plan", &file, "--mapping-us", "1e300"],
        &["plan", &file, "--without", "none"],
        &["replay", &file, "--placements", "-"],
        &["replay", &file, "--certificate", "-"],
        &["snapshot", &data("after.pickle"), "--pickle", "-"],
        &["certify", "-", "-"],
        &["snapshot", "-", "-"],
        &["plan", &file, "--worth-percent", "-1"],
        &["plan", &file, "--programmatic", "maybe"],
    ];
    for arguments in cases {
        let output = regraph(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
    let policy = regraph(&["replay", &file, "--policy", "always"]);
    let expected = "expected one of cross-stream, own-stream, deferred";
    assert!(stderr(&policy).contains(expected), "{}", stderr(&policy));
}

#[test]
fn help_and_version_are_status_0() {
    for arguments in [&["--help"][..], &["--version"], &["replay", "--help"]] {
        let output = regraph(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn a_bad_file_is_status_2_with_its_line() {
    let begin = "{\"op\":\"begin\",\"stream\":0,\"pool\":0}\n";
    let cases = [
        ("op", "{\"op\":\"allok\"}\n".to_owned(), "line 1: expected one of the operations"),
        ("cut", begin.to_owned(), "line 2: expected `end` of the capture"),
        (
            "zero",
            format!("{begin}{{\"op\":\"alloc\",\"id\":0,\"bytes\":0,\"stream\":0}}\n"),
            "line 2: expected 1 to 2^60 - 1 bytes for block 0, found 0 bytes",
        ),
        ("binary", "\u{0}\u{1}".to_owned(), "line 1: expected a JSON object with `op`"),
    ];
    for (name, text, expected) in cases {
        let path = scratch(&format!("bad_{name}.jsonl"), &text);
        let output = regraph(&["replay", path.to_str().unwrap()]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains(&format!("bad_{name}.jsonl: {expected}")), "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_missing_file_or_a_folder_is_status_2() {
    for path in ["/nowhere/trace.jsonl", env!("CARGO_MANIFEST_DIR")] {
        let output = regraph(&["replay", path]);
        assert_eq!(output.status.code(), Some(2), "{path}");
        assert!(stderr(&output).contains(path), "{}", stderr(&output));
    }
}

#[test]
fn a_trace_without_a_capture_is_status_2() {
    for path in ["/dev/null", &scratch("empty.jsonl", "").display().to_string()] {
        for command in ["replay", "plan", "plot", "graph"] {
            let output = regraph(&[command, path]);
            assert_eq!(output.status.code(), Some(2), "{command} {path}");
            assert!(stderr(&output).contains("it has no capture"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_dash_is_standard_input() {
    let run = |input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_regraph"))
            .args(["replay", "-", "--driver", "sim"])
            .stdin(Stdio::from(File::open(input).unwrap()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.wait().unwrap();
        child.wait_with_output().unwrap()
    };
    let output = run(&trace("decoder_s1"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("trace      standard input\n"), "{}", stdout(&output));
    let output = run("/dev/null");
    assert!(stderr(&output).contains("standard input: expected a trace"), "{}", stderr(&output));
}

#[test]
fn a_driver_that_is_not_there_is_status_1_and_no_panic() {
    let output = Command::new(env!("CARGO_BIN_EXE_regraph"))
        .args(["replay", &trace("decoder_s1"), "--driver", "cuda"])
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn a_level_of_messages_that_there_is_not_is_told_once() {
    for (said, told) in [("loud", 1), ("DEBUG", 0), ("", 0)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_regraph"));
        command.args(["replay", &trace("decoder_s1")]).env("REGRAPH_LOG", said);
        let message = stderr(&command.output().unwrap());
        let wrong = "regraph: REGRAPH_LOG: expected off, error, warn, info or debug, found `loud`";
        assert_eq!(message.matches(wrong).count(), told, "{message}");
    }
}

#[test]
fn real_traces_run_and_are_verified() {
    // Peak allocated and provable minimum, in MiB.
    for (name, nodes, blocks, peak, minimum) in [
        ("decoder_s1", 209, 272, 45, 45.0),
        ("moe_s6", 569, 600, 61, 127.03125),
        ("googlenet_s4", 259, 379, 214, 214.411_132_812_5),
        ("pipeline_s5", 438, 432, 52, 216.0),
    ] {
        let output = replay_sim(&[&trace(name), "--json"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        let summary: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let figure = |field: &str| summary[field].as_u64().unwrap();
        assert_eq!(summary["driver"], "sim");
        assert_eq!(summary["policy"], "cross-stream");
        assert_eq!(summary["programmatic"], "auto");
        assert_eq!(figure("captured_again"), 0, "{name}");
        assert_eq!(summary["verified"], true, "{name}");
        assert_eq!((figure("captures"), figure("nodes")), (1, nodes), "{name}");
        assert_eq!(figure("blocks"), blocks, "{name}");
        assert_eq!((figure("peak_allocated_bytes") + (1 << 19)) >> 20, peak, "{name}");
        assert_eq!(figure("minimum_bytes") as f64 / f64::from(1 << 20), minimum, "{name}");
        let ratio = figure("reserved_bytes") as f64 / figure("minimum_bytes") as f64;
        assert!((summary["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{name}");
        assert!((1.0..1.5).contains(&ratio), "{name}: {summary}");
        assert!(figure("reserved_bytes") < figure("total_bytes"), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn device_files_are_refused_and_not_kept() {
    let trace = trace("moe_s6");
    for device in ["/dev/zero", "/dev/urandom", "/dev/full"] {
        let cases: &[&[&str]] = &[
            &["replay", device],
            &["plan", &trace, device],
            &["certify", &trace, device],
            &["certify", device, &trace],
            &["snapshot", device],
        ];
        for arguments in cases {
            let output = regraph(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
            let lines = stderr(&output).lines().count();
            assert!(
                lines > 0 && stderr(&output).len() < 2000,
                "{arguments:?}: {}",
                stderr(&output)
            );
        }
    }
}

#[test]
fn a_certificate_is_written_and_holds_and_a_changed_one_does_not() {
    let path = scratch("certificate.json", "");
    let file = path.to_str().unwrap();
    let output = replay_sim(&[&trace("moe_s6"), "--certificate", file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("minimum    127.0 MiB, reserved 1."), "{}", stdout(&output));
    let holds = regraph(&["certify", &trace("moe_s6"), file]);
    assert_eq!(holds.status.code(), Some(0), "{}", stderr(&holds));
    let said = "can use less than 133201920 bytes (127.0 MiB): these ";
    assert!(stdout(&holds).contains(said), "{}", stdout(&holds));

    let other = regraph(&["certify", &trace("googlenet_s4"), file]);
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("nothing is proven of capture 0"), "{}", stderr(&other));
    let text = std::fs::read_to_string(&path).unwrap();
    let more = text.replace("\"minimum_bytes\":133201920", "\"minimum_bytes\":133201921");
    let more = scratch("certificate_more.json", &more);
    let refused = regraph(&["certify", &trace("moe_s6"), more.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    for text in ["", "{}", "[]", &text.replace("\"version\":2", "\"version\":1")] {
        let bad = scratch("certificate_bad.json", text);
        let bad = regraph(&["certify", &trace("moe_s6"), bad.to_str().unwrap()]);
        assert_eq!(bad.status.code(), Some(2), "{text}: {}", stderr(&bad));
        assert!(stderr(&bad).contains("certificate"), "{text}: {}", stderr(&bad));
    }
}

#[test]
fn no_output_takes_the_place_of_an_input_or_of_another() {
    let text = std::fs::read_to_string(trace("decoder_s1")).unwrap();
    let own = scratch("own.jsonl", &text).display().to_string();
    let new = scratch("new.jsonl", "").display().to_string();
    std::fs::remove_file(&new).unwrap();
    let snapshot = scratch("own.json", "{\"segments\": [], \"device_traces\": []}");
    let snapshot = snapshot.display().to_string();
    for arguments in [
        &["replay", &own, "--placements", &own][..],
        &["replay", &own, "--certificate", &own],
        &["replay", &own, "--placements", &new, "--certificate", &new],
        &["snapshot", &snapshot, "--pickle", &snapshot],
    ] {
        let output = regraph(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains("expected another file than "), "{}", stderr(&output));
    }
    assert_eq!(std::fs::read_to_string(&own).unwrap(), text);
    assert!(std::fs::read_to_string(&snapshot).unwrap().starts_with("{\"segments\""));
    // What cannot be written is known before the run.
    let output = replay_sim(&[&own, "--placements", "/nowhere/at/all.jsonl"]);
    assert!(stderr(&output).contains("/nowhere/at/all.jsonl: cannot be written: "));
    let [one, other] = ["/dev/null"; 2];
    let output = replay_sim(&[&own, "--placements", one, "--certificate", other]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// What a command prints that reads a file from standard input.
fn piped(arguments: &[&str], file: &str) -> Output {
    let input = File::open(file).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_regraph"));
    command.args(arguments).stdin(input).output().unwrap()
}

#[test]
fn certificates_and_snapshots_may_come_from_standard_input() {
    let file = scratch("piped.json", "").display().to_string();
    assert!(replay_sim(&[&trace("moe_s6"), "--certificate", &file]).status.success());
    let certified = regraph(&["certify", &trace("moe_s6"), &file]);
    assert_eq!(stdout(&piped(&["certify", &trace("moe_s6"), "-"], &file)), stdout(&certified));
    let snapshot = data("after.pickle");
    let told = stdout(&regraph(&["snapshot", &snapshot]));
    assert_eq!(stdout(&piped(&["snapshot", "-"], &snapshot)), told);
}

#[test]
fn policies_have_hyphens_or_underscores() {
    let run = |name: &str| {
        let output = replay_sim(&[&trace("decoder_s1"), "--json", "--policy", name]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        let summary: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        summary["policy"].as_str().unwrap().to_owned()
    };
    assert_eq!((run("own-stream"), run("own_stream")), ("own-stream".into(), "own-stream".into()));
}

#[test]
fn real_traces_keep_their_tags_under_every_policy() {
    for name in ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"] {
        for policy in ["cross-stream", "own-stream", "deferred"] {
            let output = replay_sim(&[&trace(name), "--tags", "--policy", policy]);
            assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
            assert!(stdout(&output).contains("verified"), "{}", stdout(&output));
        }
    }
}

#[test]
fn placements_are_a_line_a_block() {
    let path = scratch("placements.jsonl", "");
    let output = replay_sim(&[&trace("pipeline_s5"), "--placements", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 432);
    for (index, line) in text.lines().enumerate() {
        let placement: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(placement["id"], index);
        assert_eq!(placement["address"].as_u64().unwrap() % 512, 0);
        assert!(placement["bytes"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_reuse_that_rests_on_a_programmatic_edge_is_refused_or_captured_again() {
    let text = r#"{"op":"begin","stream":0,"pool":0}
{"op":"alloc","id":0,"bytes":4194304,"stream":0}
{"op":"kernel","stream":0,"uses":[0]}
{"op":"free","id":0}
{"op":"alloc","id":1,"bytes":4194304,"stream":0}
{"op":"kernel","stream":0,"uses":[1],"programmatic":true}
{"op":"free","id":1}
{"op":"kernel","stream":0}
{"op":"alloc","id":2,"bytes":4194304,"stream":0}
{"op":"kernel","stream":0,"uses":[2]}
{"op":"end"}
"#;
    let path = scratch("programmatic.jsonl", text);
    let path = path.to_str().unwrap();
    let run = |policy: &[&str]| {
        let output = replay_sim(&[&[path, "--json", "--tags"], policy].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let summary: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        let figure = |field: &str| summary[field].as_u64().unwrap();
        (figure("captured_again"), figure("reserved_bytes"), figure("minimum_bytes"))
    };
    assert_eq!(run(&[]), (1, 8 << 20, 8 << 20));
    assert_eq!(run(&["--plan", "exact"]).2, 8 << 20);
    assert_eq!(run(&["--plan", "twice"]).2, 8 << 20);
    assert_eq!(run(&["--programmatic", "lag"]).0, 0);
    let denied = replay_sim(&[path, "--programmatic", "deny"]);
    assert_eq!(denied.status.code(), Some(3), "{}", stderr(&denied));
}

#[test]
fn an_unread_output_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_regraph"))
        .args(["replay", &trace("decoder_s1"), "--driver", "sim"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

/// The layout of the mixture's training step is found in the usual time only with more memory.
#[test]
fn a_layout_may_be_searched_for_longer() {
    let planned = |times: &str| {
        let file = trace("moe_train_s6");
        let output = replay_sim(&[&file, "--json", "--plan", "learned", "--plan-search", times]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let row: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        row["reserved_bytes"].as_u64().unwrap()
    };
    assert!(planned("2") < planned("1"));
    let none = replay_sim(&[&trace("pipeline_s5"), "--plan-search", "0"]);
    assert_eq!(none.status.code(), Some(2));
}

/// Blocks of other sizes: half of them, and more than any block may have.
#[test]
fn a_trace_may_be_scaled() {
    let total = |percent: &str| {
        let output = replay_sim(&["--json", "--scale", percent, &trace("decoder_s1")]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let row: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        row["total_bytes"].as_u64().unwrap()
    };
    assert_eq!(total("50"), total("100") / 2);
    let large = scratch(
        "large.jsonl",
        "{\"op\":\"begin\",\"stream\":0,\"pool\":0}\n\
         {\"op\":\"alloc\",\"id\":0,\"bytes\":1000000000000,\"stream\":0}\n{\"op\":\"end\"}\n",
    );
    let output = replay_sim(&["--scale", "4000000000", large.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--scale 4000000000: operation 1"), "{}", stderr(&output));
}

/// A stream is set back before the end of a block that took over pages: what it allocates then begins elsewhere.
#[test]
fn a_planned_capture_with_a_set_back_is_accepted() {
    let output = replay_sim(&["--plan", "exact", &trace("planned_after_set_back")]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn a_snapshot_is_summed_up_and_becomes_a_pickle() {
    let text = r#"{"segments": [{"device": 0, "address": 139637976727552, "total_size": 2097152,
        "allocated_size": 1048576, "active_size": 1048576, "requested_size": 1048000, "stream": 0,
        "segment_type": "large", "blocks": [
            {"address": 139637976727552, "size": 1048576, "requested_size": 1048000,
             "state": "active_allocated"},
            {"address": 139637977776128, "size": 1048576, "requested_size": 0, "state": "inactive",
             "waiting": [{"stream": 16, "marker": 32, "reason": "not proven"}]}]}],
        "device_traces": [[]]}"#;
    let path = scratch("snapshot.json", text);
    let pickle = scratch("snapshot.pickle", "");
    let output =
        regraph(&["snapshot", path.to_str().unwrap(), "--pickle", pickle.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let message = stdout(&output);
    let row = message.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["0", "large", "1", "2.00", "1.00", "1.00", "0.00"]);
    assert!(message.contains("not proven, stream 0x10, marker 0x20"), "{message}");
    let pickled = std::fs::read(pickle).unwrap();
    assert_eq!((&pickled[..2], pickled.last()), (&b"\x80\x02"[..], Some(&b'.')));

    let untrue = scratch("untrue.json", &text.replace("2097152", "2097153"));
    for path in [untrue, trace("decoder_s1").into(), "/nowhere/snapshot.json".into()] {
        let output = regraph(&["snapshot", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("expected a snapshot: "), "{}", stderr(&output));
    }
}

#[test]
fn a_dump_of_a_request_that_failed_says_what_failed() {
    let path = scratch("oom.json", "");
    let settings = Settings::default().oom_dump(Some(path.display().to_string()));
    let driver = SimDriver::new(SimConfig { total_bytes: 64 << 20, ..SimConfig::default() });
    let stream = driver.create_stream().unwrap();
    let engine = Engine::new(driver, Config::default().settings(settings));
    let pool = engine.create_pool(PoolConfig::default());
    let held = engine.allocate(pool, 32 << 20, stream).unwrap();
    let error = engine.allocate(pool, 64 << 20, stream).unwrap_err().to_string();
    engine.free(held.id).unwrap();
    let told = stdout(&regraph(&["snapshot", path.to_str().unwrap()]));
    assert!(told.starts_with(&format!("{error}\n\ndevice ")), "{told}");
    assert!(
        told.contains("32.00") && told.lines().any(|line| line.ends_with("free  (MiB)")),
        "{told}"
    );
}

/// A file of `tests/data`.
fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).display().to_string()
}

#[test]
fn pytorchs_pickles_are_read() {
    let rows = |name: &str| -> Vec<Vec<String>> {
        let output = regraph(&["snapshot", &data(name)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let rows = stdout(&output);
        rows.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    assert_eq!(rows("before.pickle")[1], ["0", "large", "2", "8.00", "6.00", "0.00", "2.00"]);
    assert_eq!(rows("after.pickle")[1], ["0", "large", "3", "16.00", "12.00", "4.00", "0.00"]);
    // What this command writes is read too.
    let again = scratch("again.pickle", "").display().to_string();
    assert!(regraph(&["snapshot", &data("after.pickle"), "--pickle", &again]).status.success());
    assert_eq!(
        stdout(&regraph(&["snapshot", &again])),
        stdout(&regraph(&["snapshot", &data("after.pickle")]))
    );
}

#[test]
fn two_snapshots_have_a_difference_that_names_lines_of_code() {
    let output = regraph(&["snapshot", &data("before.pickle"), &data("after.pickle")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    let row: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(row, ["0", "large", "+1", "+8.00", "+6.00", "+4.00", "-2.00"]);
    let changes: Vec<String> = lines[4..]
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        changes,
        [
            "+8.00 +1 blocks of 8388608 bytes, from where is not recorded",
            "-4.00 -1 train.py:8 step",
            "+2.00 +1 model.py:31 forward",
        ]
    );
    let same = stdout(&regraph(&["snapshot", &data("after.pickle"), &data("after.pickle")]));
    assert!(same.ends_with("\nno line of code holds more or less\n"), "{same}");
}

#[test]
fn a_pickle_of_something_else_is_status_2() {
    // A list of two numbers, the beginning of a pickle, and one that would run a program.
    // A text that is named so often that it would take more memory than there is.
    let often = [
        b"\x80\x02X\0\0\x10\0".as_slice(),
        &[b'x'; 1 << 20],
        b"q\0](",
        &b"h\0".repeat(4096),
        b"e.",
    ];
    let often = often.concat();
    let cases: [(&str, &[u8]); 7] = [
        ("often", &often),
        // 2^63, behind whose 64 bits stands a byte for its sign.
        ("large", b"\x80\x02\x8a\x09\0\0\0\0\0\0\0\x80\0."),
        ("of_itself", b"\x80\x02]q\0h\0a."),
        ("unnamed", b"\x80\x02h\x07."),
        ("numbers", b"\x80\x02]q\0(K\x01K\x02e."),
        ("cut", b"\x80\x04\x95"),
        ("program", b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R."),
    ];
    for (name, bytes) in cases {
        let path = scratch(&format!("{name}.pickle"), "");
        std::fs::write(&path, bytes).unwrap();
        let output = regraph(&["snapshot", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains("expected a snapshot: "), "{}", stderr(&output));
    }
}

#[test]
fn compressed_input_is_called_so_by_every_command() {
    let path = scratch("compressed.jsonl.gz", "").display().to_string();
    std::fs::write(&path, b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc").unwrap();
    for command in ["replay", "plan", "plot", "graph", "snapshot"] {
        let output = regraph(&[command, &path]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        let text = stderr(&output);
        assert!(text.contains("data compressed by gzip (unpack it first"), "{command}: {text}");
        assert!(text.is_ascii() && !text.contains('\u{1f}'), "{command}: {text:?}");
    }
}

/// A block of a certificate leads back to a line of code.
#[test]
fn certified_blocks_have_their_names_and_lines() {
    let text = r#"{"op":"begin","stream":0,"pool":0}
{"op":"alloc","id":3,"bytes":1048576,"stream":0}
{"op":"stack","stack":0,"frames":[{"filename":"model.py","line":31,"name":"forward"}]}
{"op":"label","block":3,"stack":0}
{"op":"alloc","id":4,"bytes":1048576,"stream":0}
{"op":"label","block":4,"stack":0}
{"op":"alloc","id":5,"bytes":524288,"stream":0}
{"op":"kernel","stream":0}
{"op":"free","id":3}
{"op":"end"}
"#;
    let trace = scratch("labelled.jsonl", text).display().to_string();
    let file = scratch("labelled.certificate", "").display().to_string();
    assert!(replay_sim(&[&trace, "--certificate", &file]).status.success());
    let output = regraph(&["certify", &trace, &file]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines,
        [
            vec!["3", "4", "5"],
            vec!["2.00", "MiB", "in", "2", "model.py:31", "forward"],
            vec!["0.50", "MiB", "in", "1", "no", "name", "and", "no", "line", "of", "code"],
        ]
    );
}

/// A capture with a block that something outside it uses too and with a kernel behind a free, and one whose kernels keep
/// to what is recorded.
#[test]
fn lints_are_told_of_bad_graphs_and_not_of_good_ones() {
    let line = |text: &str| format!("{}\n", text.replace('\'', "\""));
    let bad = [
        "{'op':'begin','stream':0,'pool':0}",
        "{'op':'alloc','id':1,'bytes':4096,'stream':0}",
        "{'op':'use','id':1,'stream':1}",
        "{'op':'kernel','stream':0,'uses':[1]}",
        "{'op':'free','id':1}",
        "{'op':'alloc','id':2,'bytes':4096,'stream':0}",
        "{'op':'kernel','stream':0,'uses':[2]}",
        "{'op':'free','id':2}",
        "{'op':'kernel','stream':0,'uses':[2]}",
        "{'op':'end'}",
    ];
    let good = [
        "{'op':'begin','stream':0,'pool':0}",
        "{'op':'alloc','id':1,'bytes':4096,'stream':0}",
        "{'op':'kernel','stream':0,'uses':[1]}",
        "{'op':'kernel','stream':0,'uses':[1]}",
        "{'op':'free','id':1}",
        "{'op':'end'}",
    ];
    let file = |name: &str, lines: &[&str]| {
        scratch(name, &lines.iter().map(|text| line(text)).collect::<String>())
    };
    let bad = file("lint_bad.jsonl", &bad);
    let output = replay_sim(&[bad.to_str().unwrap(), "--lint"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("lint       2 findings; 1 bare guesses"), "{text}");
    for part in [
        "capture 1, block 1 of the trace: node",
        "which nothing in the graph writes before; something outside the capture uses the block (a guess",
        "and is not before the end of its recorded uses",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let json = replay_sim(&[bad.to_str().unwrap(), "--lint", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let told: Vec<_> =
        findings.iter().map(|it| (it["block"].as_u64(), it["guess"].as_bool())).collect();
    let expected = [(Some(2), Some(false)), (Some(1), Some(false)), (Some(2), Some(true))];
    assert_eq!(told, expected, "{findings:?}");

    let good = file("lint_good.jsonl", &good);
    let output = replay_sim(&[good.to_str().unwrap(), "--lint"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("lint       0 findings; 1 bare guesses"), "{text}");
    let silent = replay_sim(&[bad.to_str().unwrap()]);
    assert!(!String::from_utf8(silent.stdout).unwrap().contains("\nlint "));
    let both = replay_sim(&[good.to_str().unwrap(), "--lint", "--tags"]);
    assert_eq!(both.status.code(), Some(2));
}
