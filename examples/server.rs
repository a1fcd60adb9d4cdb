//! A server of two language models that take turns on one GPU, with continuous batching.
//!
//! ```text
//! cargo run --release --example server [-- [--simulated] [REQUESTS]]
//! ```
//!
//! Requests of different lengths arrive over time, for either model. Each step runs one token of every
//! request that is being served: the batch is padded to the next of ten sizes, and the graph of that size
//! is launched. Keys and values lie in blocks of 16 positions, which come as a request grows and go when
//! it is answered. Where the cache of a model is full, its youngest request gives its blocks up and
//! is computed again later.
//!
//! Each model has its weights, its cache and its graphs in regions of their own. The one that has nothing
//! to do, or has had its turn, sleeps: its device memory goes, what its weights and its cache hold is kept on
//! the host, and what its graphs hold is not. When it wakes, its graphs are launched as they are:
//! nothing is captured again, and requests go on where they were.
//!
//! On a GPU a decoder is computed, and each token of each answer must be one that a computation on the
//! processor finds likeliest too. On the simulated device the same server runs with kernels that check
//! that every block which they read holds what was written to it last: weights, blocks of the cache,
//! temporaries of graphs, before and after sleep; and answers must be those of one request alone.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error as AnyError;
use std::process::ExitCode;
use std::sync::Arc;

use cudarc::driver::{result, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc;
use fastrand::Rng;
use regraph::driver::cuda::CudaDriver;
use regraph::driver::{AsStream, CaptureMode, HostApi, StreamHandle, Transfer};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool};
use regraph::regions::{Backup, Regions};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

type Result<T> = std::result::Result<T, Box<dyn AnyError>>;

/// The batch sizes that are captured.
const SIZES: [usize; 10] = [32, 24, 16, 12, 8, 6, 4, 3, 2, 1];
const LARGEST: usize = SIZES[0];
/// Unless the command line says otherwise.
const REQUESTS: usize = 64;
/// So many steps a model has, at least, while the other one waits.
const TURN: usize = 40;
/// What the cache of a model may hold, in bytes: less than its largest batch can need.
const CACHE: u64 = 2 << 20;

// The models' dimensions.
const LAYERS: usize = 3;
const WIDTH: usize = 128;
const HEADS: usize = 4;
const INNER: usize = 256;
const WORDS: usize = 512;
/// The most positions of a request.
const CONTEXT: usize = 64;
/// Positions of a block of keys and values.
const BLOCK: usize = 16;
const BLOCK_BYTES: u64 = (BLOCK * LAYERS * 2 * WIDTH * size_of::<f32>()) as u64;
/// Threads of a block of a kernel: all of a row of the model's width, which share its scale.
const THREADS: usize = WIDTH;
const KERNELS: &str = include_str!("kernels/server.cu");

/// Their names.
const NAMES: [&str; 8] =
    ["embed", "normalize", "multiply", "append", "attend", "gate", "add", "choose"];

/// A place in device memory; the tag tells what a simulated device finds there.
type Place = Tagged;

fn place<D: HostApi>(memory: &Memory<D>, tag: u64) -> Place {
    Tagged { address: memory.address(), bytes: memory.bytes(), tag }
}

/// What the server runs on.
trait Machine {
    type Driver: Transfer;

    fn driver(&self) -> Arc<Self::Driver>;
    fn stream(&self) -> StreamHandle;

    /// Launches a kernel with `columns` numbers for each of `rows`. Its arguments are the addresses of what it reads
    /// and of what it writes, then the numbers.
    fn launch(
        &self,
        kernel: &str,
        shape: (usize, usize),
        reads: &[Place],
        writes: &[Place],
        numbers: &[usize],
    ) -> Result<()>;

    /// Writes the host's bytes.
    fn upload(&self, to: Place, bytes: &[u8]) -> Result<()>;

    /// What the last step has chosen for each row. A row's latest token and its position are given.
    fn chosen(&self, from: Place, rows: &[(u32, usize)]) -> Result<Vec<u32>>;

