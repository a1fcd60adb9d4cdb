//! Handles of memory that processes share, and real processes that open them.
//!
//! A simulated device gives out descriptors of files that say which memory they stand for, so a process with
//! a device of its own can tell what it was sent.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;

use super::other_process::{is_other_process, words, OtherProcess};
use super::{exportable, sharing_refusal};
use crate::common::MIB;
use crate::plugin::host::{host_on, host_with, Host};
use regraph::driver::{CaptureMode, ErrorKind, HostApi, MemorySupport};
use regraph::engine::SharingRefusal;
use regraph::engine::{self, Config, WhyNotShared};
use regraph::settings::{PlanChoice, Settings};
use regraph_plugin::{Error, HandleError, Plugin, Shared};
use regraph_sim::{Call, SimConfig, SimDriver};

/// Where the parts of a handle lie.
const VERSION: usize = 7;
const SECRET: usize = 8;
const PROCESS: usize = 24;
const BOARD: usize = 28;
const COUNT: usize = 32;
const PIECES: usize = 36;
const PIECE: usize = 20;

/// Takes the sender's board out of a handle.
fn by_socket_alone(handle: &mut [u8]) {
    handle[BOARD..BOARD + 4].copy_from_slice(&(-1i32).to_le_bytes());
}

fn is_unreachable(error: &Error) -> bool {
    matches!(sharing_refusal(error), SharingRefusal::Unreachable { .. })
}

/// Two processes on one device.
fn two() -> [Host; 2] {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    [(); 2].map(|()| host_on(&driver, exportable()))
}

impl Host {
    /// A block of 3 and one of 5 MiB, which lies on two pieces, and how that is shared.
    fn two_pieces(&self) -> ([u64; 2], Shared) {
        let stream = self.stream();
        let blocks = [3, 5].map(|mib| self.plugin.allocate(mib * MIB, 0, stream).unwrap());
        let shared = self.plugin.share(blocks[1]).unwrap();
        assert_eq!(shared.handle.len(), PIECES + 2 * PIECE);
        (blocks, shared)
    }

    /// Frees blocks and gives their memory back.
    fn give_back(&self, blocks: [u64; 2]) {
        for block in blocks {
            self.plugin.free(block, 0).unwrap();
        }
        self.driver.synchronize().unwrap();
        self.plugin.empty_cache().unwrap();
    }
}

#[test]
fn a_handle_is_opened_once_and_unmapped_with_its_last_user() {
    let [ours, theirs] = two();
    let (blocks, shared) = ours.two_pieces();
    let first = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    let second = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    assert_eq!(first, second);
    let (others, other) = ours.two_pieces();
    let beside = theirs.plugin.open_shared(0, &other.handle).unwrap();
    let behind = |address| ours.driver.behind(address, 5 * MIB);
    assert_eq!(behind(first.address + shared.offset), behind(blocks[1]));
    theirs.plugin.close_shared(first.id).unwrap();
    assert!(behind(first.address).is_some(), "someone else has it still");
    theirs.plugin.close_shared(first.id).unwrap();
    assert!(behind(first.address).is_none() && behind(beside.address).is_some());
    assert!(matches!(theirs.plugin.close_shared(first.id), Err(Error::NotOpen)));
    theirs.plugin.close_shared(beside.id).unwrap();
    ours.give_back(others);
    let third = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    assert_ne!(third.id, first.id);
    theirs.plugin.close_shared(third.id).unwrap();
    ours.give_back(blocks);
    assert_eq!(ours.driver.used_bytes(), 0);
}

#[test]
fn blocks_on_the_same_pieces_have_equal_handles() {
    let ours = host_with(exportable());
    let stream = ours.stream();
    let blocks = [600, 700].map(|kib| ours.plugin.allocate(kib << 10, 0, stream).unwrap());
    let [one, two] = blocks.map(|block| ours.plugin.share(block).unwrap());
    assert_eq!(one.handle, two.handle);
    assert_eq!(one, ours.plugin.share(blocks[0]).unwrap());
    assert_eq!(two.offset - one.offset, blocks[1] - blocks[0]);
}

