//! Settings, as viewers print them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A setting's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Yes or no.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number. JSON has no way to write an infinite one: it becomes [`Setting::Nothing`].
    Number(f64),
    /// A text.
    Text(String),
    /// Settings by name.
    Map(BTreeMap<String, Setting>),
    /// No value.
    Nothing,
}

impl From<bool> for Setting {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i64> for Setting {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Setting {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Setting {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}