    /// Tells of blocks of the cache: those that the step before has read, or those that are new.
    fn touch(&self, reads: &[Place], writes: &[Place]) -> Result<()>;

    /// Fails where a kernel found something that it was not to find.
    fn examine(&self) -> Result<()>;

    /// Fails where `tokens` from `prompt` on are not what the model says to those before.
    fn check(&self, weights: &Weights, tokens: &[u32], prompt: usize) -> Result<()>;
}

/// A GPU, with a stream and the kernels.
struct Gpu {
    driver: Arc<CudaDriver>,
    stream: Arc<CudaStream>,
    kernels: BTreeMap<&'static str, CudaFunction>,
}

impl Gpu {
    fn new(driver: CudaDriver) -> Result<Self> {
        // SAFETY: opens the library, which is trusted, and closes it again.
        if unsafe { !nvrtc::sys::is_culib_present() } {
            return Err("libnvrtc is missing; name its folder in LD_LIBRARY_PATH".into());
        }
        let source = format!(
            "#define LAYERS {LAYERS}\n#define WIDTH {WIDTH}\n#define HEADS {HEADS}\n\
             #define INNER {INNER}\n#define WORDS {WORDS}\n#define CONTEXT {CONTEXT}\n\
             #define BLOCK {BLOCK}\n{KERNELS}"
        );
        let compiled = nvrtc::compile_ptx(source).map_err(|error| format!("kernels: {error:?}"))?;
        let module = driver.context().load_module(compiled)?;
        let mut kernels = BTreeMap::new();
        for name in NAMES {
            kernels.insert(name, module.load_function(name)?);
        }
        let stream = driver.context().new_stream()?;
        Ok(Self { driver: Arc::new(driver), stream, kernels })
    }
}

impl Machine for Gpu {
    type Driver = CudaDriver;

    fn driver(&self) -> Arc<CudaDriver> {
        Arc::clone(&self.driver)
    }

    fn stream(&self) -> StreamHandle {
        self.stream.as_stream()
    }

    fn launch(
        &self,
        kernel: &str,
        (rows, columns): (usize, usize),
        reads: &[Place],
        writes: &[Place],
        numbers: &[usize],
    ) -> Result<()> {
        let config = LaunchConfig {
            grid_dim: (columns.div_ceil(THREADS) as u32, rows as u32, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let addresses = reads.iter().chain(writes).map(|place| place.address).collect::<Vec<_>>();
        let numbers = numbers.iter().map(|&number| number as u32).collect::<Vec<_>>();
        let mut launch = self.stream.launch_builder(&self.kernels[kernel]);
        for address in &addresses {
            launch.arg(address);
        }
        for number in &numbers {
            launch.arg(number);
        }
        // SAFETY: the kernels take pointers and then `u32`s, as given; the places are as large as the
        // dimensions say, and all work is on one stream.
        unsafe { launch.launch(config) }?;
        Ok(())
    }

    fn upload(&self, to: Place, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= to.bytes);
        // SAFETY: the place is large enough. Pageable memory has been read when the call returns.
        unsafe { result::memcpy_htod_async(to.address, bytes, self.stream.cu_stream()) }?;
        Ok(())
    }

    fn chosen(&self, from: Place, rows: &[(u32, usize)]) -> Result<Vec<u32>> {
        let mut tokens = vec![0; rows.len()];
        // SAFETY: the place has a token for each row of the largest batch; the copy is waited for.
        unsafe {
            result::memcpy_dtoh_async(&mut tokens[..], from.address, self.stream.cu_stream())
        }?;
        self.stream.synchronize()?;
        Ok(tokens)
    }

    fn touch(&self, _: &[Place], _: &[Place]) -> Result<()> {
        Ok(())
    }

    fn examine(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self, weights: &Weights, tokens: &[u32], prompt: usize) -> Result<()> {
        /// Of sums of a few hundred products in another order.
        const TOLERANCE: f32 = 1e-3;
        let logits = weights.compute(&tokens[..tokens.len() - 1]);
        for (at, &token) in tokens.iter().enumerate().skip(prompt) {
            let logits = &logits[at - 1];
            let most = logits.iter().copied().fold(f32::MIN, f32::max);
            let own = logits[token as usize];
            // A logit that is no number is not right either.
            let right = own >= most - TOLERANCE;
            if !right {
                return Err(format!("token {at} is {token}, of {own}; the most is {most}").into());
            }
        }
        Ok(())
    }
}

/// A device that checks tags.
struct Simulated {
    driver: Arc<SimDriver>,
    stream: StreamHandle,
}

impl Machine for Simulated {
    type Driver = SimDriver;