#[test]
fn a_process_may_open_its_own_memory() {
    let ours = host_with(exportable());
    let (blocks, shared) = ours.two_pieces();
    let opened = ours.plugin.open_shared(0, &shared.handle).unwrap();
    let behind = |address| ours.driver.behind(address, 5 * MIB);
    assert_eq!(behind(opened.address + shared.offset), behind(blocks[1]));
    ours.plugin.close_shared(opened.id).unwrap();
}

/// A wait for the device would ruin a capture that the program has begun by itself.
#[test]
fn nothing_is_unmapped_while_a_known_stream_captures() {
    let [ours, theirs] = two();
    let (_, shared) = ours.two_pieces();
    let stream = theirs.stream();
    let block = theirs.plugin.allocate(MIB, 0, stream).unwrap();
    let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    theirs.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    theirs.plugin.close_shared(opened.id).unwrap();
    assert!(ours.driver.behind(opened.address, 5 * MIB).is_some());
    theirs.driver.end_capture(stream).expect("the capture is sound");
    theirs.plugin.free(block, 0).unwrap();
    theirs.plugin.empty_cache().unwrap();
    assert!(ours.driver.behind(opened.address, 5 * MIB).is_none());
}

#[test]
fn nothing_is_unmapped_while_something_captures() {
    let [ours, theirs] = two();
    let (_, shared) = ours.two_pieces();
    let stream = theirs.stream();
    let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    theirs.begin(stream, (1, 0));
    theirs.plugin.close_shared(opened.id).unwrap();
    assert!(ours.driver.behind(opened.address, 5 * MIB).is_some());
    // Opened again it is as it was.
    assert_eq!(theirs.plugin.open_shared(0, &shared.handle).unwrap(), opened);
    theirs.plugin.close_shared(opened.id).unwrap();
    assert!(matches!(theirs.plugin.close_shared(opened.id), Err(Error::NotOpen)));
    theirs.end(stream, (1, 0));
    theirs.plugin.open_shared(0, &ours.two_pieces().1.handle).unwrap();
    assert!(ours.driver.behind(opened.address, 5 * MIB).is_none());
}

#[test]
fn what_has_gone_is_not_opened() {
    let [ours, theirs] = two();
    let (blocks, shared) = ours.two_pieces();
    ours.give_back(blocks);
    // Numbers of descriptors are used again.
    let others: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let (again, new) = ours.two_pieces();
    let error = theirs.plugin.open_shared(0, &shared.handle).unwrap_err();
    let SharingRefusal::Unreachable { by_number, by_socket, process } = sharing_refusal(&error)
    else {
        panic!("{error}")
    };
    assert_eq!(*process, std::process::id());
    assert!(by_socket.contains("given the memory back"), "{by_socket}");
    let allowed = !by_number.contains("os error");
    assert!(!allowed || by_number.contains("given the memory back"), "{by_number}");
    assert_ne!(new.handle, shared.handle);
    assert!(theirs.plugin.open_shared(0, &new.handle).is_ok());
    drop(others);
    ours.give_back(again);
}

#[test]
fn a_sender_that_has_ended_is_not_reached() {
    let [ours, theirs] = two();
    let (_, shared) = ours.two_pieces();
    drop(ours);
    let error = theirs.plugin.open_shared(0, &shared.handle).unwrap_err();
    assert!(is_unreachable(&error), "{error}");
    // Another process has the number by now.
    let mut other = shared.handle;
    other[PROCESS..PROCESS + 4].copy_from_slice(&1u32.to_le_bytes());
    let error = theirs.plugin.open_shared(0, &other).unwrap_err();
    let why = sharing_refusal(&error);
    assert!(matches!(why, SharingRefusal::Unreachable { process: 1, .. }), "{error}");
    assert_eq!(theirs.driver.calls(Call::Import), 0);
}

