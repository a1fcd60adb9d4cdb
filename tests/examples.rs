//! The examples run as their users run them, and say what they are to say.
//!
//! `cargo test` builds them; with `--test examples` alone, run `cargo build --examples` before.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each example, with what it prints where there is no GPU.
const EXAMPLES: [(&str, &[&str]); 5] = [
    (
        "1_capture",
        &["before the edge: false, behind it: true", "is verified", "8 MiB for three blocks"],
    ),
    ("2_cudarc", &["There is no GPU to run this on"]),
    ("3_batch_sizes", &["8 graphs, 1 executable"]),
    (
        "4_sleep",
        &["out of host memory", "768 MiB went", "stays suspended", "256 MiB of weights are back"],
    ),
    ("5_own_capture", &["capture again", "nodes"]),
];

/// Runs an example, on a GPU or without, and returns what it printed.
fn run(name: &str, gpu: bool) -> String {
    // Cargo puts examples beside the folder of this test's program.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap().join("examples");
    let program = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.exists(),
        "there is no {}; run `cargo build --examples` with the flags of this test",
        program.display()
    );
    let mut command = Command::new(&program);
    if !gpu {
        command.env("CUDA_VISIBLE_DEVICES", "");
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{printed}{errors}", output.status);
    printed
}

#[test]
fn examples_run_without_a_gpu() {
    for (name, prints) in EXAMPLES {
        let printed = run(name, false);
        for line in prints {
            assert!(printed.contains(line), "{name} does not say \"{line}\": {printed}");
        }
    }
}

#[test]
fn examples_are_few_and_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut names = BTreeSet::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 120, "{} has {lines} lines", path.display());
        names.insert(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    assert_eq!(names, EXAMPLES.map(|(name, _)| name.to_owned()).into());
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_example_of_cudarc_runs_on_a_gpu() {
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let gpu = unsafe { regraph::driver::cuda::CudaDriver::new(0) }.unwrap().device_name().unwrap();
    let printed = run("2_cudarc", true);
    assert!(printed.contains(&gpu), "{printed}");
}
