//! Rows: a block each.

use std::num::NonZeroU64;

use csv::{ReaderBuilder, StringRecord, Terminator, Trim};
use regraph_trace::{ReadError, BYTES_LIMIT};

use super::columns::{Column, Columns};

/// What all addresses of blocks are multiples of, in bytes.
const ALIGNED: u64 = 512;

/// Found text is cut here in messages, in characters.
const QUOTE_LIMIT: usize = 80;

/// A block: in use from `lower` on, and from `upper` on no more. Both have a number for each thread whose time is
/// counted by itself: a vector clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) lower: Vec<i64>,
    pub(crate) upper: Vec<i64>,
    pub(crate) bytes: u64,
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
    /// Reads a row, whose times have `threads` numbers each where that is known.
    pub(super) fn row(
        &self,
        text: &str,
        line: u64,
        unit: NonZeroU64,
        threads: Option<usize>,
    ) -> Result<Row, ReadError> {
        let fields = fields(text);
        if fields.len() != self.0.len() {
            let wanted = format!("{} fields, as the header has", self.0.len());
            return Err(expected(line, wanted, fields.len().to_string()));
        }
        let mut id = "";
        let (mut lower, mut upper, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (column, field) in self.0.iter().zip(&fields) {
            let wrong = |wanted: String| expected(line, wanted, quote(field));
            match column {
                Column::Id => id = field,
                Column::Lower => {
                    lower = clock(field, threads)
                        .ok_or_else(|| wrong(whole("begin of the interval", threads)))?;
                }
                Column::Upper => {
                    upper = clock(field, threads)
                        .ok_or_else(|| wrong(whole("end of the interval", threads)))?;
                }
                Column::End => {
                    let last = time(field).and_then(|last| last.checked_add(1));
                    let what = "last time of the interval";
                    upper = vec![last.ok_or_else(|| wrong(whole(what, Some(1))))?];
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
        let row = Row { id: id.to_owned(), lower, upper, bytes };
        if row.lower.len() != row.upper.len() {
            let wanted = "as many numbers in the interval's end as in its begin";
            return Err(expected(line, wanted, row.interval()));
        }
        let mut ends = row.lower.iter().zip(&row.upper);
        if row.upper == row.lower || ends.any(|(lower, upper)| upper < lower) {
            let wanted = "an interval that ends after it begins";
            return Err(expected(line, wanted, row.interval()));
        }
        Ok(row)
    }
}

impl Row {
    fn interval(&self) -> String {
        format!("[{}, {})", written(&self.lower), written(&self.upper))
    }
}

/// How a time stands in a file.
pub(crate) fn written(clock: &[i64]) -> String {
    let numbers: Vec<_> = clock.iter().map(i64::to_string).collect();
    numbers.join(":")
}

/// The numbers of a time, as many as there are threads where that is known.
fn clock(field: &str, threads: Option<usize>) -> Option<Vec<i64>> {
    let clock: Option<Vec<_>> = field.split(':').map(time).collect();
    clock.filter(|clock| threads.is_none_or(|threads| clock.len() == threads))
}

fn time(field: &str) -> Option<i64> {
    field.parse().ok()
}

fn whole(what: &str, threads: Option<usize>) -> String {
    match threads {
        Some(1) => format!("the {what} as a whole number of 64 bits"),
        Some(threads) => {
            format!("the {what} as {threads} whole numbers of 64 bits with colons between")
        }
        None => format!("the {what} as whole numbers of 64 bits with colons between"),
    }
}

fn quote(field: &str) -> String {
    match field.char_indices().nth(QUOTE_LIMIT) {
        Some((end, _)) => format!("`{}…`", &field[..end]),
        None => format!("`{field}`"),
    }
}