#[test]
fn damaged_handles_are_refused() {
    let [ours, theirs] = two();
    let (_, Shared { handle, .. }) = ours.two_pieces();
    let error = |bytes: &[u8]| match theirs.plugin.open_shared(0, bytes).unwrap_err() {
        Error::Engine(engine::Error::Sharing { why: SharingRefusal::Handle(error), .. }) => error,
        other => panic!("{other:?}"),
    };
    for length in 0..handle.len() {
        let found = error(&handle[..length]);
        let known = length > VERSION - 1;
        assert_eq!(matches!(found, HandleError::Damaged(_)), known, "{length}: {found}");
    }
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = handle.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let damaged = |bytes: Vec<u8>| assert!(matches!(error(&bytes), HandleError::Damaged(_)));
    assert_eq!(error(&with(VERSION, &[2])), HandleError::OtherVersion { found: 2 });
    damaged(with(COUNT, &[0])[..PIECES].to_vec());
    [1, 3].iter().for_each(|&count| damaged(with(COUNT, &[count])));
    damaged(with(COUNT, &[0xff; 4]));
    let many = handle[PIECES..][..20].repeat((1 << 16) + 1);
    damaged([&with(COUNT, &[1, 0, 1, 0])[..PIECES], &many[..]].concat());
    damaged(with(PIECES, &[0; 8]));
    damaged(with(PIECES + 8, &[0; 8]));
    damaged(with(PIECES + 16, &[0xff; 4]));
    damaged([&handle[..], &[0]].concat());
    assert_eq!(error(&with(0, b"R")), HandleError::Unknown);
    // So long is a name of CUDA's, which no allocation has.
    assert!(matches!(theirs.plugin.open_shared(0, &[7; 64]), Err(Error::Driver(_))));
    // Whole and wrong: another secret, other serials, another size.
    for wrong in [with(SECRET, &[0; 16]), with(PIECES + 8, &[0xff; 8])] {
        let error = theirs.plugin.open_shared(0, &wrong).unwrap_err();
        assert!(is_unreachable(&error), "{error}");
    }
    let size = with(PIECES, &(6 * MIB).to_le_bytes());
    let error = theirs.plugin.open_shared(0, &size).unwrap_err();
    assert!(matches!(error, Error::Engine(engine::Error::Driver(_))), "{error}");
    assert!(theirs.plugin.open_shared(0, &handle).is_ok(), "nothing of that did any harm");
}

#[test]
fn any_bytes_are_an_error() {
    let theirs = host_with(exportable());
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2_000 {
        let mut bytes: Vec<u8> = (0..random.usize(..160)).map(|_| random.u8(..)).collect();
        if random.bool() && bytes.len() > COUNT {
            bytes[..VERSION + 1].copy_from_slice(b"regraph\x01");
            bytes[COUNT..].iter_mut().take(4).skip(1).for_each(|byte| *byte = 0);
        }
        assert!(theirs.plugin.open_shared(0, &bytes).is_err());
    }
    assert_eq!(theirs.driver.used_bytes(), 0);
}

#[test]
fn whole_allocations_have_handles_of_pytorchs() {
    let plain = SimConfig { total_bytes: 256 * MIB, support: MemorySupport::Allocated };
    let apart = Settings::default().exportable(true).expandable_segments(false);
    for ours in [
        host_on(&Arc::new(SimDriver::new(plain)), Config::default()),
        host_with(Config::default().settings(apart)),
    ] {
        has_a_handle_of_pytorchs(&ours);
    }
}

