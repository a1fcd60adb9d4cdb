//! `cargo xtask mutants`: takes safety rules out of a copy of the source, one at a time, and expects a test of the
//! project to fail each time. The copy is built once, with a switch for each rule.

mod copy;
mod share;
mod switch;
mod table;

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use copy::Copy;
use serde::Deserialize;
use switch::Edit;
use table::Table;

/// How long one test may run. One that takes longer is to be replaced by a shorter program.
const LIMIT: Duration = Duration::from_secs(600);

/// A rule that can be taken out of the source, and the test that fails without it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// What `cargo xtask mutants NAME` calls it.
    pub name: String,
    /// The rule, as the source has it.
    pub rule: String,
    /// The file, seen from the root of the workspace.
    pub file: String,
    /// Texts that the file contains once each, and what stands there without the rule.
    pub edits: Vec<(String, String)>,
    /// The test that fails without the rule: its whole name in `tests/all.rs`.
    pub test: String,
}

/// A rule that can be taken out of the source, and why that changes nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argued {
    /// The rule, as the source has it.
    pub rule: String,
    /// The file, seen from the root of the workspace.
    pub file: String,
    /// A text with the rule in it, that the file contains once.
    pub text: String,
    /// Why no test can notice.
    pub because: String,
}

impl Mutant {
    /// What a switch with a number changes in the mutant's file.
    fn edits(&self, switch: usize, source: &str) -> Result<Vec<Edit>, String> {
        let mut edits = Vec::new();
        for (text, instead) in &self.edits {
            let mut found = source.match_indices(text);
            let (Some((start, _)), None) = (found.next(), found.next()) else {
                return Err(format!("{}: {} has not once: {text}", self.name, self.file));
            };
            if text == instead {
                return Err(format!("{}: nothing is changed: {text}", self.name));
            }
            let (at, instead) = (start..start + text.len(), instead.clone());
            edits.push(Edit { switch, at, instead });
        }
        Ok(edits)
    }
}

/// What is wrong in the table of mutants, for the source below `root`: a text that is not in its file exactly once, a
/// name that two mutants have, a test that is not there.
///
/// # Errors
/// A file that cannot be read.
pub fn complaints(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut complaints = Vec::new();
    let table = Table::read(root)?;
    let files: BTreeSet<&str> = table.mutants.iter().map(|it| it.file.as_str()).collect();
    for file in files {
        let source = fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        complaints.extend(copy::switched(&table, file.as_ref(), &source).err());
    }
    for Argued { rule, file, text, .. } in &table.argued {
        if fs::read_to_string(root.join(file))?.matches(text).count() != 1 {
            complaints.push(format!("{rule} {file} has not once: {text}"));
        }
    }
    let mut names = BTreeSet::new();
    for mutant in &table.mutants {
        let Mutant { name, test, .. } = mutant;
        if !names.insert(name) {
            complaints.push(format!("{name}: two mutants are called so"));
        }
        if !is_test(root, mutant) {
            complaints.push(format!("{name}: there is no test {test}"));
        }
    }
    Ok(complaints)
}

/// Whether the file in which a mutant's test would be has a function of that name.
fn is_test(root: &Path, mutant: &Mutant) -> bool {
    let mut path: Vec<&str> = mutant.test.split("::").collect();
    let function = format!("fn {}(", path.pop().unwrap_or_default());
    let module = root.join("tests").join(path.join("/"));
    let files = [module.with_extension("rs"), module.join("mod.rs")];
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).any(|it| it.contains(&function))
}

/// Which mutants to try, and where.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The root of the workspace, which is left as it is.
    pub root: &'a Path,
    /// A folder for the copy of the source and for what is built of it. Kept, it makes the next trial shorter.
    pub folder: &'a Path,
    /// The names of the mutants; all if there are none.
    pub names: &'a [String],
    /// How many of them to try, if not all.
    pub sample: Option<usize>,
    /// What the choice of these depends on. Default: the commit.
    pub seed: Option<String>,
}

