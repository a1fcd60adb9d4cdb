//! The one-line text: its grammar (`key:value,key:[a:b,c:d]`), its keys, and the forms of their values.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use super::error::quote;
use super::{Rounding, Settings, SettingsError, KEYS, TEXT_LIMIT};

pub(super) struct SettingKey {
    name: &'static str,
    /// What values are allowed, for messages.
    expected: &'static str,
    /// Reads a value without regard to its bounds.
    read: Read,
    write: fn(&Settings) -> String,
    /// Whether the value is within its bounds.
    valid: fn(&Settings) -> bool,
}

type Read = for<'a> fn(&Value<'a>, &mut Settings) -> Result<(), Problem<'a>>;

impl SettingKey {
    pub(super) const fn new(
        name: &'static str,
        expected: &'static str,
        read: Read,
        write: fn(&Settings) -> String,
        valid: fn(&Settings) -> bool,
    ) -> Self {
        Self { name, expected, read, write, valid }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The value of the settings, as the text has it.
    pub(super) fn value(&self, settings: &Settings) -> String {
        (self.write)(settings)
    }

    /// Refuses settings whose value is out of bounds.
    pub(super) fn validate(&self, settings: &Settings) -> Result<(), SettingsError> {
        let (key, expected) = (self.name, self.expected);
        let bad = || SettingsError::Value { key, at: None, found: self.value(settings), expected };
        (self.valid)(settings).then_some(()).ok_or_else(bad)
    }

    fn set(&self, value: &Value<'_>, settings: &mut Settings) -> Result<(), SettingsError> {
        let (token, expected) = match (self.read)(value, settings) {
            Ok(()) if (self.valid)(settings) => return Ok(()),
            Ok(()) | Err(Problem::Whole) => (value.whole(), self.expected),
            Err(Problem::Part(token, expected)) => (token, expected),
        };
        let found = quote(token.text);
        Err(SettingsError::Value { key: self.name, at: Some(token.at), found, expected })
    }
}

/// The names of all keys, for messages.
pub(super) fn names() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// The key that looks most like a text, if one does.
pub(super) fn nearest(text: &str) -> Option<&'static str> {
    let (edits, name) =
        KEYS.iter().map(|key| (edits(text, key.name), key.name)).min_by_key(|(edits, _)| *edits)?;
    // With more than one edit in five characters, two words have little in common.
    (5 * edits <= name.len().max(text.chars().count())).then_some(name)
}

/// How many characters have to be put in, taken out or replaced to make one text the other.
fn edits(one: &str, other: &str) -> usize {
    let mut last: Vec<usize> = (0..=other.chars().count()).collect();
    for (row, character) in one.chars().enumerate() {
        // What `last` had in the column before this one.
        let mut diagonal = std::mem::replace(&mut last[0], row + 1);
        for (column, it) in other.chars().enumerate() {
            let replaced = diagonal + usize::from(it != character);
            diagonal = last[column + 1];
            last[column + 1] = replaced.min(diagonal + 1).min(last[column] + 1);
        }
    }
    last[last.len() - 1]
}

/// Why a key of PyTorch means nothing here; `None` if PyTorch has no such key.
fn pytorch_reason(key: &str) -> Option<&'static str> {
    Some(match key {
        "backend" => "there is one backend",
        "large_segment_size_mb" => "segments do not come in classes of fixed sizes",
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
            "which locks are held in a driver call is no choice"
        }
        "graph_capture_record_stream_reuse" => {
            "blocks are always reused in captures; `reuse` says by which streams"
        }
        "throw_on_cudamalloc_oom" => "what is tried before a request fails is no choice",
        "expandable_segments_reserve" | "expandable_segments_reserve_by_class" => {
            "how many addresses a segment reserves is no choice"
        }
        _ if key.starts_with("pinned_") || key.starts_with("pin_memory_") => {
            "only device memory is managed, never pinned host memory"
        }
        _ => return None,
    })
}

/// A piece of the text: a word, or one of `,` `:` `[` `]`. White space ends words.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// Where it begins, in bytes.
    at: usize,
    /// Empty at the text's end.
    text: &'a str,
}

/// What stands behind a key.
pub(super) enum Value<'a> {
    /// A word.
    Word(Token<'a>),
    /// A list, with its text from `[` to `]`.
    List { whole: Token<'a>, pairs: Vec<(Token<'a>, Token<'a>)> },
}

impl<'a> Value<'a> {
    fn word(&self) -> Result<Token<'a>, Problem<'a>> {
        match self {
            Self::Word(word) => Ok(*word),
            Self::List { .. } => Err(Problem::Whole),
        }
    }

    fn whole(&self) -> Token<'a> {
        match self {
            Self::Word(whole) | Self::List { whole, .. } => *whole,
        }
    }
}

/// Whose text it is.
pub(super) enum Dialect<'a> {
    /// A key may stand once.
    Own,
    /// The last of a key counts. Keys that mean nothing here are noted.
    PyTorch(&'a mut Vec<String>),
}

