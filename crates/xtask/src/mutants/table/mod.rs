//! The rules that `cargo xtask mutants` takes out of the source, by what they are about.

mod argued;
mod captures;
mod checker;
mod checkpoints;
mod executables;
mod graphs;
mod heap;
mod layouts;
mod lending;
mod planned;
mod plugin;
mod protocol;
mod reach;
mod sleep;

use super::{Argued, Mutant};

/// All of them. The place in it is the number of a mutant's switch.
pub(super) fn all() -> impl Iterator<Item = &'static Mutant> {
    let all = [
        captures::MUTANTS,
        heap::MUTANTS,
        reach::MUTANTS,
        planned::MUTANTS,
        layouts::MUTANTS,
        checkpoints::MUTANTS,
        sleep::MUTANTS,
        lending::MUTANTS,
        graphs::MUTANTS,
        executables::MUTANTS,
        plugin::MUTANTS,
        protocol::MUTANTS,
        checker::MUTANTS,
    ];
    all.into_iter().flatten()
}

/// Those that no test can notice.
pub(super) fn argued() -> &'static [Argued] {
    argued::ARGUED
}
