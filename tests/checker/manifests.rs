//! What is not built for tests, because there is none in it, has none.

use std::fs;
use std::path::Path;

/// The text of all source files below a folder.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap() })
        .collect()
}

/// Each library that has tests is built once more for them, and each is looked through for programs in comments.
#[test]
fn libraries_whose_tests_are_not_built_have_none() {
    let crates = Path::new(crate::ROOT).join("crates");
    for entry in fs::read_dir(crates).unwrap() {
        let folder = entry.unwrap().path();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let library = manifest.split("\n[").find(|it| it.starts_with("lib]")).unwrap_or_default();
        let text = sources(&folder.join("src"));
        // Those of a command are built with it.
        let command = folder.join("src/main.rs").exists();
        if library.contains("\ntest = false") && !command {
            assert!(!text.contains("#[test]"), "{}", folder.display());
        }
        if library.contains("\ndoctest = false") {
            assert!(!text.contains("/// ```") && !text.contains("//! ```"), "{}", folder.display());
        }
    }
}
