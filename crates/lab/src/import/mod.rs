//! Problems of other programs as traces.
//!
//! [`csv()`] reads the files of static memory planners, MiniMalloc's above all: blocks with a size and
//! the interval of time in which they are in use. The header names the columns, in any order:
//!
//! | column | also called | meaning |
//! |---|---|---|
//! | `id` | `buffer`, `buffer_id` | The block's name, which no other has. |
//! | `lower` | `begin`, `start` | The time from which on it is in use, a whole number; for a [`Problem`](crate::problem::Problem) also a vector clock, numbers with colons between. |
//! | `upper` | | The time from which on it is not, above `lower`. |
//! | `end` | | Instead of `upper`: the last time at which it is in use. |
//! | `size` | | Its size in units of memory, at least 1. |
//! | `alignment` | | What its address is to be a multiple of, in units of memory. As all blocks here lie at multiples of 512 bytes, what divides that holds, and nothing else is read. |
//! | `hint` | | Where a solver may try it first. Not heeded. |
//! | `gaps` | | Times at which it is not in use between. Read only where there are none. |
//!
//! `offset`, where a solver has placed the block, is refused: a trace fixes no addresses. Fields
//! may be quoted; a block is one line.

mod columns;
mod row;
mod schedule;

use std::collections::HashSet;
use std::io::BufRead;
use std::num::NonZeroU64;

use columns::Columns;
use regraph_trace::{
    kind, BlockIndex, Labels, Lines, ReadError, Trace, ALL_BYTES_LIMIT, LINE_LIMIT,
};
use row::expected;
pub(crate) use row::{written, Row};

/// Node numbers have 32 bits, and there are up to two nodes a row.
const ROW_LIMIT: usize = (u32::MAX / 2) as usize;

/// Reads blocks and their intervals, and gives a capture on one stream in which they live so. `unit`
/// is what sizes count in, in bytes.
///
/// Of times only the order counts. At each at which something changes, blocks whose interval is over
/// are freed, those whose interval begins are allocated, and then a kernel runs if anything lives. A
/// kernel may use all blocks that live; it names those for which it is the first or the last, so that
/// the trace is as long as the file. Block numbers are the rows', from 0, and the ids are their names. Empty lines are allowed.
///
/// # Errors
/// The first line that is not as described above, a line or an input that is longer than is read of
/// traces, or a failure of the input.
pub fn csv(input: impl BufRead, unit: NonZeroU64) -> Result<Trace, ReadError> {
    let rows = rows(input, unit, Some(1), ALL_BYTES_LIMIT.into())?;
    let mut labels = Labels::default();
    for (block, row) in rows.iter().enumerate() {
        labels.name_block(block as BlockIndex, row.id.as_str());
    }
    let operations = schedule::schedule(&rows);
    let trace = Trace::new(operations);
    let trace = trace.expect("rows are checked, and each is allocated and freed once");
    Ok(trace.with_labels(labels))
}

/// The rows of a file, in their order, of less than `limit` bytes together. `threads` is how many numbers each time has,
/// where the caller knows it.
pub(crate) fn rows(
    input: impl BufRead,
    unit: NonZeroU64,
    mut threads: Option<usize>,
    limit: u128,
) -> Result<Vec<Row>, ReadError> {
    let mut columns: Option<Columns> = None;
    let mut ids = HashSet::new();
    let mut rows = Vec::new();
    let mut bytes = 0;
    let mut lines = Lines::new(input, LINE_LIMIT);
    while let Some((line, text)) = lines.next_line()? {
        let Ok(text) = std::str::from_utf8(text) else {
            return Err(expected(line, "UTF-8 text", kind(text).unwrap_or("something else")));
        };
        let Some(columns) = &columns else {
            columns = Some(Columns::read(text, line)?);
            continue;
        };
        if rows.len() == ROW_LIMIT {
            return Err(expected(line, format!("at most {ROW_LIMIT} rows"), "one more"));
        }
        let row = columns.row(text, line, unit, threads)?;
        if !ids.insert(row.id.clone()) {
            let found = format!("`{}` again", row.id);
            return Err(expected(line, "an id that no row above has", found));
        }
        threads = Some(row.lower.len());
        bytes += u128::from(row.bytes);
        if bytes >= limit {
            let most = (limit - 1) / u128::from(unit.get());
            return Err(expected(line, format!("sizes of at most {most} together"), "more"));
        }
        rows.push(row);
    }
    if columns.is_none() {
        return Err(expected(lines.count() + 1, columns::HEADER, "the end of the file"));
    }
    Ok(rows)
}
