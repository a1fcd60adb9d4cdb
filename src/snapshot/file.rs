//! Snapshots as files.

use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};

use super::Snapshot;

/// The most that is read of a snapshot, in bytes. What is read is kept, at a few times its size.
pub const INPUT_LIMIT: u64 = 1 << 30;

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

    /// Writes a pickle (feature `pickle`) in protocol 2, with opcodes that every viewer knows. Numbers from 2^63 on
    /// are written too, but viewers cannot calculate with them.
    ///
    /// # Errors
    /// Failures of the output.
    #[cfg(feature = "pickle")]
    pub fn write_pickle(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::new(output);
        serde_pickle::to_writer(&mut output, self, serde_pickle::SerOptions::new().proto_v2())
            .map_err(|error| match error {
                serde_pickle::Error::Io(error) => error,
                error => io::Error::other(error),
            })?;
        output.flush()
    }

    /// Reads what [`Snapshot::write_json`] wrote, at most [`INPUT_LIMIT`] bytes. Fields that are not
    /// known are ignored.
    ///
    /// # Errors
    /// Failures of the input, and text that is no snapshot or too long: [`ErrorKind::InvalidData`]
    /// or [`ErrorKind::UnexpectedEof`], with the line in the message.
    pub fn read_json(input: impl Read) -> io::Result<Self> {
        Self::read_at_most(input, INPUT_LIMIT)
    }

    fn read_at_most(input: impl Read, limit: u64) -> io::Result<Self> {
        let mut input = BufReader::new(input.take(limit + 1));
        let read = serde_json::from_reader(&mut input);
        if input.get_ref().limit() == 0 {
            let message = format!("expected at most {limit} bytes, found more");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        Ok(read?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused() {
        let mut text = Vec::new();
        Snapshot::default().write_json(&mut text).expect("memory takes it");
        let length = text.len() as u64;
        assert!(Snapshot::read_at_most(text.as_slice(), length).is_ok());
        let endless = text.as_slice().chain(io::repeat(b' '));
        let error = Snapshot::read_at_most(endless, length).expect_err("there is more");
        assert_eq!(error.to_string(), format!("expected at most {length} bytes, found more"));
    }
}
