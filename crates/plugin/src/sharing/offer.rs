//! The sender's side: descriptors that receivers may copy, and for how long.
//!
//! A receiver takes descriptors by their numbers, where the system lets it (`pidfd_getfd`). A number alone
//! says nothing: it may be another file's by then, or the process another one. So the sender keeps a
//! *board*, a file in memory that says which export each number stands for now. It begins with the
//! sender's secret. An export is taken off the board before its descriptor is closed, so a number that
//! stands there after it was copied was right when it was copied.
//!
//! Where the system forbids that, a receiver asks for the exports by their serial numbers at a socket,
//! which a thread of the sender serves.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use regraph::engine::{Export, SharedPiece};
use regraph::sync::{AtomicBool, Mutex, MutexGuard, Ordering, Rank};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::net::{sendmsg, sockopt, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::rand::{getrandom, GetRandomFlags};

use super::handle::{Piece, Sender};

/// Descriptors in one message; the system allows no more than 253.
pub(super) const IN_ONE: usize = 64;
/// The most that one request may ask for.
const ASKED: u32 = 1 << 16;
/// How long either side waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// What comes with descriptors, and what comes where one of them is gone.
pub(super) const HERE: u8 = 1;
pub(super) const GONE: u8 = 0;

/// Where a sender's socket is: in no file system, known to those who have a handle.
pub(super) fn socket(sender: &Sender) -> io::Result<SocketAddr> {
    let secret = u128::from_be_bytes(sender.secret);
    SocketAddr::from_abstract_name(format!("regraph-{}-{secret:032x}", sender.process))
}

/// Where a number's entry on a board is.
pub(super) fn entry(number: i32) -> u64 {
    16 + 8 * u64::from(number.unsigned_abs())
}

/// Whether who is at the other end is the same user.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let peer = sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// What is on offer.
struct Offered {
    process: u32,
    board: Option<File>,
    exports: Mutex<BTreeMap<u64, Weak<Export>>>,
    closing: AtomicBool,
}

impl Offered {
    fn exports(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Export>>> {
        self.exports.lock()
    }

    fn post(&self, number: i32, serial: u64) -> io::Result<()> {
        let Some(board) = &self.board else { return Ok(()) };
        board.write_all_at(&serial.to_ne_bytes(), entry(number))
    }

    /// An export is about to be closed.
    fn withdraw(&self, number: i32, serial: u64) {
        // A process that was forked has a copy of the table, and the very board of its parent.
        if self.process == std::process::id() {
            // A page that was written before can be written again.
            let _ = self.post(number, 0);
            self.exports().remove(&serial);
        }
    }

    /// The exports with these serial numbers that are not gone.
    fn find(&self, serials: &[u8]) -> Vec<Arc<Export>> {
        let known = self.exports();
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let find = |bytes| known.get(&number(bytes)).and_then(Weak::upgrade);
        // All that are found leave the lock: dropping the last holder of one takes it.
        serials.chunks(8).filter_map(find).collect()
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if !is_trusted(&stream) {
            return Ok(());
        }
        let mut count = [0; 4];
        stream.read_exact(&mut count)?;
        let count = u32::from_le_bytes(count);
        if count > ASKED {
            return Ok(());
        }
        let mut left = count as usize;
        while left > 0 {
            let some = left.min(IN_ONE);
            left -= some;
            let mut serials = [0; 8 * IN_ONE];
            let serials = &mut serials[..8 * some];
            stream.read_exact(serials)?;
            // They stay open until they are sent.
            let exports = self.find(serials);
            let found = exports.len() == some;
            let descriptors: Vec<BorrowedFd<'_>> =
                exports.iter().map(|export| export.descriptor().as_fd()).collect();
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_ONE))];
            let mut control = SendAncillaryBuffer::new(&mut room);
            if found {
                control.push(SendAncillaryMessage::ScmRights(&descriptors));
            }
            let word = [if found { HERE } else { GONE }];
            sendmsg(&stream, &[IoSlice::new(&word)], &mut control, SendFlags::NOSIGNAL)?;
            if !found {
                break;
            }
        }
        Ok(())
    }
}

/// A process's offers to others, with the thread that serves them.
pub(super) struct Offers {
    sender: Sender,
    offered: Arc<Offered>,
}

impl Offers {
    /// Nothing yet, and a socket.
    pub(super) fn new() -> io::Result<Self> {
        let process = std::process::id();
        let mut secret = [0; 16];
        let mut filled = 0;
        while filled < secret.len() {
            filled += getrandom(&mut secret[filled..], GetRandomFlags::empty())?;
        }
        // Without one, receivers use the socket.
        let board = new_board(&secret).ok();
        let number = board.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let sender = Sender { secret, process, board: number };
        let listener = UnixListener::bind_addr(&socket(&sender)?)?;
        let offered = Arc::new(Offered {
            process,
            board,
            exports: Mutex::new(Rank::Exports, BTreeMap::new()),
            closing: AtomicBool::new(false),
        });
        let serving = Arc::clone(&offered);
        let thread = std::thread::Builder::new().name("regraph-share".to_owned());
        thread.spawn(move || serve_all(&listener, &serving))?;
        Ok(Self { sender, offered })
    }

    pub(super) fn sender(&self) -> Sender {
        self.sender
    }

    /// Whether this is the process that they were made in.
    pub(super) fn is_own(&self) -> bool {
        self.offered.process == std::process::id()
    }

    /// Offers a piece, until its memory goes.
    pub(super) fn offer(&self, piece: &SharedPiece) -> io::Result<Piece> {
        let SharedPiece { bytes, export } = piece;
        let (number, serial) = (export.descriptor().as_raw_fd(), export.serial());
        if let std::collections::btree_map::Entry::Vacant(vacant) =
            self.offered.exports().entry(serial)
        {
            let offered = Arc::clone(&self.offered);
            // Else other offers would not be taken back.
            if !export.before_close(move || offered.withdraw(number, serial)) {
                return Err(io::Error::other("the memory is offered by another allocator"));
            }
            vacant.insert(Arc::downgrade(export));
        }
        self.offered.post(number, serial)?;
        Ok(Piece { bytes: *bytes, serial, number })
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        self.offered.closing.store(true, Ordering::Release);
        if self.is_own() {
            // Wakes the thread, which then ends.
            let _ = socket(&self.sender).and_then(|address| UnixStream::connect_addr(&address));
        }
    }
}

fn new_board(secret: &[u8; 16]) -> io::Result<File> {
    let board: OwnedFd = memfd_create("regraph-share", MemfdFlags::CLOEXEC)?;
    let board = File::from(board);
    board.write_all_at(secret, 0)?;
    Ok(board)
}

fn serve_all(listener: &UnixListener, offered: &Offered) {
    loop {
        let accepted = listener.accept();
        if offered.closing.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            // A receiver that goes away, or asks for nonsense, is told nothing.
            Ok((stream, _)) => drop(offered.serve(stream)),
            // Too many open files, for instance: some may be closed soon.
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
