//! Snapshots in pickles, as PyTorch and regraph write them.
//!
//! Only data is read: a pickle that would make objects or call functions is refused. Objects that a pickle names twice, as
//! PyTorch's frames, are read once and copied.

use std::collections::HashMap;
use std::io::{self, BufRead, Error, ErrorKind, Read};

use regraph::snapshot::{Action, Snapshot, INPUT_LIMIT};
use serde_json::{Map, Number, Value};

/// So many values are made of a pickle at most: a few shared ones may stand for more than there is memory for.
const VALUES: usize = 100_000_000;
/// Lists in lists are followed so deep.
const DEPTH: usize = 64;

/// Reads what `torch.cuda.memory._dump_snapshot`, or Python's `pickle` of `torch.cuda.memory._snapshot()`, wrote in
/// protocol 2 or later: at most [`INPUT_LIMIT`] bytes. Events of kinds that only later versions know are left out.
///
/// # Errors
/// Failures of the input; [`ErrorKind::InvalidData`] for what is no pickle of data, or of something else.
pub fn read_snapshot(input: impl BufRead) -> io::Result<Snapshot> {
    let mut reader =
        Reader { input: input.take(INPUT_LIMIT), at: 0, stack: Vec::new(), objects: Vec::new() };
    let top = reader.run()?;
    let mut left = VALUES;
    let mut value = reader.value(top, DEPTH, &mut left)?;
    adapt(&mut value);
    Ok(serde_json::from_value(value)?)
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, message.into())
}

/// An object; others are named by their places.
enum Object {
    Value(Value),
    List(Vec<usize>),
    /// Keys and values in turns.
    Dictionary(Vec<usize>),
}

/// What lies on the stack.
#[derive(Clone, Copy)]
enum Item {
    Mark,
    Object(usize),
}

struct Reader<R> {
    input: R,
    /// How many bytes were read.
    at: u64,
    stack: Vec<Item>,
    objects: Vec<Object>,
}