    fn driver(&self) -> Arc<SimDriver> {
        Arc::clone(&self.driver)
    }

    fn stream(&self) -> StreamHandle {
        self.stream
    }

    fn launch(
        &self,
        _: &str,
        _: (usize, usize),
        reads: &[Place],
        writes: &[Place],
        _: &[usize],
    ) -> Result<()> {
        self.touch(reads, writes)
    }

    fn upload(&self, to: Place, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= to.bytes);
        self.touch(&[], &[to])
    }

    fn chosen(&self, from: Place, rows: &[(u32, usize)]) -> Result<Vec<u32>> {
        self.touch(&[from], &[])?;
        self.driver.synchronize()?;
        Ok(rows.iter().map(|&(token, position)| follows(token, position)).collect())
    }

    fn touch(&self, reads: &[Place], writes: &[Place]) -> Result<()> {
        let work = Work { inputs: reads, outputs: writes, ..Work::default() };
        Ok(self.driver.launch(self.stream, work, false)?)
    }

    fn examine(&self) -> Result<()> {
        self.driver.synchronize()?;
        match self.driver.take_wrong_tags()? {
            0 => Ok(()),
            wrong => Err(format!("{wrong} tags are wrong").into()),
        }
    }

    fn check(&self, _: &Weights, tokens: &[u32], prompt: usize) -> Result<()> {
        let wrong =
            (prompt..tokens.len()).find(|&at| tokens[at] != follows(tokens[at - 1], at - 1));
        wrong.map_or(Ok(()), |at| Err(format!("token {at} is {}", tokens[at]).into()))
    }
}

/// What stands for a model where nothing is computed.
fn follows(token: u32, position: usize) -> u32 {
    (token * 31 + position as u32 * 7 + 1) % WORDS as u32
}

/// The matrices of a layer, by their place in it.
#[derive(Clone, Copy)]
enum Matrix {
    Qkv,
    Output,
    Gate,
    Up,
    Down,
}

impl Matrix {
    const ALL: [Self; 5] = [Self::Qkv, Self::Output, Self::Gate, Self::Up, Self::Down];

    /// Outputs and inputs: the rows and columns of the matrix.
    const fn dimensions(self) -> (usize, usize) {
        match self {
            Self::Qkv => (3 * WIDTH, WIDTH),
            Self::Output => (WIDTH, WIDTH),
            Self::Gate | Self::Up => (INNER, WIDTH),
            Self::Down => (WIDTH, INNER),
        }
    }
}

/// A model's numbers on the host.
struct Weights {
    words: Vec<f32>,
    places: Vec<f32>,
    /// By layer and [`Matrix`].
    layers: Vec<[Vec<f32>; 5]>,
}

