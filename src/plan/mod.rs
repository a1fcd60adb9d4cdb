//! Physical memory for addresses, after the capture.
//!
//! While a program is captured nothing runs, so its blocks need addresses and no memory. At the end it
//! is known who precedes whom, and each page of physical memory can serve a chain of pages of
//! addresses. What a plan costs is mappings: some 20 us each, whatever their size.

use crate::lifetimes::Lifetimes;

/// What a plan may come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The most mappings; `None` for as many as the least memory needs.
    pub max_mappings: Option<usize>,
    /// The most bytes of a piece of memory; `None` for any. Pieces cannot be taken apart, so a pool of
    /// many graphs that is to need no more than its largest has small ones: of the device's
    /// granularity to be certain.
    pub max_piece_bytes: Option<u64>,
}

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its size, a multiple of the granularity.
    pub bytes: u64,
    /// Which of the pieces that were there already it is; `None` for a new one.
    pub held: Option<u32>,
    /// Whether something lies there that was not freed: no other graph may use it. Never one that was
    /// there already.
    pub lasting: bool,
}

/// A piece at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where, a multiple of the granularity.
    pub address: u64,
    /// The piece, which is mapped whole.
    pub piece: u32,
}

/// Which memory lies behind which addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The memory.
    pub pieces: Vec<Piece>,
    /// Where it is mapped, by address. Every page with a block that was used, or that was not freed,
    /// is in one of them.
    pub mappings: Vec<Mapping>,
    /// The least memory for these pages of addresses, in bytes, were nothing there already.
    pub minimum_bytes: u64,
}

impl Plan {
    /// Plans for a capture's blocks.
    ///
    /// `granularity` is the device's; `held` are sizes of pieces that are there already, which graphs
    /// that never run beside this one use for what is not to last.
    pub fn new(lifetimes: &Lifetimes, granularity: u64, held: &[u64], options: &Options) -> Self {
        let _ = (lifetimes, granularity, held, options);
        todo!()
    }

    /// Bytes of all pieces, of those that were there already too.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Bytes of pieces that are new.
    pub fn new_bytes(&self) -> u64 {
        self.pieces.iter().filter(|piece| piece.held.is_none()).map(|piece| piece.bytes).sum()
    }
}
