//! What a pool's graphs do not keep between launches, lent to other processes.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::other_process::{is_other_process, words, OtherProcess};
use super::{exportable, sharing_refusal};
use crate::common::MIB;
use crate::plugin::host::{host_on, Host};
use regraph::driver::{
    CaptureMode, ErrorKind, ExecutableHandle, HostApi, MemorySupport, StreamHandle,
};
use regraph::engine::{self, CheckpointRefusal, Config, Lent, PoolConfig, PoolId};
use regraph::engine::{SharingRefusal, Unknown};
use regraph::{Engine, Pool};
use regraph_plugin::{Error, HandleError, Loan, LoanId, LoanState, PoolKey, TakenLoan};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

const POOL: PoolKey = (0, 7);
/// What the graph's temporary block has.
const BYTES: u64 = 8 * MIB;
/// A process that is to answer does so within this time.
const LONG: Duration = Duration::from_secs(60);
/// A wait that is to be in vain.
const SHORT: Duration = Duration::from_millis(30);

fn device() -> Arc<SimDriver> {
    Arc::new(SimDriver::new(SimConfig::default()))
}

/// A process with a graph that has a temporary block and an output.
struct Lender {
    host: Host,
    stream: StreamHandle,
    graph: ExecutableHandle,
    temporary: u64,
    output: u64,
}

impl Lender {
    fn on(driver: &Arc<SimDriver>) -> Self {
        Self::of(host_on(driver, exportable()))
    }

    fn of(host: Host) -> Self {
        let stream = host.stream();
        let (graph, (temporary, output)) = host.record(stream, POOL, || {
            let [temporary, output] =
                [BYTES, MIB].map(|bytes| host.plugin.allocate(bytes, 0, stream).unwrap());
            work(&host, stream, &[], &[at(temporary, BYTES, 1)]);
            work(&host, stream, &[at(temporary, BYTES, 1)], &[at(output, MIB, 2)]);
            host.free(temporary);
            (temporary, output)
        });
        let graph = host.driver.instantiate(graph).unwrap();
        Self { host, stream, graph, temporary, output }
    }

    fn lend(&self, bytes: u64) -> Result<Loan, Error> {
        self.host.plugin.lend_to_process(0, POOL, bytes, self.stream)
    }

    /// What the Python half does where a graph is launched.
    fn launch(&self) -> Result<(), Error> {
        let mut launch = self.host.plugin.begin_launch(POOL, "replay")?;
        if launch.device().is_some() {
            launch.follow(self.stream)?;
        }
        self.host.driver.replay(self.graph, self.stream).unwrap();
        Ok(())
    }

    fn is_held_back(&self) -> bool {
        let refused = |error: &Error| {
            let Error::Engine(engine::Error::Pool { why, .. }) = error else { return false };
            matches!(why, engine::PoolRefusal::BlocksLent { .. })
        };
        self.launch().is_err_and(|error| refused(&error))
    }

    fn pool(&self) -> PoolId {
        let pools = self.host.plugin.pools(0).unwrap();
        pools.iter().find(|it| it.key == POOL).unwrap().pool
    }

    fn lent(&self) -> u64 {
        self.host.plugin.lent_bytes(0, POOL).unwrap()
    }

    fn recall(&self, loan: &Loan, patience: Duration) -> bool {
        self.host.plugin.recall_loan(loan.id, patience).unwrap()
    }

    /// Another process gives the loan back, and that is noticed.
    fn gets_back(&self, loan: &Loan, theirs: &Host, taken: TakenLoan) {
        theirs.plugin.give_back_loan(taken.id).unwrap();
        assert!(self.recall(loan, LONG));
    }

    fn state(&self, loan: &Loan) -> LoanState {
        self.host.plugin.loan_state(loan.id).unwrap()
    }