impl Weights {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut matrix = |count: usize, inputs: usize| -> Vec<f32> {
            let scale = (3.0 / inputs as f32).sqrt();
            (0..count).map(|_| (2.0 * random.f32() - 1.0) * scale).collect()
        };
        let (words, places) = (matrix(WORDS * WIDTH, 3), matrix(CONTEXT * WIDTH, 3));
        let mut of = |kind: Matrix| {
            let (outputs, inputs) = kind.dimensions();
            matrix(outputs * inputs, inputs)
        };
        let layers = (0..LAYERS).map(|_| Matrix::ALL.map(&mut of)).collect();
        Self { words, places, layers }
    }

    /// The logits after each token: the decoder as the kernels compute it.
    fn compute(&self, tokens: &[u32]) -> Vec<Vec<f32>> {
        let mut caches = vec![Vec::new(); LAYERS];
        let logits = tokens.iter().enumerate().map(|(position, &token)| {
            let word = &self.words[token as usize * WIDTH..][..WIDTH];
            let place = &self.places[position * WIDTH..][..WIDTH];
            let mut x = plus(word, place);
            for (layer, cache) in self.layers.iter().zip(&mut caches) {
                let times = |kind: Matrix, x: &[f32]| product(&layer[kind as usize], x);
                let mixed = attention(&times(Matrix::Qkv, &normal(&x)), cache);
                x = plus(&x, &times(Matrix::Output, &mixed));
                let input = normal(&x);
                let (gates, values) = (times(Matrix::Gate, &input), times(Matrix::Up, &input));
                let gated = gates.iter().zip(&values);
                let gated = gated.map(|(gate, value)| gate / (1.0 + (-gate).exp()) * value);
                x = plus(&x, &times(Matrix::Down, &gated.collect::<Vec<_>>()));
            }
            product(&self.words, &normal(&x))
        });
        logits.collect()
    }
}

fn plus(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn product(matrix: &[f32], x: &[f32]) -> Vec<f32> {
    matrix.chunks_exact(x.len()).map(|row| dot(row, x)).collect()
}

fn normal(x: &[f32]) -> Vec<f32> {
    let scale = 1.0 / (dot(x, x) / x.len() as f32 + 1e-6).sqrt();
    x.iter().map(|x| x * scale).collect()
}

/// Adds keys and values to the cache, and mixes its values by the scores of its keys.
fn attention(qkv: &[f32], cache: &mut Vec<(Vec<f32>, Vec<f32>)>) -> Vec<f32> {
    const HEAD: usize = WIDTH / HEADS;
    cache.push((qkv[WIDTH..2 * WIDTH].to_vec(), qkv[2 * WIDTH..].to_vec()));
    let mut out = vec![0.0; WIDTH];
    for (head, out) in out.chunks_exact_mut(HEAD).enumerate() {
        let own = head * HEAD..(head + 1) * HEAD;
        let score =
            |keys: &[f32]| dot(&qkv[own.clone()], &keys[own.clone()]) / (HEAD as f32).sqrt();
        let scores = cache.iter().map(|(keys, _)| score(keys)).collect::<Vec<_>>();
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let scores = scores.iter().map(|score| (score - most).exp()).collect::<Vec<_>>();
        let total: f32 = scores.iter().sum();
        for (score, (_, values)) in scores.iter().zip(cache.iter()) {
            for (out, value) in out.iter_mut().zip(&values[own.clone()]) {
                *out += score / total * value;
            }
        }
    }
    out
}

/// A question to a model.
struct Request {
    /// Its number, from 1.
    number: u64,
    model: usize,
    /// The step in which it arrives.
    arrives: usize,
    /// What was asked, and what was answered so far.
    tokens: Vec<u32>,
    /// How many of the tokens were asked.
    prompt: usize,
    /// How many there are to be.
    end: usize,
}

/// A request that is being served.
struct Served<D: HostApi> {
    request: Request,
    /// How many positions the cache has.
    done: usize,
    blocks: Vec<Memory<D>>,
}

impl<D: HostApi> Served<D> {
    /// The blocks of the cache, as they were written last.
    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.blocks.iter().zip(0..).map(|(block, row)| place(block, self.tag(row)))
    }

    fn tag(&self, row: u64) -> u64 {
        self.request.number << 16 | row
    }
}

