//! The ways to a place in a heap that `design/safety.md` names are those that the code has.

use std::collections::BTreeSet;
use std::path::Path;

/// A source file below `src/heap`: its name there, and its text.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(crate::ROOT).join("src/heap");
    let mut found = Vec::new();
    for folder in ["", "planned"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "rs") {
                let name = path.strip_prefix(&root).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

/// The code of a text without comments, by function: its name, what precedes its body, and that.
fn functions(text: &str) -> Vec<(String, String, String)> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for part in code.split("fn ").skip(1) {
        let name = part.split(|it: char| !it.is_alphanumeric() && it != '_').next().unwrap();
        let (head, body) = part.split_once("{\n").unwrap_or((part, ""));
        found.push((name.to_owned(), head.to_owned(), body.to_owned()));
    }
    found
}

/// The page's rows: way, function that enters the block, what is asked.
fn rows() -> Vec<[String; 3]> {
    let page = include_str!("../../design/safety.md");
    let rows = page.lines().filter(|line| line.contains("Heap::") && line.starts_with("| `"));
    let rows = rows.map(|line| line.trim_matches('|').split('|').map(str::trim));
    rows.map(|row| row.map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()).collect()
}

fn set(names: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    names.into_iter().collect()
}

/// What gives a place out says so in its type.
#[test]
fn the_page_names_every_way_to_a_place() {
    let mut ways = BTreeSet::new();
    for (file, text) in sources() {
        let heap = if file.starts_with("planned") { "PlannedHeap" } else { "Heap" };
        for (name, head, _) in functions(&text) {
            let given = head.split_once("->").map_or("", |it| it.1);
            let open = text.contains(&format!("pub(crate) fn {name}"));
            if open && (given.contains("Placed") || given.contains("Vec<Cut>")) {
                ways.insert(format!("`{heap}::{name}`"));
            }
        }
    }
    assert_eq!(ways, set(rows().into_iter().map(|[way, ..]| way)));
}

/// Ranges become a block's in few functions, and these are called by the ways to a place alone.
#[test]
fn the_page_names_every_function_that_enters_a_block() {
    /// They enter what another function has found, which is named instead.
    const MEANS: [&str; 3] = ["carve", "carve_in", "enter_block"];
    /// It enters none.
    const NONE: &str = "settle_cut";
    let mut enter = BTreeSet::new();
    for (_, text) in sources() {
        for (name, _, body) in functions(&text) {
            let sets = ["State::Allocated)", ".carve(", ".carve_in(", ".enter_block("];
            if sets.iter().any(|it| body.contains(it)) && !MEANS.contains(&&*name) {
                enter.insert(format!("`{name}`"));
            }
        }
    }
    let none = format!("`{NONE}`");
    assert!(enter.remove(&none) && include_str!("../../design/safety.md").contains(NONE));
    assert_eq!(enter, set(rows().into_iter().map(|[_, enters, _]| enters)));
}

/// Markers are proven, and kinds of requesters told apart, where it is decided what a requester may take.
#[test]
fn one_function_decides_what_a_requester_may_take() {
    let of = |what: &str| {
        let functions = sources().into_iter().flat_map(|(file, text)| {
            let all = functions(&text).into_iter();
            all.map(move |(name, _, body)| (format!("{file}: {name}"), body))
        });
        set(functions.filter(|(_, body)| body.contains(what)).map(|(name, _)| name))
    };
    let names = |names: &[&str]| set(names.iter().map(|&name| name.to_owned()));
    assert_eq!(
        of(".covers("),
        names(&["place.rs: takes_inside", "planned/space.rs: is_for", "planned/space.rs: rank"])
    );
    // Whether a range is in the requester's own order.
    assert_eq!(of("timeline == Some("), names(&["place.rs: takes_outside"]));
}
