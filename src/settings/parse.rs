//! The grammar: `key:value,key:[a:b,c:d]`.

use super::error::quote;
use super::forms::Problem;
use super::keys::{self, SettingKey, KEYS};
use super::{pytorch, Settings, SettingsError, TEXT_LIMIT};

/// A piece of the text: a word, or one of `,` `:` `[` `]`. White space ends words.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// Where it begins, in bytes.
    pub(super) at: usize,
    /// Empty at the text's end.
    pub(super) text: &'a str,
}

/// What stands behind a key.
pub(super) enum Value<'a> {
    /// A word.
    Word(Token<'a>),
    /// A list, with its text from `[` to `]`.
    List { whole: Token<'a>, pairs: Vec<(Token<'a>, Token<'a>)> },
}

impl<'a> Value<'a> {
    /// The word that it is.
    pub(super) fn word(&self) -> Result<Token<'a>, Problem<'a>> {
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
                set(key, &tokens.value()?, &mut settings)?;
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
    Err(match pytorch::reason(name.text) {
        Some(reason) => SettingsError::PyTorchOnly { at, key, reason },
        None => SettingsError::UnknownKey { at, nearest: keys::nearest(&key), key },
    })
}

fn set(key: &SettingKey, value: &Value<'_>, settings: &mut Settings) -> Result<(), SettingsError> {
    let (token, expected) = match (key.read)(value, settings) {
        Ok(()) if (key.valid)(settings) => return Ok(()),
        Ok(()) | Err(Problem::Whole) => (value.whole(), key.expected),
        Err(Problem::Part(token, expected)) => (token, expected),
    };
    let found = quote(token.text);
    Err(SettingsError::Value { key: key.name, at: Some(token.at), found, expected })
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

    fn sign(&mut self, sign: &str, expected: &'static str) -> Result<Token<'a>, SettingsError> {
        let token = self.next();
        if token.text != sign {
            return Err(form(token, expected));
        }
        Ok(token)
    }

    /// A value of any form: lists of PyTorch's may hold words alone.
    fn skip_value(&mut self) -> Result<(), SettingsError> {
        if self.peek().text != "[" {
            return self.word("a value").map(drop);
        }
        while !matches!(self.peek().text, "]" | "") {
            self.next();
        }
        self.sign("]", "`]`").map(drop)
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