/// What a model has on the device for good, and what its graphs read and write beside it.
struct Statics<D: HostApi> {
    words: Memory<D>,
    places: Memory<D>,
    layers: Vec<[Memory<D>; 5]>,
    /// A token, a position and a table of blocks for each row.
    tokens: Memory<D>,
    positions: Memory<D>,
    tables: Memory<D>,
    chosen: Memory<D>,
}

// Tags. Those of blocks of the cache have a request's number above bit 16, those of temporaries a size
// above bit 40.
const WEIGHTS: u64 = 1;
const INPUT: u64 = 2;
const CHOSEN: u64 = 3;

/// A model with its requests.
struct Model<D: HostApi> {
    weights: Weights,
    statics: Statics<D>,
    graphs: BTreeMap<usize, Graph<D>>,
    cache: Pool<D>,
    /// What rows of no request write to.
    padding: Memory<D>,
    regions: [String; 3],
    waiting: VecDeque<Request>,
    served: Vec<Served<D>>,
}

/// What has happened.
#[derive(Default)]
struct Counts {
    answers: usize,
    tokens: usize,
    steps: usize,
    given_up: usize,
    turns: usize,
    captures: usize,
    launches: BTreeMap<usize, usize>,
    /// Blocks of the cache that were live at once.
    blocks: usize,
    /// In bytes.
    slept: u64,
    most_awake: u64,
}

struct Server<M: Machine> {
    models: Vec<Model<Arc<M::Driver>>>,
    regions: Regions<Arc<M::Driver>>,
    engine: Arc<Engine<Arc<M::Driver>>>,
    counts: Counts,
    /// Goes last: blocks that are dropped name its stream to the driver.
    machine: M,
}

/// The model's step for `rows` rows: a decoder over the blocks that the tables name.
struct Step<'a, M: Machine> {
    machine: &'a M,
    statics: &'a Statics<Arc<M::Driver>>,
    capture: &'a Capture<Arc<M::Driver>>,
    rows: usize,
    next: u64,
}

/// A temporary.
type Buffer<M> = (Memory<Arc<<M as Machine>::Driver>>, Place);

impl<M: Machine> Step<'_, M> {
    /// Launches a kernel that makes `columns` numbers for each row.
    fn make(
        &mut self,
        kernel: &str,
        columns: usize,
        reads: &[Place],
        numbers: &[usize],
    ) -> Result<Buffer<M>> {
        let bytes = (self.rows * columns * size_of::<f32>()) as u64;
        let memory = self.capture.allocate(bytes, self.machine.stream())?;
        self.next += 1;
        let out = place(&memory, (self.rows as u64) << 40 | self.next);
        self.machine.launch(kernel, (self.rows, columns), reads, &[out], numbers)?;
        Ok((memory, out))
    }

    fn multiply(&mut self, layer: usize, kind: Matrix, by: Place) -> Result<Buffer<M>> {
        let (outputs, inputs) = kind.dimensions();
        let matrix = place(&self.statics.layers[layer][kind as usize], WEIGHTS);
        self.make("multiply", outputs, &[by, matrix], &[outputs, inputs])
    }

    fn run(mut self) -> Result<()> {
        let statics = self.statics;
        let [tokens, positions, tables] =
            [&statics.tokens, &statics.positions, &statics.tables].map(|of| place(of, INPUT));
        let [words, places] = [&statics.words, &statics.places].map(|of| place(of, WEIGHTS));
        let mut x = self.make("embed", WIDTH, &[tokens, positions, words, places], &[])?;
        for layer in 0..LAYERS {
            let input = self.make("normalize", WIDTH, &[x.1], &[])?;
            let qkv = self.multiply(layer, Matrix::Qkv, input.1)?;
            drop(input);
            // It writes to the cache, by the tables.
            let reads = [qkv.1, tables, positions];
            self.machine.launch("append", (self.rows, WIDTH), &reads, &[], &[layer])?;
            let mixed = self.make("attend", WIDTH, &reads, &[layer])?;
            drop(qkv);
            let output = self.multiply(layer, Matrix::Output, mixed.1)?;
            drop(mixed);
            x = self.make("add", WIDTH, &[x.1, output.1], &[])?;
            drop(output);
            let input = self.make("normalize", WIDTH, &[x.1], &[])?;
            let gates = self.multiply(layer, Matrix::Gate, input.1)?;
            let values = self.multiply(layer, Matrix::Up, input.1)?;
            drop(input);
            let gated = self.make("gate", INNER, &[gates.1, values.1], &[])?;
            drop((gates, values));
            let output = self.multiply(layer, Matrix::Down, gated.1)?;
            drop(gated);
            x = self.make("add", WIDTH, &[x.1, output.1], &[])?;
        }
        let input = self.make("normalize", WIDTH, &[x.1], &[])?;
        drop(x);
        let logits = self.make("multiply", WORDS, &[input.1, words], &[WORDS, WIDTH])?;
        let chosen = place(&statics.chosen, CHOSEN);
        self.machine.launch("choose", (self.rows, 1), &[logits.1], &[chosen], &[])
    }
}

