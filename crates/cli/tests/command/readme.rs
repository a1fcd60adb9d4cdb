//! What the README shows of the command is what it prints.

use std::path::Path;
use std::process::Command;

use crate::command::{replay_sim, scratch, stderr};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What stands in the README's first block in a language.
fn block(language: &str) -> String {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, from) = readme.split_once(&format!("```{language}\n")).unwrap();
    from.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_readmes_command_prints_what_stands_there() {
    let block = block("console");
    let (command, printed) = block.split_once('\n').unwrap();
    let arguments = command.strip_prefix("$ cargo run --release -- ").unwrap().split(' ');
    let mut command = Command::new(env!("CARGO_BIN_EXE_regraph"));
    let output = command.args(arguments).current_dir(root()).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), printed);
}

/// A programmatic launch that regraph was told would not come.
#[test]
fn the_readmes_refusal_is_what_a_refused_capture_says() {
    let trace = r#"{"op":"begin","stream":0,"pool":0}
{"op":"alloc","id":0,"bytes":4194304,"stream":0}
{"op":"kernel","stream":0,"uses":[0]}
{"op":"free","id":0}
{"op":"alloc","id":1,"bytes":4194304,"stream":0}
{"op":"kernel","stream":0,"uses":[1],"programmatic":true}
{"op":"end"}
"#;
    let path = scratch("readme.jsonl", trace);
    let output = replay_sim(&[path.to_str().unwrap(), "--programmatic", "deny"]);
    assert_eq!(output.status.code(), Some(3));
    let mut said = String::new();
    for (at, part) in stderr(&output).split("0x").enumerate() {
        let digits = part.len() - part.trim_start_matches(|it: char| it.is_ascii_hexdigit()).len();
        said += &if at == 0 { part.to_owned() } else { format!("0x…{}", &part[digits..]) };
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&said).ends_with(&words(&block("text"))), "{said}");
}