fn has_a_handle_of_pytorchs(ours: &Host) {
    let theirs = host_on(&ours.driver, Config::default());
    let stream = ours.stream();
    let block = ours.plugin.allocate(3 * MIB, 0, stream).unwrap();
    let Shared { handle, offset } = ours.plugin.share(block).unwrap();
    assert_eq!((handle.len(), &handle[..2]), (66, &b"\x01c"[..]));
    let opened = theirs.plugin.open_shared(0, &handle).unwrap();
    let behind = |address| ours.driver.behind(address, 3 * MIB);
    assert_eq!(behind(opened.address + offset), behind(block));
    // As later versions write it, and as it was before there were versions.
    for other in [[b"\x02c", &handle[2..]].concat(), [b"\x03c", &handle[2..]].concat()] {
        assert_eq!(theirs.plugin.open_shared(0, &other).unwrap(), opened);
    }
    assert_eq!(theirs.plugin.open_shared(0, &handle[2..]).unwrap(), opened);
    for _ in 0..4 {
        theirs.plugin.close_shared(opened.id).unwrap();
    }
    assert!(behind(opened.address).is_none());
    let error = |bytes: &[u8]| theirs.plugin.open_shared(0, bytes).unwrap_err();
    let expandable = error(&[b"\x02e", &handle[2..]].concat());
    let is = |error: &Error, why: HandleError| {
        assert!(matches!(sharing_refusal(error), SharingRefusal::Handle(it) if *it == why));
    };
    is(&expandable, HandleError::Expandable);
    assert!(expandable.to_string().contains("expandable_segments:False"), "{expandable}");
    let damaged = error(b"\x02c123");
    assert!(matches!(sharing_refusal(&damaged), SharingRefusal::Handle(HandleError::Damaged(_))));
    is(&error(b"\x04c"), HandleError::Unknown);
    // It would not come back at its addresses.
    let engine = ours.plugin.engine(0).unwrap();
    let refused = engine.host().suspend_discarding_all(engine.pools().unwrap()[0].id).unwrap_err();
    assert!(refused.to_string().contains("allocated, not mapped"), "{refused}");
    ours.plugin.free(block, 0).unwrap();
}

#[test]
fn what_cannot_be_shared_says_why() {
    let ours = host_with(Config::default());
    let stream = ours.stream();
    let block = ours.plugin.allocate(3 * MIB, 0, stream).unwrap();
    let error = ours.plugin.share(block).unwrap_err();
    let not_shared = sharing_refusal(&error);
    let why = WhyNotShared::NotExportable;
    assert!(matches!(not_shared, SharingRefusal::NotShared { why: it, .. } if *it == why));
    let inside = ours.plugin.share(block + 512).unwrap_err();
    assert!(matches!(inside, Error::UnknownAddress { call: "share", .. }));
    let settings = Settings::default().exportable(true).plan(PlanChoice::Exact);
    let planned = host_with(Config::default().settings(settings));
    let block = planned.plugin.allocate(3 * MIB, 0, planned.stream()).unwrap();
    assert!(planned.plugin.share(block).is_ok(), "memory outside captures has no plan");
}

#[test]
fn every_call_of_the_driver_may_fail() {
    let [ours, theirs] = two();
    let (_, shared) = ours.two_pieces();
    theirs.plugin.engine(0).unwrap();
    let mut failed = 0;
    for n in 0.. {
        let before = ours.driver.used_bytes();
        ours.driver.fail_any_nth(n, ErrorKind::InvalidValue);
        let opened = theirs.plugin.open_shared(0, &shared.handle);
        ours.driver.forget_failures();
        match opened {
            Err(_) => failed += 1,
            Ok(opened) => {
                theirs.plugin.close_shared(opened.id).unwrap();
                assert_eq!(ours.driver.behind(opened.address, MIB), None);
                break;
            }
        }
        assert_eq!(ours.driver.used_bytes(), before);
    }
    // Addresses, two imports, two mappings, and access to both.
    assert_eq!(failed, 6);
    // A device that cannot be waited for keeps what was mapped.
    let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    ours.driver.fail_host_nth(0, ErrorKind::InvalidValue);
    theirs.plugin.close_shared(opened.id).unwrap();
    assert!(ours.driver.behind(opened.address, MIB).is_some());
    theirs.plugin.empty_cache().unwrap();
    assert!(ours.driver.behind(opened.address, MIB).is_none());
}