impl<M: Machine> Server<M> {
    fn new(machine: M) -> Self {
        let engine = Arc::new(Engine::new(machine.driver(), Config::default()));
        let regions = Regions::new(&engine);
        Self { machine, engine, regions, models: Vec::new(), counts: Counts::default() }
    }

    /// Loads a model and captures its graphs. All others sleep meanwhile.
    fn add_model(&mut self, seed: u64) -> Result<()> {
        self.sleep(self.models.len())?;
        let (machine, stream) = (&self.machine, self.machine.stream());
        let regions = ["weights", "cache", "graphs"].map(|kind| format!("{kind} of {seed}"));
        let [weights_pool, cache, graphs_pool] = [0, 1, 2].map(|row| {
            let config = PoolConfig::default().tag(regions[row].as_str());
            Pool::new(&self.engine, if row == 1 { config.max_bytes(CACHE) } else { config })
        });
        self.regions.set_backup(&regions[2], Backup::None);
        let weights = Weights::new(seed);
        let allocate = |words: usize| weights_pool.allocate(4 * words as u64, stream);
        let load = |values: &[f32]| -> Result<_> {
            let memory = allocate(values.len())?;
            machine.upload(place(&memory, WEIGHTS), &bytes(values, |value| value.to_ne_bytes()))?;
            Ok(memory)
        };
        let mut layers = Vec::new();
        for layer in &weights.layers {
            let [qkv, output, gate, up, down] = layer;
            layers.push([load(qkv)?, load(output)?, load(gate)?, load(up)?, load(down)?]);
        }
        let statics = Statics {
            words: load(&weights.words)?,
            places: load(&weights.places)?,
            layers,
            tokens: allocate(LARGEST)?,
            positions: allocate(LARGEST)?,
            tables: allocate(2 * LARGEST * (CONTEXT / BLOCK))?,
            chosen: allocate(LARGEST)?,
        };
        let mut graphs = BTreeMap::new();
        for rows in SIZES {
            let body = |capture: &Capture<_>| {
                Step { machine, statics: &statics, capture, rows, next: 0 }.run()
            };
            let mode = CaptureMode::ThreadLocal;
            let (graph, ()) = self.engine.capture(stream, &graphs_pool, mode, body)?;
            graphs.insert(rows, graph);
            self.counts.captures += 1;
        }
        let padding = cache.allocate(BLOCK_BYTES, stream)?;
        let (waiting, served) = (VecDeque::new(), Vec::new());
        self.models.push(Model {
            weights,
            statics,
            graphs,
            cache,
            padding,
            regions,
            waiting,
            served,
        });
        Ok(())
    }

