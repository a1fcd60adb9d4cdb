//! What is measured; design/architecture.md says what for.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Type, Types};

/// The state behind the engine's lock, and the file that declares it.
const STATE: (&str, &str) = ("State", "src/engine/mod.rs");

/// The types whose methods see the whole state.
const WHOLE: [&str; 2] = ["State", "Locked"];

/// The names of flags that say whose memory a range or a block is: whether graphs use it, whether it is kept for
/// them or closed to them, on loan, taken over by a capture, set back by a checkpoint, or not known to be free of
/// any of these.
const WHOSE: [&str; 9] =
    ["graphs", "kept", "closed", "lent", "borrower", "adopted", "restored", "captured", "unclear"];

/// The repository's Rust files, each with its path and its text.
pub struct Sources(Vec<(String, String)>);

impl Sources {
    pub fn of(files: Vec<(String, String)>) -> Self {
        Self(files)
    }

    fn below<'a>(&'a self, folders: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let files = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)))
    }

    fn file(&self, path: &str) -> Result<&str, String> {
        let found = self.0.iter().find(|(other, _)| other == path);
        found.map(|(_, text)| text.as_str()).ok_or_else(|| format!("there is no {path}"))
    }

    fn types(&self, folders: &[&str]) -> Result<Types, String> {
        Types::of(self.below(folders))
    }
}

pub struct Measure {
    pub name: &'static str,
    pub count: fn(&Sources) -> Result<u64, String>,
}

const CORE: [&str; 2] = ["src/engine/", "src/heap/"];

/// Less is better, for each.
pub const MEASURES: &[Measure] = &[
    Measure { name: "lines-of-src", count: |sources| Ok(lines(sources.below(&["src/"]))) },
    Measure { name: "lines-of-rust", count: |sources| Ok(lines(sources.below(&[""]))) },
    Measure { name: "core-files", count: |sources| Ok(length(sources.below(&CORE).count())) },
    Measure { name: "fields-behind-the-lock", count: behind_lock },
    Measure { name: "shared-fields", count: shared_fields },
    Measure { name: "files-with-methods-of-the-state", count: whole_state },
    Measure { name: "flags-of-whose-memory", count: whose_memory },
    Measure { name: "types-named-alike", count: named_alike },
    Measure { name: "questions-for-flaws", count: flaw_questions },
    Measure { name: "variants-of-the-error", count: error_variants },
    Measure { name: "comments-that-begin-the-same", count: begin_the_same },
    Measure { name: "public-modules", count: public_modules },
    Measure { name: "methods-of-the-engine", count: engine_methods },
];

fn length(count: usize) -> u64 {
    count as u64
}

fn lines<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> u64 {
    files.map(|(_, text)| length(text.lines().count())).sum()
}

/// The fields of [`STATE`] and, from there on, of each structure and enum of the core that the type of a counted
/// field names. A name means the type of that name in the field's own file, and where there is none, each one in the
/// core.
fn behind_lock(sources: &Sources) -> Result<u64, String> {
    let types = sources.types(&CORE)?.all;
    let (name, file) = STATE;
    let root = types.iter().position(|it| it.name == name && it.file == file);
    let mut reached = BTreeSet::new();
    let mut next = vec![root.ok_or_else(|| format!("there is no {name} in {file}"))?];
    while let Some(index) = next.pop() {
        if !reached.insert(index) {
            continue;
        }
        let from = &types[index].file;
        for name in types[index].fields.iter().flat_map(|field| &field.names) {
            let named = |(_, it): &(usize, &Type)| it.name == *name;
            let found: Vec<_> = types.iter().enumerate().filter(named).collect();
            let own = found.iter().find(|(_, it)| it.file == *from);
            match own {
                Some(&(index, _)) => next.push(index),
                None => next.extend(found.iter().map(|&(index, _)| index)),
            }
        }
    }
    let counted = reached.into_iter().map(|index| &types[index]).filter(|it| !it.alias);
    Ok(counted.map(|it| length(it.fields.len())).sum())
}

/// The fields in src that code outside their file may use but the library's callers may not.
fn shared_fields(sources: &Sources) -> Result<u64, String> {
    let types = sources.types(&["src/"])?.all;
    let fields = types.iter().flat_map(|it| &it.fields);
    Ok(length(fields.filter(|field| field.shared).count()))
}

