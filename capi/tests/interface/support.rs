//! The system's compilers, and where cargo puts the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// The folder of a library that was built with the address sanitizer itself, where there is one.
pub fn sanitized_libraries() -> Option<PathBuf> {
    std::env::var_os("REGRAPH_C_LIBRARIES").map(PathBuf::from)
}

/// The folder of the libraries: the one that this test's program is in, or that of a sanitized library.
pub fn libraries() -> PathBuf {
    let own = || std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let folder = sanitized_libraries().unwrap_or_else(own);
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

/// Compiles a file with all warnings as errors, and with no header but those that the arguments name.
pub fn compile_alone(language: Language, source: &Path, output: &Path, arguments: &[&str]) {
    let mut command = compiler(language);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-g"]);
    command.arg(source).arg("-o").arg(output).args(arguments);
    let done = command.output().unwrap_or_else(|error| {
        let (variable, _) = language.compiler();
        panic!(
            "this test needs a compiler and `{command:?}` cannot be run ({error}); install one, or \
             name it in the environment variable {variable}"
        )
    });
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
}

fn compiler(language: Language) -> Command {
    let (variable, usual) = language.compiler();
    let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| usual.to_owned()));
    command.arg(language.standard());
    command
}

/// Every error of address and of undefined behaviour ends the program.
const SANITIZERS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// What makes a compiler check programs while they run; nothing, with a note, for one that cannot.
pub fn sanitizers(language: Language) -> &'static [&'static str] {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("probe.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut command = compiler(language);
    command.args(SANITIZERS).arg(source).arg("-o").arg(folder.path().join("probe"));
    if command.output().is_ok_and(|done| done.status.success()) {
        return SANITIZERS;
    }
    eprintln!("{language:?}: the compiler has no sanitizers; the program runs without");
    &[]
}

/// How a program is linked to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

/// Builds a program with sanitizers and runs it in a folder of its own. Returns what it printed, and the folder.
pub fn build_and_run(language: Language, source: &Path, linked: Linked) -> (String, TempDir) {
    let (done, folder) = build_and_try(language, source, linked);
    let printed = String::from_utf8(done.stdout).unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {}\n{printed}{errors}", source.display(), done.status);
    (printed, folder)
}

/// Builds a program with sanitizers and runs it in a folder of its own. Returns its status with what it
/// printed, whether it failed or not, and the folder.
pub fn build_and_try(language: Language, source: &Path, linked: Linked) -> (Output, TempDir) {
    let (folder, libraries) = (tempfile::tempdir().unwrap(), libraries());
    let program = folder.path().join("program");
    // Programs look for the library by its SONAME, which cargo's file does not have.
    let named = folder.path().join(so_name());
    std::os::unix::fs::symlink(libraries.join("libregraph_c.so"), named).unwrap();
    let path = libraries.to_str().unwrap();
    let run_path = format!("-Wl,-rpath,{}", folder.path().display());
    let archive = format!("{path}/libregraph_c.a");
    // Of libraries that a program includes and that need not be installed.
    let mirrors = format!("-I{}/tests/c/mirrors", env!("CARGO_MANIFEST_DIR"));
    let mut arguments = vec!["-pthread", &*mirrors];
    match linked {
        Linked::Shared => arguments.extend(["-L", path, "-lregraph_c", "-ldl", &*run_path]),
        // What Rust's own library needs.
        Linked::Static => arguments.extend([&*archive, "-ldl", "-lm", "-lgcc_s"]),
    }
    arguments.extend(sanitizers(language));
    compile(language, source, &program, &arguments);
    let mut command = Command::new(&program);
    // What cargo sets would lead to another library than the one that was linked.
    command.env_remove("LD_LIBRARY_PATH").env_remove("REGRAPH_ALLOC_CONF");
    // The CUDA driver maps memory where the address sanitizer protects a gap, and keeps some of it
    // until the process ends. Of programs without a GPU every leak counts.
    if source.ends_with("gpu.c") {
        command.env("ASAN_OPTIONS", "protect_shadow_gap=0:detect_leaks=0");
    }
    (command.current_dir(folder.path()).output().unwrap(), folder)
}
