//! What one build folder may have of another: what was built of packages that are not the workspace's own.

use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts of a build folder, what the files in them begin with, and how they are shared. Libraries are linked, for
/// none is written again; what Cargo writes to is copied. All keep their times, by which Cargo goes. What says that
/// something was built comes first: it may be built meanwhile.
const PARTS: [(&str, &str, &str); 3] =
    [(".fingerprint", "", "-af"), ("build", "", "-af"), ("deps", "lib", "-alf")];

/// Gives a build folder what another one has of packages from elsewhere, so that they are not built again where they
/// are asked for with the same options.
pub(super) fn share(root: &Path, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let lock = fs::read_to_string(root.join("Cargo.lock"))?;
    let packages = lock.split("[[package]]").filter(|it| it.contains("\nsource = "));
    let name = |package: &str| {
        Some(package.split_once("name = \"")?.1.split('"').next()?.replace('-', "_"))
    };
    let names: HashSet<String> = packages.filter_map(name).collect();
    for (part, prefix, how) in PARTS {
        let is_shared = |file: &PathBuf| {
            let file =
                file.file_name().and_then(OsStr::to_str).and_then(|it| it.strip_prefix(prefix));
            let name = file.and_then(|it| it.rsplit_once('-'));
            name.is_some_and(|(name, _)| names.contains(&name.replace('-', "_")))
        };
        let files = fs::read_dir(from.join(part))?.map(|it| it.map(|it| it.path()));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        fs::create_dir_all(to.join(part))?;
        let mut command = Command::new("cp");
        command.arg(how).args(files.iter().filter(|it| is_shared(it))).arg(to.join(part));
        if !command.status()?.success() {
            println!("not all that {} has is shared: more is built", from.join(part).display());
        }
    }
    Ok(())
}