#[test]
fn devices_are_let_at_each_others_memory() {
    let first = Arc::new(SimDriver::new(SimConfig::default()));
    let second = Arc::new(first.add_device(SimConfig::default()));
    let drivers = [Arc::clone(&first), Arc::clone(&second)];
    let plugin = Plugin::new(exportable(), move |device| Ok(Arc::clone(&drivers[device as usize])));
    let streams = [first.create_stream().unwrap(), second.create_stream().unwrap()];
    let blocks: [u64; 2] =
        std::array::from_fn(|n| plugin.allocate(3 * MIB, n as u32, streams[n]).unwrap());
    plugin.peer_access(0, 1).unwrap();
    plugin.peer_access(0, 1).unwrap();
    assert!(first.behind(blocks[1], 3 * MIB).is_some(), "device 0 may touch memory of device 1");
    assert!(second.behind(blocks[0], 3 * MIB).is_none(), "and not the other way");
    let later = plugin.allocate(64 * MIB, 1, streams[1]).unwrap();
    assert!(first.behind(later, 64 * MIB).is_some());
    plugin.peer_access(1, 0).unwrap();
    assert!(second.behind(blocks[0], 3 * MIB).is_some());
}

/// A process that opens what it is sent, line by line, and says what lies there.
fn origins(driver: &SimDriver, address: u64) -> String {
    format!("{:?} {:?}", driver.origin(address), driver.origin(address + 4 * MIB))
}

#[test]
#[ignore = "the other process of the tests below"]
fn receives() {
    if !is_other_process() {
        return;
    }
    let theirs = host_with(exportable());
    for handle in words() {
        if let Some(handle) = handle.strip_prefix(b"call") {
            let shared = Shared { handle: handle.to_vec(), offset: 0 };
            let mut sender = callers(&shared, 1).remove(0);
            let serials = handle[PIECES..].chunks(PIECE).flat_map(|piece| &piece[8..16]);
            let question: Vec<u8> = [2, 0, 0, 0].iter().chain(serials).copied().collect();
            let mut answer = Vec::new();
            // The other end may be closed by then.
            let _ = sender.write_all(&question).and_then(|()| sender.read_to_end(&mut answer));
            println!("\nanswer {}", answer.len());
            continue;
        }
        match theirs.plugin.open_shared(0, &handle) {
            Ok(opened) => {
                println!("\nanswer {}", origins(&theirs.driver, opened.address));
                theirs.plugin.close_shared(opened.id).unwrap();
                assert_eq!(theirs.driver.origin(opened.address), None);
            }
            Err(error) => println!("\nanswer {error}"),
        }
    }
}

#[test]
fn another_process_gets_the_very_memory_by_either_way() {
    let ours = host_with(exportable());
    let (blocks, shared) = ours.two_pieces();
    let there = origins(&ours.driver, blocks[1] - shared.offset);
    let mut receiver = OtherProcess::new("sharing::handles::receives");
    assert_eq!(receiver.ask(&shared.handle), there);
    // Without a board there is the socket alone.
    let mut by_socket = shared.handle.clone();
    by_socket_alone(&mut by_socket);
    assert_eq!(receiver.ask(&by_socket), there);
    assert_eq!(receiver.ask(&[b"call", &by_socket[..]].concat()), "1", "one word, and the end");
    // A board that is another file.
    let file = std::fs::File::open("/dev/null").unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    by_socket[BOARD..BOARD + 4].copy_from_slice(&number.to_le_bytes());
    assert_eq!(receiver.ask(&by_socket), there);
    ours.give_back(blocks);
    // The thread that sent the descriptors may be about to let go of them.
    let gone = |answer: &String| !answer.starts_with("Some");
    let mut answers = std::iter::repeat_with(|| receiver.ask(&shared.handle)).take(1_000);
    let answer = answers.find(gone).unwrap();
    assert!(answer.contains("given the memory back"), "{answer}");
    assert!(answer.contains("keep the memory until it is opened"), "{answer}");
}

