//! The project's own tasks: `cargo xtask install` builds the C library and installs it with its headers;
//! `cargo xtask house` says whether the code got harder to read; `cargo xtask mutants` takes safety rules out of the
//! source and expects tests to fail.
#![forbid(unsafe_code)]

mod house;

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use xtask::mutants::{self, Trial};
use xtask::{install, Layout};

const USAGE: &str = "\
usage: cargo xtask install --prefix DIR [--libdir NAME]
       cargo xtask house [--record | --list MEASURE]
       cargo xtask mutants [--sample N] [--seed S] [--folder DIR] [NAME...]

install: builds the C library, optimized and without debug symbols, and installs below DIR:
  include/   regraph.h, regraph.hpp, regraph_rmm.hpp
  NAME/      libregraph_c.so, libregraph_c.a, pkgconfig/regraph.pc, cmake/regraph/
NAME is lib unless --libdir says otherwise, such as lib64 or lib/x86_64-linux-gnu.
The installed tree can be moved as a whole.

house: prints measures of the code, each with its bound, and fails where one is above it.
--record writes figures that got better as the new bounds; --list prints what a measure counts.

mutants: takes safety rules out of a copy of the source, one at a time, and expects a test to fail each time: all
rules of the table in crates/xtask/mutants, those that are named, or N of them. Which N depends on S, by default
the commit. The copy and what is built of it are below DIR, by default target/mutants.";

/// The build profile in the workspace's Cargo.toml.
const PROFILE: &str = "dist";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let root = house::workspace()?;
    match arguments {
        [task, options @ ..] if task == "install" => run_install(root, options),
        [task] if task == "house" => house::house(root, false),
        [task, record] if task == "house" && record == "--record" => house::house(root, true),
        [task, list, measure] if task == "house" && list == "--list" => house::list(root, measure),
        [task, options @ ..] if task == "mutants" => run_mutants(root, options),
        [help] if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

fn run_install(root: &Path, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let mut arguments = arguments.iter();
    let (mut prefix, mut libdir) = (None, "lib".to_owned());
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?.clone();
        match option.as_str() {
            "--prefix" => prefix = Some(PathBuf::from(value)),
            "--libdir" => libdir = value,
            _ => return Err(USAGE.into()),
        }
    }
    let prefix = prefix.ok_or(USAGE)?;
    let libraries = build(root)?;
    for path in install(&Layout { root, libraries: &libraries, prefix: &prefix, libdir: &libdir })?
    {
        println!("{}", path.display());
    }
    Ok(())
}

fn run_mutants(root: &Path, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let mut arguments = arguments.iter();
    let mut folder = root.join("target/mutants");
    let (mut names, mut sample, mut seed) = (Vec::new(), None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--sample" => sample = Some(value()?.parse()?),
            "--seed" => seed = Some(value()?.clone()),
            "--folder" => folder = std::path::absolute(value()?)?,
            option if option.starts_with('-') => return Err(USAGE.into()),
            name => names.push(name.to_owned()),
        }
    }
    mutants::run(&Trial { root, folder: &folder, names: &names, sample, seed })
}

/// Builds the library and returns the folder that holds it.
fn build(root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    // This program is in TARGET/debug.
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2).ok_or("this program is not in a target folder")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["build", "--package", "regraph-capi", "--profile", PROFILE]);
    let built = command.arg("--target-dir").arg(target).status()?;
    if !built.success() {
        return Err(format!("{command:?}: {built}").into());
    }
    Ok(target.join(PROFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that is not in its file any more would take no rule out.
    #[test]
    fn each_mutant_changes_one_place_and_names_a_test() {
        let root = house::workspace().expect("the workspace's root");
        assert_eq!(mutants::complaints(root).expect("files that can be read"), [""; 0]);
    }
}
