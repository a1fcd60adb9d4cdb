//! Graphs and the order of their launches.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
