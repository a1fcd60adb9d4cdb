//! The system's compilers, and where cargo puts the library.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A language and its standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C99,
    Cpp17,
}

impl Language {
    /// The variable that names a compiler, and what is called without.
    fn compiler(self) -> (&'static str, &'static str) {
        match self {
            Self::C99 => ("CC", "cc"),
            Self::Cpp17 => ("CXX", "c++"),
        }
    }

    fn standard(self) -> &'static str {
        match self {
            Self::C99 => "-std=c99",
            Self::Cpp17 => "-std=c++17",
        }
    }
}

/// The folder of the header.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("include")
}

/// The folder of the libraries: the one that this test's program is in.
pub fn libraries() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let library = folder.join("libregraph_c.so");
    assert!(library.exists(), "cargo has built no {}", library.display());
    folder
}

/// What programs that are linked to the shared library look for.
pub fn so_name() -> String {
    format!("libregraph_c.so.{}", xtask::so_version(env!("CARGO_PKG_VERSION")))
}

/// Compiles a file with the header of the sources and all warnings as errors.
pub fn compile(language: Language, source: &Path, output: &Path, arguments: &[&str]) {
    let include = format!("-I{}", include().display());
    compile_alone(language, source, output, &[&[&*include], arguments].concat());
}

/// The same with no header but those that the arguments name.
pub fn compile_alone(language: Language, source: &Path, output: &Path, arguments: &[&str]) {
    let (variable, usual) = language.compiler();
    let compiler = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    let mut command = Command::new(&compiler);
    command.args([language.standard(), "-Wall", "-Wextra", "-pedantic", "-Werror", "-g"]);
    command.arg(source).arg("-o").arg(output).args(arguments);
    let done = command.output().unwrap_or_else(|error| {
        panic!(
            "this test needs a compiler and `{compiler}` cannot be run ({error}); install one, or \
             name it in the environment variable {variable}"
        )
    });
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
}

/// How a program is linked to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

/// Builds a program and runs it in a folder of its own. Returns what it printed, and the folder.
pub fn build_and_run(language: Language, source: &Path, linked: Linked) -> (String, TempDir) {
    let (folder, libraries) = (tempfile::tempdir().unwrap(), libraries());
    let program = folder.path().join("program");
    // Programs look for the library by its SONAME, which cargo's file does not have.
    let named = folder.path().join(so_name());
    std::os::unix::fs::symlink(libraries.join("libregraph_c.so"), named).unwrap();
    let path = libraries.to_str().unwrap();
    let run_path = format!("-Wl,-rpath,{}", folder.path().display());
    let archive = format!("{path}/libregraph_c.a");
    let arguments: &[&str] = match linked {
        Linked::Shared => &["-pthread", "-L", path, "-lregraph_c", "-ldl", &run_path],
        // What Rust's own library needs.
        Linked::Static => &["-pthread", &archive, "-ldl", "-lm", "-lgcc_s"],
    };
    compile(language, source, &program, arguments);
    let mut command = Command::new(&program);
    // What cargo sets would lead to another library than the one that was linked.
    command.env_remove("LD_LIBRARY_PATH").env_remove("REGRAPH_ALLOC_CONF");
    let done = command.current_dir(folder.path()).output().unwrap();
    let printed = String::from_utf8(done.stdout).unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {}\n{printed}{errors}", source.display(), done.status);
    (printed, folder)
}