    /// The graph runs as it was captured, and no work has read what it should not have.
    fn sound(&self) {
        self.launch().unwrap();
        work(&self.host, self.stream, &[at(self.output, MIB, 2)], &[]);
        self.host.driver.complete_all_checked().unwrap();
        assert_eq!(self.host.driver.take_wrong_tags().unwrap(), 0);
    }
}

fn at(address: u64, bytes: u64, tag: u64) -> Tagged {
    Tagged { address, bytes, tag }
}

fn work(host: &Host, stream: StreamHandle, inputs: &[Tagged], outputs: &[Tagged]) {
    host.driver.launch(stream, Work { inputs, outputs, ..Work::default() }, false).unwrap();
}

fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Engine(engine::Error::Unknown { what: Unknown::Loan(_), .. }))
}

fn lender() -> (Arc<SimDriver>, Lender) {
    let driver = device();
    (Arc::clone(&driver), Lender::on(&driver))
}

/// Another process on the lender's device, with what it has taken.
fn borrower(driver: &Arc<SimDriver>, loan: &Loan) -> (Host, TakenLoan) {
    let host = host_on(driver, exportable());
    let taken = host.plugin.take_loan(0, &loan.handle).unwrap();
    assert_eq!(taken.bytes, loan.bytes);
    (host, taken)
}

/// A lender with a loan, and the borrower.
fn lent() -> (Arc<SimDriver>, Lender, Loan, (Host, TakenLoan)) {
    let (driver, ours) = lender();
    let loan = ours.lend(BYTES).unwrap();
    let borrower = borrower(&driver, &loan);
    (driver, ours, loan, borrower)
}

#[test]
fn a_loan_holds_launches_back_until_it_is_given_back() {
    let (driver, ours) = lender();
    ours.sound();
    let loan = ours.lend(BYTES).unwrap();
    assert_eq!((ours.lent(), ours.state(&loan)), (BYTES, LoanState::Offered));
    assert!(ours.is_held_back());
    let (theirs, taken) = borrower(&driver, &loan);
    assert_eq!(ours.state(&loan), LoanState::Taken);
    assert!(ours.is_held_back());
    // It is what the graph writes to.
    assert_eq!(driver.behind(taken.address, BYTES), driver.behind(ours.temporary, BYTES));
    let stream = theirs.stream();
    work(&theirs, stream, &[], &[at(taken.address, BYTES, 9)]);
    work(&theirs, stream, &[at(taken.address, BYTES, 9)], &[]);
    assert!(!theirs.plugin.wait_for_recall(taken.id, Duration::ZERO).unwrap());
    theirs.plugin.give_back_loan(taken.id).unwrap();
    assert_eq!(driver.behind(taken.address, BYTES), None);
    // The launch finds out by itself, once the word has arrived.
    assert!(ours.recall(&loan, LONG));
    assert_eq!((ours.lent(), ours.state(&loan)), (0, LoanState::Back));
    ours.sound();
    // The pool has not grown for it.
    assert_eq!(ours.host.held_by(POOL), BYTES + 2 * MIB);
}

/// Each call that its block would be in the way of, or that tells of it: a host may wait until nothing is lent.
#[test]
fn calls_about_a_pool_find_out_that_a_loan_is_back() {
    for call in ["launch", "lent_bytes", "recall_loan", "begin_capture", "lend", "suspend"] {
        let (_, ours, loan, (theirs, taken)) = lent();
        let pool = ours.pool();
        theirs.plugin.give_back_loan(taken.id).unwrap();
        while ours.state(&loan) != LoanState::Back {
            thread::yield_now();
        }
        let engine = ours.host.plugin.engine(0).unwrap();
        let held = || engine.statistics().unwrap().all.allocated_bytes.current;
        let before = held();
        match call {
            "launch" => ours.launch().unwrap(),
            "lent_bytes" => assert_eq!(ours.lent(), 0),
            "recall_loan" => assert!(ours.recall(&loan, SHORT)),
            "begin_capture" => _ = ours.host.announce(ours.stream, POOL, true),
            "lend" => assert!(ours.recall(&ours.lend(BYTES).unwrap(), SHORT)),
            _ => _ = engine.host().suspend_discarding_outputs(pool).unwrap(),
        }
        assert_eq!(before - held(), BYTES, "{call}");
    }
}

