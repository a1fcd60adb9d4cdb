//! Installing the C library where compilers, pkg-config and CMake find it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to install, and where.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The repository's root.
    pub root: &'a Path,
    /// The folder that cargo built `libregraph_c.so` and `libregraph_c.a` in.
    pub libraries: &'a Path,
    /// The folder to install below. It is created.
    pub prefix: &'a Path,
    /// The libraries' folder, relative to `prefix`.
    pub libdir: &'a str,
}

/// Installs headers, libraries, `regraph.pc` and the CMake package, and returns the files' paths.
/// Files that are there are replaced.
///
/// # Errors
/// A file that cannot be read or written; a library folder that is not below the prefix.
pub fn install(layout: &Layout<'_>) -> io::Result<Vec<PathBuf>> {
    let &Layout { root, libraries, prefix, libdir } = layout;
    let relative = Path::new(libdir);
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    if !relative.components().all(plain) {
        let message = format!("--libdir {libdir}: give a path below the prefix, such as lib64");
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    let include = root.join("include");
    let version = version_of(&fs::read_to_string(include.join("regraph.h"))?)?;
    let mut to = Installed { paths: Vec::new() };

    for header in ["regraph.h", "regraph.hpp", "regraph_rmm.hpp"] {
        to.copy(&include.join(header), &prefix.join("include").join(header))?;
    }
    let folder = prefix.join(relative);
    let shared = format!("libregraph_c.so.{version}");
    to.copy(&libraries.join("libregraph_c.so"), &folder.join(&shared))?;
    to.link(&shared, &folder.join(format!("libregraph_c.so.{}", so_version(&version))))?;
    to.link(&shared, &folder.join("libregraph_c.so"))?;
    let archive = folder.join("libregraph_c.a");
    to.copy(&libraries.join("libregraph_c.a"), &archive)?;
    strip(&archive);

    // From the package files' folders up to the prefix.
    let up = |folder: &str| vec![".."; relative.join(folder).components().count()].join("/");
    let fill = |text: String, up: &str| {
        let values = [
            ("@VERSION@", version.as_str()),
            ("@SO_VERSION@", &so_version(&version)),
            ("@LIBDIR@", libdir),
            ("@UP@", up),
        ];
        values.into_iter().fold(text, |text, (name, value)| text.replace(name, value))
    };
    for (package, name) in [
        ("pkgconfig", "regraph.pc"),
        ("cmake/regraph", "regraphConfig.cmake"),
        ("cmake/regraph", "regraphConfigVersion.cmake"),
    ] {
        let template = root.join("capi/packaging").join(format!("{name}.in"));
        let text = fill(fs::read_to_string(template)?, &up(package));
        to.write(&text, &folder.join(package).join(name))?;
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        to.copy(&root.join(license), &prefix.join("share/doc/regraph").join(license))?;
    }
    Ok(to.paths)
}

/// The version that the header states.
///
/// # Errors
/// A header that does not state it.
pub fn version_of(header: &str) -> io::Result<String> {
    let part = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        let missing = || io::Error::new(ErrorKind::InvalidData, format!("regraph.h: no {name}"));
        line.map(str::trim).ok_or_else(missing)
    };
    let [major, minor, patch] =
        ["REGRAPH_VERSION_MAJOR", "REGRAPH_VERSION_MINOR", "REGRAPH_VERSION_PATCH"].map(part);
    Ok(format!("{}.{}.{}", major?, minor?, patch?))
}

/// The part of a version that must be the same for a program to run with a library: "0.1" of
/// "0.1.0", "1" of "1.2.3". The SONAME ends with it; `capi/build.rs` sets that.
pub fn so_version(version: &str) -> String {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
    if major == "0" {
        format!("0.{minor}")
    } else {
        major.to_owned()
    }
}

struct Installed {
    paths: Vec<PathBuf>,
}

impl Installed {
    /// Makes room for a file.
    fn room(&mut self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Replaced, not written over: a running program may have the old one mapped.
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => {
                self.paths.push(path.to_owned());
                Ok(())
            }
        }
    }

    fn copy(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.room(to)?;
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{} -> {}: {error}", from.display(), to.display()))
        };
        fs::copy(from, to).map(|_| ()).map_err(named)
    }

    fn link(&mut self, target: &str, path: &Path) -> io::Result<()> {
        self.room(path)?;
        std::os::unix::fs::symlink(target, path)
    }

    fn write(&mut self, text: &str, path: &Path) -> io::Result<()> {
        self.room(path)?;
        fs::write(path, text)
    }
}

/// Removes the debug symbols and the compiler's intermediate code from an archive, which cargo does
/// for linked files only. Without the tool the archive is larger and works the same.
fn strip(archive: &Path) {
    let sections = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    let done = Command::new("strip").arg("--strip-debug").args(sections).arg(archive).output();
    if !done.is_ok_and(|done| done.status.success()) {
        eprintln!("note: `strip` could not be run; {} keeps debug symbols", archive.display());
    }
}
