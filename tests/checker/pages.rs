//! What the project's pages name is there.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// All files below a folder, but for what is built.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (kind, name) = (entry.file_type().unwrap(), entry.file_name());
        if kind.is_file() {
            found.push(entry.path());
        } else if kind.is_dir() && name != "target" && name != ".git" {
            files(&entry.path(), found);
        }
    }
}

/// The pages, with their texts but for code.
fn pages(files: &[PathBuf]) -> impl Iterator<Item = (&Path, String)> {
    let pages = files.iter().filter(|it| it.extension().is_some_and(|it| it == "md"));
    pages.map(|page| {
        let text = std::fs::read_to_string(page).unwrap();
        (page.as_path(), text.split("```").step_by(2).collect())
    })
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut all = Vec::new();
    files(&root(), &mut all);
    for (page, text) in pages(&all) {
        for link in text.split("](").skip(1).map(|it| it.split([')', '#']).next().unwrap()) {
            let there = link.starts_with("http") || page.parent().unwrap().join(link).exists();
            assert!(there, "{}: {link}", page.display());
        }
    }
}

/// A file may be named by the end of its path.
#[test]
fn every_file_that_a_page_of_the_design_names_is_there() {
    const KINDS: [&str; 7] = [".rs", ".py", ".md", ".cpp", ".hpp", ".h", ".toml"];
    let mut all = Vec::new();
    files(&root(), &mut all);
    let named = pages(&all).filter(|(page, _)| page.starts_with(root().join("design")));
    for (page, text) in named {
        let names = text.split('`').skip(1).step_by(2);
        for name in names.filter(|name| KINDS.iter().any(|kind| name.ends_with(kind))) {
            let there = name.contains([' ', '*']) || all.iter().any(|file| file.ends_with(name));
            assert!(there, "{}: {name}", page.display());
        }
    }
}