#[test]
fn other_users_are_neither_asked_nor_answered() {
    let ours = host_with(exportable());
    let (_, mut shared) = ours.two_pieces();
    by_socket_alone(&mut shared.handle);
    let other = OtherProcess::of_another_user("sharing::handles::receives");
    let Some(mut other) = other else { return };
    assert_eq!(other.ask(&[b"call", &shared.handle[..]].concat()), "0");
    let answer = other.ask(&shared.handle);
    assert!(answer.contains("is another user's"), "{answer}");
}

#[test]
fn more_pieces_than_one_message_holds() {
    let ours = host_with(exportable());
    let stream = ours.stream();
    // Many small pieces, and then a block over all of them.
    let blocks: Vec<u64> =
        (0..150).map(|_| ours.plugin.allocate(2 * MIB, 0, stream).unwrap()).collect();
    for &block in &blocks {
        ours.plugin.free(block, 0).unwrap();
    }
    ours.driver.synchronize().unwrap();
    let block = ours.plugin.allocate(300 * MIB, 0, stream).unwrap();
    let shared = ours.plugin.share(block).unwrap();
    let count = (shared.handle.len() - PIECES) / PIECE;
    assert!(count >= 140, "{count}");
    let mut receiver = OtherProcess::new("sharing::handles::receives");
    let there = origins(&ours.driver, block - shared.offset);
    assert_eq!(receiver.ask(&shared.handle), there);
    let mut by_socket = shared.handle.clone();
    by_socket_alone(&mut by_socket);
    assert_eq!(receiver.ask(&by_socket), there);
}

#[test]
fn a_sender_that_does_not_answer_delays_no_other_handle() {
    let [ours, theirs] = two();
    let (blocks, shared) = ours.two_pieces();
    let mut silent = shared.handle.clone();
    by_socket_alone(&mut silent);
    silent[SECRET..SECRET + 16].copy_from_slice(&[0x5e; 16]);
    let name = format!("regraph-{}-{}", std::process::id(), "5e".repeat(16));
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let sender = UnixListener::bind_addr(&address).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| theirs.plugin.open_shared(0, &silent));
        let (mut question, _) = sender.accept().unwrap();
        question.read_exact(&mut [0; 4]).unwrap();
        let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
        theirs.plugin.close_shared(opened.id).unwrap();
        assert!(!waiting.is_finished(), "the other handle was waited for");
        // Word that the descriptors are there, without them: this process had no room for more.
        question.write_all(&[1]).unwrap();
        drop(question);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(is_unreachable(&error), "{error}");
    });
    ours.give_back(blocks);
    assert_eq!(ours.driver.used_bytes(), 0);
}

#[test]
fn threads_that_open_one_handle_at_once_share_a_mapping() {
    let [ours, theirs] = two();
    let (blocks, shared) = ours.two_pieces();
    for _ in 0..20 {
        let open = || theirs.plugin.open_shared(0, &shared.handle).unwrap();
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(opened.iter().all(|it| *it == opened[0]));
        for it in opened {
            theirs.plugin.close_shared(it.id).unwrap();
        }
    }
    ours.give_back(blocks);
    assert_eq!(ours.driver.used_bytes(), 0);
}

#[test]
fn many_receivers_at_once() {
    let ours = host_with(exportable());
    let (blocks, mut shared) = ours.two_pieces();
    by_socket_alone(&mut shared.handle);
    let behind = |address| ours.driver.behind(address, 5 * MIB);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let theirs = host_on(&ours.driver, exportable());
                for _ in 0..20 {
                    let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
                    assert_eq!(behind(opened.address + shared.offset), behind(blocks[1]));
                    theirs.plugin.close_shared(opened.id).unwrap();
                }
            });
        }
    });
    ours.give_back(blocks);
    assert_eq!(ours.driver.used_bytes(), 0);
}

