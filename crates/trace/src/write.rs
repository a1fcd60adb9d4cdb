//! Writing a trace.

use std::io::{self, Write};

use super::Trace;

/// Writes a trace, an operation a line. What was read comes out as it was.
///
/// # Errors
/// Failures of the output.
pub fn write(trace: &Trace, mut output: impl Write) -> io::Result<()> {
    for operation in trace.operations() {
        serde_json::to_writer(&mut output, operation)?;
        output.write_all(b"\n")?;
    }
    output.flush()
}