/// Going back to a checkpoint would end the block that another process has.
#[test]
fn checkpoints_and_loans_of_a_pool_exclude_each_other() {
    let (_, ours, loan, (theirs, taken)) = lent();
    let refused = ours.host.plugin.checkpoint(0, POOL).unwrap_err();
    let Error::Engine(engine::Error::Checkpoint { call, why, .. }) = &refused else {
        panic!("{refused}")
    };
    assert!(matches!((*call, why), ("checkpoint", CheckpointRefusal::OnLoan)), "{refused}");
    ours.gets_back(&loan, &theirs, taken);
    ours.host.plugin.checkpoint(0, POOL).unwrap();
    let refused = ours.lend(BYTES).unwrap_err();
    assert!(matches!(refused, Error::NothingLent { .. }), "{refused}");
    ours.sound();
}

/// The pool lends nothing from then on, but what it has lent counts.
#[test]
fn launches_are_held_back_where_graphs_may_be_launched_unseen_since() {
    let (_, ours, loan, (theirs, taken)) = lent();
    for _ in 0..2 {
        let refused = ours.host.plugin.launches_elsewhere(POOL).unwrap_err();
        assert!(refused.to_string().contains("lent"), "{refused}");
        assert!(ours.is_held_back());
    }
    // A capture that is not announced.
    let captures = ours.host.stream();
    ours.host.begin(captures, POOL);
    ours.host.used(captures);
    ours.host.end(captures, POOL);
    assert!(ours.is_held_back());
    ours.gets_back(&loan, &theirs, taken);
    ours.host.plugin.launches_elsewhere(POOL).unwrap();
    assert!(ours.lend(BYTES).is_err(), "a graph may be launched unseen");
    ours.sound();
}

/// What is lent to a process is no block of the host's, which could free it by its address.
#[test]
fn a_loan_ends_by_no_free_of_its_host() {
    let (_, ours) = lender();
    let loan = ours.lend(BYTES).unwrap();
    let refused = ours.host.plugin.free(ours.temporary, 0).unwrap_err();
    assert!(matches!(refused, Error::UnknownAddress { .. }), "{refused}");
    assert_eq!(ours.lent(), BYTES);
    assert!(ours.is_held_back());
    assert!(ours.recall(&loan, Duration::ZERO));
    ours.sound();
}

/// Another block lies there by then.
#[test]
fn a_loan_that_is_back_frees_its_own_block_alone() {
    let (_, ours) = lender();
    let [loan, beside] = [(); 2].map(|()| ours.lend(BYTES / 2).unwrap());
    assert!(ours.recall(&loan, Duration::ZERO));
    assert_eq!(ours.lent(), BYTES / 2, "the one beside it is lent still");
    let another = ours.lend(BYTES / 2).unwrap();
    assert!(ours.recall(&loan, Duration::ZERO));
    assert_eq!(ours.lent(), BYTES, "so is the one in its place");
    assert!(ours.recall(&beside, Duration::ZERO));
    assert!(ours.is_held_back());
    assert!(ours.recall(&another, Duration::ZERO));
    ours.sound();
}

/// The lender asks for a loan at the moment at which it is taken.
#[test]
fn a_loan_that_is_taken_and_called_back_at_once_is_one_or_the_other() {
    let (driver, ours) = lender();
    let theirs = host_on(&driver, exportable());
    for _ in 0..50 {
        let loan = ours.lend(BYTES).unwrap();
        thread::scope(|scope| {
            let takes = scope.spawn(|| theirs.plugin.take_loan(0, &loan.handle));
            let mut back = ours.recall(&loan, Duration::ZERO);
            if let Ok(taken) = takes.join().unwrap() {
                assert!(theirs.plugin.has_loan(taken.id));
                theirs.plugin.give_back_loan(taken.id).unwrap();
                assert!(!theirs.plugin.has_loan(taken.id));
                back = ours.recall(&loan, LONG);
            }
            assert!(back);
        });
    }
    ours.sound();
}

