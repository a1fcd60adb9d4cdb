//! Pools and regions that sleep.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
