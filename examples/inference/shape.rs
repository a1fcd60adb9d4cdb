//! The decoder's dimensions, and what its kernels work on.

use super::{Result, CONTEXT, THREADS};

/// The decoder's dimensions.
#[derive(Clone, Debug)]
pub struct Shape {
    pub layers: usize,
    pub hidden: usize,
    pub vocabulary: usize,
    /// Tokens that are generated of each row.
    pub steps: usize,
    /// The batch sizes, the largest first.
    pub sizes: Vec<usize>,
}

impl Shape {
    pub fn from_arguments() -> Result<Self> {
        let sizes = vec![256, 128, 64, 32, 16, 8, 4, 2, 1];
        let mut shape = Self { layers: 6, hidden: 1024, vocabulary: 8192, steps: 16, sizes };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let numbers = value.split(',').map(|number| match number.parse() {
                Ok(number @ 1..=1_000_000) => Ok(number),
                _ => Err(format!("{name} {value}: expected numbers from 1 to 1000000")),
            });
            let numbers = numbers.collect::<std::result::Result<Vec<usize>, _>>()?;
            match (name.as_str(), &numbers[..]) {
                ("--sizes", _) => shape.sizes = numbers,
                ("--layers", &[number]) => shape.layers = number,
                ("--hidden", &[number]) => shape.hidden = number,
                ("--vocabulary", &[number]) => shape.vocabulary = number,
                ("--steps", &[number]) => shape.steps = number,
                _ => return Err(format!("{name} {value}: no such option; see the source").into()),
            }
        }
        shape.sizes.sort_unstable_by(|a, b| b.cmp(a));
        shape.sizes.dedup();
        let widest = shape.vocabulary.max(shape.inner());
        let largest = shape.cache_len().max(widest * shape.hidden.max(shape.largest()));
        if !shape.hidden.is_multiple_of(THREADS) || largest.max(shape.history_len()) >= 1 << 31 {
            return Err("expected --hidden in steps of 256, and no buffer of 2^31 elements".into());
        }
        Ok(shape)
    }

    pub fn largest(&self) -> usize {
        self.sizes[0]
    }

    /// The width between a layer's gate and its way down.
    pub fn inner(&self) -> usize {
        4 * self.hidden
    }

    /// Elements of one layer's keys, or values.
    pub fn ring_len(&self) -> usize {
        self.largest() * CONTEXT * self.hidden
    }

    pub fn cache_len(&self) -> usize {
        2 * self.layers * self.ring_len()
    }

    pub fn history_len(&self) -> usize {
        self.steps * self.largest()
    }

    /// Rows (outputs) and columns (inputs).
    pub fn dimensions(&self, matrix: Matrix) -> (usize, usize) {
        match matrix {
            Matrix::Embedding => (self.vocabulary, self.hidden),
            Matrix::Qkv(_) => (3 * self.hidden, self.hidden),
            Matrix::Output(_) => (self.hidden, self.hidden),
            Matrix::Gate(_) | Matrix::Up(_) => (self.inner(), self.hidden),
            Matrix::Down(_) => (self.hidden, self.inner()),
        }
    }

    pub fn matrices(&self) -> impl Iterator<Item = Matrix> {
        use Matrix::{Down, Embedding, Gate, Output, Qkv, Up};
        let layer = |layer| [Qkv(layer), Output(layer), Gate(layer), Up(layer), Down(layer)];
        std::iter::once(Embedding).chain((0..self.layers).flat_map(layer))
    }
}

/// The weights, each of its layer. The embedding turns tokens into rows and rows into logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matrix {
    Embedding,
    Qkv(usize),
    Output(usize),
    Gate(usize),
    Up(usize),
    Down(usize),
}

/// What is there from the beginning, for kernels: weights, inputs, a layer's caches, outputs.
#[derive(Clone, Copy, Debug)]
pub enum Static {
    Embedding,
    Tokens,
    Positions,
    Keys(usize),
    Values(usize),
    History,
}

/// A stream of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Main,
    Side,
}
