//! `regraph-lab training`: exit statuses and output.

use std::process::{Command, Output};

fn training(arguments: &[&str]) -> Output {
    let command = env!("CARGO_BIN_EXE_regraph-lab");
    Command::new(command).arg("training").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn bad_usage_is_status_2() {
    let cases: &[&[&str]] = &[
        &["x"],
        &["--operations", "0"],
        &["--operations", "-1"],
        &["--operations", "many"],
        &["--streams", "0"],
        &["--streams", "65"],
        &["--seed", "1.5"],
    ];
    for arguments in cases {
        let output = training(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_says_what_it_does() {
    let text = stdout(&training(&["--help"]));
    assert!(text.contains("--operations") && text.contains("[default: 100000]"), "{text}");
}

#[test]
fn it_prints_a_table_of_three_policies() {
    let text = stdout(&training(&["--operations", "3000"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("3000 operations, "), "{text}");
    assert!(lines[1].starts_with("policy "), "{text}");
    let policies: Vec<_> =
        lines[2..].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(policies, ["regraph", "pytorch", "pytorch-expandable"]);
    let widths: Vec<_> = lines[1..].iter().map(|line| line.len()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
}

#[test]
fn json_has_the_promised_fields() {
    let arguments = ["--operations", "3000", "--seed", "7", "--streams", "3", "--json"];
    let text = stdout(&training(&arguments));
    assert_eq!(text, stdout(&training(&arguments)));
    assert_eq!(text.lines().count(), 3);
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut fields: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let expected = [
            "allocations",
            "growth_calls",
            "operations",
            "peak_allocated_bytes",
            "peak_reserved_bytes",
            "policy",
            "ratio",
            "reserved_bytes",
            "seed",
            "streams",
        ];
        assert_eq!(fields, expected);
        assert_eq!((row["operations"].as_u64(), row["seed"].as_u64()), (Some(3000), Some(7)));
        assert_eq!(row["streams"], 3);
        assert!(row["peak_reserved_bytes"].as_u64() >= row["reserved_bytes"].as_u64());
        assert!(row["ratio"].as_f64().unwrap() >= 1.0);
    }
}
