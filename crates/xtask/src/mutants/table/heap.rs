//! Memory that has not been planned: where blocks lie, and who may have what is free.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[Mutant {
    name: "whole-blocks",
    rule: "Blocks of pools that do not split have segments of their own.",
    file: "src/engine/pools.rs",
    edits: &[("whole: config.no_split,", "whole: false,")],
    test: "random::named_pools::the_plug_in_keeps_to_the_model_in_longer_programs",
}];
