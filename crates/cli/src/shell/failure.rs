//! Failures of the command and their exit statuses.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::replay::ReplayError;

/// Why the command does not succeed.
#[derive(Debug)]
pub enum Failure {
    /// A bad file.
    Input(String),
    /// The checker refuses a capture.
    Refused(String),
    /// Anything else.
    Other(String),
    /// The reader has closed the output.
    Unread,
}

impl Failure {
    /// Prints the message in the name of the command and gives the exit status.
    pub fn report(self, command: &str) -> ExitCode {
        let (message, status) = match self {
            Self::Input(message) => (message, 2),
            Self::Refused(message) => (message, 3),
            Self::Other(message) => (message, 1),
            Self::Unread => return ExitCode::SUCCESS,
        };
        // Nothing is left to do where the message cannot be printed either.
        let _ = writeln!(io::stderr(), "{command}: {message}");
        ExitCode::from(status)
    }

    /// A replay's failure, with the words that say which one it was.
    pub fn replay(what: &str, error: &ReplayError) -> Self {
        match error.refusal() {
            Some(refusal) => Self::Refused(format!("{what}: {refusal}")),
            None => Self::Other(format!("{what}: {error}")),
        }
    }
}

impl From<io::Error> for Failure {
    /// Failures of standard output.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Unread,
            _ => Self::Other(format!("standard output: {error}")),
        }
    }
}
