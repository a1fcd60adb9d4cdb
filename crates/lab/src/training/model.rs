//! The model's shape: how many elements its parameters have, and what a layer keeps.

use super::batch::Extent;

/// Elements of the vocabulary.
pub(super) const VOCABULARY: u64 = 16_384;
/// Elements of an attention head.
const HEAD: u64 = 64;

/// Parameters of a layer.
pub(super) const PARAMETERS: usize = 12;

/// What a layer's forward pass computes, in order.
pub(super) struct Activation {
    pub(super) extent: Extent,
    /// Whether the backward pass computes a gradient of it.
    pub(super) gradient: bool,
    /// The layer's parameters that it depends on; with any, a matrix product or a norm makes it.
    pub(super) parameters: std::ops::Range<usize>,
}

const fn activation(extent: Extent, parameters: std::ops::Range<usize>) -> Activation {
    Activation { extent, gradient: true, parameters }
}

const fn constant(extent: Extent) -> Activation {
    Activation { extent, gradient: false, parameters: 0..0 }
}

/// A layer: attention, then feed-forward, each behind a norm.
pub(super) const LAYER: [Activation; 14] = [
    activation(Extent::Hidden(1), 0..2),
    constant(Extent::Statistics),
    activation(Extent::Hidden(3), 2..4),
    activation(Extent::Scores, 0..0),
    constant(Extent::Mask),
    activation(Extent::Hidden(1), 0..0),
    activation(Extent::Hidden(1), 4..6),
    activation(Extent::Hidden(1), 0..0),
    activation(Extent::Hidden(1), 6..8),
    constant(Extent::Statistics),
    activation(Extent::Hidden(4), 8..10),
    activation(Extent::Hidden(4), 0..0),
    activation(Extent::Hidden(1), 10..12),
    activation(Extent::Hidden(1), 0..0),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) layers: usize,
    pub(super) hidden: u64,
}

impl Model {
    pub(super) fn new(layers: u32, hidden: u32) -> Self {
        Self { layers: layers as usize, hidden: u64::from(hidden).max(HEAD) }
    }

    pub(super) fn heads(&self) -> u64 {
        self.hidden / HEAD
    }

    /// Elements of the embedding, which the logits use too.
    pub(super) fn embedding(&self) -> u64 {
        VOCABULARY * self.hidden
    }

    /// Elements of a layer's parameters: weights and biases of norm, query-key-value, projection,
    /// norm, feed-forward up and down.
    pub(super) fn parameters(&self) -> [u64; PARAMETERS] {
        let hidden = self.hidden;
        let square = hidden * hidden;
        [
            hidden,
            hidden,
            3 * square,
            3 * hidden,
            square,
            hidden,
            hidden,
            hidden,
            4 * square,
            4 * hidden,
            4 * square,
            hidden,
        ]
    }

    /// Elements of a whole layer.
    pub(super) fn layer(&self) -> u64 {
        self.parameters().iter().sum()
    }
}
