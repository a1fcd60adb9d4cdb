//! What is wrong with a text of settings.

use thiserror::Error;

use super::{text, TEXT_LIMIT};

/// Found text is cut here in messages, in characters.
const QUOTE_LIMIT: usize = 80;

/// Why a text gives no settings: the first thing in it that is not allowed, with the name of the environment variable
/// if the text is a variable's. Positions (`at`) are bytes of the text, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the names of most fields say what they are")]
#[non_exhaustive]
pub enum SettingsError {
    /// There is no such key.
    #[error(
        "byte {at}: unknown key `{key}`{}; the keys are {}",
        .nearest.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default(),
        text::names()
    )]
    UnknownKey {
        at: usize,
        key: String,
        /// The key that looks most like it, if one does.
        nearest: Option<&'static str>,
    },
    /// PyTorch has this key; it means nothing here.
    #[error("byte {at}: `{key}` is a key of PyTorch that means nothing here: {reason}")]
    PyTorchOnly { at: usize, key: String, reason: &'static str },
    /// The key stands there twice.
    #[error("byte {at}: `{key}` stands here for the second time; once is allowed")]
    DuplicateKey {
        /// Where the second one stands.
        at: usize,
        key: &'static str,
    },
    /// The value is not allowed.
    #[error("{}`{key}`: expected {expected}, found `{found}`", position(*.at))]
    Value {
        key: &'static str,
        /// Where the value stands; `None` if it was set in code.
        at: Option<usize>,
        found: String,
        /// What is allowed, with the unit.
        expected: &'static str,
    },
    /// The text is longer than [`TEXT_LIMIT`].
    #[error("expected at most {TEXT_LIMIT} bytes, found {bytes}")]
    TooLong { bytes: usize },
    /// The text is not of the form `key:value,key:[a:b,c:d]`.
    #[error("byte {at}: expected {expected}, found {found}")]
    Form {
        at: usize,
        found: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// The text in an environment variable is wrong.
    #[error("{variable}: {source}")]
    Variable { variable: &'static str, source: Box<SettingsError> },
    /// An environment variable holds something that is not allowed.
    #[error("{variable}: expected {expected}, found `{found}`")]
    VariableValue { variable: &'static str, found: String, expected: &'static str },
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
