//! Which step of a program comes next.

use arbitrary::{Result, Unstructured};

/// Kinds of steps, each with its weight: how often it is drawn of the sum of all.
#[derive(Debug)]
pub(crate) struct Weights<S: 'static>(pub(crate) &'static [(S, u8)]);

impl<S> Clone for Weights<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Weights<S> {}

impl<S: Copy> Weights<S> {
    /// Draws a step.
    pub(crate) fn draw(self, u: &mut Unstructured<'_>) -> Result<S> {
        let sum: u8 = self.0.iter().map(|it| it.1).sum();
        let mut number = u.int_in_range(0..=sum - 1)?;
        for &(step, weight) in self.0 {
            match number.checked_sub(weight) {
                Some(rest) => number = rest,
                None => return Ok(step),
            }
        }
        unreachable!("the number is below the sum")
    }
}
