//! What `cargo xtask install` installs is found and used by pkg-config and CMake.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::support::Language;
use tempfile::TempDir;
use xtask::{install, Layout};

/// An installed tree. Tests run on what cargo built for them.
fn installed(libdir: &str) -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let prefix = tempfile::tempdir().unwrap();
    let libraries = crate::support::libraries();
    install(&Layout { root, libraries: &libraries, prefix: prefix.path(), libdir }).unwrap();
    prefix
}

fn output(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
    String::from_utf8(done.stdout).unwrap()
}

fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success());
    if !there {
        eprintln!("no {tool} here: not tried");
    }
    there
}

/// A program that prints the library's version.
const PROGRAM: &str = "#include <regraph.h>\n#include <stdio.h>\n\
    int main(void) { puts(regraph_version_string()); return 0; }\n";

#[test]
fn versions_are_read_from_the_header() {
    let header = fs::read_to_string(crate::support::include().join("regraph.h")).unwrap();
    assert_eq!(xtask::version_of(&header).unwrap(), env!("CARGO_PKG_VERSION"));
    assert!(xtask::version_of("#define REGRAPH_VERSION_MAJOR 1\n").is_err());
    assert_eq!((&*xtask::so_version("0.1.7"), &*xtask::so_version("1.2.3")), ("0.1", "1"));
}

#[test]
fn a_library_folder_outside_the_prefix_is_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let prefix = tempfile::tempdir().unwrap();
    for libdir in ["/usr/lib", "../lib"] {
        let libraries = crate::support::libraries();
        let layout = Layout { root, libraries: &libraries, prefix: prefix.path(), libdir };
        assert!(install(&layout).unwrap_err().to_string().contains("below the prefix"));
    }
    assert_eq!(prefix.path().read_dir().unwrap().count(), 0, "nothing is installed");
}

/// With pkg-config's flags, and from a tree that was moved after the installation.
#[test]
fn pkg_config_finds_it() {
    if !has("pkg-config") {
        return;
    }
    let prefix = installed("lib/some-machine");
    let moved = tempfile::tempdir().unwrap();
    let moved = moved.path().join("moved");
    fs::rename(prefix.path(), &moved).unwrap();
    let libraries = moved.join("lib/some-machine");
    let flags = |argument: &str| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
        let flags = output(command.args([argument, "--cflags", "--libs", "regraph >= 0.1"]));
        flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let source = moved.join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let program = moved.join("program");
    let shared = flags("--print-errors");
    let shared: Vec<_> = shared.iter().map(String::as_str).collect();
    crate::support::compile_alone(Language::C99, &source, &program, &shared);
    let run = |libraries: &Path| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", libraries);
        command.output().unwrap()
    };
    assert_eq!(run(&libraries).stdout, concat!(env!("CARGO_PKG_VERSION"), "\n").as_bytes());
    assert!(!run(&moved).status.success(), "it is linked to the shared library");
    // Linked to the archive it needs no library.
    let all = flags("--static");
    let archive = libraries.join("libregraph_c.a");
    let fully = all.iter().map(String::as_str).map(|flag| match flag {
        "-lregraph_c" => archive.to_str().unwrap(),
        other => other,
    });
    crate::support::compile_alone(Language::C99, &source, &program, &fully.collect::<Vec<_>>());
    assert!(run(&moved).status.success());
}

#[test]
fn cmake_finds_it() {
    if !has("cmake") {
        return;
    }
    let prefix = installed("lib");
    let project = prefix.path().join("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("program.c"), PROGRAM).unwrap();
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(program C)\n\
        find_package(regraph 0.1 REQUIRED)\n\
        foreach(kind regraph regraph_static)\n\
          add_executable(with_${kind} program.c)\n\
          target_link_libraries(with_${kind} PRIVATE regraph::${kind})\n\
        endforeach()\n\
        foreach(other 0.0 0.2 1.0)\n\
          find_package(regraph ${other} QUIET)\n\
          if(regraph_FOUND)\n\
            message(FATAL_ERROR \"version ${other} was found\")\n\
          endif()\n\
        endforeach()\n";
    fs::write(project.join("CMakeLists.txt"), text).unwrap();
    let build = project.join("build");
    let place = format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display());
    output(Command::new("cmake").arg("-S").arg(&project).arg("-B").arg(&build).arg(place));
    output(Command::new("cmake").arg("--build").arg(&build));
    for kind in ["regraph", "regraph_static"] {
        let printed = output(&mut Command::new(build.join(format!("with_{kind}"))));
        assert_eq!(printed.trim(), env!("CARGO_PKG_VERSION"), "{kind}");
    }
}
