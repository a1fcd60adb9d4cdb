//! Lines of an input that may be anything: a device, a pipe that never ends.

use std::io::{BufRead, Error, ErrorKind, Read};

use super::ReadError;

/// The longest line of a trace or a CSV file that is read, in bytes.
pub const LINE_LIMIT: usize = 4 << 20;

/// The most that is read of a file, in bytes. What is read is kept, at a few times its size.
pub const INPUT_LIMIT: u64 = 1 << 30;

/// The lines of an input, each without its end.
pub struct Lines<R> {
    input: R,
    line_limit: usize,
    input_limit: u64,
    /// Bytes read so far.
    read: u64,
    /// The number of the last line, counted from 1.
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Lines of at most `line_limit` bytes, and [`INPUT_LIMIT`] bytes in all.
    pub fn new(input: R, line_limit: usize) -> Self {
        Self::with_limits(input, line_limit, INPUT_LIMIT)
    }

    fn with_limits(input: R, line_limit: usize, input_limit: u64) -> Self {
        Self { input, line_limit, input_limit, read: 0, line: 0, text: Vec::new() }
    }

    /// How many lines there were.
    pub fn count(&self) -> u64 {
        self.line
    }

    /// The number of the next line that is not blank, counted from 1, and the line with no space
    /// around it; `None` at the input's end.
    ///
    /// # Errors
    /// [`ReadError::Input`]: failures of the input; [`ErrorKind::InvalidData`] where a line or the
    /// input is longer than is read.
    pub fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, ReadError> {
        while self.read_line()? {
            if !self.text.trim_ascii().is_empty() {
                return Ok(Some((self.line, self.text.trim_ascii())));
            }
        }
        Ok(None)
    }

    /// Reads a line. False at the input's end.
    fn read_line(&mut self) -> Result<bool, ReadError> {
        let line = self.line + 1;
        let failed = |source| ReadError::Input { line, source };
        self.text.clear();
        let mut input = self.input.by_ref().take(self.line_limit as u64 + 1);
        let length = input.read_until(b'\n', &mut self.text).map_err(failed)?;
        if length == 0 {
            return Ok(false);
        }
        self.line = line;
        self.read += length as u64;
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
        }
        let too_long = |what: &str, limit: u64| {
            let message = format!("expected {what} of at most {limit} bytes, found a longer one");
            failed(Error::new(ErrorKind::InvalidData, message))
        };
        if self.text.len() > self.line_limit {
            return Err(too_long("a line", self.line_limit as u64));
        }
        if self.read > self.input_limit {
            return Err(too_long("an input", self.input_limit));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, line_limit: usize, input_limit: u64) -> Result<Vec<(u64, String)>, String> {
        let mut lines = Lines::with_limits(text.as_bytes(), line_limit, input_limit);
        let mut found = Vec::new();
        while let Some((line, text)) = lines.next_line().map_err(|error| error.to_string())? {
            found.push((line, String::from_utf8_lossy(text).into_owned()));
        }
        Ok(found)
    }

    #[test]
    fn blank_lines_are_passed_over_and_count() {
        assert_eq!(
            all("a\n\n  b \r\nc", 9, 99),
            Ok(vec![(1, "a".into()), (3, "b".into()), (4, "c".into())])
        );
        assert_eq!(all("", 9, 99), Ok(vec![]));
    }

    #[test]
    fn long_lines_and_long_inputs_are_refused() {
        assert_eq!(all("123\n", 3, 4), Ok(vec![(1, "123".into())]));
        let line = "line 1: expected a line of at most 3 bytes, found a longer one";
        assert_eq!(all("1234", 3, 99), Err(line.into()));
        let input = "line 4: expected an input of at most 4 bytes, found a longer one";
        assert_eq!(all("1\n\n\n\n", 3, 4), Err(input.into()));
    }
}
