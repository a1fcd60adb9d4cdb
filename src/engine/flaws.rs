//! The safety rules that tests leave out of an engine, to see that what finds faults finds theirs.

/// The safety rules of the engine, one by one. Tests leave one out and expect the checker to
/// notice.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Markers need not be proven.
    Proof,
    /// The block's own stream sets no marker.
    OwnMarker,
    /// Other streams that used the block set no marker.
    ForeignMarkers,
    /// A block's markers are those of its last use, though a later use was recorded.
    UseAfterLastUse,
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
    /// What used such memory before the capture need not have completed.
    InputWork,
    /// A restoration ends blocks that may be in use in a capture into another pool.
    RestoredInCapture,
    /// Memory that a restoration ends may leave its pool while work uses it.
    RestoredUnsettled,
    /// What a restoration frees is no graph's.
    RestoredGraphs,
    /// A restored block is no graph's of those that are captured after the restoration.
    RestoredLater,
    /// What a pool has borrowed is told from no block of the lender's, and ends when that is restored.
    RestoredBorrowed,
    /// Outside captures what a stream gave back is free for every stream.
    StreamOrder,
    /// Outside captures other streams that used a block need not have completed.
    Events,
    /// What a pool lends is free for every stream, on whichever stream it was freed.
    Lending,
    /// What graphs find again at their launch is lent too.
    LentKept,
    /// A stream that has borrowed with `AllFree` what graphs keep, and given it back, gets it again with `Temporary`.
    LentKeptAgain,
    /// Graphs keep no outputs that were freed.
    KeptOutputs,
    /// They keep no inputs that a capture freed.
    KeptInputs,
    /// They keep nothing that a restoration ended.
    KeptRestored,
    /// They keep no block that was lent and that a capture used until it was freed.
    KeptUsed,
    /// A graph is launched though blocks live in memory of its pool that is lent.
    LentBlocks,
    /// A graph is launched though blocks live in lent memory of one of its pools other than the first.
    LentElsewhere,
    /// A launch does not come after work on memory that was lent.
    LentWork,
    /// A launch does not come after work of a lent block's own stream.
    LentOwnWork,
    /// A launch does not come after work of the other streams that were recorded for a lent block.
    LentForeignWork,
    /// A launch does not come after work of a stream that used a lent block and was retired before its free.
    LentRetiredWork,
    /// A launch does not come after work on a lent block from before a capture took it over.
    LentAdoption,
    /// A launch does not come after work on a lent block that a capture has taken over, from after that.
    LentAdoptedWork,
    /// An event from before the mark is one behind it.
    LentMarks,
    /// Work with no event behind it need not be waited for.
    LentUnmarked,
    /// A launch that is refused has come after the work that it asked for.
    LentForgotten,
    /// One that was asked for has come after work that was marked since.
    LentMeanwhile,
    /// A capture takes blocks over when it is closed, accepted or not.
    LentClosed,
    /// It takes all over that are lent.
    LentTakenOver,
    /// Work on memory that is lent does not come after the latest launch.
    LentEarly,
    /// It comes after the launches before it borrowed first, and no later ones.
    LentEarlyAgain,
    /// What one stream gives back of what is lent is free for every stream.
    LentOrder,
    /// What any stream gives back of what is lent is free for all that borrow, though no launch has come after it.
    LentPassed,
    /// Other streams that used what was lent need not have completed when its own stream gets it again.
    LentShared,
    /// What streams had given back of it is free for every stream when a capture begins.
    LentHeld,
    /// What was lent is free for all work outside captures when it is given back.
    LentReturn,
    /// Stream caches have what is lent.
    LentCached,
    /// What lies where graphs work is not known to be theirs while it is lent.
    LentPlace,
    /// A pool lends while captures use it.
    LentCaptured,
    /// It is suspended though blocks live in memory that it has lent.
    LentAsleep,
    /// With any graph that goes all memory of graphs is free for work outside captures.
    LentEnd,
    /// Lending goes on without graphs.
    LentOn,
    /// Pools whose blocks have segments of their own cut them all the same.
    WholeBlocks,
    /// A pool is compacted though live blocks lose what they hold.
    CompactedBlocks,
    /// A pool is compacted though graphs that read outputs which were freed overwrite these first.
    CompactedReaders,
    /// Addresses lie on a piece that others lie on, also where a block there is in use.
    JointPages,
    /// Two pieces of a plan, one of them mapped more than once, take each other's places at two addresses.
    SwappedPieces,
    /// A capture that is judged by a thread of its own is accepted before the thread has judged it.
    Verdict,
}

/// Whether a rule is the one to leave out. Programs that can leave rules out contain the text, so that one
/// can tell.
#[cfg(all(feature = "flaws", debug_assertions))]
pub(super) fn is_left_out(chosen: Option<Flaw>, rule: Flaw) -> bool {
    std::hint::black_box("this program can leave safety rules out");
    chosen == Some(rule)
}
