//! The receiver's side: descriptors from another process.

use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};

use super::handle::{Piece, Sender};
use super::offer::{entry, is_trusted, socket, HERE, IN_ONE, PATIENCE};

/// How descriptors come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By their numbers, out of the sender's process.
    Process,
    /// From the sender's socket.
    Socket,
}

impl Way {
    pub(super) fn fetch(self, sender: &Sender, pieces: &[Piece]) -> io::Result<Vec<OwnedFd>> {
        match self {
            Self::Process => from_process(sender, pieces),
            Self::Socket => from_socket(sender, pieces),
        }
    }
}

fn from_process(sender: &Sender, pieces: &[Piece]) -> io::Result<Vec<OwnedFd>> {
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
fn take(board: &File, piece: &Piece, copy: OwnedFd) -> io::Result<OwnedFd> {
    let mut serial = [0; 8];
    board.read_exact_at(&mut serial, entry(piece.number))?;
    if u64::from_ne_bytes(serial) != piece.serial {
        return Err(gone());
    }
    Ok(copy)
}

fn from_socket(sender: &Sender, pieces: &[Piece]) -> io::Result<Vec<OwnedFd>> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = connected(sender)?;
    if !is_trusted(&stream) {
        return Err(io::Error::other("the socket is another user's"));
    }
    stream.write_all(&(pieces.len() as u32).to_le_bytes())?;
    let mut descriptors = Vec::new();
    for some in pieces.chunks(IN_ONE) {
        let serials: Vec<u8> = some.iter().flat_map(|piece| piece.serial.to_le_bytes()).collect();
        stream.write_all(&serials)?;
        let before = descriptors.len();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_ONE))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut word = [0];
        let received = recvmsg(
            &stream,
            &mut [IoSliceMut::new(&mut word)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if word != [HERE] {
            return Err(gone());
        }
        let all = descriptors.len() - before == some.len();
        if !all || received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("descriptors were lost; too many files may be open"));
        }
    }
    Ok(descriptors)
}

/// A connection to the sender, on which no step waits for long.
pub(super) fn connected(sender: &Sender) -> io::Result<UnixStream> {
    let address = socket(sender)?;
    let name = address.as_abstract_name().unwrap_or_default();
    let flags = SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before it is connected: that waits too, where the sender is stopped and many ask.
    set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE))?;
    connect(&stream, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(UnixStream::from(stream))
}

fn gone() -> io::Error {
    io::Error::other("the sender has given the memory back; it must keep it until it is opened")
}
