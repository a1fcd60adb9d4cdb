//! The engine, on the simulated driver, as the model has it.

use std::sync::Arc;
use std::time::Duration;

use regraph::driver::{CaptureMode, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{Config, Engine, Loan, PoolConfig, SharingRefusal, TakenLoan};
use regraph::graphs::{Capture, Graph, Lending, Memory, Pool};
use regraph::plan::Options;
use regraph::regions::{Regions, Tags};
use regraph::settings::Settings;
use regraph::{Error, PoolRefusal};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

use super::model::{Action, Answer, Protocol};
use crate::owned::{range as tagged, MIB};

type Sim = Arc<SimDriver>;

const PAGE: u64 = 2 * MIB;
/// What one loan takes, and all temporary memory of a graph that lends.
const LOAN: u64 = 4 * PAGE;
const TOTAL: u64 = 256 * MIB;
const TAG: &str = "model";

/// The tags of what the host wrote for good, and of what one graph leaves to the other.
const WEIGHTS: u64 = 1;
const KEPT: u64 = 2;

pub struct World {
    driver: Sim,
    engine: Arc<Engine<Sim>>,
    pool: Pool<Sim>,
    other: Pool<Sim>,
    regions: Regions<Sim>,
    streams: [StreamHandle; 2],
    graphs: [Option<Graph<Sim>>; 2],
    lendings: [Lending<Sim>; 2],
    loans: [Option<(Memory<Sim>, u64)>; 2],
    /// What is lent to another process, the engine of that, and what it has taken.
    lent: Option<Loan>,
    process: Engine<Sim>,
    borrowed: Option<(TakenLoan, StreamHandle)>,
    taken: Option<Memory<Sim>>,
    /// Read by all launches.
    _weights: Memory<Sim>,
    tag: u64,
}

/// Memory in pieces that are as large as can be: what a large graph had is left to smaller ones until compaction.
fn undivided() -> Options {
    Options::default().max_mappings(Some(1))
}

impl World {
    pub fn new(protocol: &Protocol, seed: u64) -> Self {
        let support = MemorySupport::Mapped { granularity: PAGE };
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: TOTAL, support }));
        driver.set_schedule_seed(seed);
        let settings = Settings::default().exportable(true);
        let config = Config::default().report_leaks(false).settings(settings);
        let process = Engine::new(driver.clone(), config.clone());
        let engine = Arc::new(Engine::new(driver.clone(), config));
        let pool = Pool::new(&engine, PoolConfig::default().tag(TAG));
        let other = Pool::new(&engine, PoolConfig::default());
        let regions = Regions::new(&engine);
        let streams = [0, 1].map(|_| driver.create_stream().unwrap());
        let weights = pool.allocate(PAGE, streams[0]).unwrap();
        let lendings = streams.map(|stream| pool.lend(stream).unwrap());
        let (graphs, loans, taken) = ([None, None], [None, None], None);
        let mut world = Self {
            driver,
            engine,
            pool,
            other,
            regions,
            streams,
            graphs,
            lendings,
            loans,
            lent: None,
            process,
            borrowed: None,
            taken,
            _weights: weights,
            tag: 100,
        };
        world.capture_both(protocol.planned);
        world
    }

    fn work(&self, stream: StreamHandle, inputs: &[Tagged], outputs: &[Tagged]) {
        let work = Work { inputs, outputs, ..Work::default() };
        self.driver.launch(stream, work, false).unwrap();
    }

    /// The first graph writes what the second one reads, whose memory was freed since. Each works in temporary memory:
    /// planned ones in blocks of sizes of their own.
    fn capture_both(&mut self, planned: [bool; 2]) {
        let stream = self.streams[0];
        let weights = tagged(&self._weights, WEIGHTS);
        self.work(stream, &[], &[weights]);
        let large = planned.contains(&true).then(|| {
            let body = |capture: &Capture<Sim>| {
                self.engine.plans().plan_capture(capture.id(), Some(undivided()))?;
                let memory = capture.allocate(40 * PAGE, stream)?;
                self.work(stream, &[], &[tagged(&memory, 3)]);
                Ok::<_, Error>(())
            };
            self.engine.capture(stream, &self.pool, CaptureMode::Relaxed, body).unwrap().0
        });
        let mut kept: Option<Memory<Sim>> = None;
        for (graph, planned) in planned.into_iter().enumerate() {
            let body = |capture: &Capture<Sim>| {
                let options = planned.then(undivided);
                self.engine.plans().plan_capture(capture.id(), options)?;
                let sizes: &[u64] = match (planned, graph) {
                    (false, _) => &[LOAN],
                    (true, 0) => &[9 * PAGE, 5 * PAGE, 14 * PAGE],
                    (true, _) => &[3 * PAGE, 20 * PAGE, 7 * PAGE],
                };
                let left = kept.as_ref().map(|kept| tagged(kept, KEPT));
                for (at, &bytes) in sizes.iter().enumerate() {
                    let memory = capture.allocate(bytes, stream)?;
                    let own = tagged(&memory, 10 * (graph as u64 + 1) + at as u64);
                    let inputs: Vec<Tagged> = left.into_iter().chain([weights]).collect();
                    self.work(stream, &inputs, &[own]);
                    self.work(stream, &[own], &[]);
                }
                if graph == 0 {
                    let output = capture.allocate(PAGE, stream)?;
                    self.work(stream, &[], &[tagged(&output, KEPT)]);
                    return Ok(Some(output));
                }
                Ok::<_, Error>(None)
            };
            let (captured, output) =
                self.engine.capture(stream, &self.pool, CaptureMode::Relaxed, body).unwrap();
            captured.launch(stream).unwrap();
            self.graphs[graph] = Some(captured);
            kept = output.or(kept);
        }
        drop((kept, large));
        self.check();
        self.pool.collect();
        // Whatever waited is settled; another graph, which is gone, has cut the memory of the planned ones.
        self.pool.suspend_discarding_outputs().unwrap_err();
    }

    /// Does what the model does, and answers.
    pub fn step(&mut self, action: Action) -> Answer {
        let answer = self.answer(action);
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0, "{action:?} met something else");
        answer
    }

    fn answer(&mut self, action: Action) -> Answer {
        let moved = |result: Result<u64, Error>| match result {
            Ok(0) => Answer::Done,
            Ok(_) => Answer::Moved,
            Err(error) => refusal(&error),
        };
        let done = |result: Result<(), Error>| match result {
            Ok(()) => Answer::Done,
            Err(error) => refusal(&error),
        };
        match action {
            Action::Launch { graph, stream } => {
                let graph = self.graphs[graph].as_ref().expect("it lives");
                done(graph.launch(self.streams[stream]))
            }
            Action::Borrow { stream } => self.borrow(stream),
            Action::Return { stream, reader } => {
                self.give_back(stream, reader);
                Answer::Done
            }
            Action::LendToProcess => {
                match self.pool.lend_to_process(LOAN, self.streams[0]) {
                    Ok(loan) => self.lent = Some(loan),
                    Err(error) => return refusal(&error),
                }
                Answer::Lent
            }
            Action::TakeLoan => self.take_loan(),
            // Where the process ends, its work does, and the system unmaps its memory.
            Action::GiveBackLoan | Action::EndProcess => {
                let (taken, stream) = self.borrowed.take().expect("it has taken it");
                let wait = || self.driver.complete(stream).map_err(Error::from);
                self.process.sharing().give_back_loan(taken.id, wait).unwrap();
                self.end_loan();
                Answer::Done
            }
            Action::Recall => {
                let loan = self.lent.as_ref().expect("there is one").id;
                match self.engine.sharing().recall_loan(loan, Duration::ZERO).unwrap() {
                    true => {
                        self.lent = None;
                        self.mark();
                        Answer::Done
                    }
                    false => Answer::Out,
                }
            }
            Action::Sleep => moved(self.regions.sleep(&[TAG])),
            Action::TrySleep => moved(self.regions.try_sleep(Tags::All)),
            Action::Wake => moved(self.regions.wake(Tags::All)),
            Action::Compact => moved(self.pool.compact()),
            Action::Suspend => moved(self.pool.suspend_discarding_outputs()),
            Action::Resume => moved(self.pool.resume()),
            Action::Collect => {
                self.pool.collect();
                Answer::Done
            }
            Action::Drop { graph } => {
                self.graphs[graph] = None;
                Answer::Done
            }
            Action::Take => {
                // What it had before and gave back is in its cache.
                let cached = self.other.reserved().unwrap();
                let free = TOTAL - self.driver.used_bytes() + cached;
                let memory = self.other.allocate(free / PAGE * PAGE, self.streams[0]);
                self.taken = Some(memory.unwrap());
                Answer::Done
            }
            Action::GiveBack => {
                self.taken = None;
                Answer::Done
            }
            Action::Complete { stream } => {
                self.driver.complete(self.streams[stream]).unwrap();
                Answer::Done
            }
        }
    }

    fn borrow(&mut self, stream: usize) -> Answer {
        let before = self.lent();
        let memory = match self.lendings[stream].allocate(LOAN) {
            Ok(memory) => memory,
            Err(error) => return refusal(&error),
        };
        self.tag += 1;
        self.work(self.streams[stream], &[], &[tagged(&memory, self.tag)]);
        self.loans[stream] = Some((memory, self.tag));
        if self.lent() > before {
            Answer::Lent
        } else {
            Answer::Plain
        }
    }

    fn give_back(&mut self, stream: usize, reader: usize) {
        let (memory, tag) = self.loans[stream].take().expect("it borrowed");
        if !self.pool.is_suspended() {
            let [own, other] = [stream, reader].map(|it| self.streams[it]);
            if own != other {
                self.driver.wait(other, own).unwrap();
                memory.record_stream(other).unwrap();
            }
            self.work(other, &[tagged(&memory, tag)], &[]);
        }
        drop(memory);
        self.mark();
    }

    /// Else a free may wait for what the streams are given before the engine's next look at them.
    fn mark(&self) {
        self.streams.into_iter().for_each(|it| self.engine.mark_stream(it).unwrap());
    }

    /// The other process takes the loan, and works on it.
    fn take_loan(&mut self) -> Answer {
        let handle = &self.lent.as_ref().expect("there is one").handle;
        let taken = match self.process.sharing().take_loan(handle) {
            Ok(taken) => taken,
            Err(Error::Sharing { why: SharingRefusal::Unreachable { .. }, .. }) => {
                self.end_loan();
                return Answer::NotTaken;
            }
            Err(error) => panic!("the model knows no such error: {error:?}"),
        };
        let stream = self.driver.create_stream().unwrap();
        self.tag += 1;
        let place = Tagged { address: taken.address, bytes: taken.bytes, tag: self.tag };
        self.work(stream, &[], &[place]);
        self.work(stream, &[place], &[]);
        self.borrowed = Some((taken, stream));
        Answer::Done
    }

    /// The loan is back, or will be when the word has arrived.
    fn end_loan(&mut self) {
        let loan = self.lent.take().expect("there is one").id;
        assert!(self.engine.sharing().recall_loan(loan, Duration::MAX).unwrap());
        self.mark();
    }

    fn lent(&self) -> u64 {
        self.pool.statistics().unwrap().lent
    }

    /// All work met what it should, and the engine's tables agree with each other.
    pub fn check(&self) {
        self.driver.complete_all_checked().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0, "work met something else");
        self.engine.host().verify().unwrap();
    }
}

fn refusal(error: &Error) -> Answer {
    match error {
        Error::Pool { why, .. } => match why {
            PoolRefusal::Suspended { remedy: "Regions::wake" } => Answer::Suspended,
            PoolRefusal::Asleep => Answer::Asleep,
            PoolRefusal::BlocksLent { .. } => Answer::BlocksLent,
            PoolRefusal::HasBlocks { .. } => Answer::HasBlocks,
            PoolRefusal::Runs => Answer::Runs,
            PoolRefusal::Busy { captures: 0, .. } => Answer::Busy,
            PoolRefusal::NothingLent { .. } => Answer::NothingLent,
            why => panic!("the model knows no such refusal: {why:?}"),
        },
        Error::OutOfMemory(_) => Answer::NoMemory,
        error => panic!("the model knows no such error: {error:?}"),
    }
}
