//! Handles: what one process tells another of memory, as bytes.
//!
//! Ours begin with a byte that PyTorch takes for a version which it does not know, so that a PyTorch without regraph
//! refuses them. PyTorch's own are read and written where they name whole allocations, which any CUDA program can map.
//!
//! | ours | bytes |
//! |---|---|
//! | `regraph` and the version | 8 |
//! | the sender's secret | 16 |
//! | its process, and the descriptor of its board there; -1 for none | 4, 4 |
//! | how many pieces | 4 |
//! | of each: its size, its serial number, its descriptor there | 8, 8, 4 |
//!
//! A loan's begin with `regloan` and the version, the number of the loan, the block's place in the memory and its
//! bytes, 8 bytes each; the handle of the memory follows. Numbers are little-endian.

use super::{Error, SharingRefusal};
use crate::driver::{AllocationName, Descriptor};
use thiserror::Error;

const MAGIC: &[u8; 7] = b"regraph";
const VERSION: u8 = 1;
/// Of loans; the version is that of other handles.
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
    /// The handle is of no known kind.
    #[error("the handle is none of regraph's, and none of PyTorch's for memory of cudaMalloc")]
    Unknown,
    /// The handle comes from another version of regraph.
    #[error(
        "the handle is of version {found}, and this regraph knows version {VERSION}; use one version \
         in all processes"
    )]
    OtherVersion {
        /// Its version.
        found: u8,
    },
    /// The handle names no loan.
    #[error("the handle names no loan; a loan that is offered to a process has one")]
    NoLoan,
    /// The handle comes from a PyTorch with expandable segments and without regraph.
    #[error(
        "the handle comes from a process that runs without regraph and with expandable segments; \
         enable regraph there too, or set expandable_segments:False there"
    )]
    Expandable,
    /// The handle is cut off, or holds what no handle can hold.
    #[error("the handle is damaged: {0}")]
    Damaged(&'static str),
}

/// Who has memory that others may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sender {
    /// Known to those alone who have a handle of it.
    secret: [u8; 16],
    process: u32,
    /// The number of a descriptor in that process.
    board: i32,
}

#[cfg(all(feature = "processes", target_os = "linux"))]
impl Sender {
    pub(super) fn new(secret: [u8; 16], process: u32, board: i32) -> Self {
        Self { secret, process, board }
    }

    /// Where its socket is: in no file system, known to those who have a handle.
    pub(super) fn socket(&self) -> std::io::Result<std::os::unix::net::SocketAddr> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::SocketAddr;

        let secret = u128::from_be_bytes(self.secret);
        let name = format!("regraph-{}-{secret:032x}", self.process);
        SocketAddr::from_abstract_name(name)
    }
}

/// A piece of memory that a sender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentPiece {
    bytes: u64,
    serial: u64,
    /// The number of its descriptor in the sender's process.
    number: i32,
}

/// Pieces of physical memory that one process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPieces {
    sender: Sender,
    pieces: Vec<SentPiece>,
}

impl SentPieces {
    /// Pieces of a sender's.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(super) fn new(sender: Sender, pieces: Vec<SentPiece>) -> Self {
        Self { sender, pieces }
    }

    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(super) fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The handle of a loan in this memory: its number, where its block lies, and how many bytes that has.
    pub(crate) fn write_loan(self, loan: [u64; 3]) -> Vec<u8> {
        let mut bytes = LOAN_MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend(loan.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(Handle::Pieces(self).write());
        bytes
    }

    /// Reads what [`SentPieces::write_loan`] has written.
    pub(crate) fn read_loan(bytes: &[u8]) -> Result<([u64; 3], Self), HandleError> {
        let mut rest = Reader(bytes.strip_prefix(LOAN_MAGIC).ok_or(HandleError::NoLoan)?);
        let [version] = rest.take()?;
        if version != VERSION {
            return Err(HandleError::OtherVersion { found: version });
        }
        let loan = [rest.take()?, rest.take()?, rest.take()?].map(u64::from_le_bytes);
        let Handle::Pieces(memory) = Handle::read(rest.0)? else {
            return Err(HandleError::Damaged("a loan of memory that cannot be lent"));
        };
        let add = |sum: u64, piece: &SentPiece| sum.checked_add(piece.bytes);
        let whole = memory.pieces.iter().try_fold(0, add);
        let end = loan[1].checked_add(loan[2]);
        if end.zip(whole).is_none_or(|(end, whole)| end > whole) {
            return Err(HandleError::Damaged("a loan that lies beyond its memory"));
        }
        Ok((loan, memory))
    }

    /// The descriptors of the pieces with their sizes in bytes, from the process that has them, after some seconds at
    /// most.
    ///
    /// # Errors
    /// [`SharingRefusal::Unreachable`].
    pub fn fetch(&self, call: &'static str) -> Result<Vec<(u64, Descriptor)>, Error> {
        match self.descriptors() {
            Ok(descriptors) => {
                let sizes = self.pieces.iter().map(|piece| piece.bytes);
                Ok(sizes.zip(descriptors).collect())
            }
            Err([by_number, by_socket]) => {
                let process = self.sender.process;
                let why = SharingRefusal::Unreachable { process, by_number, by_socket };
                Err(Error::Sharing { call, why })
            }
        }
    }

    /// Them, or why they can be had by neither way.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    fn descriptors(&self) -> Result<Vec<Descriptor>, [String; 2]> {
        let Self { sender, pieces } = self;
        fetch::by_number(sender, pieces).or_else(|by_number| {
            let by_socket = fetch::by_socket(sender, pieces).map_err(super::connection::in_words);
            by_socket.map_err(|by_socket| [by_number.to_string(), by_socket.to_string()])
        })
    }

    #[cfg(not(all(feature = "processes", target_os = "linux")))]
    fn descriptors(&self) -> Result<Vec<Descriptor>, [String; 2]> {
        Err([(); 2].map(|()| super::connection::NEEDS.to_owned()))
    }
}

