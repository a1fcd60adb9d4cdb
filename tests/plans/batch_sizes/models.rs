//! Models as engines run them, whose activations grow with the batch.

use regraph::driver::{HostApi, StreamHandle};
use regraph::engine::Block;

use crate::common::Bench;

/// A forward pass under way: where it runs.
pub struct Pass<'a> {
    pub bench: &'a Bench,
    pub main: StreamHandle,
    /// The same as `main` with one stream.
    pub side: StreamHandle,
}

impl Pass<'_> {
    fn block(&self, bytes: u64, stream: StreamHandle) -> Block {
        self.bench.engine.allocate(self.bench.pool, bytes, stream).unwrap()
    }

    fn launch(&self, stream: StreamHandle) {
        self.bench.launch(stream);
    }

    /// A kernel and its result.
    fn run(&self, bytes: u64, stream: StreamHandle) -> Block {
        let block = self.block(bytes, stream);
        self.launch(stream);
        block
    }

    fn drop(&self, block: Block) {
        self.bench.engine.free(block.id).unwrap();
    }

    fn drop_all<const N: usize>(&self, blocks: [Block; N]) {
        blocks.into_iter().for_each(|block| self.drop(block));
    }

    fn fork(&self) {
        if self.side != self.main {
            self.bench.driver.wait(self.side, self.main).unwrap();
        }
    }

    fn join(&self) {
        if self.side != self.main {
            self.bench.driver.wait(self.main, self.side).unwrap();
        }
    }

    fn used_by(&self, block: &Block, stream: StreamHandle) {
        if self.side != self.main {
            self.bench.engine.record_stream(block.id, stream).unwrap();
        }
    }
}

