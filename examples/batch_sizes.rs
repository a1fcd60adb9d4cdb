//! Graphs for every batch size from 1 to 128 in the memory of the largest.
//!
//! ```text
//! cargo run --release --example batch_sizes [-- [--simulated] [LARGEST]]
//! ```
//!
//! An inference engine captures its model once for each batch size. All graphs share one pool, since
//! they never run at once. The table says what the pool then holds against what the largest graph
//! alone needs, for sizes captured in ascending, descending and mixed order; PyTorch 2.11 took 124
//! and 122 MiB for such a model whose largest graph took 116, with reuse across streams.
//!
//! The model has eight blocks of gated linear units, with the gates on a second stream. Its kernels
//! are stand-ins which check at their start and at their end that every block they read still holds
//! what its writer left, and then write their own. After each row of the table the graphs are
//! launched in random order, each on either of two streams; a graph that saw memory of another would
//! show as a wrong tag. Then the program fails.
//!
//! On the machine's first GPU, or on a simulated device if there is none: reserved memory is the same
//! on both, and the simulated device runs work in a random order that streams and events allow.

use std::error::Error as AnyError;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool};
use regraph_sim::{SimConfig, SimDriver};
#[cfg(feature = "cuda")]
use regraph_tagged::CudaProgram;
use regraph_tagged::{Program, Tagged, Work};

/// Unless the command line says otherwise.
const LARGEST: u64 = 128;
const BLOCKS: u64 = 8;
/// Bytes of one row of activations: 16384 numbers of 4 bytes.
const ROW: u64 = 64 << 10;
/// What a gated unit is wider than the activations.
const WIDER: u64 = 3;
/// How often each graph is launched after each row of the table.
const ROUNDS: u64 = 3;
/// What kernels wait between their two looks, in nanoseconds.
const DELAY: u32 = 1_000;
/// What the static input holds. Other tags have their batch size in the upper half.
const INPUT: u64 = 7;

/// What becomes of a graph's result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Results {
    /// Its last kernel copies it to a static output that all graphs share, outside the pool.
    Copied,
    /// Each has its own memory, from a second pool that only results come from: in the pool that the
    /// graphs share, one that was captured earlier may have used the same place before.
    Held,
}

/// A captured batch size.
struct Captured<P: Program> {
    size: u64,
    graph: Graph<Arc<P>>,
    result: Option<Memory<Arc<P>>>,
}

/// What a row of the table says.
struct Figures {
    graphs: usize,
    reserved: u64,
    results: u64,
    driver_bytes: u64,
    time: Duration,
    wrong: u64,
}

/// The device, two streams, and what is outside the pool of the graphs.
struct Server<P: Program> {
    engine: Arc<Engine<Arc<P>>>,
    main: StreamHandle,
    side: StreamHandle,
    input: Memory<Arc<P>>,
    output: Memory<Arc<P>>,
}

impl<P: Program> Server<P> {
    fn new(driver: Arc<P>, largest: u64) -> Result<Self, Error> {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let (main, side) = (driver.create_stream()?, driver.create_stream()?);
        let outside = Pool::new(&engine, PoolConfig::default());
        let input = outside.allocate(largest * ROW, main)?;
        let output = outside.allocate(largest * ROW, main)?;
        for memory in [&input, &output] {
            memory.record_stream(side)?;
        }
        let server = Self { engine, main, side, input, output };
        server.launch(main, &[], rows(&server.input, largest, INPUT))?;
        driver.synchronize()?;
        Ok(server)
    }

    /// Launches a kernel that checks blocks and writes one.
    fn launch(&self, stream: StreamHandle, inputs: &[Tagged], output: Tagged) -> Result<(), Error> {
        let work = Work { inputs, outputs: &[output], delay: DELAY, ..Work::default() };
        Ok(self.engine.driver().launch(stream, work, false)?)
    }

    /// The model, for `size` rows: the same code that would run without a capture.
    fn forward(
        &self,
        capture: &Capture<Arc<P>>,
        size: u64,
        results: Option<&Pool<Arc<P>>>,
    ) -> Result<Option<Memory<Arc<P>>>, Error> {
        let (main, side) = (self.main, self.side);
        let driver = self.engine.driver();
        let mut tag = size << 32;
        // A kernel on a stream, with the new block that it writes.
        let mut run = |stream: StreamHandle, inputs: &[Tagged], bytes: u64| {
            let block = capture.allocate(size * bytes, stream)?;
            tag += 1;
            let written = Tagged { address: block.address(), bytes: block.bytes(), tag };
            self.launch(stream, inputs, written)?;
            Ok::<_, Error>((block, written))
        };
        let (mut x, mut x_written) = run(main, &[rows(&self.input, size, INPUT)], ROW)?;
        for _ in 0..BLOCKS {
            driver.wait(side, main)?;
            x.record_stream(side)?;
            let (gate, gate_written) = run(side, &[x_written], WIDER * ROW)?;
            let (up, up_written) = run(main, &[x_written], WIDER * ROW)?;
            driver.wait(main, side)?;
            gate.record_stream(main)?;
            let (gated, gated_written) = run(main, &[up_written, gate_written], WIDER * ROW)?;
            drop((gate, up));
            let (down, down_written) = run(main, &[gated_written], ROW)?;
            drop(gated);
            (x, x_written) = run(main, &[x_written, down_written], ROW)?;
            drop(down);
        }
        let held = match results {
            Some(pool) => {
                capture.join(pool, main)?;
                Some(pool.allocate(size * ROW, main)?)
            }
            None => None,
        };
        let result = rows(held.as_ref().unwrap_or(&self.output), size, result_tag(size));
        self.launch(main, &[x_written], result)?;
        Ok(held)
    }

