//! Certificates as files: a JSON object a line, one for each capture.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::{BlockIndex, Lines, NodeIndex, StreamIndex};
use regraph::settings::Programmatic;

/// The name of the format, in each certificate.
const FORMAT: &str = "regraph certificate";
/// Its version.
const VERSION: u32 = 2;

/// The longest line that is read, in bytes: some two million blocks.
pub const LINE_LIMIT: usize = 64 << 20;

/// Why a capture cannot do with less memory, and can do with so much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    format: String,
    version: u32,
    /// Which capture of the trace, from 0.
    pub capture: usize,
    /// The capture's nodes.
    pub nodes: usize,
    /// The blocks that it allocates.
    pub blocks: usize,
    /// What programmatic edges prove.
    #[serde(serialize_with = "write_policy", deserialize_with = "read_policy")]
    pub programmatic: Programmatic,
    /// What the blocks of the antichain occupy together.
    pub minimum_bytes: u64,
    /// Blocks of which none can have the memory of another.
    pub antichain: Vec<CertifiedBlock>,
    /// Why they cannot.
    pub thresholds: Vec<Threshold>,
    /// Who passes memory on to whom. All else is new memory, `minimum_bytes` together.
    pub cover: Vec<Passed>,
}

/// A block of an antichain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertifiedBlock {
    /// Its name in the trace.
    pub id: BlockIndex,
    /// What it occupies, in bytes: its size, rounded up to [`BLOCK_MULTIPLE`](super::BLOCK_MULTIPLE).
    pub bytes: u64,
}

/// A point that a stream was at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// The stream.
    pub stream: StreamIndex,
    /// Its terminals there.
    pub nodes: Vec<NodeIndex>,
}

/// Memory that a block takes over from another, which precedes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passed {
    /// Who had it.
    pub from: BlockIndex,
    /// Who has it next.
    pub to: BlockIndex,
    /// How much, in bytes.
    pub bytes: u64,
}

/// Why a file holds no certificates.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A line is none.
    #[error("line {line}: expected a certificate: {source}")]
    Line {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another format, or another version of it.
    #[error(
        "line {line}: expected `{FORMAT}` of version {VERSION}, found `{format}` of {version}"
    )]
    Format {
        /// The line, counted from 1.
        line: u64,
        /// The format that it names.
        format: String,
        /// Its version.
        version: u32,
    },
    /// The input fails.
    #[error(transparent)]
    Input(#[from] crate::ReadError),
}

impl Certificate {
    /// A certificate with no blocks, for a capture with so many nodes and blocks.
    pub fn new(
        capture: usize,
        (nodes, blocks): (usize, usize),
        programmatic: Programmatic,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            capture,
            nodes,
            blocks,
            programmatic,
            minimum_bytes: 0,
            antichain: Vec::new(),
            thresholds: Vec::new(),
            cover: Vec::new(),
        }
    }

    /// Reads all certificates of a file. Empty lines are allowed.
    ///
    /// # Errors
    /// The first line that is none, a line longer than [`LINE_LIMIT`] bytes, or a failure of the input.
    pub fn read(input: impl BufRead) -> Result<Vec<Self>, ReadError> {
        let mut certificates = Vec::new();
        let mut lines = Lines::new(input, LINE_LIMIT);
        while let Some((line, text)) = lines.next_line()? {
            let read: Self =
                serde_json::from_slice(text).map_err(|source| ReadError::Line { line, source })?;
            if (read.format.as_str(), read.version) != (FORMAT, VERSION) {
                let Self { format, version, .. } = read;
                return Err(ReadError::Format { line, format, version });
            }
            certificates.push(read);
        }
        Ok(certificates)
    }

    /// Writes it as a line.
    ///
    /// # Errors
    /// Failures of the output.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut output, self)?;
        output.write_all(b"\n")
    }
}

fn write_policy<S: Serializer>(policy: &Programmatic, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(policy)
}

fn read_policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Programmatic, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(serde::de::Error::custom)
}