impl<R: Read> Reader<R> {
    /// Runs to the end; the place of what was pickled.
    fn run(&mut self) -> io::Result<usize> {
        let mut memo: HashMap<u64, usize> = HashMap::new();
        loop {
            let [code] = self.bytes()?;
            match code {
                // The protocol, and how long the next part is.
                0x80 => drop(self.bytes::<1>()?),
                0x95 => drop(self.bytes::<8>()?),
                b'.' => return self.pop(),
                b'(' => self.stack.push(Item::Mark),
                b'N' => self.push(Object::Value(Value::Null)),
                0x88 => self.push(Object::Value(true.into())),
                0x89 => self.push(Object::Value(false.into())),
                b'K' | b'M' | b'J' | 0x8a => {
                    let number = self.integer(code)?;
                    self.push(Object::Value(number.into()));
                }
                b'G' => {
                    let number = f64::from_be_bytes(self.bytes()?);
                    let number = Number::from_f64(number).map_or(Value::Null, Value::Number);
                    self.push(Object::Value(number));
                }
                b'X' | 0x8c | 0x8d => {
                    let text = self.text(code)?;
                    self.push(Object::Value(text.into()));
                }
                b']' | b')' => self.push(Object::List(Vec::new())),
                b'}' => self.push(Object::Dictionary(Vec::new())),
                b't' => {
                    let items = self.pop_to_mark()?;
                    self.push(Object::List(items));
                }
                0x85..=0x87 => {
                    let mut items = Vec::new();
                    for _ in 0..code - 0x84 {
                        items.insert(0, self.pop()?);
                    }
                    self.push(Object::List(items));
                }
                b'a' => {
                    let item = self.pop()?;
                    self.extend(vec![item])?;
                }
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.extend(vec![key, value])?;
                }
                b'e' | b'u' => {
                    let items = self.pop_to_mark()?;
                    self.extend(items)?;
                }
                b'q' | b'r' | 0x94 => {
                    let name = match code {
                        b'q' => u64::from(self.bytes::<1>()?[0]),
                        b'r' => u64::from(u32::from_le_bytes(self.bytes()?)),
                        _ => memo.len() as u64,
                    };
                    memo.insert(name, self.top()?);
                }
                b'h' | b'j' => {
                    let name = match code {
                        b'h' => u64::from(self.bytes::<1>()?[0]),
                        _ => u64::from(u32::from_le_bytes(self.bytes()?)),
                    };
                    let missing = || self.broken("a name that was given before");
                    let object = *memo.get(&name).ok_or_else(missing)?;
                    self.stack.push(Item::Object(object));
                }
                _ => return Err(wrong(format!(
                    "expected a pickle of plain data in protocol 2 or later, found the operation {code:#04x} at byte {}",
                    self.at - 1
                ))),
            }
        }
    }

    fn broken(&self, expected: &str) -> Error {
        wrong(format!("expected {expected} at byte {} of the pickle", self.at))
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn many(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(count).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != count {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.at += count;
        Ok(bytes)
    }

    fn integer(&mut self, code: u8) -> io::Result<i64> {
        Ok(match code {
            b'K' => i64::from(self.bytes::<1>()?[0]),
            b'M' => i64::from(u16::from_le_bytes(self.bytes()?)),
            b'J' => i64::from(i32::from_le_bytes(self.bytes()?)),
            _ => {
                let [count] = self.bytes()?;
                let bytes = self.many(count.into())?;
                let sign = if bytes.last().is_some_and(|&last| last >= 0x80) { 0xff } else { 0 };
                let mut whole = [sign; 8];
                if bytes[bytes.len().min(8)..].iter().any(|&byte| byte != sign) {
                    return Err(self.broken("a number of 64 bits"));
                }
                let kept = bytes.len().min(8);
                whole[..kept].copy_from_slice(&bytes[..kept]);
                // With a sign of its own behind its 64 bits it is too large for them.
                if (whole[7] >= 0x80) != (sign == 0xff) {
                    return Err(self.broken("a number of 64 bits"));
                }
                i64::from_le_bytes(whole)
            }
        })
    }

    fn text(&mut self, code: u8) -> io::Result<String> {
        let count = match code {
            0x8c => u64::from(self.bytes::<1>()?[0]),
            0x8d => u64::from_le_bytes(self.bytes()?),
            _ => u64::from(u32::from_le_bytes(self.bytes()?)),
        };
        let bytes = self.many(count)?;
        String::from_utf8(bytes).map_err(|_| self.broken("text in UTF-8"))
    }

    fn push(&mut self, object: Object) {
        self.stack.push(Item::Object(self.objects.len()));
        self.objects.push(object);
    }

    fn top(&self) -> io::Result<usize> {
        match self.stack.last() {
            Some(&Item::Object(object)) => Ok(object),
            _ => Err(self.broken("an object")),
        }
    }

    fn pop(&mut self) -> io::Result<usize> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> io::Result<Vec<usize>> {
        let mut items = Vec::new();
        while let Some(Item::Object(object)) = self.stack.last() {
            items.push(*object);
            self.stack.pop();
        }
        self.stack.pop().ok_or_else(|| self.broken("a mark"))?;
        items.reverse();
        Ok(items)
    }

    /// Adds to the list or dictionary that lies on top.
    fn extend(&mut self, items: Vec<usize>) -> io::Result<()> {
        let top = self.top()?;
        match &mut self.objects[top] {
            Object::List(all) => all.extend(items),
            Object::Dictionary(all) if items.len().is_multiple_of(2) => all.extend(items),
            _ => return Err(self.broken("a list or a dictionary")),
        }
        Ok(())
    }

    /// An object with all that it holds; keys become texts.
    fn value(&self, object: usize, depth: usize, left: &mut usize) -> io::Result<Value> {
        let too_much =
            || wrong("expected a snapshot, found lists that hold themselves or too much");
        let deeper = depth.checked_sub(1).ok_or_else(too_much)?;
        // A text that is named often is made often.
        let made = match &self.objects[object] {
            Object::Value(Value::String(text)) => 1 + text.len() / 16,
            _ => 1,
        };
        *left = left.checked_sub(made).ok_or_else(too_much)?;
        Ok(match &self.objects[object] {
            Object::Value(value) => value.clone(),
            Object::List(items) => {
                let items = items.iter().map(|&item| self.value(item, deeper, left));
                Value::Array(items.collect::<io::Result<_>>()?)
            }
            Object::Dictionary(items) => {
                let mut fields = Map::new();
                for pair in items.chunks_exact(2) {
                    let name = match self.value(pair[0], deeper, left)? {
                        Value::String(name) => name,
                        other => other.to_string(),
                    };
                    fields.insert(name, self.value(pair[1], deeper, left)?);
                }
                Value::Object(fields)
            }
        })
    }
}

/// Leaves out events whose kinds only later versions know, says where blocks lie, which versions before 2.2 do not, and
/// forgets what was once asked for of what lies free.
fn adapt(snapshot: &mut Value) {
    for trace in items(snapshot, "device_traces") {
        let Value::Array(entries) = trace else { continue };
        entries.retain(|entry| {
            let action = entry.get("action").cloned();
            action.is_none_or(|action| serde_json::from_value::<Action>(action).is_ok())
        });
    }
    for segment in items(snapshot, "segments") {
        let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
        let mut address = number(segment, "address").unwrap_or(0);
        for block in items(segment, "blocks") {
            let size = number(block, "size").unwrap_or(0);
            let Value::Object(fields) = block else { continue };
            fields.entry("address").or_insert(address.into());
            match fields.get("state").and_then(Value::as_str) {
                Some("inactive") => drop(fields.insert("requested_size".to_owned(), 0.into())),
                // As PyTorch's documentation has it.
                Some("active_awaiting_free") => {
                    fields.insert("state".to_owned(), "active_pending_free".into());
                }
                _ => {}
            }
            address = address.saturating_add(size);
        }
    }
}

fn items<'a>(value: &'a mut Value, name: &str) -> &'a mut [Value] {
    match value.get_mut(name) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}
