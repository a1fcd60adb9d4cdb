//! The forms of values: how each is read from tokens and written.

use std::fmt::Display;
use std::str::FromStr;

use super::parse::{Token, Value};
use super::Rounding;

/// A form in which values of a kind stand in the text.
pub(super) trait Form<T> {
    fn read<'a>(value: &Value<'a>) -> Result<T, Problem<'a>>;
    fn write(value: &T) -> String;
}

/// What is wrong with a value.
pub(super) enum Problem<'a> {
    /// It is not what its key expects.
    Whole,
    /// A part of a list is not what is expected there.
    Part(Token<'a>, &'static str),
}

/// A number, as Rust reads it.
pub(super) struct Number;

impl Form<usize> for Number {
    fn read<'a>(value: &Value<'a>) -> Result<usize, Problem<'a>> {
        number(value.word()?)
    }

    fn write(value: &usize) -> String {
        value.to_string()
    }
}

impl Form<Option<u64>> for Number {
    fn read<'a>(value: &Value<'a>) -> Result<Option<u64>, Problem<'a>> {
        number(value.word()?).map(Some)
    }

    fn write(value: &Option<u64>) -> String {
        optional(*value)
    }
}

impl Form<Option<f64>> for Number {
    fn read<'a>(value: &Value<'a>) -> Result<Option<f64>, Problem<'a>> {
        number(value.word()?).map(Some)
    }

    fn write(value: &Option<f64>) -> String {
        optional(*value)
    }
}

/// Bytes, in the text as whole MB.
pub(super) struct Megabytes;

const MB_LOG: u32 = 20;

impl Form<u64> for Megabytes {
    fn read<'a>(value: &Value<'a>) -> Result<u64, Problem<'a>> {
        let megabytes: u64 = number(value.word()?)?;
        megabytes.checked_mul(1 << MB_LOG).ok_or(Problem::Whole)
    }

    fn write(value: &u64) -> String {
        (value >> MB_LOG).to_string()
    }
}

impl Form<Option<u64>> for Megabytes {
    fn read<'a>(value: &Value<'a>) -> Result<Option<u64>, Problem<'a>> {
        Self::read(value).map(Some)
    }

    fn write(value: &Option<u64>) -> String {
        optional(value.map(|bytes| bytes >> MB_LOG))
    }
}

/// `True` or `False`.
pub(super) struct Boolean;

impl Form<bool> for Boolean {
    fn read<'a>(value: &Value<'a>) -> Result<bool, Problem<'a>> {
        match value.word()?.text {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(Problem::Whole),
        }
    }

    fn write(value: &bool) -> String {
        if *value { "True" } else { "False" }.to_owned()
    }
}

/// A policy's name. Keys and values have underscores where the names of policies have hyphens;
/// both are read.
pub(super) struct Name;

impl<T: FromStr + Display> Form<T> for Name {
    fn read<'a>(value: &Value<'a>) -> Result<T, Problem<'a>> {
        value.word()?.text.replace('_', "-").parse().map_err(|_| Problem::Whole)
    }

    fn write(value: &T) -> String {
        value.to_string().replace('-', "_")
    }
}

/// Divisions for all sizes, or by size.
pub(super) struct Divisions;

/// The end of the last interval, in MB: the last key there is.
const LAST_MB: u64 = 1 << Rounding::INTERVALS;

impl Form<Rounding> for Divisions {
    fn read<'a>(value: &Value<'a>) -> Result<Rounding, Problem<'a>> {
        let Value::List { pairs, .. } = value else {
            return Rounding::uniform(number(value.word()?)?).ok_or(Problem::Whole);
        };
        // As in PyTorch, later pairs may overwrite what earlier ones gave to other intervals.
        let mut divisions = [1; Rounding::INTERVALS];
        let mut named = [false; Rounding::INTERVALS];
        let mut before = None;
        for &(key, count) in pairs {
            let each = match number(count) {
                Ok(0) => 1,
                Ok(each) if u64::is_power_of_two(each) => each,
                _ => return Err(Problem::Part(count, "0 or a power of two as divisions")),
            };
            if key.text == ">" {
                let Some(before) = before else {
                    return Err(Problem::Part(key, "a size in MB before `>`, for all above it"));
                };
                divisions[before + 1..].fill(each);
                continue;
            }
            let interval = interval(key)?;
            if std::mem::replace(&mut named[interval], true) {
                return Err(Problem::Part(key, "another size: this interval was given before"));
            }
            if before.is_none() {
                divisions[..interval].fill(each);
            }
            divisions[interval] = each;
            before = Some(interval);
        }
        Rounding::from_divisions(divisions).ok_or(Problem::Whole)
    }

    fn write(value: &Rounding) -> String {
        value.to_string()
    }
}

/// The interval that a key of the list names.
fn interval(key: Token<'_>) -> Result<usize, Problem<'_>> {
    match number(key) {
        Ok(LAST_MB) => Ok(Rounding::INTERVALS - 1),
        Ok(size) if u64::is_power_of_two(size) && size < LAST_MB => {
            Ok(size.trailing_zeros() as usize)
        }
        _ => Err(Problem::Part(key, "a power of two from 1 to 65536, in MB, or `>`")),
    }
}

fn number<T: FromStr>(token: Token<'_>) -> Result<T, Problem<'_>> {
    token.text.parse().map_err(|_| Problem::Whole)
}

/// Never in a text: what is not set has no key there.
fn optional(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