#[test]
fn a_borrower_is_asked_and_gives_back() {
    let (_, ours, loan, (theirs, taken)) = lent();
    assert!(!theirs.plugin.wait_for_recall(taken.id, SHORT).unwrap());
    assert!(!ours.recall(&loan, Duration::ZERO), "it has it still");
    assert!(theirs.plugin.wait_for_recall(taken.id, LONG).unwrap());
    assert!(theirs.plugin.wait_for_recall(taken.id, SHORT).unwrap(), "it is told again");
    // What it has taken it has not lent.
    assert!(is_unknown(&theirs.plugin.loan_state(taken.id).unwrap_err()));
    assert!(is_unknown(&theirs.plugin.recall_loan(taken.id, SHORT).unwrap_err()));
    // It may take its time, and is asked as often as the lender likes.
    assert!(!ours.recall(&loan, SHORT));
    assert!(ours.is_held_back());
    thread::scope(|scope| {
        let waits = scope.spawn(|| ours.recall(&loan, LONG));
        assert!(theirs.plugin.wait_for_recall(taken.id, Duration::ZERO).unwrap());
        theirs.plugin.give_back_loan(taken.id).unwrap();
        assert!(waits.join().unwrap());
    });
    ours.sound();
    let gone = theirs.plugin.give_back_loan(taken.id).unwrap_err();
    assert!(is_unknown(&gone), "{gone}");
    assert!(theirs.plugin.wait_for_recall(taken.id, SHORT).is_err());
    assert!(ours.recall(&loan, Duration::ZERO), "it is back for good");
    let never = LoanId::from_bits([loan.id.bits()[0], 99]);
    assert!(is_unknown(&ours.host.plugin.loan_state(never).unwrap_err()));
    let refused = ours.host.plugin.recall_loan(never, LONG);
    assert!(is_unknown(&refused.unwrap_err()));
}

/// Work of another process waits for no stream of this one.
#[test]
fn what_was_launched_before_has_completed_when_a_loan_is_made() {
    let (driver, ours) = lender();
    // The first time waits in any case.
    let first = ours.lend(MIB).unwrap();
    assert!(ours.recall(&first, Duration::ZERO));
    ours.launch().unwrap();
    let behind = driver.record(ours.stream).unwrap();
    assert!(!driver.is_complete(behind).unwrap());
    let loan = ours.lend(BYTES).unwrap();
    assert!(driver.is_complete(behind).unwrap());
    assert!(ours.recall(&loan, Duration::ZERO));
    ours.sound();
}

/// Nor does the lender's next launch wait for a stream of theirs.
#[test]
fn what_a_borrower_was_given_has_completed_when_it_gives_back() {
    let (driver, ours, loan, (theirs, taken)) = lent();
    let stream = theirs.stream();
    work(&theirs, stream, &[], &[at(taken.address, BYTES, 9)]);
    let behind = driver.record(stream).unwrap();
    // While something captures there, a wait would ruin that.
    let captures = theirs.stream();
    theirs.begin(captures, (1, 0));
    let refused = theirs.plugin.give_back_loan(taken.id).unwrap_err();
    let captures_there = engine::Error::DeviceCaptures { call: "give_back_loan" };
    assert_eq!(refused.to_string(), captures_there.to_string());
    assert!(!ours.recall(&loan, SHORT));
    theirs.end(captures, (1, 0));
    assert!(!driver.is_complete(behind).unwrap());
    theirs.plugin.give_back_loan(taken.id).unwrap();
    assert!(driver.is_complete(behind).unwrap());
    assert!(ours.recall(&loan, LONG));
    ours.sound();
}

