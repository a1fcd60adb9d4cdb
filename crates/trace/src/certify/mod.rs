//! Checking that a capture cannot do with less memory.
//!
//! A [`Certificate`] names blocks of a trace's capture and *thresholds*: a stream with terminals that it
//! had. [`check`] holds it against the trace, and shares no code with what found it.
//!
//! **What is said.** A block *knows* the nodes K that are proven to be completed before any next node of its stream
//! starts, as the stream was at its allocation. It *needs* the nodes N: the terminals of its stream at its allocation,
//! those of each stream that used it at its free (or its last recorded use), and all nodes that these streams gained in
//! between. Memory goes from `a` to `b` by the capture's own order only if `a` was freed and N(a) lies in K(b). What a
//! stream with a threshold's terminals knows is the set V. The certificate holds if
//!
//! 1. each of its blocks was allocated in the capture and is named once, with what it occupies (rounded
//!    up to 512 bytes), and all together occupy what it says;
//! 2. each block has a possible user, or was not freed in the capture; there is a block, unless no block
//!    of the capture needs memory: a certificate of nothing proves nothing;
//! 3. for each block `b` there is a threshold of its stream with K(b) in V;
//! 4. for no block `a` that was freed and no threshold N(a) lies in V.
//!
//! **Why that is enough.** Were N(a) in K(b) for two of the blocks, N(a) would lie in the V that holds K(b), which 4
//! excludes. So no two of the blocks have a byte in common in a placement that goes by free markers and adds no edges. A
//! placement that told a block's users from other nodes that its streams gained could do so; no engine makes such.
//!
//! **Why there always is one**, with a threshold for each stream as long as streams only gain: let V of a stream be
//! what its last block among them knows. The stream's other blocks know no more, which is 3, and 4 says of that last
//! block what is said of all. So blocks of which no two precede one another are the blocks that are in use at one
//! point, with a coordinate for each stream: a block is in use there if it was allocated on its stream by then and no
//! stream knows its needs yet. Streams need not have been at that point together, nor could they always have been. A
//! stream that was set back may need several thresholds.
//!
//! The certificate's *cover* says that so much is enough: who passes memory on to whom, byte by byte. [`check`] does not
//! ask for it, which would take an operation for each node and block; the proven check of `proof/` does.
//!
//! It costs a few operations for each node, edge, stream and threshold, and for each block and threshold.

mod certificate;
mod check;
mod known;
mod sighted;

pub use certificate::{Certificate, CertifiedBlock, Passed, ReadError, Threshold, LINE_LIMIT};
pub use check::{check, Refusal};

/// Blocks occupy multiples of this, in bytes.
pub const BLOCK_MULTIPLE: u64 = 512;
