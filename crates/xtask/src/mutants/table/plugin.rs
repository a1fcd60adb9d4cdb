//! The plug-in.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