    /// Captures sizes in this order into one new pool, then lets the graphs run.
    fn row(&self, sizes: &[u64], results: Results) -> Result<Figures, Error> {
        let pool = Pool::new(&self.engine, PoolConfig::default());
        let own = Pool::new(&self.engine, PoolConfig::default());
        let own_results = (results == Results::Held).then_some(&own);
        let begin = Instant::now();
        let mut captured = Vec::new();
        for &size in sizes {
            let body = |capture: &Capture<_>| self.forward(capture, size, own_results);
            let mode = CaptureMode::ThreadLocal;
            let (graph, result) = self.engine.capture(self.main, &pool, mode, body)?;
            captured.push(Captured { size, graph, result });
        }
        let time = begin.elapsed();
        let wrong = self.run(&captured)?;
        Ok(Figures {
            graphs: captured.len(),
            reserved: pool.reserved()?,
            results: own.reserved()?,
            driver_bytes: pool.driver_bytes(),
            time,
            wrong,
        })
    }

    /// Launches every graph some times and says how many tags were wrong.
    fn run(&self, captured: &[Captured<P>]) -> Result<u64, Error> {
        let driver = self.engine.driver();
        let mut wrong = 0;
        for round in 0..ROUNDS {
            let mut order: Vec<_> = captured.iter().collect();
            let mut random = Rng::with_seed(round);
            random.shuffle(&mut order);
            for captured in &order {
                // Nothing here orders the streams: that is the pool's part.
                let stream = if random.bool() { self.main } else { self.side };
                captured.graph.launch(stream)?;
            }
            driver.synchronize()?;
            wrong += driver.take_wrong_tags()?;
            // The static output has the result of the last graph, held ones have all.
            let last = order.last().map(|last| (last.size, &self.output));
            let held = captured.iter().filter_map(|one| Some((one.size, one.result.as_ref()?)));
            let last = last.filter(|_| captured.iter().all(|one| one.result.is_none()));
            for (size, result) in held.chain(last) {
                let tags = driver.read_tags(result.address(), size * ROW)?;
                wrong += tags.iter().filter(|tag| **tag != result_tag(size)).count() as u64;
            }
        }
        Ok(wrong)
    }
}

/// The first rows of a block, with what they hold.
fn rows<P: Program>(memory: &Memory<Arc<P>>, size: u64, tag: u64) -> Tagged {
    Tagged { address: memory.address(), bytes: size * ROW, tag }
}

/// What the last kernel of a graph leaves.
fn result_tag(size: u64) -> u64 {
    (size << 32) + u64::from(u32::MAX)
}

/// Prints the table. Returns how many tags were wrong.
fn table<P: Program>(driver: P, largest: u64) -> Result<u64, Error> {
    let server = Server::new(Arc::new(driver), largest)?;
    let ascending: Vec<u64> = (1..=largest).collect();
    let descending: Vec<u64> = ascending.iter().rev().copied().collect();
    let mut shuffled = ascending.clone();
    Rng::with_seed(1).shuffle(&mut shuffled);
    let rows: [(&str, &[u64], Results); 5] = [
        ("the largest alone", &[largest], Results::Copied),
        ("all, ascending", &ascending, Results::Copied),
        ("all, descending", &descending, Results::Copied),
        ("all, shuffled", &shuffled, Results::Copied),
        ("all, results held", &ascending, Results::Held),
    ];
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (mut alone, mut wrong) = (None, 0);
    println!("Batch sizes 1 to {largest}.");
    println!("captured                 reserved  ratio  results  driver  ms a capture  wrong tags");
    for (name, sizes, results) in rows {
        let row = server.row(sizes, results)?;
        println!(
            "{name:24} {:>8.0} {:>6.3} {:>8.0} {:>7.0} {:>13.2} {:>11}",
            mib(row.reserved),
            row.reserved as f64 / *alone.get_or_insert(row.reserved) as f64,
            mib(row.results),
            mib(row.driver_bytes),
            row.time.as_secs_f64() * 1e3 / row.graphs as f64,
            row.wrong
        );
        wrong += row.wrong;
    }
    println!(
        "MiB. Reserved: the pool that the graphs share. Results: what has memory of its own.\n\
         Driver: what it took for executables, less where a row before has left it some.\n\
         After each row {ROUNDS} launches of each graph, in random order on two streams."
    );
    Ok(wrong)
}

/// Chooses the device.
fn run() -> Result<u64, Box<dyn AnyError>> {
    let (mut simulated, mut largest) = (false, LARGEST);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--simulated" => simulated = true,
            number => largest = number.parse().map_err(|_| format!("{number}: no batch size"))?,
        }
    }
    if largest == 0 {
        return Err("the largest batch size is at least 1".into());
    }
    #[cfg(feature = "cuda")]
    if !simulated {
        match CudaProgram::new(0) {
            Ok(driver) => {
                println!("{}", driver.device_name()?);
                return Ok(table(driver, largest)?);
            }
            Err(error) => println!("There is no GPU to run this on: {error}."),
        }
    }
    let _ = simulated;
    println!("Simulated.");
    Ok(table(SimDriver::new(SimConfig::default()), largest)?)
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => {
            println!("Every kernel found what it was to find.");
            ExitCode::SUCCESS
        }
        Ok(wrong) => {
            println!("WRONG: {wrong} tags. Some graph has overwritten what another one holds.");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
