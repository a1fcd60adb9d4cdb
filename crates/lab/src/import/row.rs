//! Rows: a block each.

use std::num::NonZeroU64;

use csv::{ReaderBuilder, StringRecord, Terminator, Trim};
use regraph_trace::{ReadError, BYTES_LIMIT};

use super::columns::{Column, Columns};

/// What all addresses of blocks are multiples of, in bytes.
const ALIGNED: u64 = 512;

/// Found text is cut here in messages, in characters.
const QUOTE_LIMIT: usize = 80;

/// When bytes are in use: from `lower` on, and from `upper` on no more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) lower: i64,
    pub(super) upper: i64,
    pub(super) bytes: u64,
}

/// A block.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) interval: Interval,
}

/// The error of a line.
pub(super) fn expected(
    line: u64,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> ReadError {
    ReadError::Line { line, found: found.into(), expected: expected.into() }
}

/// The fields of a line, without quotes and blanks around them.
pub(super) fn fields(text: &str) -> StringRecord {
    let mut reader = ReaderBuilder::new();
    let reader = reader.has_headers(false).trim(Trim::All).terminator(Terminator::Any(b'\n'));
    let reader = reader.buffer_capacity(text.len());
    let mut fields = StringRecord::new();
    // Neither text nor memory can fail to be read.
    let _ = reader.from_reader(text.as_bytes()).read_record(&mut fields);
    fields
}

impl Columns {
    /// Reads a row.
    pub(super) fn row(&self, text: &str, line: u64, unit: NonZeroU64) -> Result<Row, ReadError> {
        let fields = fields(text);
        if fields.len() != self.0.len() {
            let wanted = format!("{} fields, as the header has", self.0.len());
            return Err(expected(line, wanted, fields.len().to_string()));
        }
        let mut id = "";
        let (mut lower, mut upper, mut bytes) = (0, 0, 0);
        for (column, field) in self.0.iter().zip(&fields) {
            let wrong = |wanted: String| expected(line, wanted, quote(field));
            match column {
                Column::Id => id = field,
                Column::Lower => {
                    lower = time(field).ok_or_else(|| wrong(whole("begin of the interval")))?;
                }
                Column::Upper => {
                    upper = time(field).ok_or_else(|| wrong(whole("end of the interval")))?;
                }
                Column::End => {
                    let last = time(field).and_then(|last| last.checked_add(1));
                    upper = last.ok_or_else(|| wrong(whole("last time of the interval")))?;
                }
                Column::Size => {
                    let size =
                        field.parse().ok().and_then(|size: u64| size.checked_mul(unit.get()));
                    let size = size.filter(|size| (1..BYTES_LIMIT).contains(size));
                    bytes = size.ok_or_else(|| {
                        wrong(format!("a size of 1 to {} as a number", (BYTES_LIMIT - 1) / unit))
                    })?;
                }
                Column::Alignment => {
                    let multiple =
                        field.parse().ok().and_then(|it: u64| it.checked_mul(unit.get()));
                    if !multiple.is_some_and(|it| it > 0 && ALIGNED.is_multiple_of(it)) {
                        return Err(wrong(format!("an alignment that divides {ALIGNED} bytes")));
                    }
                }
                Column::Gaps if !field.is_empty() => {
                    return Err(wrong("no gaps, since a block has its memory throughout".into()));
                }
                Column::Hint | Column::Gaps => {}
            }
        }
        if id.is_empty() {
            return Err(expected(line, "an id", "none"));
        }
        if upper <= lower {
            let wanted = "an interval that ends after it begins";
            return Err(expected(line, wanted, format!("[{lower}, {upper})")));
        }
        Ok(Row { id: id.to_owned(), interval: Interval { lower, upper, bytes } })
    }
}

fn time(field: &str) -> Option<i64> {
    field.parse().ok()
}

fn whole(what: &str) -> String {
    format!("the {what} as a whole number of 64 bits")
}

fn quote(field: &str) -> String {
    match field.char_indices().nth(QUOTE_LIMIT) {
        Some((end, _)) => format!("`{}…`", &field[..end]),
        None => format!("`{field}`"),
    }
}
