//! Snapshots: what is written, that others can read it, and what `validate` refuses.

mod example;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use example::{example, BASE, MIB};
use regraph::snapshot::{Action, Snapshot, TraceEntry, Waiting};
use regraph_trace::snapshot::InvalidSnapshot;
use serde_json::{json, Value};

fn json_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut text = Vec::new();
    snapshot.write_json(&mut text).unwrap();
    text
}

fn pickle_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_pickle(&mut bytes).unwrap();
    bytes
}

#[test]
fn both_forms_read_back_as_what_was_written() {
    for snapshot in [example(), Snapshot::default()] {
        assert_eq!(Snapshot::read_json(&json_of(&snapshot)[..]).unwrap(), snapshot);
        let read: Snapshot =
            serde_pickle::from_slice(&pickle_of(&snapshot), Default::default()).unwrap();
        assert_eq!(read, snapshot);
    }
}

#[test]
fn the_layout_is_the_viewers() {
    let written: Value = serde_json::from_slice(&json_of(&example())).unwrap();
    let segment = &written["segments"][0];
    assert_eq!(segment["segment_type"], "small");
    assert_eq!(segment["segment_pool_id"], json!([0, 1]));
    assert_eq!(segment["is_expandable"], false);
    let block = json!({
        "address": BASE, "size": 1024, "requested_size": 1000, "state": "active_allocated",
        "frames": [{"filename": "src/モデル.rs", "line": 12, "name": "forward"}],
    });
    assert_eq!(segment["blocks"][0], block);
    assert_eq!(segment["blocks"][1]["state"], "active_pending_free");
    assert_eq!(segment["blocks"][2]["state"], "inactive");
    assert_eq!(
        segment["blocks"][1]["waiting"][0],
        json!({"stream": 0x5555_0000_1000_u64, "marker": 0x5555_0000_2000_u64,
               "reason": "marker is not proven"}),
    );
    let trace = written["device_traces"][0].as_array().unwrap();
    let entry = json!({
        "action": "alloc", "addr": BASE, "size": 1000, "stream": 0, "time_us": 2,
        "compile_context": "N/A", "user_metadata": "", "pool_id": [0, 1],
    });
    assert_eq!(trace[1], entry);
    let oom = trace.iter().find(|entry| entry["action"] == "oom").unwrap();
    assert_eq!(oom["device_free"], 3 * MIB);
    assert!(oom.get("addr").is_none());
    assert_eq!(
        written["external_annotations"][0],
        json!({"name": "capture 7", "stage": "START", "device": 0, "time_us": 1}),
    );
    assert_eq!(written["allocator_settings"]["roundup_power2_divisions"], json!({"1": 0, "2": 4}));
}

/// A file that this test run owns.
fn scratch(name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn python_opens_both_forms() {
    for (name, snapshot) in [("example", example()), ("empty", Snapshot::default())] {
        let output = Command::new("python3")
            .arg(Path::new(crate::ROOT).join("tests/reports/snapshot/check.py"))
            .arg(scratch(&format!("{name}.json"), &json_of(&snapshot)))
            .arg(scratch(&format!("{name}.pickle"), &pickle_of(&snapshot)))
            .output();
        match output {
            Ok(output) => {
                let message = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name}: {message}");
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("no python3: the files are read back by crates only");
                return;
            }
            Err(error) => panic!("python3: {error}"),
        }
    }
}

#[test]
fn the_example_is_valid() {
    assert_eq!(regraph_trace::snapshot::validate(&example()), Ok(()));
    assert_eq!(regraph_trace::snapshot::validate_history(&example()), Ok(()));
    assert_eq!(regraph_trace::snapshot::validate(&Snapshot::default()), Ok(()));
}

/// What `validate` says of the example after a change.
fn refusal(change: impl FnOnce(&mut Snapshot)) -> InvalidSnapshot {
    let mut snapshot = example();
    change(&mut snapshot);
    regraph_trace::snapshot::validate(&snapshot).unwrap_err()
}

#[test]
fn figures_must_be_the_sums_of_the_blocks() {
    let sum_of = |change: fn(&mut Snapshot)| match refusal(change) {
        InvalidSnapshot::Sum { segment: BASE, field, .. } => field,
        other => panic!("{other}"),
    };
    assert_eq!(sum_of(|s| s.segments[0].total_size += 512), "total_size");
    assert_eq!(sum_of(|s| s.segments[0].total_size -= 512), "total_size");
    assert_eq!(sum_of(|s| s.segments[0].allocated_size += 1), "allocated_size");
    assert_eq!(sum_of(|s| s.segments[0].active_size -= 1), "active_size");
    assert_eq!(sum_of(|s| s.segments[0].requested_size = 0), "requested_size");
}