/// Tries mutants and prints what became of each.
///
/// # Errors
/// A mutant that no test noticed or that cannot be built; a test that fails without a mutant.
pub fn run(trial: &Trial<'_>) -> Result<(), Box<dyn Error>> {
    let table = Table::read(trial.root)?;
    let chosen = choose(&table, trial)?;
    let names: Vec<&str> = chosen.iter().map(|it| it.1.test.as_str()).collect();
    let copy = Copy::new(trial.root, &trial.folder.join("source"), &table, &names)?;
    let begin = Instant::now();
    let target = trial.folder.join("target");
    // This program lies where the workspace is built.
    if let Some(built) = std::env::current_exe()?.parent().filter(|_| !target.exists()) {
        share::share(trial.root, built, &target.join("debug"))?;
    }
    let tests = Tests::build(&copy.folder, &target)?;
    println!("all mutants are built {:>35.1} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    tests.must_pass(&chosen)?;
    println!("without a mutant all tests pass {:>25.1} s", begin.elapsed().as_secs_f64());
    let mut wrong = 0;
    for &(switch, mutant) in &chosen {
        let begin = Instant::now();
        let fate = tests.run(switch, mutant)?;
        copy.restore()?;
        wrong += usize::from(fate != Fate::Noticed);
        println!(
            "{:<28} {:<20} {:>6.1} s",
            mutant.name,
            fate.text(),
            begin.elapsed().as_secs_f64()
        );
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} of {} mutants were not noticed", chosen.len()).into()),
    }
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Noticed,
    Survived,
    TooLong,
}

impl Fate {
    fn text(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Survived => "SURVIVED",
            Self::TooLong => "took TOO LONG",
        }
    }
}

/// Mutants with the numbers of their switches.
type Numbered<'a> = Vec<(usize, &'a Mutant)>;

fn choose<'a>(table: &'a Table, trial: &Trial<'_>) -> Result<Numbered<'a>, Box<dyn Error>> {
    let mut chosen: Numbered<'_> = table.mutants.iter().enumerate().collect();
    if !trial.names.is_empty() {
        let named = |name: &String| chosen.iter().find(|it| it.1.name == *name).copied();
        let known = |name| named(name).ok_or_else(|| format!("there is no mutant {name}"));
        chosen = trial.names.iter().map(known).collect::<Result<_, _>>()?;
    }
    if let Some(sample) = trial.sample {
        let seed = match &trial.seed {
            Some(seed) => seed.clone(),
            None => copy::commit(trial.root)?,
        };
        println!("--sample {sample} --seed {seed}");
        chosen.sort_by_key(|it| hash(&[&seed, &it.1.name]));
        chosen.truncate(sample);
    }
    Ok(chosen)
}

/// FNV-1a, which is the same everywhere.
fn hash(texts: &[&str]) -> u64 {
    texts
        .iter()
        .flat_map(|text| text.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The tests of the copy, as one program.
struct Tests {
    program: PathBuf,
    /// Where it is run.
    folder: PathBuf,
}

impl Tests {
    fn build(folder: &Path, target: &Path) -> Result<Self, Box<dyn Error>> {
        let cargo = std::env::var_os("CARGO");
        let mut command = Command::new(cargo.as_deref().unwrap_or(OsStr::new("cargo")));
        command.current_dir(folder).args(["test", "--quiet", "--test", "all", "--no-run"]);
        command.args(["--message-format", "json-render-diagnostics"]);
        command.env("CARGO_TARGET_DIR", target);
        // Only whether a test fails is of interest, and to build takes longer than to run.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        for it in ["", "-check", "-plan", "-reach", "-record", "-sim"] {
            command.arg("--config").arg(format!("profile.dev.package.regraph{it}.opt-level=0"));
        }
        let output = command.output()?;
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return Err(format!("{command:?}: {}", output.status).into());
        }
        let messages = String::from_utf8(output.stdout)?;
        let built = messages.split("\"executable\":\"").skip(1).last();
        let program = built.and_then(|it| it.split('"').next()).ok_or("no program was built")?;
        Ok(Self { program: program.into(), folder: folder.to_owned() })
    }

    /// Refuses tests that fail, or are not there, without a mutant: they would say nothing.
    fn must_pass(&self, mutants: &Numbered<'_>) -> Result<(), Box<dyn Error>> {
        let names: BTreeSet<&str> = mutants.iter().map(|it| it.1.test.as_str()).collect();
        let mut command = self.command();
        let output = command.args(&names).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !text.contains(&format!("ok. {} passed", names.len())) {
            return Err(format!("{text}\nnot without a mutant: {command:?}").into());
        }
        Ok(())
    }

    /// Runs a mutant's test.
    fn run(&self, switch: usize, mutant: &Mutant) -> Result<Fate, Box<dyn Error>> {
        let mut command = self.command();
        command.arg(&mutant.test).env(switch::CHOSEN, switch.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(match limited(&mut command)? {
            None => Fate::TooLong,
            Some(status) if status.success() => Fate::Survived,
            Some(_) => Fate::Noticed,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).arg("--exact").env("RUST_BACKTRACE", "0");
        command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
        command
    }
}

/// Runs a command for [`LIMIT`] at most.
fn limited(command: &mut Command) -> Result<Option<ExitStatus>, Box<dyn Error>> {
    let begin = Instant::now();
    let mut child = command.process_group(0).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() > LIMIT {
            // With what the test has started.
            Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(20));
    }
}