    /// Puts all models but one to sleep.
    fn sleep(&mut self, but: usize) -> Result<()> {
        let others = self.models.iter().enumerate().filter(|(row, _)| *row != but);
        let tags = others.flat_map(|(_, model)| &model.regions).map(String::as_str);
        self.counts.slept += self.regions.sleep(&*tags.collect::<Vec<_>>())?;
        Ok(())
    }

    /// Gives the device to a model.
    fn turn_to(&mut self, row: usize) -> Result<()> {
        self.sleep(row)?;
        self.regions.wake(&self.models[row].regions.each_ref().map(String::as_str))?;
        self.counts.turns += 1;
        Ok(())
    }

    /// Serves all requests, which stand in the order in which they arrive.
    fn serve(&mut self, requests: Vec<Request>) -> Result<()> {
        let mut coming = VecDeque::from(requests);
        let (mut now, mut turn_began) = (self.models.len() - 1, 0);
        let mut clock = 0;
        loop {
            while coming.front().is_some_and(|request| request.arrives <= clock) {
                let Some(request) = coming.pop_front() else { break };
                self.models[request.model].waiting.push_back(request);
            }
            clock += 1;
            let other = (now + 1) % self.models.len();
            let had_turn = self.counts.steps - turn_began >= TURN;
            if self.models[other].has_work() && (had_turn || !self.models[now].has_work()) {
                self.turn_to(other)?;
                (now, turn_began) = (other, self.counts.steps);
            }
            if self.models[now].has_work() {
                self.step(now)?;
            } else if coming.is_empty() {
                return Ok(());
            }
        }
    }

