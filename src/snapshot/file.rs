//! Snapshots as files.

use std::io::{self, BufReader, BufWriter, Read, Write};

use serde_pickle::SerOptions;

use super::Snapshot;

impl Snapshot {
    /// Writes one JSON object.
    ///
    /// # Errors
    /// Failures of the output.
    pub fn write_json(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::new(output);
        serde_json::to_writer(&mut output, self)?;
        output.write_all(b"\n")?;
        output.flush()
    }

    /// Writes a pickle in protocol 2, with opcodes that every viewer knows. Numbers from 2^63 on
    /// are written too, but viewers cannot calculate with them.
    ///
    /// # Errors
    /// Failures of the output.
    pub fn write_pickle(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::new(output);
        serde_pickle::to_writer(&mut output, self, SerOptions::new().proto_v2()).map_err(
            |error| match error {
                serde_pickle::Error::Io(error) => error,
                error => io::Error::other(error),
            },
        )?;
        output.flush()
    }

    /// Reads what [`Snapshot::write_json`] wrote. Fields that are not known are ignored.
    ///
    /// # Errors
    /// Failures of the input, and text that is no snapshot: [`io::ErrorKind::InvalidData`] or
    /// [`io::ErrorKind::UnexpectedEof`], with the line in the message.
    pub fn read_json(input: impl Read) -> io::Result<Self> {
        Ok(serde_json::from_reader(BufReader::new(input))?)
    }
}
