//! What is measured; design/architecture.md says what for.

use std::collections::{BTreeMap, BTreeSet};

use super::types::{Field, Type, Types};

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
    /// What is counted, each with how much of it there is.
    pub found: fn(&Sources) -> Result<Found, String>,
}

/// Files, types or names, each with how much of a measure is its.
pub type Found = Vec<(String, u64)>;

impl Measure {
    pub fn count(&self, sources: &Sources) -> Result<u64, String> {
        Ok((self.found)(sources)?.into_iter().map(|(_, count)| count).sum())
    }
}

const CORE: [&str; 2] = ["src/engine/", "src/heap/"];

/// Less is better, for each.
pub const MEASURES: &[Measure] = &[
    Measure { name: "lines-of-src", found: |sources| Ok(lines(sources.below(&["src/"]))) },
    Measure { name: "lines-of-rust", found: |sources| Ok(lines(sources.below(&[""]))) },
    Measure { name: "core-files", found: |sources| Ok(once(sources.below(&CORE).map(|it| it.0))) },
    Measure { name: "fields-behind-the-lock", found: behind_lock },
    Measure { name: "shared-fields", found: shared_fields },
    Measure { name: "files-with-methods-of-the-state", found: whole_state },
    Measure { name: "flags-of-whose-memory", found: whose_memory },
    Measure { name: "types-named-alike", found: named_alike },
    Measure { name: "questions-for-flaws", found: flaw_questions },
    Measure { name: "variants-of-the-error", found: error_variants },
    Measure { name: "comments-that-begin-the-same", found: begin_the_same },
    Measure { name: "public-modules", found: public_modules },
    Measure { name: "methods-of-the-engine", found: engine_methods },
];

fn once<'a>(names: impl Iterator<Item = &'a str>) -> Found {
    names.map(|name| (name.to_owned(), 1)).collect()
}

fn lines<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Found {
    lines_with(files, |_| true)
}

/// Those of a kind, by file.
fn lines_with<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    is: impl Fn(&str) -> bool,
) -> Found {
    files
        .map(|(path, text)| (path.to_owned(), text.lines().filter(|line| is(line)).count() as u64))
        .collect()
}

/// The fields of a kind, by type.
fn fields_with<'a>(
    types: impl IntoIterator<Item = &'a Type>,
    is: impl Fn(&Field) -> bool,
) -> Found {
    let of = |it: &'a Type| it.fields.iter().filter(|field| is(field)).count() as u64;
    types.into_iter().map(|it| (format!("{} {}", it.file, it.name), of(it))).collect()
}

/// The fields of [`STATE`] and, from there on, of each structure and enum of the core that the type of a counted field
/// names. A name means the type of that name in the field's own file, and where there is none, each one in the core.
fn behind_lock(sources: &Sources) -> Result<Found, String> {
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
    Ok(fields_with(counted, |_| true))
}

/// The fields in src that code outside their file may use but the library's callers may not.
fn shared_fields(sources: &Sources) -> Result<Found, String> {
    Ok(fields_with(&sources.types(&["src/"])?.all, |field| field.shared))
}

/// The core's files with methods of the whole state.
fn whole_state(sources: &Sources) -> Result<Found, String> {
    let blocks = sources.types(&CORE)?.impls;
    // Other types of these names are not the engine's.
    let files = blocks
        .into_iter()
        .filter(|it| WHOLE.contains(&it.name.as_str()) && it.file.starts_with("src/engine/"));
    Ok(once(files.map(|it| it.file).collect::<BTreeSet<_>>().iter().map(String::as_str)))
}

/// The core's fields of type `bool` or `Option` with one of the names of [`WHOSE`].
fn whose_memory(sources: &Sources) -> Result<Found, String> {
    let of_whose = |it: &Field| it.flag && WHOSE.contains(&it.name.as_str());
    Ok(fields_with(&sources.types(&CORE)?.all, of_whose))
}

/// The names that two or more structures or enums in src have.
fn named_alike(sources: &Sources) -> Result<Found, String> {
    let mut counts = BTreeMap::<String, u64>::new();
    for it in sources.types(&["src/"])?.all {
        if !it.alias {
            *counts.entry(it.name).or_default() += 1;
        }
    }
    Ok(once(counts.iter().filter(|(_, &count)| count > 1).map(|(name, _)| name.as_str())))
}

/// The lines in src that ask whether an engine was built without one of its rules.
fn flaw_questions(sources: &Sources) -> Result<Found, String> {
    Ok(lines_with(sources.below(&["src/"]), |line| line.contains("lacks(Flaw")))
}

fn error_variants(sources: &Sources) -> Result<Found, String> {
    const FILE: &str = "src/error.rs";
    let types = Types::of([(FILE, sources.file(FILE)?)].into_iter())?.all;
    let found = types.into_iter().find(|it| it.name == "Error");
    let variants = found.ok_or_else(|| format!("there is no Error in {FILE}"))?.variants;
    Ok(vec![(FILE.to_owned(), variants as u64)])
}