    /// Computes one token of each request that a model serves.
    fn step(&mut self, now: usize) -> Result<()> {
        let Self { machine, models, counts, regions, .. } = self;
        let model = &mut models[now];
        let stream = machine.stream();
        while model.served.len() < LARGEST {
            let Some(request) = model.waiting.pop_front() else { break };
            model.served.push(Served { request, done: 0, blocks: Vec::new() });
        }
        // The oldest first: it gets what the youngest gives up, so that something is always answered.
        let mut row = 0;
        while row < model.served.len() {
            let served = &mut model.served[row];
            if served.done < served.blocks.len() * BLOCK {
                row += 1;
                continue;
            }
            match model.cache.allocate(BLOCK_BYTES, stream) {
                Ok(block) => {
                    let written = place(&block, served.tag(served.blocks.len() as u64));
                    machine.touch(&[], &[written])?;
                    served.blocks.push(block);
                    row += 1;
                }
                Err(Error::OutOfMemory(_)) => {
                    // With its blocks, which the next request may have at once.
                    let Some(youngest) = model.served.pop() else { break };
                    counts.given_up += usize::from(youngest.done > 0);
                    model.waiting.push_front(youngest.request);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let rows = model.served.len();
        let size = SIZES.into_iter().filter(|&size| size >= rows).min();
        let size = size.filter(|_| rows > 0).ok_or("the cache is too small for one request")?;
        let Statics { tokens, positions, tables, chosen, .. } = &model.statics;
        let latest = model.served.iter().map(|it| (it.request.tokens[it.done], it.done));
        let latest = latest.collect::<Vec<_>>();
        let mut addresses = vec![model.padding.address(); size * (CONTEXT / BLOCK)];
        for (served, row) in model.served.iter().zip(addresses.chunks_exact_mut(CONTEXT / BLOCK)) {
            for (block, address) in served.blocks.iter().zip(row) {
                *address = block.address();
            }
        }
        let mut padded = latest.clone();
        padded.resize(size, (0, 0));
        let words = bytes(&padded, |(token, _)| token.to_ne_bytes());
        machine.upload(place(tokens, INPUT), &words)?;
        let places = bytes(&padded, |(_, position)| (position as u32).to_ne_bytes());
        machine.upload(place(positions, INPUT), &places)?;
        machine.upload(place(tables, INPUT), &bytes(&addresses, u64::to_ne_bytes))?;
        model.graphs[&size].launch(stream)?;
        let places = model.served.iter().flat_map(Served::places).collect::<Vec<_>>();
        machine.touch(&places, &[])?;
        let chosen = machine.chosen(place(chosen, CHOSEN), &latest)?;

        counts.steps += 1;
        *counts.launches.entry(size).or_default() += 1;
        counts.blocks = counts.blocks.max(places.len());
        let awake = regions.report().iter().map(|region| region.awake_bytes).sum();
        counts.most_awake = counts.most_awake.max(awake);
        let mut left = Vec::new();
        for (mut served, token) in model.served.drain(..).zip(chosen) {
            served.done += 1;
            let Request { number, prompt, end, ref mut tokens, .. } = served.request;
            // What was asked, or answered before the blocks were given up, is known.
            if served.done == tokens.len() {
                tokens.push(token);
                counts.tokens += 1;
            }
            if tokens.len() < end {
                left.push(served);
                continue;
            }
            let checked = machine.check(&model.weights, tokens, prompt);
            checked.map_err(|error| format!("request {number}: {error}"))?;
            counts.answers += 1;
        }
        model.served = left;
        machine.examine()
    }
}

impl<D: HostApi> Model<D> {
    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || !self.served.is_empty()
    }
}

fn bytes<T: Copy, const N: usize>(values: &[T], of: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| of(value)).collect()
}

/// Requests that come in bursts, more to one model than to the other.
fn requests(count: usize, models: usize) -> Vec<Request> {
    let mut random = Rng::with_seed(7);
    let mut arrives = 0;
    let request = |number| {
        if random.u32(..12) == 0 {
            arrives += random.usize(..40);
        }
        let prompt = random.usize(1..=CONTEXT / 2);
        let end = random.usize(prompt + 1..=CONTEXT);
        let tokens = (0..prompt).map(|_| random.u32(..WORDS as u32)).collect();
        let model = random.usize(..models + 1).min(models - 1);
        Request { number, model, arrives, tokens, prompt, end }
    };
    (1..=count as u64).map(request).collect()
}

fn serve(machine: impl Machine, count: usize) -> Result<()> {
    let mut server = Server::new(machine);
    for seed in [1, 2] {
        server.add_model(seed)?;
    }
    let requests = requests(count, server.models.len());
    let expected: usize = requests.iter().map(|request| request.end - request.prompt).sum();
    server.serve(requests)?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let Counts { answers, tokens, steps, given_up, turns, captures, blocks, .. } = server.counts;
    println!("{answers} requests answered with {tokens} tokens in {steps} steps");
    println!("launches by batch size: {:?}, of {captures} captures", server.counts.launches);
    println!(
        "{blocks} blocks of the cache at most, {given_up} requests gave theirs up for a while"
    );
    println!(
        "{turns} turns, for which {:.0} MiB went to sleep; {:.0} MiB awake at most",
        mib(server.counts.slept),
        mib(server.counts.most_awake),
    );
    let all: u64 =
        server.regions.report().iter().map(|region| region.awake_bytes + region.asleep_bytes).sum();
    println!("both models have {:.0} MiB", mib(all));
    if (answers, tokens) != (count, expected) {
        return Err(format!("{count} requests were to get {expected} tokens").into());
    }
    println!("Every answer is right.");
    Ok(())
}

/// Chooses the device.
fn run() -> Result<()> {
    let (mut simulated, mut count) = (false, REQUESTS);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--simulated" => simulated = true,
            number => count = number.parse().map_err(|_| format!("{number}: no count"))?,
        }
    }
    if !simulated {
        // SAFETY: handles are given to calls while what they name lives, and graphs run while what
        // they use does.
        match unsafe { CudaDriver::new(0) } {
            Ok(driver) => {
                println!("{}", driver.device_name()?);
                return serve(Gpu::new(driver)?, count);
            }
            Err(error) => println!("There is no GPU to run this on: {error}."),
        }
    }
    println!("Simulated.");
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let stream = driver.create_stream()?;
    serve(Simulated { driver, stream }, count)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
