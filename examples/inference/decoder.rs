//! The decoder, written once for all kinds of memory.

use std::cell::RefCell;
use std::rc::Rc;

use super::memory::Memory;
use super::shape::{Matrix, On, Shape, Static};
use super::{Result, CONTEXT, HEADS, THREADS};

/// A temporary of the decoder.
type Buffer<M> = Rc<<M as Memory>::Buffer>;

/// The decoder at work on so many rows.
struct Decoder<'a, M: Memory> {
    memory: &'a M,
    shape: &'a Shape,
    batch: usize,
    /// All buffers, where none is to be reused.
    held: Option<RefCell<Vec<Buffer<M>>>>,
}

impl<M: Memory> Decoder<'_, M> {
    /// A buffer of `width` elements a row.
    fn alloc(&self, width: usize, on: On) -> Result<Buffer<M>> {
        let buffer = Rc::new(self.memory.alloc(self.batch * width, on)?);
        if let Some(held) = &self.held {
            held.borrow_mut().push(buffer.clone());
        }
        Ok(buffer)
    }

    fn launch(
        &self,
        on: On,
        kernel: &str,
        grid: (usize, usize),
        buffers: &[&Buffer<M>],
        statics: &[Static],
    ) -> Result<()> {
        let addresses = buffers.iter().map(|buffer| self.memory.address(buffer, on));
        let mut addresses = addresses.collect::<Result<Vec<_>>>()?;
        self.memory.submit(on, |device| {
            addresses.extend(statics.iter().map(|&of| device.address(of)));
            device.launch(on, kernel, grid, &addresses, &[])
        })
    }

    fn by_row(&self, kernel: &str, buffers: &[&Buffer<M>], statics: &[Static]) -> Result<()> {
        self.launch(On::Main, kernel, (self.batch, 1), buffers, statics)
    }

    fn by_head(&self, kernel: &str, buffers: &[&Buffer<M>], statics: &[Static]) -> Result<()> {
        self.launch(On::Main, kernel, (HEADS, self.batch), buffers, statics)
    }

    /// For each of `width` elements a row.
    fn by_element(&self, on: On, kernel: &str, width: usize, buffers: &[&Buffer<M>]) -> Result<()> {
        self.launch(on, kernel, (self.batch * width / THREADS, 1), buffers, &[])
    }

    fn multiply(&self, on: On, by: Matrix, input: &Buffer<M>, output: &Buffer<M>) -> Result<()> {
        let input = self.memory.address(input, on)?;
        let output = self.memory.address(output, on)?;
        self.memory.submit(on, |device| device.multiply(on, by, (input, output), self.batch))
    }

    fn normalized(&self, input: &Buffer<M>) -> Result<Buffer<M>> {
        let output = self.alloc(self.shape.hidden, On::Main)?;
        self.by_row("normalize", &[input, &output], &[])?;
        Ok(output)
    }

    fn added(&self, a: Buffer<M>, b: Buffer<M>) -> Result<Buffer<M>> {
        let output = self.alloc(self.shape.hidden, On::Main)?;
        self.by_element(On::Main, "add", self.shape.hidden, &[&a, &b, &output])?;
        Ok(output)
    }

    fn attention(&self, layer: usize, input: Buffer<M>) -> Result<Buffer<M>> {
        let hidden = self.shape.hidden;
        let (keys, values) = (Static::Keys(layer), Static::Values(layer));
        let qkv = self.alloc(3 * hidden, On::Main)?;
        self.multiply(On::Main, Matrix::Qkv(layer), &input, &qkv)?;
        drop(input);
        self.by_row("append", &[&qkv], &[keys, values, Static::Positions])?;
        let scores = self.alloc(HEADS * CONTEXT, On::Main)?;
        self.by_head("score", &[&qkv, &scores], &[keys, Static::Positions])?;
        drop(qkv);
        let mixed = self.alloc(hidden, On::Main)?;
        self.by_head("attend", &[&scores, &mixed], &[values, Static::Positions])?;
        drop(scores);
        let output = self.alloc(hidden, On::Main)?;
        self.multiply(On::Main, Matrix::Output(layer), &mixed, &output)?;
        Ok(output)
    }

    /// The gate on the second stream, beside the way up on the first.
    fn feed_forward(&self, layer: usize, input: Buffer<M>) -> Result<Buffer<M>> {
        let inner = self.shape.inner();
        // Before the fork: cudarc's memory is there for a stream that is behind its allocation.
        let gate = self.alloc(inner, On::Main)?;
        self.memory.join(On::Side, On::Main)?;
        let raw = self.alloc(inner, On::Side)?;
        self.multiply(On::Side, Matrix::Gate(layer), &input, &raw)?;
        self.by_element(On::Side, "silu", inner, &[&raw, &gate])?;
        drop(raw);
        let up = self.alloc(inner, On::Main)?;
        self.multiply(On::Main, Matrix::Up(layer), &input, &up)?;
        self.memory.join(On::Main, On::Side)?;
        // After the join: cudarc frees on the first stream, which must be behind the second's use.
        drop(input);
        let product = self.alloc(inner, On::Main)?;
        self.by_element(On::Main, "multiply", inner, &[&gate, &up, &product])?;
        drop((gate, up));
        let output = self.alloc(self.shape.hidden, On::Main)?;
        self.multiply(On::Main, Matrix::Down(layer), &product, &output)?;
        Ok(output)
    }
}

/// One step: the next token of each of `batch` rows.
pub fn step<M: Memory>(memory: &M, shape: &Shape, batch: usize, reuse: bool) -> Result<()> {
    let held = (!reuse).then(RefCell::default);
    let decoder = Decoder { memory, shape, batch, held };
    let mut rows = decoder.alloc(shape.hidden, On::Main)?;
    decoder.by_row("embed", &[&rows], &[Static::Embedding, Static::Tokens])?;
    for layer in 0..shape.layers {
        let attended = decoder.attention(layer, decoder.normalized(&rows)?)?;
        rows = decoder.added(rows, attended)?;
        let fed = decoder.feed_forward(layer, decoder.normalized(&rows)?)?;
        rows = decoder.added(rows, fed)?;
    }
    let normalized = decoder.normalized(&rows)?;
    drop(rows);
    let logits = decoder.alloc(shape.vocabulary, On::Main)?;
    decoder.multiply(On::Main, Matrix::Embedding, &normalized, &logits)?;
    decoder.by_row("choose", &[&logits], &[Static::Tokens, Static::Positions, Static::History])
}