/// A model: a forward pass of a batch, whose result is the block that is left.
pub type Model = fn(&Pass<'_>, u64) -> Block;

pub const MODELS: [(&str, Model); 8] = [
    ("logits", logits),
    ("mlp 1024", |pass, batch| mlp(pass, batch, 1024)),
    ("mlp 2048", |pass, batch| mlp(pass, batch, 2048)),
    ("mlp 4096", mlp_4096),
    ("mlp 16384", mlp_16384),
    ("attention", attention),
    ("decode", decode),
    ("experts", experts),
];

const LAYERS: usize = 8;

/// Up, activation, down; beside it a gate over the same input; then both and the residual.
fn mlp(pass: &Pass<'_>, batch: u64, hidden: u64) -> Block {
    let row = batch * hidden * 2;
    let mut x = pass.run(row, pass.main);
    for _ in 0..LAYERS {
        pass.fork();
        pass.used_by(&x, pass.side);
        let gate = pass.run(row, pass.side);
        let up = pass.run(4 * row, pass.main);
        let active = pass.run(4 * row, pass.main);
        pass.drop(up);
        let down = pass.run(row, pass.main);
        pass.drop(active);
        pass.join();
        pass.used_by(&gate, pass.main);
        let next = pass.run(row, pass.main);
        pass.drop_all([gate, down, x]);
        x = next;
    }
    x
}

pub fn mlp_4096(pass: &Pass<'_>, batch: u64) -> Block {
    mlp(pass, batch, 4096)
}

/// Wide rows: large blocks for all but the smallest batches.
pub fn mlp_16384(pass: &Pass<'_>, batch: u64) -> Block {
    mlp(pass, batch, 16384)
}

/// A prompt of 64 tokens and attention with scores that live for three kernels, a workspace of fixed size beside them.
pub fn attention(pass: &Pass<'_>, batch: u64) -> Block {
    let (tokens, hidden, heads) = (64, 1536, 24);
    let row = batch * tokens * hidden * 2;
    let scores = batch * heads * tokens * tokens * 2;
    let mut x = pass.run(row, pass.main);
    for _ in 0..LAYERS {
        let norm = pass.run(row, pass.main);
        pass.fork();
        pass.used_by(&norm, pass.side);
        let values = pass.run(row, pass.side);
        let keys = pass.run(2 * row, pass.main);
        pass.drop(norm);
        let score = pass.run(scores, pass.main);
        let mask = pass.run(batch * tokens * 4 + 1000, pass.main);
        let soft = pass.run(scores, pass.main);
        pass.drop_all([score, mask, keys]);
        let dropped = pass.run(scores, pass.main);
        pass.drop(soft);
        pass.join();
        pass.used_by(&values, pass.main);
        let workspace = pass.block(4 << 20, pass.main);
        let mixed = pass.run(row, pass.main);
        pass.drop_all([workspace, dropped, values]);
        let next = pass.run(row, pass.main);
        pass.drop_all([mixed, x]);
        x = next;
    }
    x
}

/// One token at a time: small rows, odd sizes, lengths that go with the batch, and logits at the end.
pub fn decode(pass: &Pass<'_>, batch: u64) -> Block {
    let hidden = 2880;
    let row = batch * hidden * 2;
    let mut x = pass.run(row, pass.main);
    for layer in 0..LAYERS as u64 {
        let length = 97 + 31 * layer;
        let norm = pass.run(row, pass.main);
        pass.fork();
        pass.used_by(&norm, pass.side);
        let query = pass.run(batch * 64 * 64 * 2, pass.main);
        let tables = pass.run(batch * length * 8 + 24, pass.side);
        let partial = pass.run(batch * 64 * length * 4, pass.side);
        pass.drop(norm);
        pass.join();
        pass.used_by(&partial, pass.main);
        let mixed = pass.run(row, pass.main);
        pass.drop_all([tables, partial, query]);
        let up = pass.run(3 * row + 512, pass.main);
        let active = pass.run(3 * row / 2, pass.main);
        pass.drop(up);
        let next = pass.run(row, pass.main);
        pass.drop_all([active, mixed, x]);
        x = next;
    }
    let logits = pass.run(batch * 32_000 * 4, pass.main);
    pass.drop(x);
    let chosen = pass.run(batch * 8, pass.main);
    pass.drop(logits);
    chosen
}

/// Eight experts on two streams, each with as many rows as a fixed skew sends it.
pub fn experts(pass: &Pass<'_>, batch: u64) -> Block {
    const SHARES: [u64; 8] = [31, 7, 17, 3, 11, 23, 5, 13];
    let row = 4096 * 2;
    let mut x = pass.run(batch * row, pass.main);
    for layer in 0..LAYERS {
        let gate = pass.run(batch * 8 * 4, pass.main);
        let sorted = pass.run(2 * batch * row, pass.main);
        pass.fork();
        pass.used_by(&sorted, pass.side);
        pass.used_by(&gate, pass.side);
        let mut results = Vec::new();
        for expert in 0..8 {
            let stream = if expert % 2 == 0 { pass.main } else { pass.side };
            let share = SHARES[(expert + layer) % 8];
            let rows = (2 * batch * share).div_ceil(110);
            let up = pass.run(rows * 3 * row, stream);
            let active = pass.run(rows * 3 * row / 2, stream);
            pass.drop(up);
            let down = pass.run(rows * row, stream);
            pass.drop(active);
            results.push(down);
        }
        pass.join();
        let next = pass.run(batch * row, pass.main);
        for down in results {
            pass.used_by(&down, pass.main);
            pass.drop(down);
        }
        pass.drop_all([sorted, gate, x]);
        x = next;
    }
    x
}

/// Layers of a large language model, and logits of a whole vocabulary for each row.
pub fn logits(pass: &Pass<'_>, batch: u64) -> Block {
    let mut hidden = pass.run(batch * (16 << 10), pass.main);
    for _ in 0..4 {
        let wide = pass.run(batch * (112 << 10), pass.main);
        let narrow = pass.run(batch * (56 << 10), pass.main);
        pass.drop(wide);
        let next = pass.run(batch * (16 << 10), pass.main);
        pass.drop_all([narrow, hidden]);
        hidden = next;
    }
    let logits = pass.run(batch * (512 << 10), pass.main);
    pass.drop(hidden);
    logits
}
