//! The connection by which one process has a loan of another.
//!
//! The borrower asks at the lender's socket for the loan, which is given once. That connection lasts as long as the loan:
//! the lender asks for its memory there, and the borrower says there that its work is done. A borrower that says nothing
//! has the loan until its process has ended; that its end of the connection is closed proves nothing, since work that it
//! has submitted may run still. So the borrower sends a descriptor of its process with its request, which tells of the
//! end.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{recv, recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{send, sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{getpid, pidfd_open, PidfdFlags};

use super::handle::{Sender, SentPieces};
use super::loans::LoanTable;
use super::offer::{is_trusted, GONE, HERE, IN_ONE, PATIENCE};
use crate::sync::{AtomicBool, Ordering};

/// In place of a number of exports: what follows is the number of a loan, and then a descriptor of the process.
pub(super) const LOAN: u32 = u32::MAX;
/// What the lender sends for its memory.
const RECALL: u8 = 2;
/// What the borrower sends once its work is done.
const BACK: u8 = 3;

/// The process that has a loan.
pub(crate) struct LoanTaker {
    stream: UnixStream,
    /// Can be read once the process has ended.
    process: OwnedFd,
    /// Whether nothing more comes from it.
    silent: AtomicBool,
}

impl LoanTaker {
    /// What is to be waited for: a word of the process's, and its end.
    pub(super) fn waits_for(&self) -> [PollFd<'_>; 2] {
        let end = PollFd::new(&self.process, PollFlags::IN);
        match self.silent.load(Ordering::Relaxed) {
            // That its connection is closed would be told again and again.
            true => [end.clone(), end],
            false => [PollFd::new(&self.stream, PollFlags::IN), end],
        }
    }

    /// Answers whether it has the loan. A process that does not hear it has the loan until its end.
    pub(super) fn answer(&self, has: bool) {
        say(&self.stream, if has { HERE } else { GONE });
    }

    /// Asks for the loan.
    pub(super) fn recall(&self) {
        say(&self.stream, RECALL);
    }

    /// Whether it has said that its work is done.
    pub(super) fn is_done(&self) -> bool {
        let mut word = [0];
        match (&self.stream).read(&mut word) {
            Ok(1) => word == [BACK],
            Err(error) if is_early(&error) => false,
            // It says nothing more, so its end is waited for.
            _ => {
                self.silent.store(true, Ordering::Relaxed);
                false
            }
        }
    }
}

/// Sends a word without a wait. A process that is gone, or does not read what it was sent, is told nothing.
fn say(stream: &UnixStream, word: u8) {
    let _ = send(stream, &[word], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Sends all, and waits as long as the stream does. Where the other end is closed that is an error, and no signal that ends
/// the process, as a write would be.
pub(super) fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match send(stream, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// An error of an exchange, with what may be the reason where it took too long.
pub(super) fn in_words(error: io::Error) -> io::Error {
    if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
        return error;
    }
    let seconds = PATIENCE.as_secs();
    io::Error::other(format!("the other process has not answered for {seconds} s; is it stopped?"))
}

/// Whether a step can be taken later.
pub(super) fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Gives a process that asks at the socket a loan, if that is to be had, and answers. A byte with its descriptor is to
/// come next.
pub(super) fn give_loan(stream: &UnixStream, number: u64, loans: &LoanTable) -> io::Result<()> {
    let (_, sent) = receive(stream)?;
    // Without one its end would not be noticed.
    let process = sent.into_iter().next().ok_or(ErrorKind::InvalidData)?;
    let silent = AtomicBool::new(false);
    loans.give(number, Some(LoanTaker { stream: stream.try_clone()?, process, silent }));
    Ok(())
}

/// The borrower's end of the connection of a loan.
#[derive(Debug)]
pub(crate) struct TakenEnd {
    stream: UnixStream,
}

impl TakenEnd {
    /// Asks the lender's process for a loan, whose memory it has.
    pub(crate) fn ask(memory: &SentPieces, number: u64) -> io::Result<Self> {
        Self::ask_for(memory, number).map_err(in_words)
    }

    fn ask_for(memory: &SentPieces, number: u64) -> io::Result<Self> {
        let mut stream = connected(memory.sender())?;
        let process = pidfd_open(getpid(), PidfdFlags::empty())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        send_all(&stream, &LOAN.to_le_bytes())?;
        send_all(&stream, &number.to_le_bytes())?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let descriptors = [process.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        let mut word = [0];
        match stream.read_exact(&mut word) {
            Ok(()) if word == [HERE] => Ok(Self { stream }),
            Ok(()) if word == [GONE] => {
                let why = "it was called back, or another process has taken it; ask the lender for another one";
                Err(io::Error::other(why))
            }
            answer => {
                // The answer may come later, and would be that this process has the loan.
                say(&stream, BACK);
                Err(answer.err().unwrap_or_else(|| ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Tells the lender that all work on it is done. Where the lender does not hear of it, this process has the loan until
    /// its end.
    pub(crate) fn say_back(&self) {
        say(&self.stream, BACK);
    }

    /// Whether the lender has asked for it, or has ended, after a wait of at most so long.
    pub(crate) fn is_recalled(&self, patience: Duration) -> bool {
        let deadline = Instant::now().checked_add(patience);
        loop {
            // A word stays for the next to ask. The end of the connection is that of the lender.
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            match recv(&self.stream, &mut [0; 1], flags) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                _ => return true,
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            // Whole milliseconds, so that the time is up afterwards.
            let left = left.map(|left| left + Duration::from_millis(1));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            // What cannot be waited for is asked for again.
            let _ = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], timeout.as_ref());
        }
    }
}

/// A connection to the sender, on which no step waits for long.
pub(super) fn connected(sender: &Sender) -> io::Result<UnixStream> {
    let address = sender.socket()?;
    let name = address.as_abstract_name().unwrap_or_default();
    let flags = SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before it is connected: that waits too, where the sender is stopped and many ask.
    set_socket_timeout(&stream, Timeout::Send, Some(PATIENCE))?;
    connect(&stream, &SocketAddrUnix::new_abstract_name(name)?)?;
    let stream = UnixStream::from(stream);
    if !is_trusted(&stream) {
        return Err(io::Error::other("the socket is another user's"));
    }
    Ok(stream)
}

/// Receives a word, none at the end of the connection, with the descriptors that come with it.
pub(super) fn receive(stream: &UnixStream) -> io::Result<(Option<u8>, Vec<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_ONE))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut word = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let came = recvmsg(stream, &mut [io::IoSliceMut::new(&mut word)], &mut control, flags)?;
    let sent = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    Ok(((came.bytes > 0).then_some(word[0]), sent.flatten().collect()))
}