#[cfg(all(feature = "processes", target_os = "linux"))]
impl SentPiece {
    pub(super) fn new(bytes: u64, serial: u64, number: i32) -> Self {
        Self { bytes, serial, number }
    }
}

/// What a handle names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handle {
    /// Memory that [`Sharing::offer`](crate::engine::Sharing::offer) has offered.
    Pieces(SentPieces),
    /// A whole allocation of the driver's.
    Allocation(AllocationName),
}

impl Handle {
    /// The handle as bytes, in one form.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Allocation(name) => {
                bytes.extend([PYTORCH_FIRST, PYTORCH_ALLOCATION]);
                bytes.extend(name);
            }
            Self::Pieces(SentPieces { sender, pieces }) => {
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

    /// Reads a handle of regraph's, or one of PyTorch's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, HandleError> {
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
            pieces.push(SentPiece { bytes, serial, number });
        }
        if !rest.0.is_empty() {
            return Err(HandleError::Damaged("it goes on behind its end"));
        }
        Ok(Self::Pieces(SentPieces { sender: Sender { secret, process, board }, pieces }))
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

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], HandleError> {
        let (first, rest) =
            self.0.split_first_chunk().ok_or(HandleError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }
}

/// The receiver's side: descriptors from another process.
#[cfg(all(feature = "processes", target_os = "linux"))]
mod fetch {
    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::time::Instant;

    use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};

    use super::{Sender, SentPiece};
    use crate::processes::connection::{connected, receive, send_all};
    use crate::processes::offer::{entry, HERE, IN_ONE, PATIENCE};

    /// Descriptors by their numbers, out of the sender's process.
    pub(super) fn by_number(sender: &Sender, pieces: &[SentPiece]) -> io::Result<Vec<OwnedFd>> {
        let process = i32::try_from(sender.process).ok().and_then(Pid::from_raw);
        let process = process.filter(|_| sender.board >= 0);
        let process = process.ok_or_else(|| io::Error::other("the sender does not offer it"))?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let copy = |number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty());
        let board = File::from(copy(sender.board)?);
        let mut secret = [0; 16];
        // Of another process that has the number now, the file may be anything.
        let same = board.read_exact_at(&mut secret, 0).is_ok() && secret == sender.secret;
        if !same {
            return Err(io::Error::other("the process has ended, and another one has its number"));
        }
        pieces.iter().map(|piece| take(&board, piece, copy(piece.number)?)).collect()
    }

    /// A copy of a descriptor, if its number still stood for the piece when it was made.
    fn take(board: &File, piece: &SentPiece, copy: OwnedFd) -> io::Result<OwnedFd> {
        let mut serial = [0; 8];
        board.read_exact_at(&mut serial, entry(piece.number))?;
        if u64::from_ne_bytes(serial) != piece.serial {
            return Err(gone());
        }
        Ok(copy)
    }

    /// Descriptors from the sender's socket.
    pub(super) fn by_socket(sender: &Sender, pieces: &[SentPiece]) -> io::Result<Vec<OwnedFd>> {
        let deadline = Instant::now() + PATIENCE;
        let stream = connected(sender)?;
        send_all(&stream, &(pieces.len() as u32).to_le_bytes())?;
        let mut descriptors = Vec::new();
        for some in pieces.chunks(IN_ONE) {
            let serials: Vec<u8> =
                some.iter().flat_map(|piece| piece.serial.to_le_bytes()).collect();
            send_all(&stream, &serials)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            let (word, sent) = receive(&stream)?;
            if word.ok_or(io::ErrorKind::UnexpectedEof)? != HERE {
                return Err(gone());
            }
            if sent.len() < some.len() {
                return Err(io::Error::other("descriptors were lost; too many files may be open"));
            }
            descriptors.extend(sent);
        }
        Ok(descriptors)
    }

    fn gone() -> io::Error {
        io::Error::other("the sender has given the memory back; it must keep it until it is opened")
    }
}
