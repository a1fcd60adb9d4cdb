//! A copy of the source that mutants are written to.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Mutant;

/// A folder with the files of a workspace: those that git has, and those that it does not ignore.
pub(super) struct Copy<'a> {
    root: &'a Path,
    pub folder: PathBuf,
    files: Vec<PathBuf>,
}

impl<'a> Copy<'a> {
    /// Copies a workspace. A folder with a copy is brought up to date: files that are the same keep their times, so
    /// that they are not built again.
    pub fn new(root: &'a Path, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let files = listed.split('\0').map(PathBuf::from).filter(|file| root.join(file).is_file());
        let copy = Self { root, folder: folder.to_owned(), files: files.collect() };
        fs::create_dir_all(&copy.folder)?;
        copy.restore()?;
        Ok(copy)
    }

    /// Writes a mutant's file without the rule.
    pub fn write(&self, mutant: &Mutant) -> Result<(), Box<dyn Error>> {
        let source = fs::read_to_string(self.root.join(mutant.file))?;
        Ok(fs::write(self.folder.join(mutant.file), mutant.apply(&source)?)?)
    }

    /// Makes the copy what the workspace is: without a mutant, and without what its test has written.
    pub fn restore(&self) -> Result<(), Box<dyn Error>> {
        for file in &self.files {
            let (from, to) = (self.root.join(file), self.folder.join(file));
            let contents = fs::read(&from)?;
            if fs::read(&to).ok().as_ref() == Some(&contents) {
                continue;
            }
            fs::create_dir_all(to.parent().unwrap_or(&self.folder))?;
            fs::copy(&from, &to)?;
        }
        let known = self.files.iter().map(|file| self.folder.join(file)).collect();
        Ok(remove_others(&self.folder, &known)?)
    }
}

fn remove_others(folder: &Path, known: &HashSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => remove_others(&path, known)?,
            false if !known.contains(&path) => fs::remove_file(&path)?,
            false => {}
        }
    }
    Ok(())
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
