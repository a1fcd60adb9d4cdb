//! A step's batch, and the sizes that follow from it.

use super::model::{Model, VOCABULARY};
use crate::random::log_uniform;
use regraph_plan::random::Random;

/// Bytes of an element in the passes, and in updates, statistics and losses.
pub(super) const HALF: u64 = 2;
pub(super) const FULL: u64 = 4;

/// What an activation's size goes by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    /// So many times tokens by hidden size.
    Hidden(u64),
    /// Heads by tokens by length.
    Scores,
    /// Heads by tokens by length, of one byte each.
    Mask,
    /// Tokens.
    Statistics,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    sequences: u64,
    length: u64,
}

impl Batch {
    /// Sequences of one random length, half as many as the tokens allow or more.
    pub(super) fn draw(random: &mut Random, tokens: u32) -> Self {
        let length = log_uniform(random, 128, 1024);
        let most = (tokens / length as u32).max(1);
        let sequences = most - random.below(most / 2 + 1);
        Self { sequences: u64::from(sequences).max(1), length }
    }

    fn tokens(&self) -> u64 {
        self.sequences * self.length
    }

    /// Bytes of an activation.
    pub(super) fn bytes(&self, model: &Model, extent: Extent) -> u64 {
        let scores = model.heads() * self.tokens() * self.length;
        match extent {
            Extent::Hidden(times) => times * self.tokens() * model.hidden * HALF,
            Extent::Scores => scores * HALF,
            Extent::Mask => scores,
            Extent::Statistics => self.tokens() * FULL,
        }
    }

    /// Bytes of the tokens and labels.
    pub(super) fn input(&self) -> u64 {
        self.tokens() * 2 * 8
    }

    /// Bytes of the logits.
    pub(super) fn logits(&self) -> u64 {
        self.tokens() * VOCABULARY * HALF
    }
}