/// The core's files with methods of the whole state.
fn whole_state(sources: &Sources) -> Result<u64, String> {
    let blocks = sources.types(&CORE)?.impls;
    // Other types of these names are not the engine's.
    let files = blocks
        .into_iter()
        .filter(|it| WHOLE.contains(&it.name.as_str()) && it.file.starts_with("src/engine/"));
    Ok(length(files.map(|it| it.file).collect::<BTreeSet<_>>().len()))
}

/// The core's fields of type `bool` or `Option` with one of the names of [`WHOSE`].
fn whose_memory(sources: &Sources) -> Result<u64, String> {
    let types = sources.types(&CORE)?.all;
    let fields = types.iter().flat_map(|it| &it.fields);
    Ok(length(fields.filter(|it| it.flag && WHOSE.contains(&it.name.as_str())).count()))
}

/// The names that two or more structures or enums in src have.
fn named_alike(sources: &Sources) -> Result<u64, String> {
    let mut counts = BTreeMap::<String, u64>::new();
    for it in sources.types(&["src/"])?.all {
        if !it.alias {
            *counts.entry(it.name).or_default() += 1;
        }
    }
    Ok(length(counts.values().filter(|&&count| count > 1).count()))
}

/// The lines in src that ask whether an engine was built without one of its rules.
fn flaw_questions(sources: &Sources) -> Result<u64, String> {
    let lines = sources.below(&["src/"]).flat_map(|(_, text)| text.lines());
    Ok(length(lines.filter(|line| line.contains("lacks(Flaw")).count()))
}

fn error_variants(sources: &Sources) -> Result<u64, String> {
    const FILE: &str = "src/error.rs";
    let types = Types::of([(FILE, sources.file(FILE)?)].into_iter())?.all;
    let found = types.into_iter().find(|it| it.name == "Error");
    Ok(length(found.ok_or_else(|| format!("there is no Error in {FILE}"))?.variants))
}

/// The comments that cannot be read without the one before them, as far as their first words show it.
fn begin_the_same(sources: &Sources) -> Result<u64, String> {
    let lines = sources.below(&["src/", "crates/", "capi/"]).flat_map(|(_, text)| text.lines());
    let begins = |line: &&str| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//"));
        let words = comment.map(|it| it.strip_prefix(' ').unwrap_or(it));
        let rest = words.and_then(|it| it.strip_prefix("The same"));
        rest.is_some_and(|it| it.starts_with([',', ':', ' ']))
    };
    Ok(length(lines.filter(begins).count()))
}

/// The methods that the engine shows to the library's callers, beside those of its views.
fn engine_methods(sources: &Sources) -> Result<u64, String> {
    let blocks = sources.types(&["src/"])?.impls;
    Ok(blocks.into_iter().filter(|it| it.name == "Engine").map(|it| it.methods).sum())
}

