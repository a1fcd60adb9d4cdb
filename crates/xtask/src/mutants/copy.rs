//! A copy of the source that mutants are written to.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::switch;
use super::table::Table;

/// The root of the program that all mutants' tests are in.
const PROGRAM: &str = "tests/all.rs";

/// A folder with the files of a workspace: those that git has, and those that it does not ignore. All mutants are in
/// them, behind switches.
pub(super) struct Copy {
    pub folder: PathBuf,
    /// With what they contain.
    files: HashMap<PathBuf, Vec<u8>>,
}

impl Copy {
    /// Copies a workspace. A folder with a copy is brought up to date: files that are the same keep their times, so
    /// that they are not built again. Of the tests' modules it has those that tests are in which are to run, and those
    /// that others use.
    pub fn new(
        root: &Path,
        folder: &Path,
        table: &Table,
        tests: &[&str],
    ) -> Result<Self, Box<dyn Error>> {
        let listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let packages = table.mutants.iter().filter_map(|it| Some(it.file.split_once("src/")?.0));
        let roots: HashSet<PathBuf> = packages.map(|it| format!("{it}src/lib.rs").into()).collect();
        let mut files = HashMap::new();
        for file in listed.split('\0').map(Path::new).filter(|file| root.join(file).is_file()) {
            let mut contents = fs::read(root.join(file))?;
            if table.mutants.iter().any(|it| Path::new(&it.file) == file) {
                contents = switched(table, file, &String::from_utf8(contents)?)?.into_bytes();
            }
            if roots.contains(file) {
                contents.extend(switch::FUNCTION.bytes());
            }
            files.insert(folder.join(file), contents);
        }
        let program = with_modules(&files, &folder.join(PROGRAM), tests)?;
        files.insert(folder.join(PROGRAM), program.into_bytes());
        fs::create_dir_all(folder)?;
        let copy = Self { folder: folder.to_owned(), files };
        copy.restore()?;
        Ok(copy)
    }

    /// Makes the copy what it was: without what tests have written.
    pub fn restore(&self) -> Result<(), Box<dyn Error>> {
        for (file, contents) in &self.files {
            if fs::read(file).ok().as_ref() != Some(contents) {
                fs::create_dir_all(file.parent().unwrap_or(&self.folder))?;
                fs::write(file, contents)?;
            }
        }
        Ok(self.remove_others(&self.folder)?)
    }

    fn remove_others(&self, folder: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => self.remove_others(&path)?,
                false if !self.files.contains_key(&path) => fs::remove_file(&path)?,
                false => {}
            }
        }
        Ok(())
    }
}

/// A file with the switches of all mutants that are in it.
pub(super) fn switched(table: &Table, file: &Path, source: &str) -> Result<String, String> {
    let mut edits = Vec::new();
    for (switch, mutant) in table.mutants.iter().enumerate() {
        if Path::new(&mutant.file) == file {
            edits.extend(mutant.edits(switch, source)?);
        }
    }
    switch::switched(source, &edits).map_err(|error| format!("{}: {error}", file.display()))
}

/// The root of a program of tests with the modules alone that have the named tests, or that a file uses.
fn with_modules(
    files: &HashMap<PathBuf, Vec<u8>>,
    program: &Path,
    tests: &[&str],
) -> Result<String, Box<dyn Error>> {
    let source =
        String::from_utf8(files.get(program).ok_or("there is no program of tests")?.clone())?;
    let beside = program.parent();
    let others = files.iter().filter(|it| beside.is_some_and(|folder| it.0.starts_with(folder)));
    let others: Vec<_> = others.map(|it| String::from_utf8_lossy(it.1)).collect();
    let is_needed = |line: &&str| {
        let module = line.strip_prefix("mod ").and_then(|it| it.strip_suffix(';'));
        module.is_none_or(|module| {
            let (inner, used) = (format!("{module}::"), format!("crate::{module}::"));
            tests.iter().any(|it| it.starts_with(&inner))
                || others.iter().any(|it| it.contains(&used))
        })
    };
    Ok(source.lines().filter(is_needed).flat_map(|line| [line, "\n"]).collect())
}

/// The name of the workspace's commit.
pub(super) fn commit(root: &Path) -> Result<String, Box<dyn Error>> {
    Ok(git(root, &["rev-parse", "--short", "HEAD"])?.trim().to_owned())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new("git");
    let output = command.current_dir(root).args(arguments).output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {errors}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
