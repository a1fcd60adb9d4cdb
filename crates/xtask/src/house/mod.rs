//! `cargo xtask house`: measures of how much of the code a reader must hold in mind, none of which may get worse
//! than the figures in `house.toml`.

mod measures;
mod types;

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use measures::{Sources, MEASURES};

/// What the table is compared with, below the workspace.
const RECORD: &str = "crates/xtask/house.toml";

/// A measure's name with its figure. Less is better, for each.
type Figure = (String, u64);

/// Prints each measure of the repository at `root` with its figure of today and its bound, which is the recorded
/// figure. With `record`, figures that got better are written down as the new bounds, and so are those of measures
/// that have none yet.
///
/// # Errors
///
/// Where a measure is above its bound (nothing is written then), where it has no bound and `record` is not set, and
/// where the repository cannot be read.
pub fn house(root: &Path, record: bool) -> Result<(), Box<dyn Error>> {
    let sources = Sources::of(tracked(root)?);
    let mut today = Vec::with_capacity(MEASURES.len());
    for measure in MEASURES {
        today.push((measure.name.to_owned(), measure.count(&sources)?));
    }
    let path = root.join(RECORD);
    let text = fs::read_to_string(&path).map_err(|error| format!("{RECORD}: {error}"))?;
    let bounds = parse(&text)?;
    print!("{}", table(&today, &bounds));
    let problems = problems(&today, &bounds, record);
    if !problems.is_empty() {
        return Err(problems.join("\n").into());
    }
    if record {
        fs::write(&path, written(&text, &today))?;
    }
    Ok(())
}

/// Prints what a measure of the repository at `root` counts, the largest first.
///
/// # Errors
///
/// Where there is no such measure, and where the repository cannot be read.
pub fn list(root: &Path, measure: &str) -> Result<(), Box<dyn Error>> {
    let found = MEASURES.iter().find(|it| it.name == measure);
    let measure = found.ok_or_else(|| format!("{measure} is no measure"))?;
    let mut found = (measure.found)(&Sources::of(tracked(root)?))?;
    found.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for (what, count) in found.iter().filter(|(_, count)| *count > 0) {
        println!("{count:>8} {what}");
    }
    Ok(())
}

/// The Rust files that git tracks, each with its text. One that is deleted but not yet committed so is left out.
fn tracked(root: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let git = Command::new("git").current_dir(root).args(["ls-files", "-z", "*.rs"]).output()?;
    if !git.status.success() {
        return Err(String::from_utf8_lossy(&git.stderr).into_owned().into());
    }
    let paths = String::from_utf8(git.stdout)?;
    let mut files = Vec::new();
    for path in paths.split_terminator('\0') {
        let full = root.join(path);
        if full.exists() {
            files.push((path.to_owned(), fs::read_to_string(full)?));
        }
    }
    Ok(files)
}

/// The figures in lines of the form `name = 123`. Lines that are empty or begin with `#` are skipped.
fn parse(text: &str) -> Result<Vec<Figure>, String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let wrong = || format!("{RECORD}: `{line}` is not of the form `name = figure`");
            let (name, figure) = line.split_once('=').ok_or_else(wrong)?;
            Ok((name.trim().to_owned(), figure.trim().parse().map_err(|_| wrong())?))
        })
        .collect()
}

fn find(figures: &[Figure], name: &str) -> Option<u64> {
    figures.iter().find(|(other, _)| other == name).map(|&(_, figure)| figure)
}

/// A line for each figure of `today`: name, figure, bound, and whether it differs from the bound.
fn table(today: &[Figure], bounds: &[Figure]) -> String {
    let width = today.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$} {:>8} {:>8}\n", "measure", "today", "bound");
    for (name, figure) in today {
        let bound = find(bounds, name);
        let shown = bound.map_or("-".to_owned(), |bound| bound.to_string());
        let note = match bound {
            Some(bound) if *figure > bound => "  worse",
            Some(bound) if *figure < bound => "  better",
            _ => "",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:width$} {figure:>8} {shown:>8}{note}");
    }
    text
}

/// One line for each thing that must be mended: figures above their bounds, bounds of no measure, and, unless they
/// are about to be recorded, measures without bounds.
fn problems(today: &[Figure], bounds: &[Figure], record: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, figure) in today {
        match find(bounds, name) {
            Some(bound) if *figure > bound => problems.push(format!(
                "{name} got worse, from {bound} to {figure}. Where that is worth it, write the new figure into \
                 {RECORD} by hand, and why into the commit."
            )),
            None if !record => problems.push(format!(
                "{name} has no bound in {RECORD}: `cargo xtask house --record` writes one."
            )),
            _ => {}
        }
    }
    for (name, _) in bounds {
        if find(today, name).is_none() {
            problems.push(format!("{RECORD} has a bound for {name}, which is no measure."));
        }
    }
    problems
}

/// The text of the record with the figures of `today`. The comments at its head stay.
fn written(text: &str, today: &[Figure]) -> String {
    let head = text.lines().take_while(|line| line.is_empty() || line.starts_with('#'));
    let figures = today.iter().map(|(name, figure)| format!("{name} = {figure}"));
    let lines: Vec<String> = head.map(str::to_owned).chain(figures).collect();
    lines.join("\n") + "\n"
}

/// The workspace that this program was built in.
pub fn workspace() -> Result<&'static Path, &'static str> {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("no workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(list: &[(&str, u64)]) -> Vec<Figure> {
        list.iter().map(|&(name, figure)| (name.to_owned(), figure)).collect()
    }

    #[test]
    fn a_figure_above_its_bound_is_refused_even_when_recording() {
        let (today, bounds) = (figures(&[("a", 2), ("b", 3)]), figures(&[("a", 1), ("b", 3)]));
        for record in [false, true] {
            let problems = problems(&today, &bounds, record);
            assert_eq!(problems.len(), 1);
            assert!(problems[0].starts_with("a got worse, from 1 to 2."), "{}", problems[0]);
        }
        assert!(table(&today, &bounds).contains("worse"));
    }

    #[test]
    fn better_figures_and_new_measures_are_recorded() {
        let text = "# Why.\n\na = 5\n";
        let bounds = parse(text).expect("a record");
        let today = figures(&[("a", 4), ("b", 7)]);
        assert_eq!(problems(&today, &bounds, true), Vec::<String>::new());
        assert_eq!(written(text, &today), "# Why.\n\na = 4\nb = 7\n");
    }

    #[test]
    fn a_measure_without_a_bound_and_a_bound_without_a_measure_are_problems() {
        let problems = problems(&figures(&[("a", 1)]), &figures(&[("b", 1)]), false);
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error() {
        assert!(parse("a\n").is_err());
        assert!(parse("a = many\n").is_err());
    }

    #[test]
    fn this_repository_can_be_measured() {
        let root = workspace().expect("a workspace");
        let sources = Sources::of(tracked(root).expect("the tracked files"));
        for measure in MEASURES {
            measure.count(&sources).expect(measure.name);
        }
    }
}
