//! Names of pools, graphs and blocks.
//!
//! A name carries the number of its engine and one that the engine gives once. So the name of
//! something that is gone, or that another engine made, is unknown to the call that receives it. Captures have the
//! driver's number, which is unique in the process: a capture may use pools of several devices' engines.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use crate::error::{Error, Unknown};
use crate::journal::BlockNumber;

/// A pool of one engine. An engine's pools are in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    /// The engine's number and the pool's, which is how many pools the engine had made before.
    name: u64,
    row: u32,
}

impl PoolId {
    /// Panics for the 2^32-th pool of an engine, or that many at once.
    pub(super) fn new(engine: u32, number: u64, row: usize) -> Self {
        let number = u32::try_from(number).expect("an engine makes fewer than 2^32 pools");
        let row = u32::try_from(row).expect("tables have fewer than 2^32 rows");
        Self { name: u64::from(engine) << 32 | u64::from(number), row }
    }

    /// A name of no pool.
    pub(super) const fn of_none(engine: u32) -> Self {
        Self { name: (engine as u64) << 32 | u32::MAX as u64, row: u32::MAX }
    }

    /// The pool's number: how many pools its engine had made before.
    pub const fn number(self) -> u32 {
        self.name as u32
    }

    /// The row that the pool has in its engine's tables, as long as it exists.
    pub(super) const fn row(self) -> usize {
        self.row as usize
    }

    /// The name as numbers, for hosts in other languages. Two zeros name no pool.
    pub const fn bits(self) -> [u64; 2] {
        [self.name, self.row as u64]
    }

    /// The pool that numbers name. Invalid names are rejected by the call that receives them.
    pub const fn from_bits([name, row]: [u64; 2]) -> Self {
        // No table is that long.
        let row = if row > u32::MAX as u64 { u32::MAX } else { row as u32 };
        Self { name, row }
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolId({})", self.number())
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}", self.number())
    }
}

/// A pool in messages: by the name that its configuration gives it, else by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLabel {
    /// The pool.
    pub id: PoolId,
    /// Its name ([`PoolConfig::name`](super::PoolConfig::name)).
    pub name: Option<Arc<str>>,
    /// The tag of its region ([`PoolConfig::tag`](super::PoolConfig::tag)).
    pub tag: Option<Arc<str>>,
}

impl From<PoolId> for PoolLabel {
    fn from(id: PoolId) -> Self {
        Self { id, name: None, tag: None }
    }
}

impl fmt::Display for PoolLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "pool {name:?}"),
            None => write!(f, "{}", self.id),
        }?;
        match &self.tag {
            Some(tag) => write!(f, " of region {tag:?}"),
            None => Ok(()),
        }
    }
}

/// Names that carry the number of their engine and one that the engine gives once.
macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident is $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            engine: u32,
            number: u64,
        }

        impl $name {
            pub(super) const fn new(engine: u32, number: u64) -> Self {
                Self { engine, number }
            }

            #[doc = concat!("The name as numbers, for hosts in other languages. Two zeros name no ", $what, ".")]
            pub const fn bits(self) -> [u64; 2] {
                [self.engine as u64, self.number]
            }

            #[doc = concat!("The ", $what, " that numbers name. Invalid names are rejected by the call that receives them.")]
            pub const fn from_bits([engine, number]: [u64; 2]) -> Self {
                // No engine has the number 0.
                let engine = if engine > u32::MAX as u64 { 0 } else { engine as u32 };
                Self { engine, number }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.number)
            }
        }
    )*};
}

numbered! {
    /// A graph whose memory lies in pools of one engine. An engine's graphs are in order of creation.
    GraphId is "graph";
    /// A loan between processes: in the process that lends, or in the one that has taken it.
    LoanId is "loan";
}

impl fmt::Display for GraphId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph {}", self.number)
    }
}

impl LoanId {
    /// Its number, where it is one of this engine's.
    pub(super) fn number_in(self, engine: u32) -> Option<u64> {
        (self.engine == engine).then_some(self.number)
    }
}

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    pub(super) engine: u32,
    /// The stream cache that handed it out, or [`NO_CACHE`].
    pub(super) cache: u32,
    pub(super) slot: u32,
    pub(super) number: u64,
}

/// The stream cache of blocks that no stream cache handed out.
pub(super) const NO_CACHE: u32 = u32::MAX;

impl BlockId {
    /// The block's number in journals and messages. A journal knows a block from outside its capture by the number of
    /// the block's place, which may have had several blocks.
    pub fn number(self) -> BlockNumber {
        BlockNumber(self.number)
    }

    /// What a call fails with that does not know the block.
    pub(super) fn unknown(self, call: &'static str) -> Error {
        Error::Unknown { call, what: Unknown::Block(self.number()) }
    }

    /// The name as numbers, for hosts in other languages.
    pub const fn bits(self) -> [u64; 3] {
        let Self { engine, cache, slot, number } = self;
        [(engine as u64) << 32 | cache as u64, slot as u64, number]
    }

    /// The block that numbers name. Invalid names are rejected by the call that receives them.
    pub const fn from_bits([place, slot, number]: [u64; 3]) -> Self {
        // No table is that long.
        let slot = if slot > u32::MAX as u64 { u32::MAX } else { slot as u32 };
        Self { engine: (place >> 32) as u32, cache: place as u32, slot, number }
    }
}

/// A number that no other engine of the process has, and not 0.
pub(super) fn new_engine() -> u32 {
    static ENGINES: AtomicU32 = AtomicU32::new(1);
    ENGINES.fetch_add(1, Ordering::Relaxed)
}
