//! What is wrong with a text of settings.

use thiserror::Error;

use super::{text, TEXT_LIMIT};

/// Found text is cut here in messages, in characters.
const QUOTE_LIMIT: usize = 80;

/// Why there are no settings. Positions are bytes of the text, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no such key.
    #[error(
        "byte {at}: unknown key `{key}`{}; the keys are {}",
        .nearest.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default(),
        text::names()
    )]
    UnknownKey {
        /// Where it stands.
        at: usize,
        /// What stands there.
        key: String,
        /// The key that looks most like it, if one does.
        nearest: Option<&'static str>,
    },
    /// PyTorch has this key; it means nothing here.
    #[error("byte {at}: `{key}` is a key of PyTorch that means nothing here: {reason}")]
    PyTorchOnly {
        /// Where it stands.
        at: usize,
        /// The key.
        key: String,
        /// Why it means nothing here.
        reason: &'static str,
    },
    /// The key stands there twice.
    #[error("byte {at}: `{key}` stands here for the second time; once is allowed")]
    DuplicateKey {
        /// Where the second one stands.
        at: usize,
        /// The key.
        key: &'static str,
    },
    /// The value is not allowed.
    #[error("{}`{key}`: expected {expected}, found `{found}`", position(*.at))]
    Value {
        /// The key.
        key: &'static str,
        /// Where the value stands; `None` if it was set in code.
        at: Option<usize>,
        /// What stands there.
        found: String,
        /// What is allowed, with the unit.
        expected: &'static str,
    },
    /// The text is longer than [`TEXT_LIMIT`].
    #[error("expected at most {TEXT_LIMIT} bytes, found {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The text is not of the form `key:value,key:[a:b,c:d]`.
    #[error("byte {at}: expected {expected}, found {found}")]
    Form {
        /// Where it goes wrong.
        at: usize,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// The text in an environment variable is wrong.
    #[error("{variable}: {source}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// What is wrong with the text.
        source: Box<SettingsError>,
    },
    /// An environment variable holds something that is not allowed.
    #[error("{variable}: expected {expected}, found `{found}`")]
    VariableValue {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        found: String,
        /// What is allowed.
        expected: &'static str,
    },
}

fn position(at: Option<usize>) -> String {
    at.map(|at| format!("byte {at}: ")).unwrap_or_default()
}

/// Found text for a message.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTE_LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