#[test]
fn nothing_is_lent_to_a_process_while_something_captures() {
    let (_, ours) = lender();
    let first = ours.lend(MIB).unwrap();
    assert!(ours.recall(&first, Duration::ZERO));
    let captures = ours.host.stream();
    ours.host.begin_in(CaptureMode::Relaxed, captures, (9, 9));
    let refused = ours.lend(BYTES).unwrap_err();
    let captures_here = engine::Error::DeviceCaptures { call: "lend_to_process" };
    assert_eq!(refused.to_string(), captures_here.to_string());
    assert_eq!(ours.lent(), 0);
    ours.host.end(captures, (9, 9));
    ours.sound();
}

#[test]
fn a_loan_is_taken_once_and_not_after_it_was_called_back() {
    let (driver, ours, loan, (theirs, taken)) = lent();
    let not_taken = |host: &Host| {
        let error = host.plugin.take_loan(0, &loan.handle).unwrap_err();
        assert!(matches!(sharing_refusal(&error), SharingRefusal::NotTaken { .. }));
        assert!(error.to_string().contains("another process has taken it"), "{error}");
    };
    let third = host_on(&driver, exportable());
    not_taken(&third);
    ours.gets_back(&loan, &theirs, taken);
    not_taken(&third);
    // Another loan, which no process has taken, is back at once.
    let second = ours.lend(BYTES).unwrap();
    assert_ne!(second.handle, loan.handle);
    assert!(ours.recall(&second, Duration::ZERO));
    let error = third.plugin.take_loan(0, &second.handle).unwrap_err();
    assert!(error.to_string().contains("called back"), "{error}");
    ours.sound();
}

#[test]
fn two_loans_of_a_pool_hold_launches_back_together() {
    let (driver, ours) = lender();
    let [one, two] = [(); 2].map(|()| ours.lend(BYTES / 2).unwrap());
    let (theirs, first) = borrower(&driver, &one);
    // The same process has both.
    let second = theirs.plugin.take_loan(0, &two.handle).unwrap();
    let halves = [first, second].map(|half| driver.behind(half.address, BYTES / 2).unwrap());
    let of_graph = [0, BYTES / 2].map(|at| driver.behind(ours.temporary + at, BYTES / 2).unwrap());
    assert!(halves == of_graph || [halves[1].clone(), halves[0].clone()] == of_graph);
    ours.gets_back(&one, &theirs, first);
    assert_eq!(ours.lent(), BYTES / 2);
    assert!(ours.is_held_back());
    assert!(driver.behind(second.address, BYTES / 2).is_some(), "it has the other one still");
    ours.gets_back(&two, &theirs, second);
    ours.sound();
}

/// The connection goes with the plug-in, and what it has submitted may run still.
#[test]
fn a_connection_that_closes_gives_nothing_back() {
    let (_, ours, loan, (theirs, _)) = lent();
    drop(theirs);
    assert!(!ours.recall(&loan, SHORT));
    assert_eq!(ours.state(&loan), LoanState::Taken);
    assert!(ours.is_held_back());
}

#[test]
fn a_lender_that_goes_is_noticed_and_the_memory_stays() {
    let (driver, ours, loan, (theirs, taken)) = lent();
    drop(ours);
    assert!(theirs.plugin.wait_for_recall(taken.id, LONG).unwrap());
    assert!(driver.behind(taken.address, BYTES).is_some());
    theirs.plugin.give_back_loan(taken.id).unwrap();
    assert_eq!(driver.behind(taken.address, BYTES), None);
    let error = theirs.plugin.take_loan(0, &loan.handle).unwrap_err();
    assert!(matches!(sharing_refusal(&error), SharingRefusal::NotTaken { .. }));
}

