//! Pools of many graphs with plans: outputs that live, that were dropped, graphs that are released and
//! captured again, in any order.

use super::models::{attention, experts, logits, mlp_16384, Model, Pass};
use super::{orders, served, shuffled};
use crate::common::{bench, Bench, MIB};
use regraph::driver::StreamHandle;
use regraph::engine::{Block, Config, GraphId, PoolConfig};
use regraph::plan::Options;

/// What becomes of the results of graphs that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    Live,
    /// Freed before the next capture.
    Dropped,
    /// Every other one is freed before the next capture.
    Half,
    /// Freed when all graphs are captured.
    Late,
}

struct Graph {
    id: GraphId,
    result: Option<Block>,
    /// What its plan needs at least, and what its result does, in bytes.
    minimum: u64,
    result_bytes: u64,
}

struct Host {
    bench: Bench,
    streams: [StreamHandle; 2],
    model: Model,
    graphs: Vec<Graph>,
}

impl Host {
    fn new(model: Model, streams: usize) -> Self {
        let mut b = bench(Config::default());
        b.pool = b.engine.create_pool(PoolConfig::default().plan(Options::default()));
        let [main, side] = b.streams();
        let side = if streams == 1 { main } else { side };
        Self { bench: b, streams: [main, side], model, graphs: Vec::new() }
    }

    fn capture(&mut self, batch: u64) {
        let (b, [main, side]) = (&self.bench, self.streams);
        let capture = b.begin(main);
        b.launch(main);
        let result = (self.model)(&Pass { bench: b, main, side }, batch);
        let report = b.finish(main, capture);
        b.driver.complete_all();
        self.graphs.push(Graph {
            id: report.graph,
            result: Some(result),
            minimum: report.plan.unwrap().minimum_bytes,
            result_bytes: result.bytes.next_multiple_of(2 * MIB),
        });
    }

    fn drop_result(&mut self, graph: usize) {
        if let Some(result) = self.graphs[graph].result.take() {
            self.bench.engine.free(result.id).unwrap();
        }
    }

    fn release(&mut self, graph: usize) {
        self.drop_result(graph);
        let graph = self.graphs.remove(graph);
        self.bench.engine.release_graph(graph.id).unwrap();
    }

    fn capture_all(&mut self, sizes: &[u64], results: Results) {
        for (at, &size) in sizes.iter().enumerate() {
            self.capture(size);
            if results == Results::Dropped || (results == Results::Half && at % 2 == 0) {
                self.drop_result(self.graphs.len() - 1);
            }
        }
        if results == Results::Late {
            (0..self.graphs.len()).for_each(|graph| self.drop_result(graph));
        }
    }

    /// What the largest graph needs and what lives besides.
    fn need(&self) -> u64 {
        let live = |graph: &Graph| graph.result.map_or(0, |_| graph.result_bytes);
        let lives: u64 = self.graphs.iter().map(live).sum();
        let most = self.graphs.iter().map(|graph| graph.minimum - live(graph)).max();
        lives + most.unwrap_or(0)
    }

    /// What the pool holds for each byte that is needed, in percent, and once it is compacted.
    fn judge(&self) -> (u64, u64) {
        self.bench.driver.complete_all();
        self.bench.engine.empty_cache().unwrap();
        let percent = || (self.bench.reserved() * 100).div_ceil(self.need().max(1));
        let before = percent();
        self.bench.engine.host().compact_pool(self.bench.pool).unwrap();
        (before, percent())
    }
}

const LARGE: [(&str, Model, usize); 4] = [
    ("logits", logits, 1),
    ("mlp 16384", mlp_16384, 2),
    ("attention", attention, 1),
    ("experts", experts, 2),
];

#[test]
#[ignore = "prints a table and asserts nothing"]
fn table_of_many() {
    println!("what the pool holds for what is needed, then compacted, in percent");
    println!("orders: ascending, descending, two shuffled");
    for (name, model, streams) in LARGE {
        let cell = |after: &dyn Fn(&mut Host), results: Results| {
            orders().map(|sizes| {
                let mut h = Host::new(model, streams);
                h.capture_all(&sizes, results);
                after(&mut h);
                h.judge()
            })
        };
        for results in [Results::Live, Results::Half, Results::Dropped, Results::Late] {
            println!("{name:10} {results:?}: {:?}", cell(&|_| {}, results));
            let released = cell(&|h| h.release_half(), results);
            println!("{name:10} {results:?}, half released: {released:?}");
            let small = cell(&|h| h.release_largest(), results);
            println!("{name:10} {results:?}, the largest half released: {small:?}");
            let again = cell(&|h| h.recapture(results), results);
            println!("{name:10} {results:?}, captured again one by one: {again:?}");
        }
    }
}

/// Whose outputs live or were freed before the next capture, whichever graphs are released or captured again.
#[test]
fn compacted_pools_hold_what_is_needed() {
    let mut most = 0;
    for results in [Results::Live, Results::Dropped] {
        for after in [Host::release_half, Host::release_largest] {
            let mut h = Host::new(mlp_16384, 2);
            h.capture_all(&orders()[1], results);
            after(&mut h);
            let (before, compacted) = h.judge();
            assert!(compacted <= 102, "{results:?}: {before} %, then {compacted} %");
            most = most.max(before);
        }
    }
    assert!(most > 120, "there was something to compact: {most} % at most");
}

impl Host {
    fn release_half(&mut self) {
        for at in (0..self.graphs.len()).rev().step_by(2) {
            self.release(at);
        }
    }

    fn release_largest(&mut self) {
        let mut sizes: Vec<u64> = self.graphs.iter().map(|graph| graph.minimum).collect();
        sizes.sort_unstable();
        let middle = sizes[sizes.len() / 2];
        for at in (0..self.graphs.len()).rev() {
            if self.graphs[at].minimum > middle {
                self.release(at);
            }
        }
    }

    /// Releases each graph in turn and captures one of another size.
    fn recapture(&mut self, results: Results) {
        for size in shuffled(served(), 7) {
            self.release(0);
            self.capture_all(
                &[size],
                if results == Results::Late { Results::Live } else { results },
            );
        }
        if results == Results::Late {
            (0..self.graphs.len()).for_each(|graph| self.drop_result(graph));
        }
    }
}