/// Connections to a sender's socket.
fn callers(shared: &Shared, count: usize) -> Vec<UnixStream> {
    let secret = &shared.handle[SECRET..SECRET + 16];
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let process = shared.handle[PROCESS..BOARD].try_into().map(u32::from_le_bytes).unwrap();
    let address = SocketAddr::from_abstract_name(format!("regraph-{process}-{secret}")).unwrap();
    (0..count).map(|_| UnixStream::connect_addr(&address).unwrap()).collect()
}

#[test]
fn receivers_that_say_nothing_or_do_not_listen_hold_up_no_other() {
    let [ours, theirs] = two();
    let (blocks, mut shared) = ours.two_pieces();
    let silent = callers(&shared, 6);
    let slow = callers(&shared, 2);
    for mut stream in &slow {
        stream.write_all(&[9, 0, 0, 0, 1]).unwrap();
    }
    // It asks for more and more, and reads no answer. What it is sent counts as this user's open files.
    let deaf = callers(&shared, 1);
    let mut question = 1_000u32.to_le_bytes().to_vec();
    question.extend(shared.handle[PIECES + 8..PIECES + 16].repeat(512));
    (&deaf[0]).write_all(&question).unwrap();
    by_socket_alone(&mut shared.handle);
    for _ in 0..3 {
        let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
        theirs.plugin.close_shared(opened.id).unwrap();
    }
    drop((silent, slow, deaf));
    ours.give_back(blocks);
    assert_eq!(ours.driver.used_bytes(), 0);
}

#[test]
fn more_silent_receivers_than_are_served_at_once_make_room() {
    let [ours, theirs] = two();
    let (_, mut shared) = ours.two_pieces();
    let mut silent = callers(&shared, 200);
    by_socket_alone(&mut shared.handle);
    let opened = theirs.plugin.open_shared(0, &shared.handle).unwrap();
    theirs.plugin.close_shared(opened.id).unwrap();
    // The first to come was the first to go; and nothing is answered where nothing is asked for.
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    let mut none = callers(&shared, 1).remove(0);
    none.write_all(&[0; 4]).unwrap();
    assert_eq!(none.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_receiver_that_sends_a_byte_now_and_then_comes_to_an_end() {
    let ours = host_with(exportable());
    let (_, shared) = ours.two_pieces();
    let mut slow = callers(&shared, 1).remove(0);
    slow.write_all(&60_000u32.to_le_bytes()).unwrap();
    let mut pause = || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        slow.write_all(&[1]).is_err()
    };
    // Fewer bytes than its first question has.
    assert!((0..400).any(|_| pause()), "each byte begins its time again");
}

/// A socket whose process is stopped takes connections, and nothing answers there.
#[test]
fn a_sender_that_does_not_answer_is_told_of_in_words() {
    let process = std::process::id();
    let secret = [0x5a; 16];
    let name = format!("regraph-{process}-{:032x}", u128::from_be_bytes(secret));
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let silent = UnixListener::bind_addr(&address).unwrap();
    let [ours, theirs] = two();
    let (_, mut shared) = ours.two_pieces();
    shared.handle[SECRET..SECRET + 16].copy_from_slice(&secret);
    let loan: Vec<u8> = [1u64, 0, 512].iter().flat_map(|number| number.to_le_bytes()).collect();
    let loan = [b"regloan\x01", &loan[..], &shared.handle].concat();
    let words = "the other process has not answered for 5 s; is it stopped?";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = theirs.plugin.open_shared(0, &shared.handle).unwrap_err();
            assert!(is_unreachable(&error) && error.to_string().contains(words), "{error}");
        });
        let engine = ours.plugin.engine(0).unwrap();
        let error = engine.sharing().take_loan(&loan).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    });
    // One that would give the loan later has it back.
    let mut told = silent.incoming().take(2).map(|it| {
        let mut all = Vec::new();
        let _ = it.unwrap().read_to_end(&mut all);
        all.ends_with(&[3])
    });
    assert!(told.any(|is_back| is_back));
}