#[test]
#[ignore = "the other process of the tests below"]
fn borrows() {
    if !is_other_process() {
        return;
    }
    let theirs = host_on(&device(), exportable());
    let mut taken = None;
    for line in words() {
        match &line[..] {
            b"back" => {
                let TakenLoan { id, .. } = taken.take().unwrap();
                assert!(theirs.plugin.wait_for_recall(id, LONG).unwrap());
                theirs.plugin.give_back_loan(id).unwrap();
                println!("\nanswer back");
            }
            handle => match theirs.plugin.take_loan(0, handle) {
                Ok(loan) => {
                    taken = Some(loan);
                    println!("\nanswer {} {:?}", loan.bytes, theirs.driver.origin(loan.address));
                }
                Err(error) => println!("\nanswer {error}"),
            },
        }
    }
}

#[test]
fn another_process_borrows_and_gives_back_or_is_killed() {
    let (driver, ours) = lender();
    for killed in [false, true, true, false] {
        let mut theirs = OtherProcess::new("sharing::loans::borrows");
        let loan = ours.lend(BYTES).unwrap();
        let expected = format!("{BYTES} {:?}", driver.origin(ours.temporary));
        assert_eq!(theirs.ask(&loan.handle), expected);
        assert!(ours.is_held_back());
        if killed {
            assert!(!ours.recall(&loan, SHORT), "it does not answer");
            drop(theirs);
        } else {
            thread::scope(|scope| {
                let waits = scope.spawn(|| ours.recall(&loan, LONG));
                assert_eq!(theirs.ask(b"back"), "back");
                assert!(waits.join().unwrap());
            });
        }
        assert!(ours.recall(&loan, LONG));
        ours.sound();
    }
}

#[test]
fn handles_that_name_no_loan_are_refused() {
    let (driver, ours) = lender();
    let loan = ours.lend(BYTES).unwrap();
    let theirs = host_on(&driver, exportable());
    let refused = |handle: &[u8]| match theirs.plugin.take_loan(0, handle).unwrap_err() {
        Error::Engine(engine::Error::Sharing { why: SharingRefusal::Handle(why), .. }) => why,
        Error::Engine(engine::Error::Sharing { why: SharingRefusal::NotTaken { .. }, .. }) => {
            HandleError::NoLoan
        }
        error => panic!("{error}"),
    };
    let shared = ours.host.plugin.share(ours.output).unwrap();
    assert_eq!(refused(&shared.handle), HandleError::NoLoan);
    assert_eq!(refused(b""), HandleError::NoLoan);
    for length in 0..loan.handle.len() {
        refused(&loan.handle[..length]);
    }
    let mut handle = loan.handle.clone();
    handle[7] += 1;
    assert!(matches!(refused(&handle), HandleError::OtherVersion { .. }));
    // A block beyond the memory that it lies on, and one beyond all addresses.
    for beyond in [20..21, 16..24] {
        let mut handle = loan.handle.clone();
        handle[beyond].fill(u8::MAX);
        assert!(matches!(refused(&handle), HandleError::Damaged(_)));
    }
    // A loan that there never was.
    let mut handle = loan.handle.clone();
    handle[8] = 77;
    assert_eq!(refused(&handle), HandleError::NoLoan);
    // No handle of a loan names memory for others to map.
    let error = theirs.plugin.open_shared(0, &loan.handle).unwrap_err();
    assert!(matches!(sharing_refusal(&error), SharingRefusal::Handle(HandleError::Unknown)));
    let taken = theirs.plugin.take_loan(0, &loan.handle).unwrap();
    ours.gets_back(&loan, &theirs, taken);
    ours.sound();
}

