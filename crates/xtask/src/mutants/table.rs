//! The rules that `cargo xtask mutants` takes out of the source: a file for each subject.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::{Argued, Mutant};

/// The folder with the files, below the workspace.
const FOLDER: &str = "crates/xtask/mutants";

/// All rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Table {
    /// Those that a test notices. The place of a mutant is the number of its switch.
    #[serde(rename = "mutant")]
    pub mutants: Vec<Mutant>,
    /// Those that no test can notice.
    pub argued: Vec<Argued>,
}

impl Table {
    /// Reads the table of the workspace at `root`.
    pub fn read(root: &Path) -> Result<Self, Box<dyn Error>> {
        let files =
            fs::read_dir(root.join(FOLDER)).map_err(|error| format!("{FOLDER}: {error}"))?;
        let mut files = files.map(|it| Ok(it?.path())).collect::<std::io::Result<Vec<_>>>()?;
        files.sort();
        let mut table = Self::default();
        for file in files {
            let wrong = |error: &dyn Error| format!("{}: {error}", file.display());
            let text = fs::read_to_string(&file).map_err(|error| wrong(&error))?;
            let read: Self = toml::from_str(&text).map_err(|error| wrong(&error))?;
            table.mutants.extend(read.mutants);
            table.argued.extend(read.argued);
        }
        Ok(table)
    }
}
