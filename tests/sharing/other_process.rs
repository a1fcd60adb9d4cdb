//! A real process beside the tests': the same binary, in which one test that is left out otherwise answers questions.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Set for the other process alone.
const OTHER: &str = "REGRAPH_TEST_OTHER";

/// It is killed when this goes.
pub struct OtherProcess {
    child: Child,
    send: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl OtherProcess {
    /// A process that runs one test.
    pub fn new(test: &str) -> Self {
        Self::begin(test, |command| command).unwrap()
    }

    /// One of another user, which only root can begin.
    pub fn of_another_user(test: &str) -> Option<Self> {
        Self::begin(test, |command| command.uid(65534)).ok()
    }

    fn begin(test: &str, how: impl Fn(&mut Command) -> &mut Command) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", test, "--nocapture"]).env(OTHER, "1");
        let mut child = how(command.stdin(Stdio::piped()).stdout(Stdio::piped())).spawn()?;
        let send = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, send, answers })
    }

    /// Sends bytes, and waits for the line that it answers with.
    pub fn ask(&mut self, bytes: &[u8]) -> String {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.send, "{text}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the other process has ended");
            if let Some(answer) = line.trim_end().strip_prefix("answer ") {
                return answer.to_owned();
            }
        }
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this is such a process.
pub fn is_other_process() -> bool {
    std::env::var_os(OTHER).is_some()
}

/// What it is sent, until no more comes.
pub fn words() -> impl Iterator<Item = Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let words = std::io::stdin().lines().map(Result::unwrap);
    words.map(move |line| line.as_bytes().chunks(2).map(byte).collect())
}