#[test]
fn what_cannot_be_lent_says_why_and_is_freed() {
    let (driver, ours) = lender();
    let error = ours.lend(BYTES + MIB).unwrap_err();
    assert!(matches!(error, Error::NothingLent { bytes, .. } if bytes == BYTES + MIB), "{error}");
    // A wait for the device would not cover what that stream has borrowed.
    let elsewhere = driver.add_device(SimConfig::default()).create_stream().unwrap();
    let error = ours.host.plugin.lend_to_process(0, POOL, MIB, elsewhere).unwrap_err();
    assert!(matches!(error, Error::NothingLent { .. }), "{error}");
    let error = ours.host.plugin.lend_to_process(0, (5, 5), MIB, ours.stream).unwrap_err();
    assert!(matches!(error, Error::UnknownPool { .. }), "{error}");
    // What graphs read may be borrowed, and is offered to no other process.
    let engine = ours.host.plugin.engine(0).unwrap();
    let block = engine.host().lend(ours.pool(), MIB, ours.stream, Lent::AllFree).unwrap().unwrap();
    let error = engine.sharing().offer_loan(block.id).unwrap_err();
    assert!(matches!(error, engine::Error::Unknown { what: Unknown::Block(_), .. }), "{error}");
    assert_eq!(driver.calls(Call::Export), 0);
    engine.free(block.id).unwrap();
    ours.sound();
    // Memory that was not made for other processes.
    let driver = device();
    let ours = Lender::of(host_on(&driver, Config::default()));
    let error = ours.lend(BYTES).unwrap_err();
    assert!(matches!(sharing_refusal(&error), SharingRefusal::NotShared { .. }));
    assert_eq!(ours.lent(), 0);
    ours.sound();
    // Memory that is allocated whole.
    let whole = SimConfig { support: MemorySupport::Allocated, ..SimConfig::default() };
    let driver = Arc::new(SimDriver::new(whole));
    let ours = Lender::on(&driver);
    let error = ours.lend(BYTES).unwrap_err();
    assert!(error.to_string().contains("expandable_segments:True"), "{error}");
    assert_eq!(ours.lent(), 0);
    ours.sound();
}

#[test]
fn a_borrower_that_cannot_map_a_loan_gives_it_back() {
    let (driver, ours) = lender();
    let theirs = host_on(&driver, exportable());
    for call in [Call::Import, Call::Reserve, Call::Map, Call::SetAccess] {
        let loan = ours.lend(BYTES).unwrap();
        driver.fail_nth(call, 0, ErrorKind::OutOfMemory);
        assert!(theirs.plugin.take_loan(0, &loan.handle).is_err(), "{call:?}");
        driver.forget_failures();
        assert!(ours.recall(&loan, LONG));
        ours.sound();
    }
    // A wait that fails keeps the loan where it is.
    let loan = ours.lend(BYTES).unwrap();
    let taken = theirs.plugin.take_loan(0, &loan.handle).unwrap();
    driver.fail_host_nth(0, ErrorKind::NotPermitted);
    assert!(theirs.plugin.give_back_loan(taken.id).is_err());
    driver.forget_failures();
    assert!(!ours.recall(&loan, SHORT));
    ours.gets_back(&loan, &theirs, taken);
    ours.sound();
}

/// Each lends, takes and gives back, while others launch: no launch is refused for a loan that is back.
#[test]
fn many_loans_at_once() {
    let (driver, ours) = lender();
    let theirs = host_on(&driver, exportable());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let stream = ours.host.stream();
                for _ in 0..20 {
                    let Ok(loan) = ours.host.plugin.lend_to_process(0, POOL, MIB, stream) else {
                        continue;
                    };
                    if let Ok(taken) = theirs.plugin.take_loan(0, &loan.handle) {
                        theirs.plugin.give_back_loan(taken.id).unwrap();
                    }
                    assert!(ours.recall(&loan, LONG));
                }
            });
        }
    });
    assert_eq!(ours.lent(), 0);
    ours.sound();
}

/// What sleeps goes from under its addresses here; the process that has borrowed it keeps it.
#[test]
fn a_pool_sleeps_while_another_process_has_its_memory() {
    let driver = device();
    let host = host_on(&driver, exportable());
    host.plugin.put_graphs_into(Some("graphs"));
    let ours = Lender::of(host);
    let loan = ours.lend(BYTES).unwrap();
    let (theirs, taken) = borrower(&driver, &loan);
    let behind = || driver.behind(taken.address, BYTES);
    let before = behind().unwrap();
    ours.host.plugin.sleep(Some(&["graphs"])).unwrap();
    assert_eq!(behind().as_ref(), Some(&before));
    assert!(matches!(ours.lend(MIB), Err(Error::NothingLent { .. })), "it sleeps");
    ours.host.plugin.wake(Some(&["graphs"])).unwrap();
    assert_ne!(driver.behind(ours.temporary, BYTES), Some(before.clone()), "other memory");
    assert!(ours.is_held_back());
    let stream = theirs.stream();
    work(&theirs, stream, &[], &[at(taken.address, BYTES, 9)]);
    work(&theirs, stream, &[at(taken.address, BYTES, 9)], &[]);
    ours.gets_back(&loan, &theirs, taken);
    ours.sound();
}

