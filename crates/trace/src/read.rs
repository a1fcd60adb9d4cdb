//! Reading a trace.

use std::borrow::Cow;
use std::io::BufRead;

use serde::Deserialize;
use thiserror::Error;

use super::lines::{Lines, LINE_LIMIT};
use super::rules::{Rules, Violation};
use super::{Operation, Trace};

/// Found text is cut here in messages.
const QUOTE_LIMIT: usize = 120;

/// Why there is no trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A line is not what the format asks for.
    #[error("line {line}: expected {expected}, found {found}")]
    Line {
        /// The line, counted from 1.
        line: u64,
        /// What stands there.
        found: String,
        /// What the format asks for.
        expected: String,
    },
    /// The input fails.
    #[error("line {line}: {source}")]
    Input {
        /// The line, counted from 1.
        line: u64,
        /// The failure.
        source: std::io::Error,
    },
}

impl ReadError {
    /// The line, counted from 1.
    pub fn line(&self) -> u64 {
        match self {
            Self::Line { line, .. } | Self::Input { line, .. } => *line,
        }
    }
}

/// Reads a whole trace. Empty lines are allowed.
///
/// Memory stays in proportion to the input, for any numbers in it, and the input is at most
/// [`INPUT_LIMIT`](super::INPUT_LIMIT) bytes.
///
/// # Errors
/// The first line that breaks a rule of the format, or a failure of the input.
pub fn read(input: impl BufRead) -> Result<Trace, ReadError> {
    let mut rules = Rules::default();
    let mut operations = Vec::new();
    let mut lines = Lines::new(input, LINE_LIMIT);
    let at = |line| move |Violation { found, expected }| ReadError::Line { line, found, expected };
    while let Some((line, text)) = lines.next_line()? {
        let operation = parse(text).map_err(at(line))?;
        rules.accept(&operation).map_err(at(line))?;
        operations.push(operation);
    }
    rules.finish().map_err(at(lines.count() + 1))?;
    Ok(Trace { operations })
}

/// The part of a line that says what else belongs on it.
#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
}

fn parse(text: &[u8]) -> Result<Operation, Violation> {
    // Where a line is not even an object, serde_json would take an array for one.
    if text.first() != Some(&b'{') {
        return Err(Violation {
            found: quote(text),
            expected: "a JSON object with `op`".to_owned(),
        });
    }
    let error = match serde_json::from_slice(text) {
        Ok(operation) => return Ok(operation),
        Err(error) => error,
    };
    let found = describe(&error);
    let Ok(name) = serde_json::from_slice::<Name<'_>>(text) else {
        return Err(Violation { found, expected: "a JSON object with `op`".to_owned() });
    };
    let form = Operation::FORMS.iter().find(|(known, _)| *known == name.op);
    Err(match form {
        Some((_, form)) => Violation { found, expected: (*form).to_owned() },
        None => {
            let names: Vec<_> = Operation::FORMS.iter().map(|(name, _)| *name).collect();
            Violation {
                found: format!("op {}", quote(name.op.as_bytes())),
                expected: format!("one of the operations {}", names.join(", ")),
            }
        }
    })
}

/// The parser's message, with its column; its line is always the first.
fn describe(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let cut = message.rfind(" at line ").map_or(message.as_str(), |end| &message[..end]);
    let message: String = cut.chars().take(QUOTE_LIMIT).collect();
    match error.column() {
        0 => message,
        column => format!("{message} (column {column})"),
    }
}

fn quote(text: &[u8]) -> String {
    let text = &text[..text.len().min(4 * QUOTE_LIMIT)];
    let text: String = String::from_utf8_lossy(text).chars().take(QUOTE_LIMIT).collect();
    format!("{text:?}")
}