/// The comments that cannot be read without the one before them, as far as their first words show it.
fn begin_the_same(sources: &Sources) -> Result<Found, String> {
    let begins = |line: &str| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//"));
        let words = comment.map(|it| it.strip_prefix(' ').unwrap_or(it));
        let rest = words.and_then(|it| it.strip_prefix("The same"));
        rest.is_some_and(|it| it.starts_with([',', ':', ' ']))
    };
    Ok(lines_with(sources.below(&["src/", "crates/", "capi/"]), begins))
}

/// The methods that the engine shows to the library's callers, beside those of its views.
fn engine_methods(sources: &Sources) -> Result<Found, String> {
    let blocks = sources.types(&["src/"])?.impls.into_iter().filter(|it| it.name == "Engine");
    Ok(blocks.map(|it| (it.file, it.methods)).collect())
}

fn public_modules(sources: &Sources) -> Result<Found, String> {
    const FILE: &str = "src/lib.rs";
    let file = [(FILE, sources.file(FILE)?)].into_iter();
    Ok(lines_with(file, |line| line.starts_with("pub mod")))
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

    fn sum(found: Result<Found, String>) -> Result<u64, String> {
        Ok(found?.into_iter().map(|(_, count)| count).sum())
    }

    #[test]
    fn lines_and_files_are_counted_by_folder() {
        let all =
            sources(&[("src/heap/a.rs", "a\nb\n"), ("src/b.rs", "c\n"), ("tests/c.rs", "d\n")]);
        let count = |name| {
            let measure = MEASURES.iter().find(|it| it.name == name).expect("a measure");
            measure.count(&all).expect("a figure")
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
        assert_eq!(sum(found), Ok(7));
        assert!(behind_lock(&one("struct Else;")).is_err());
    }

    #[test]
    fn a_type_of_a_fields_own_file_hides_others_of_its_name() {
        let state = "struct State { row: Row } struct Row { one: u64 }";
        let found = behind_lock(&sources(&[
            ("src/engine/mod.rs", state),
            ("src/engine/other.rs", "struct Row { one: u64, two: u64 }"),
        ]));
        assert_eq!(sum(found), Ok(2));
    }

    #[test]
    fn shared_fields_are_those_that_other_files_may_use() {
        let text = "
            pub struct Api { pub seen: u64, pub(crate) shared: u64, hidden: u64 }
            pub(super) struct Row { pub shared: u64, hidden: u64 }
            struct Pair(pub(super) u64, u64);";
        assert_eq!(sum(shared_fields(&one(text))), Ok(3));
    }

    #[test]
    fn files_with_methods_of_the_state_are_counted_once() {
        let files = sources(&[
            ("src/engine/a.rs", "impl State {} impl State {} impl<D: Driver> Locked<'_, D> {}"),
            ("src/engine/b.rs", "impl<D: Driver> super::Locked<'_, D> {}"),
            ("src/engine/c.rs", "impl Drop for Other {}"),
            ("src/heap/d.rs", "impl State {}"),
        ]);
        assert_eq!(sum(whole_state(&files)), Ok(2));
    }

    #[test]
    fn public_methods_of_the_engine_are_counted_in_all_its_files() {
        let files = sources(&[
            ("src/engine/a.rs", "impl<D: Driver> Engine<D> { pub fn a() {} pub(crate) fn b() {} }"),
            ("src/graphs/b.rs", "impl<D: HostApi> Engine<D> { pub fn c() {} fn d() {} }"),
            ("src/engine/c.rs", "impl<D: Driver> HostCalls<'_, D> { pub fn e() {} }"),
        ]);
        assert_eq!(sum(engine_methods(&files)), Ok(2));
    }

    #[test]
    fn flags_are_booleans_and_options_with_names_of_the_list() {
        let text = "
            struct Row { graphs: bool, lent: Option<Lent>, kept: u64, broken: bool }
            enum State { Free { kept: bool }, Live(bool) }";
        assert_eq!(sum(whose_memory(&one(text))), Ok(3));
    }

    #[test]
    fn names_of_several_types_are_counted_but_for_those_of_tests() {
        let files = sources(&[
            ("src/a.rs", "struct Kept; struct Once; #[cfg(test)] mod tests { struct Once; }"),
            ("src/b.rs", "enum Kept {} fn f() { struct Kept; }"),
        ]);
        assert_eq!(sum(named_alike(&files)), Ok(1));
    }

    #[test]
    fn variants_of_the_error_are_counted() {
        let text = "pub enum Error { /// One.\n One, Two(u64), Three { a: u64 } } enum Other { A }";
        assert_eq!(sum(error_variants(&sources(&[("src/error.rs", text)]))), Ok(3));
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
        assert_eq!(sum(begin_the_same(&files)), Ok(3));
        assert_eq!(sum(flaw_questions(&files)), Ok(1));
        assert_eq!(sum(public_modules(&files)), Ok(2));
    }

    #[test]
    fn a_file_that_is_not_rust_is_named() {
        let error = shared_fields(&one("struct {")).expect_err("no Rust");
        assert!(error.starts_with("src/engine/mod.rs: "), "{error}");
    }
}
