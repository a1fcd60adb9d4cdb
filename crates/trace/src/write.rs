//! Writing a trace.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{NodeIndex, Operation, Trace};

/// The name of the format, on a file's first line.
pub(super) const FORMAT: &str = "regraph trace";
/// Its version there.
pub(super) const VERSION: u64 = 1;

/// Writes a trace: the line with the format's version, then an operation a line, each with what is said of its block
/// or node behind it. What was read from a file of this layout comes out as it was.
///
/// # Errors
/// Failures of the output.
pub fn write(trace: &Trace, mut output: impl Write) -> io::Result<()> {
    writeln!(output, "{{\"format\":\"{FORMAT}\",\"version\":{VERSION}}}")?;
    let labels = trace.labels();
    let mut stacks = HashMap::new();
    let (mut captures, mut nodes): (usize, NodeIndex) = (0, 0);
    for operation in trace.operations() {
        serde_json::to_writer(&mut output, operation)?;
        output.write_all(b"\n")?;
        let mut remarks = Vec::new();
        match *operation {
            Operation::Begin { .. } => (captures, nodes) = (captures + 1, 0),
            Operation::Alloc { id, .. } => remarks = labels.lines_of_block(id, &mut stacks),
            Operation::Kernel { .. } | Operation::Node { .. } => {
                remarks.extend(labels.line_of_node(captures.saturating_sub(1), nodes));
                nodes += 1;
            }
            _ => {}
        }
        for remark in remarks {
            serde_json::to_writer(&mut output, &remark)?;
            output.write_all(b"\n")?;
        }
    }
    output.flush()
}
