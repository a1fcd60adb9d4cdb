//! Reading a trace.

use std::borrow::Cow;
use std::io::BufRead;

use serde::Deserialize;
use thiserror::Error;

use super::kind::kind;
use super::labels::{self, Remark};
use super::lines::{Lines, LINE_LIMIT};
use super::rules::{broken, Rules, Violation};
use super::write::{FORMAT, VERSION};
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

/// Reads a whole trace, as the format's [specification](crate::format) has it. Empty lines are allowed.
///
/// Memory stays in proportion to the input, for any numbers in it, and the input is at most
/// [`INPUT_LIMIT`](super::INPUT_LIMIT) bytes.
///
/// # Errors
/// The first line that breaks a rule of the format, or a failure of the input.
pub fn read(input: impl BufRead) -> Result<Trace, ReadError> {
    let mut rules = Rules::default();
    let mut operations = Vec::new();
    let mut labels = labels::Reader::default();
    let mut lines = Lines::new(input, LINE_LIMIT);
    let mut is_first = true;
    let at = |line| move |Violation { found, expected }| ReadError::Line { line, found, expected };
    while let Some((line, text)) = lines.next_line()? {
        match parse(text, is_first).map_err(at(line))? {
            Line::Version => {}
            Line::Operation(operation) => {
                rules.accept(&operation).map_err(at(line))?;
                operations.push(operation);
            }
            Line::Remark(remark) => {
                let (block, node) = match remark {
                    Remark::Label { block, node, .. } => (block, node),
                    Remark::Stack { .. } => (None, None),
                };
                let capture = rules.label(block, node).map_err(at(line))?;
                labels.accept(remark, capture).map_err(at(line))?;
            }
        }
        is_first = false;
    }
    rules.finish().map_err(at(lines.count() + 1))?;
    Ok(Trace { operations, labels: labels.finish() })
}

/// What stands on a line.
enum Line {
    Version,
    Operation(Operation),
    Remark(Remark),
}

/// The part of a line that says what else belongs on it.
#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
}

/// The line that says which format a file has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Version<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    version: u64,
}

fn parse(text: &[u8], is_first: bool) -> Result<Line, Violation> {
    const OBJECT: &str = "a JSON object with `op`";
    // Where a line is not even an object, serde_json would take an array for one.
    if text.first() != Some(&b'{') {
        let found = kind(text).map_or_else(|| quote(text), str::to_owned);
        return Err(Violation { found, expected: OBJECT.to_owned() });
    }
    let error = match serde_json::from_slice(text) {
        Ok(operation) => return Ok(Line::Operation(operation)),
        Err(error) => error,
    };
    let mut found = describe(&error);
    if let Ok(version) = serde_json::from_slice::<Version<'_>>(text) {
        return version.accept(is_first).map(|()| Line::Version);
    }
    let name = match serde_json::from_slice::<Name<'_>>(text) {
        Ok(name) => name,
        // The first error may be of an operation that it takes a remark for.
        Err(error) => {
            return Err(Violation { found: describe(&error), expected: OBJECT.to_owned() })
        }
    };
    if let "stack" | "label" = &*name.op {
        match serde_json::from_slice(text) {
            Ok(remark) => return Ok(Line::Remark(remark)),
            Err(error) => found = describe(&error),
        }
    }
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

impl Version<'_> {
    fn accept(&self, is_first: bool) -> Result<(), Violation> {
        let found = format!("`{}` of version {}", self.format, self.version);
        if (&*self.format, self.version) != (FORMAT, VERSION) {
            return Err(Violation { found, expected: format!("`{FORMAT}` of version {VERSION}") });
        }
        match is_first {
            true => Ok(()),
            false => broken("the version on the first line", found),
        }
    }
}

/// The parser's message, with its column; its line is always the first.
fn describe(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let cut = message.rfind(" at line ").map_or(message.as_str(), |end| &message[..end]);
    let message = shortened(cut);
    match error.column() {
        0 => message,
        column => format!("{message} (column {column})"),
    }
}

fn quote(text: &[u8]) -> String {
    let text = &text[..text.len().min(4 * QUOTE_LIMIT)];
    format!("{:?}", shortened(&String::from_utf8_lossy(text)))
}

/// The first part of a text, with an ellipsis where there is more.
fn shortened(text: &str) -> String {
    let mut first: String = text.chars().take(QUOTE_LIMIT).collect();
    if first.len() < text.len() {
        first.push('…');
    }
    first
}