#[test]
fn blocks_must_fill_their_segment_in_order() {
    let refused = refusal(|s| s.segments[0].blocks.swap(0, 1));
    assert!(matches!(refused, InvalidSnapshot::Place { expected: BASE, .. }), "{refused}");
    let refused = refusal(|s| s.segments[0].blocks[1].address += 512);
    assert!(matches!(refused, InvalidSnapshot::Place { .. }), "{refused}");
    let refused = refusal(|s| s.segments[0].blocks[0].requested_size = 1025);
    assert!(matches!(refused, InvalidSnapshot::Size { address: BASE, .. }), "{refused}");
    let refused = refusal(|s| s.segments[0].blocks[2].size = u64::MAX);
    assert!(matches!(refused, InvalidSnapshot::Sum { field: "total_size", .. }), "{refused}");
}

#[test]
fn live_blocks_wait_for_nothing() {
    let reason = "no reason".to_owned();
    let waiting = Some(vec![Waiting { stream: None, marker: None, reason }]);
    let refused = refusal(|s| s.segments[0].blocks[0].waiting = waiting);
    assert_eq!(refused, InvalidSnapshot::Waiting { address: BASE });
    let refused = refusal(|s| s.segments[0].blocks[1].waiting = Some(Vec::new()));
    assert!(matches!(refused, InvalidSnapshot::Waiting { .. }), "{refused}");
}

#[test]
fn segments_must_be_disjoint_and_of_devices_with_a_trace() {
    let refused = refusal(|s| s.segments.push(s.segments[0].clone()));
    assert_eq!(refused, InvalidSnapshot::Overlap { segment: BASE, earlier: BASE });
    let mut apart = example();
    let mut other_device = apart.segments[0].clone();
    other_device.device = 1;
    apart.segments.push(other_device);
    assert_eq!(regraph_trace::snapshot::validate(&apart), Ok(()), "addresses of different devices");
    let refused = refusal(|s| s.segments[0].device = 2);
    assert_eq!(refused, InvalidSnapshot::NoTrace { device: 2 });
    let refused = refusal(|s| s.segments[0].address = 1 << 53);
    assert!(matches!(refused, InvalidSnapshot::Extent { .. }), "{refused}");
    let refused = refusal(|s| s.segments[0].total_size = u64::MAX);
    assert!(matches!(refused, InvalidSnapshot::Extent { .. }), "{refused}");
}

#[test]
fn entries_must_be_what_viewers_can_show() {
    let refused = refusal(|s| s.device_traces[0][1].addr = None);
    assert!(matches!(refused, InvalidSnapshot::Fields { device: 0, entry: 1, .. }), "{refused}");
    let refused = refusal(|s| {
        s.device_traces[1].clear();
        s.device_traces[0][1].category = Some("weights".to_owned());
    });
    assert_eq!(refused, InvalidSnapshot::Category);
}

/// What `validate_history` says of the example with one more entry, the latest.
fn history_with(action: Action, address: u64, size: u64) -> Option<&'static str> {
    let mut snapshot = example();
    snapshot.device_traces[0].push(TraceEntry::new(action, address, size, 0, 5000));
    assert_eq!(regraph_trace::snapshot::validate(&snapshot), Ok(()));
    match regraph_trace::snapshot::validate_history(&snapshot) {
        Ok(()) => None,
        Err(InvalidSnapshot::History { problem, .. }) => Some(problem),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn traces_must_lead_to_the_memory_as_it_is() {
    use Action::{
        Alloc, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap,
    };
    let pending = BASE + 1024;
    let free = BASE + 2048;
    let nowhere = BASE + 64 * MIB;
    for (action, address, size) in [
        (Alloc, free, 512),
        (Alloc, pending, 1000),
        (FreeRequested, BASE, 1000),
        (FreeRequested, free, 512),
        (FreeCompleted, BASE, 1000),
        (FreeCompleted, BASE + 512, 100),
        (FreeCompleted, nowhere, 512),
        (SegmentAlloc, BASE, MIB),
        (SegmentAlloc, BASE, 2 * MIB),
        (SegmentMap, BASE, 2 * MIB),
        (SegmentFree, BASE + MIB, 2 * MIB),
        (SegmentUnmap, BASE, 512),
    ] {
        let problem = history_with(action, address, size);
        assert!(problem.is_some(), "{action:?} at {address:#x}");
    }
    assert_eq!(history_with(Action::Snapshot, 0, 0), None);
    assert_eq!(history_with(SegmentFree, nowhere, 2 * MIB), None);
}

#[test]
fn text_that_is_no_snapshot_is_an_error() {
    for text in ["", "[]", "{}", "{\"segments\": [{}], \"device_traces\": []}"] {
        let error = Snapshot::read_json(text.as_bytes()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof));
    }
}
