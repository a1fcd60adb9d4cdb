//! The safety rules that tests leave out of an engine, to see that what finds faults finds theirs.

/// The rules that the argument for captures rests on, and the coarse ones outside captures, which random programs of each
/// test run leave out one by one. All other rules are taken out of the source by `cargo xtask mutants`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Markers need not be proven.
    Proof,
    /// The block's own stream sets no marker.
    OwnMarker,
    /// Other streams that used the block set no marker.
    ForeignMarkers,
    /// Streams that were set back keep what they had proven, and their blocks their trust.
    SetBack,
    /// Every edge counts as full.
    EdgeKinds,
    /// A launch that may start early is taken to wait.
    EarlyLaunches,
    /// A stream outside the capture is no reason to wait.
    OutsideUses,
    /// A block in use when another capture of its pool began may be reused as if it had not.
    NestedCapture,
    /// A live block is not listed among those of its pool.
    Unlisted,
    /// A capture is handed out the place of a block that lives.
    Alias,
    /// What a capture leaves behind is free for captures that were under way beside it.
    Hold,
    /// A freed block's memory from before the capture is free at once.
    OlderBlocks,
    /// What a capture frees of memory from before it is free for all its streams at once.
    InputMarkers,
    /// Outside captures what a stream gave back is free for every stream.
    StreamOrder,
    /// Outside captures other streams that used a block need not have completed.
    Events,
    /// What a pool lends is free for every stream, on whichever stream it was freed.
    Lending,
    /// Addresses lie on a piece that others lie on, also where a block there is in use.
    SharedPieces,
    /// Two pieces of a plan, one of them mapped more than once, take each other's places at two addresses.
    SwappedPieces,
}

/// Whether a rule is the one to leave out. Programs that can leave rules out contain the text, so that one
/// can tell.
#[cfg(all(feature = "flaws", debug_assertions))]
pub(super) fn is_left_out(chosen: Option<Flaw>, rule: Flaw) -> bool {
    std::hint::black_box("this program can leave safety rules out");
    chosen == Some(rule)
}