fn public_modules(sources: &Sources) -> Result<u64, String> {
    let text = sources.file("src/lib.rs")?;
    Ok(length(text.lines().filter(|line| line.starts_with("pub mod")).count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Sources {
        Sources::of(files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    fn one(text: &str) -> Sources {
        sources(&[("src/engine/mod.rs", text)])
    }

    #[test]
    fn lines_and_files_are_counted_by_folder() {
        let all =
            sources(&[("src/heap/a.rs", "a\nb\n"), ("src/b.rs", "c\n"), ("tests/c.rs", "d\n")]);
        let count = |name| {
            let measure = MEASURES.iter().find(|it| it.name == name).expect("a measure");
            (measure.count)(&all).expect("a figure")
        };
        assert_eq!((count("lines-of-src"), count("lines-of-rust"), count("core-files")), (3, 4, 1));
    }

    #[test]
    fn fields_behind_the_lock_are_found_through_their_types() {
        let found = behind_lock(&sources(&[
            (
                "src/engine/mod.rs",
                "struct State { pools: Vec<Option<Pool>>, limit: u64 }
                 struct Aside { never: u64 }",
            ),
            (
                "src/engine/pools.rs",
                "struct Pool { home: super::Home, next: Option<Box<Pool>> }
                 type Home = Place<u32>;
                 enum Place<T> { None, At(T), Between { from: T, to: T } }
                 struct State { other: u64 }",
            ),
            ("src/graphs/pool.rs", "struct Place { outside_the_core: bool }"),
        ]));
        // Two of State, two of Pool, three of Place.
        assert_eq!(found, Ok(7));
        assert!(behind_lock(&one("struct Else;")).is_err());
    }

    #[test]
    fn a_type_of_a_fields_own_file_hides_others_of_its_name() {
        let state = "struct State { row: Row } struct Row { one: u64 }";
        let found = behind_lock(&sources(&[
            ("src/engine/mod.rs", state),
            ("src/engine/other.rs", "struct Row { one: u64, two: u64 }"),
        ]));
        assert_eq!(found, Ok(2));
    }

    #[test]
    fn shared_fields_are_those_that_other_files_may_use() {
        let text = "
            pub struct Api { pub seen: u64, pub(crate) shared: u64, hidden: u64 }
            pub(super) struct Row { pub shared: u64, hidden: u64 }
            struct Pair(pub(super) u64, u64);";
        assert_eq!(shared_fields(&one(text)), Ok(3));
    }

    #[test]
    fn files_with_methods_of_the_state_are_counted_once() {
        let files = sources(&[
            ("src/engine/a.rs", "impl State {} impl State {} impl<D: Driver> Locked<'_, D> {}"),
            ("src/engine/b.rs", "impl<D: Driver> super::Locked<'_, D> {}"),
            ("src/engine/c.rs", "impl Drop for Other {}"),
            ("src/heap/d.rs", "impl State {}"),
        ]);
        assert_eq!(whole_state(&files), Ok(2));
    }

    #[test]
    fn public_methods_of_the_engine_are_counted_in_all_its_files() {
        let files = sources(&[
            ("src/engine/a.rs", "impl<D: Driver> Engine<D> { pub fn a() {} pub(crate) fn b() {} }"),
            ("src/graphs/b.rs", "impl<D: HostApi> Engine<D> { pub fn c() {} fn d() {} }"),
            ("src/engine/c.rs", "impl<D: Driver> HostCalls<'_, D> { pub fn e() {} }"),
        ]);
        assert_eq!(engine_methods(&files), Ok(2));
    }

    #[test]
    fn flags_are_booleans_and_options_with_names_of_the_list() {
        let text = "
            struct Row { graphs: bool, lent: Option<Lent>, kept: u64, broken: bool }
            enum State { Free { kept: bool }, Live(bool) }";
        assert_eq!(whose_memory(&one(text)), Ok(3));
    }

    #[test]
    fn names_of_several_types_are_counted_but_for_those_of_tests() {
        let files = sources(&[
            ("src/a.rs", "struct Kept; struct Once; #[cfg(test)] mod tests { struct Once; }"),
            ("src/b.rs", "enum Kept {} fn f() { struct Kept; }"),
        ]);
        assert_eq!(named_alike(&files), Ok(1));
    }

    #[test]
    fn variants_of_the_error_are_counted() {
        let text = "pub enum Error { /// One.\n One, Two(u64), Three { a: u64 } } enum Other { A }";
        assert_eq!(error_variants(&sources(&[("src/error.rs", text)])), Ok(3));
        assert!(error_variants(&sources(&[])).is_err());
    }

    #[test]
    fn lines_are_found_by_their_text() {
        let files = sources(&[
            ("src/lib.rs", "pub mod a;\npub mod b;\nmod c;\n"),
            (
                "src/a.rs",
                "    /// The same, twice.\n//The same: x\n// Not The same, x\n/// The samex\n",
            ),
            ("crates/b.rs", "/// The same of it.\n//! The same of it.\nif !x.lacks(Flaw::Y) {}\n"),
            ("src/c.rs", "if !self.lacks(Flaw::A) {}\nif lacks(flaw) {}\n"),
        ]);
        assert_eq!(begin_the_same(&files), Ok(3));
        assert_eq!(flaw_questions(&files), Ok(1));
        assert_eq!(public_modules(&files), Ok(2));
    }

    #[test]
    fn a_file_that_is_not_rust_is_named() {
        let error = shared_fields(&one("struct {")).expect_err("no Rust");
        assert!(error.starts_with("src/engine/mod.rs: "), "{error}");
    }
}