/// Pools that order their launches lend as plug-ins do.
#[test]
fn a_pool_lends_to_a_process_without_a_plug_in() {
    let driver = device();
    let engine_of = || Arc::new(Engine::new(Arc::clone(&driver), exportable()));
    let (ours, theirs) = (engine_of(), engine_of());
    let pool = Pool::new(&ours, PoolConfig::default());
    let stream = driver.create_stream().unwrap();
    let (graph, (temporary, _output)) = ours
        .capture(stream, &pool, CaptureMode::Relaxed, |capture| {
            let [temporary, output] =
                [BYTES, MIB].map(|bytes| capture.allocate(bytes, stream).unwrap());
            let written = [at(temporary.address(), BYTES, 1)];
            driver.launch(stream, Work { outputs: &written, ..Work::default() }, false)?;
            Ok::<_, engine::Error>((temporary.address(), output))
        })
        .unwrap();
    let lending = ours.sharing();
    let checkpoint = ours.host().checkpoint(pool.id()).unwrap();
    for killed in [false, true] {
        graph.launch(stream).unwrap();
        let behind = driver.record(stream).unwrap();
        let loan = pool.lend_to_process(BYTES, stream).unwrap();
        assert!(driver.is_complete(behind).unwrap(), "another process waits for no stream");
        let taken = theirs.sharing().take_loan(&loan.handle).unwrap();
        assert_eq!(driver.behind(taken.address, BYTES), driver.behind(temporary, BYTES));
        let refused = graph.launch(stream).unwrap_err();
        let engine::Error::Pool { why, .. } = &refused else { panic!("{refused}") };
        assert!(matches!(why, engine::PoolRefusal::BlocksLent { .. }), "{refused}");
        let refused = pool.lend_to_process(BYTES, stream).unwrap_err();
        let engine::Error::Pool { why, .. } = &refused else { panic!("{refused}") };
        assert!(matches!(why, engine::PoolRefusal::NothingLent { bytes: BYTES }), "{refused}");
        // The block would end under the other process.
        let refused = ours.host().restore(pool.id(), &checkpoint).unwrap_err();
        let engine::Error::Checkpoint { why, .. } = &refused else { panic!("{refused}") };
        assert!(matches!(why, CheckpointRefusal::OnLoan), "{refused}");
        assert!(!lending.recall_loan(loan.id, SHORT).unwrap());
        if killed {
            lending.play_ending(loan.id);
        } else {
            let wait = || theirs.wait_for_device().map(drop);
            theirs.sharing().give_back_loan(taken.id, wait).unwrap();
            assert!(lending.recall_loan(loan.id, LONG).unwrap());
        }
        graph.launch(stream).unwrap();
        assert_eq!(pool.statistics().unwrap().lent, 0);
    }
    ours.host().restore(pool.id(), &checkpoint).unwrap();
    // Two processes would write to one block at once.
    let block = ours.host().lend(pool.id(), BYTES, stream, Lent::Temporary).unwrap().unwrap();
    let loan = lending.offer_loan(block.id).unwrap();
    let refused = lending.offer_loan(block.id).unwrap_err();
    assert!(matches!(refused, engine::Error::Unknown { what: Unknown::Block(_), .. }), "{refused}");
    assert!(lending.recall_loan(loan.id, SHORT).unwrap());
    driver.complete_all_checked().unwrap();
}