/// Reads settings; what the text leaves out stays as it is.
pub(super) fn parse(
    text: &str,
    mut settings: Settings,
    mut dialect: Dialect<'_>,
) -> Result<Settings, SettingsError> {
    if text.len() > TEXT_LIMIT {
        return Err(SettingsError::TooLong { bytes: text.len() });
    }
    let mut tokens = Tokens { text, at: 0 };
    let mut seen = [false; KEYS.len()];
    // A comma at the end is allowed, as in PyTorch: texts are put together by programs.
    while !tokens.peek().text.is_empty() {
        let name = tokens.word("a key")?;
        let found = find(name);
        if let (Ok((index, key)), Dialect::Own) = (&found, &dialect) {
            if std::mem::replace(&mut seen[*index], true) {
                return Err(SettingsError::DuplicateKey { at: name.at, key: key.name });
            }
        }
        match (found, &mut dialect) {
            (Ok((_, key)), _) => {
                tokens.sign(":", "`:` and a value")?;
                key.set(&tokens.value()?, &mut settings)?;
            }
            (Err(SettingsError::PyTorchOnly { key, .. }), Dialect::PyTorch(unused)) => {
                unused.push(key);
                tokens.sign(":", "`:` and a value")?;
                tokens.skip_value()?;
            }
            (Err(error), _) => return Err(error),
        }
        if !tokens.peek().text.is_empty() {
            tokens.sign(",", "`,` and the next key, or the end")?;
        }
    }
    Ok(settings)
}

fn find(name: Token<'_>) -> Result<(usize, &'static SettingKey), SettingsError> {
    let at = name.at;
    if let Some(found) = KEYS.iter().enumerate().find(|(_, key)| key.name == name.text) {
        return Ok(found);
    }
    let key = quote(name.text);
    Err(match pytorch_reason(name.text) {
        Some(reason) => SettingsError::PyTorchOnly { at, key, reason },
        None => SettingsError::UnknownKey { at, nearest: nearest(&key), key },
    })
}

/// The tokens of a text, one after the other.
struct Tokens<'a> {
    text: &'a str,
    /// Where the next one is looked for.
    at: usize,
}

const SIGNS: [char; 4] = [',', ':', '[', ']'];

impl<'a> Tokens<'a> {
    fn peek(&self) -> Token<'a> {
        let rest = self.text[self.at..].trim_start();
        let at = self.text.len() - rest.len();
        let end = match rest.find(|sign: char| SIGNS.contains(&sign) || sign.is_whitespace()) {
            Some(0) => 1,
            Some(end) => end,
            None => rest.len(),
        };
        Token { at, text: &rest[..end] }
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = token.at + token.text.len();
        token
    }

    fn word(&mut self, expected: &'static str) -> Result<Token<'a>, SettingsError> {
        let token = self.next();
        if token.text.is_empty() || token.text.starts_with(SIGNS) {
            return Err(form(token, expected));
        }
        Ok(token)
    }

    fn sign(&mut self, sign: &str, expected: &'static str) -> Result<(), SettingsError> {
        let token = self.next();
        (token.text == sign).then_some(()).ok_or_else(|| form(token, expected))
    }

    /// A value of any form: lists of PyTorch's may hold words alone.
    fn skip_value(&mut self) -> Result<(), SettingsError> {
        if self.peek().text != "[" {
            return self.word("a value").map(drop);
        }
        while !matches!(self.peek().text, "]" | "") {
            self.next();
        }
        self.sign("]", "`]`")
    }

    fn value(&mut self) -> Result<Value<'a>, SettingsError> {
        let open = self.peek();
        if open.text != "[" {
            return self.word("a value").map(Value::Word);
        }
        self.next();
        let mut pairs = Vec::new();
        while self.peek().text != "]" {
            let key = self.word("a key of the list, or `]`")?;
            self.sign(":", "`:` and a value")?;
            pairs.push((key, self.word("a value")?));
            if self.peek().text != "]" {
                self.sign(",", "`,` or `]`")?;
            }
        }
        self.next();
        let whole = Token { at: open.at, text: &self.text[open.at..self.at] };
        Ok(Value::List { whole, pairs })
    }
}

fn form(token: Token<'_>, expected: &'static str) -> SettingsError {
    let found = match token.text {
        "" => "the end".to_owned(),
        text => format!("`{}`", quote(text)),
    };
    SettingsError::Form { at: token.at, found, expected }
}

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

/// A number or a word, as Rust reads it.
pub(super) struct Plain;

impl<T: FromStr + Display> Form<T> for Plain {
    fn read<'a>(value: &Value<'a>) -> Result<T, Problem<'a>> {
        number(value.word()?)
    }

    fn write(value: &T) -> String {
        value.to_string()
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

/// A value that need not be set. One that is not has no key in a text.
pub(super) struct Optional<F>(PhantomData<F>);

impl<T, F: Form<T>> Form<Option<T>> for Optional<F> {
    fn read<'a>(value: &Value<'a>) -> Result<Option<T>, Problem<'a>> {
        F::read(value).map(Some)
    }

    fn write(value: &Option<T>) -> String {
        value.as_ref().map(F::write).unwrap_or_default()
    }
}

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

/// A policy's name. Keys and values have underscores where policies' names have hyphens; both are read.
pub(super) struct Name;

impl<T: FromStr + Display> Form<T> for Name {
    fn read<'a>(value: &Value<'a>) -> Result<T, Problem<'a>> {
        value.word()?.text.parse().map_err(|_| Problem::Whole)
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
