//! What the project's pages name is there.

use std::path::{Path, PathBuf};

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

/// Links of all pages, and files that pages of the design name, by the end of their path.
#[test]
fn every_link_leads_somewhere_and_every_file_that_the_design_names_is_there() {
    const KINDS: [&str; 7] = [".rs", ".py", ".md", ".cpp", ".hpp", ".h", ".toml"];
    let (root, mut all) = (Path::new(crate::ROOT), Vec::new());
    files(root, &mut all);
    for page in all.iter().filter(|it| it.extension().is_some_and(|it| it == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        let text: String = text.split("```").step_by(2).collect();
        for link in text.split("](").skip(1).map(|it| it.split([')', '#']).next().unwrap()) {
            let there = link.starts_with("http") || page.parent().unwrap().join(link).exists();
            assert!(there, "{}: {link}", page.display());
        }
        let names =
            text.split('`').skip(1).step_by(2).filter(|_| page.starts_with(root.join("design")));
        for name in names.filter(|name| KINDS.iter().any(|kind| name.ends_with(kind))) {
            let there = name.contains([' ', '*']) || all.iter().any(|file| file.ends_with(name));
            assert!(there, "{}: {name}", page.display());
        }
    }
}

/// The README is read in ten minutes, and the design in an afternoon; figures are looked up.
#[test]
fn the_readme_and_the_design_are_short() {
    let root = Path::new(crate::ROOT);
    let lines = |page: &Path| std::fs::read_to_string(page).unwrap().lines().count();
    assert!(lines(&root.join("README.md")) <= 120);
    let mut pages = Vec::new();
    files(&root.join("design"), &mut pages);
    pages.retain(|it| it.extension().is_some_and(|it| it == "md") && !it.ends_with("figures.md"));
    let design: usize = pages.iter().map(|page| lines(page)).sum();
    assert!(design <= 1_500, "{design} lines: say less of something else");
}
