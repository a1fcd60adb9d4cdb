//! Handles: what one process tells another of memory, as bytes.
//!
//! Ours begin with a byte that PyTorch takes for a version which it does not know, so that a PyTorch
//! without regraph refuses them. PyTorch's own are read and written where they name whole
//! allocations, which any CUDA program can map.
//!
//! | ours | bytes |
//! |---|---|
//! | `regraph` and the version | 8 |
//! | the sender's secret | 16 |
//! | its process, and the descriptor of its board there; -1 for none | 4, 4 |
//! | how many pieces | 4 |
//! | of each: its size, its serial number, its descriptor there | 8, 8, 4 |
//!
//! A loan's begin with `regloan` and the version, the number of the loan, the block's place in the memory and its bytes,
//! 8 bytes each; the handle of the memory follows. Numbers are little-endian.

use regraph::driver::AllocationName;
use thiserror::Error;

const MAGIC: &[u8; 7] = b"regraph";
const VERSION: u8 = 1;
/// Of loans; the version is that of other handles.
#[cfg(target_os = "linux")]
const LOAN_MAGIC: &[u8; 7] = b"regloan";
/// The most pieces that a handle may have.
const PIECES: usize = 1 << 16;

/// PyTorch's: a version, the kind, and what CUDA calls the allocation.
const PYTORCH_ALLOCATION: u8 = b'c';
const PYTORCH_SEGMENT: u8 = b'e';
/// The first version that has a kind; later ones write allocations in the same way.
const PYTORCH_FIRST: u8 = 1;
const PYTORCH_LAST: u8 = 3;

/// What is wrong with a handle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is none of any kind that is known.
    #[error("the handle is none of regraph's, and none of PyTorch's for memory of cudaMalloc")]
    Unknown,
    /// It comes from another version of regraph.
    #[error(
        "the handle is of version {found}, and this regraph knows version {VERSION}; use one version \
         in all processes"
    )]
    OtherVersion {
        /// Its version.
        found: u8,
    },
    /// It names no loan.
    #[error("the handle names no loan; lend_to_process makes those that do")]
    NoLoan,
    /// It comes from a PyTorch whose segments are expandable, without regraph.
    #[error(
        "the handle comes from a process that runs without regraph and with expandable segments; \
         enable regraph there too, or set expandable_segments:False there"
    )]
    Expandable,
    /// It is cut off, or holds what no handle can hold.
    #[error("the handle is damaged: {0}")]
    Damaged(&'static str),
}

/// Who has memory that others may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    /// Known to those alone who have a handle of it.
    pub(super) secret: [u8; 16],
    pub(super) process: u32,
    /// The number of a descriptor in that process.
    pub(super) board: i32,
}

/// A piece of memory that a sender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: u64,
    pub(super) serial: u64,
    /// The number of its descriptor in the sender's process.
    pub(super) number: i32,
}

/// What a handle names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    Pieces(Sender, Vec<Piece>),
    Allocation(AllocationName),
}

impl Handle {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Allocation(name) => {
                bytes.extend([PYTORCH_FIRST, PYTORCH_ALLOCATION]);
                bytes.extend(name);
            }
            Self::Pieces(sender, pieces) => {
                bytes.extend(MAGIC);
                bytes.push(VERSION);
                bytes.extend(sender.secret);
                bytes.extend(sender.process.to_le_bytes());
                bytes.extend(sender.board.to_le_bytes());
                bytes.extend((pieces.len() as u32).to_le_bytes());
                for piece in pieces {
                    bytes.extend(piece.bytes.to_le_bytes());
                    bytes.extend(piece.serial.to_le_bytes());
                    bytes.extend(piece.number.to_le_bytes());
                }
            }
        }
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HandleError> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else { return Self::read_foreign(bytes) };
        let mut rest = Reader(rest);
        let [version] = rest.take()?;
        if version != VERSION {
            return Err(HandleError::OtherVersion { found: version });
        }
        let secret = rest.take()?;
        let process = u32::from_le_bytes(rest.take()?);
        let board = i32::from_le_bytes(rest.take()?);
        let count = u32::from_le_bytes(rest.take()?) as usize;
        if count == 0 || count > PIECES {
            return Err(HandleError::Damaged("so many pieces cannot be"));
        }
        let mut pieces = Vec::new();
        for _ in 0..count {
            let bytes = u64::from_le_bytes(rest.take()?);
            let serial = u64::from_le_bytes(rest.take()?);
            let number = i32::from_le_bytes(rest.take()?);
            if bytes == 0 || serial == 0 || number < 0 {
                return Err(HandleError::Damaged("a piece that cannot be"));
            }
            pieces.push(Piece { bytes, serial, number });
        }
        if !rest.0.is_empty() {
            return Err(HandleError::Damaged("it goes on behind its end"));
        }
        Ok(Self::Pieces(Sender { secret, process, board }, pieces))
    }

    fn read_foreign(bytes: &[u8]) -> Result<Self, HandleError> {
        // Before there were versions a handle was the name and nothing else.
        if let Ok(name) = bytes.try_into() {
            return Ok(Self::Allocation(name));
        }
        match bytes {
            [PYTORCH_FIRST..=PYTORCH_LAST, PYTORCH_ALLOCATION, name @ ..] => {
                let name = name.try_into().map_err(|_| HandleError::Damaged("its length"))?;
                Ok(Self::Allocation(name))
            }
            [PYTORCH_FIRST..=PYTORCH_LAST, PYTORCH_SEGMENT, ..] => Err(HandleError::Expandable),
            _ => Err(HandleError::Unknown),
        }
    }
}

/// What the handle of a loan names.
#[cfg(target_os = "linux")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoanHandle {
    pub(super) number: u64,
    /// Where the block lies in the memory, and how many bytes it has.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The handle of the memory.
    pub(super) memory: Vec<u8>,
}

#[cfg(target_os = "linux")]
impl LoanHandle {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = LOAN_MAGIC.to_vec();
        bytes.push(VERSION);
        for number in [self.number, self.offset, self.bytes] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&self.memory);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HandleError> {
        let mut rest = Reader(bytes.strip_prefix(LOAN_MAGIC).ok_or(HandleError::NoLoan)?);
        let [version] = rest.take()?;
        if version != VERSION {
            return Err(HandleError::OtherVersion { found: version });
        }
        let [number, offset, bytes] =
            [rest.take()?, rest.take()?, rest.take()?].map(u64::from_le_bytes);
        Ok(Self { number, offset, bytes, memory: rest.0.to_vec() })
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], HandleError> {
        let (first, rest) =
            self.0.split_first_chunk().ok_or(HandleError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }
}
