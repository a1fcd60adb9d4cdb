//! The header: where each column stands.

use regraph_trace::ReadError;

use super::row::{expected, fields};

/// What a header has to be, for messages.
pub(super) const HEADER: &str = "a header with the columns id, lower, upper and size";

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Id,
    Lower,
    /// The first time after the interval.
    Upper,
    /// The last time of the interval.
    End,
    Size,
    Alignment,
    Hint,
    Gaps,
}

/// The columns of a file, in their order.
pub(super) struct Columns(pub(super) Vec<Column>);

impl Columns {
    /// Reads the header.
    pub(super) fn read(text: &str, line: u64) -> Result<Self, ReadError> {
        let mut columns = Vec::new();
        for name in &fields(text) {
            let column = match name {
                "id" | "buffer" | "buffer_id" => Column::Id,
                "lower" | "begin" | "start" => Column::Lower,
                "upper" => Column::Upper,
                "end" => Column::End,
                "size" => Column::Size,
                "alignment" => Column::Alignment,
                "hint" => Column::Hint,
                "gaps" => Column::Gaps,
                "offset" => {
                    let wanted = "no column `offset`, since a trace fixes no addresses";
                    return Err(expected(line, wanted, "one"));
                }
                _ => {
                    let wanted = format!("{HEADER}, and at most alignment, hint and gaps besides");
                    return Err(expected(line, wanted, format!("a column `{name}`")));
                }
            };
            if columns.contains(&column) {
                let found = format!("a second column `{name}`");
                return Err(expected(line, "each column once", found));
            }
            columns.push(column);
        }
        let ends = [Column::Upper, Column::End].map(|column| columns.contains(&column));
        if ends == [true; 2] {
            return Err(expected(line, "one of the columns `upper` and `end`", "both"));
        }
        let missing = [("id", Column::Id), ("lower", Column::Lower), ("size", Column::Size)]
            .into_iter()
            .find_map(|(name, column)| (!columns.contains(&column)).then_some(name));
        match missing.or((ends == [false; 2]).then_some("upper")) {
            Some(name) => Err(expected(line, HEADER, format!("none with `{name}`"))),
            None => Ok(Self(columns)),
        }
    }
}
