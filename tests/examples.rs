//! The examples run as their users run them, and say what they are to say.
//!
//! `cargo test` builds them; with `--test examples` alone, run `cargo build --examples` before.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An example and what it prints.
struct Example {
    name: &'static str,
    arguments: &'static [&'static str],
    /// On any device.
    prints: &'static [&'static str],
    /// Whether it runs on a GPU where there is one; it then names that, and else says that there is
    /// none.
    device: bool,
}

const EXAMPLES: &[Example] = &[
    Example {
        name: "batch_sizes",
        arguments: &[],
        prints: &["all, shuffled", "Every kernel found what it was to find."],
        device: true,
    },
    Example { name: "cuda_capture", arguments: &[], prints: &[], device: true },
    Example { name: "embed", arguments: &[], prints: &["verified: true"], device: false },
    Example {
        name: "exact_plan",
        arguments: &[],
        prints: &["as asked for", "at the end", "Every kernel found what was written for it."],
        device: true,
    },
    Example {
        name: "graphed_callables",
        arguments: &[],
        prints: &["no graph", "forward and backward", "the whole step"],
        device: true,
    },
    Example {
        name: "lend",
        arguments: &[],
        prints: &["512 MiB are lent", "would be overwritten", "launched again"],
        device: false,
    },
    Example { name: "memory_cap", arguments: &[], prints: &["ran through"], device: true },
    Example {
        name: "own_capture",
        arguments: &[],
        prints: &["capture again", "nodes"],
        device: false,
    },
    Example {
        name: "server",
        arguments: &[],
        prints: &["of 20 captures", "Every answer is right."],
        device: true,
    },
    Example {
        name: "sleep",
        arguments: &[],
        prints: &[
            "out of host memory",
            "768 MiB went",
            "stays suspended",
            "256 MiB of weights are back",
        ],
        device: false,
    },
    Example {
        name: "two_devices",
        arguments: &[],
        prints: &["verified: true", "the output is device 1's"],
        device: false,
    },
];

/// Where cargo puts examples: beside the folder of this test's program.
fn folder() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples")
}

/// Runs an example, on a GPU or without, and returns what it printed.
fn run(name: &str, arguments: &[&str], gpu: bool) -> String {
    let program = folder().join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        program.exists(),
        "there is no {}; run `cargo build --examples` with the flags of this test",
        program.display()
    );
    let mut command = Command::new(&program);
    command.args(arguments);
    if !gpu {
        command.env("CUDA_VISIBLE_DEVICES", "");
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{printed}{errors}", output.status);
    assert!(!printed.is_empty(), "{name} says nothing");
    printed
}

/// The names of all examples that there are.
fn all() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let programs = files.filter(|path| {
        path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists()
    });
    programs.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Examples that are not listed above have no arguments and say on which device they run.
fn others() -> Vec<String> {
    let listed = |name: &String| EXAMPLES.iter().any(|example| example.name == name);
    all().into_iter().filter(|name| !listed(name)).collect()
}

#[test]
fn examples_run_without_a_gpu() {
    for Example { name, arguments, prints, device } in EXAMPLES {
        let printed = run(name, arguments, false);
        if *device {
            assert!(printed.contains("There is no GPU to run this on"), "{name}: {printed}");
        }
        for line in prints.iter() {
            assert!(printed.contains(line), "{name} does not say \"{line}\": {printed}");
        }
    }
    for name in others() {
        run(&name, &[], false);
    }
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn examples_run_on_a_gpu() {
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let gpu = unsafe { regraph::driver::cuda::CudaDriver::new(0) }.unwrap().device_name().unwrap();
    for Example { name, arguments, prints, device } in EXAMPLES {
        let printed = run(name, arguments, true);
        assert_eq!(printed.contains(&gpu), *device, "{name} names its device: {printed}");
        for line in prints.iter() {
            assert!(printed.contains(line), "{name} does not say \"{line}\": {printed}");
        }
    }
    for name in others() {
        let printed = run(&name, &[], true).to_lowercase();
        for not in ["no gpu", "simulated"] {
            assert!(!printed.contains(not), "{name} did not run on the GPU: {printed}");
        }
    }
}

/// The options of examples that can do without a GPU where there is one.
#[test]
fn examples_can_be_simulated() {
    for name in ["batch_sizes", "graphed_callables", "memory_cap", "server"] {
        let printed = run(name, &["--simulated"], true);
        assert!(printed.starts_with("Simulated."), "{name}: {printed}");
    }
}
