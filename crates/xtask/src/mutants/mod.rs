//! `cargo xtask mutants`: takes safety rules out of a copy of the source, one at a time, and expects a test of the
//! project to fail each time.

mod copy;
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
pub use table::MUTANTS;

/// How long one test may run. One that takes longer is to be replaced by a shorter program.
const LIMIT: Duration = Duration::from_secs(600);

/// A rule that can be taken out of the source, and the test that fails without it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What `cargo xtask mutants NAME` calls it.
    pub name: &'static str,
    /// The rule, as the source has it.
    pub rule: &'static str,
    /// The file, seen from the root of the workspace.
    pub file: &'static str,
    /// Texts that the file contains once each, and what stands there without the rule.
    pub edits: &'static [(&'static str, &'static str)],
    /// The test that fails without the rule: its whole name in `tests/all.rs`.
    pub test: &'static str,
}

impl Mutant {
    /// The source file's text without the rule.
    ///
    /// # Errors
    /// A text that the file does not contain exactly once, or that is replaced by itself.
    pub fn apply(&self, source: &str) -> Result<String, String> {
        let mut mutated = source.to_owned();
        for (text, instead) in self.edits {
            let found = source.matches(text).count();
            if found != 1 || mutated.matches(text).count() != 1 {
                return Err(format!("{}: {} contains {found} times: {text}", self.name, self.file));
            }
            if text == instead {
                return Err(format!("{}: nothing is changed: {text}", self.name));
            }
            mutated = mutated.replacen(text, instead, 1);
        }
        Ok(mutated)
    }
}

/// What is wrong in the table of mutants, for the source below `root`: a text that is not in its file exactly once, a
/// name that two mutants have, a test that is not there.
///
/// # Errors
/// A file that cannot be read.
pub fn complaints(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut complaints = Vec::new();
    for (row, mutant) in MUTANTS.iter().enumerate() {
        let Mutant { name, file, test, .. } = mutant;
        let source = fs::read_to_string(root.join(file)).map_err(|e| format!("{file}: {e}"))?;
        complaints.extend(mutant.apply(&source).err());
        if MUTANTS[..row].iter().any(|other| other.name == *name) {
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
    let chosen = choose(trial)?;
    let copy = Copy::new(trial.root, &trial.folder.join("source"))?;
    let cargo = Cargo { folder: &copy.folder, target: trial.folder.join("target") };
    let begin = Instant::now();
    cargo.must_pass(&chosen)?;
    println!(
        "{:<28} without a mutant all tests pass {:>16.1} s",
        "",
        begin.elapsed().as_secs_f64()
    );
    println!("{:<28} {:<28} {:>8} {:>8}", "mutant", "", "build", "test");
    let mut wrong = 0;
    for mutant in &chosen {
        let begin = Instant::now();
        copy.write(mutant)?;
        let built = cargo.build()?;
        let (build, begin) = (begin.elapsed(), Instant::now());
        let fate = match built {
            true => cargo.test(mutant)?,
            false => Fate::NotBuilt,
        };
        copy.restore()?;
        wrong += usize::from(fate != Fate::Noticed);
        let (build, test) = (build.as_secs_f64(), begin.elapsed().as_secs_f64());
        println!("{:<28} {:<28} {build:>6.1} s {test:>6.1} s", mutant.name, fate.text());
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
    NotBuilt,
    TooLong,
}

impl Fate {
    fn text(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Survived => "SURVIVED its test",
            Self::NotBuilt => "CANNOT BE BUILT",
            Self::TooLong => "took its test TOO LONG",
        }
    }
}

fn choose(trial: &Trial<'_>) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let mut chosen = MUTANTS.to_vec();
    if !trial.names.is_empty() {
        let named = |name: &String| chosen.iter().find(|it| it.name == name).copied();
        let known = |name| named(name).ok_or_else(|| format!("there is no mutant {name}"));
        chosen = trial.names.iter().map(known).collect::<Result<_, _>>()?;
    }
    if let Some(sample) = trial.sample {
        let seed = match &trial.seed {
            Some(seed) => seed.clone(),
            None => copy::commit(trial.root)?,
        };
        println!("--sample {sample} --seed {seed}");
        chosen.sort_by_key(|it| hash(&[&seed, it.name]));
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

/// Builds the copy's tests and runs them.
struct Cargo<'a> {
    folder: &'a Path,
    target: PathBuf,
}

impl Cargo<'_> {
    /// Refuses tests that fail, or are not there, without a mutant: they would say nothing.
    fn must_pass(&self, mutants: &[Mutant]) -> Result<(), Box<dyn Error>> {
        let names: BTreeSet<&str> = mutants.iter().map(|it| it.test).collect();
        let mut command = self.command();
        let output = command.args(["--", "--exact"]).args(&names).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !text.contains(&format!("ok. {} passed", names.len())) {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{text}\n{errors}\nnot without a mutant: {command:?}").into());
        }
        Ok(())
    }

    /// Builds the tests. What the compiler says is shown where that fails.
    fn build(&self) -> Result<bool, Box<dyn Error>> {
        let output = self.command().arg("--no-run").output()?;
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.status.success())
    }

    /// Runs a mutant's test, which is built.
    fn test(&self, mutant: &Mutant) -> Result<Fate, Box<dyn Error>> {
        let mut command = self.command();
        command.args(["--", "--exact", mutant.test]).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(match limited(&mut command)? {
            None => Fate::TooLong,
            Some(status) if status.success() => Fate::Survived,
            Some(_) => Fate::Noticed,
        })
    }

    fn command(&self) -> Command {
        let cargo = std::env::var_os("CARGO");
        let mut command = Command::new(cargo.as_deref().unwrap_or(OsStr::new("cargo")));
        command.current_dir(self.folder).args(["test", "--quiet", "--test", "all"]);
        command.env("CARGO_TARGET_DIR", &self.target);
        // What is built is run once, and only whether it fails is of interest.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("RUST_BACKTRACE", "0");
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
            // The test is cargo's child.
            Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(20));
    }
}
