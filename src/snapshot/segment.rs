//! Memory as it is now: segments and the blocks in them.

use serde::{Deserialize, Serialize};

use super::context::HostContext;
use super::integer;

/// A contiguous range of memory held from the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The device's number.
    pub device: u32,
    /// Where it begins, a device address.
    #[serde(serialize_with = "integer::one")]
    pub address: u64,
    /// Its size in bytes: the sum of its blocks' sizes.
    #[serde(serialize_with = "integer::one")]
    pub total_size: u64,
    /// Bytes in blocks that have not been freed.
    #[serde(serialize_with = "integer::one")]
    pub allocated_size: u64,
    /// Bytes in blocks that have not been freed, and in freed ones that no stream may take yet.
    #[serde(serialize_with = "integer::one")]
    pub active_size: u64,
    /// Bytes asked for in the blocks that [`Segment::active_size`] counts.
    #[serde(serialize_with = "integer::one")]
    pub requested_size: u64,
    /// The stream that it was got for, as a raw handle.
    #[serde(serialize_with = "integer::one")]
    pub stream: u64,
    /// Which blocks it is for.
    pub segment_type: SegmentType,
    /// The pool that holds it. Viewers take anything but (0, 0) for a private pool.
    #[serde(default, serialize_with = "integer::pair")]
    pub segment_pool_id: (u64, u64),
    /// Whether it is mapped piece by piece into a reserved range of addresses.
    #[serde(default)]
    pub is_expandable: bool,
    /// Where in the program it was got, innermost frame first; empty where not recorded.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// What the host gave with the call that got it; files leave it out.
    #[serde(skip)]
    pub context: Option<HostContext>,
    /// Every byte of it, in address order without gaps.
    pub blocks: Vec<SegmentBlock>,
}

/// The blocks that a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentType {
    /// Small blocks.
    Small,
    /// All others.
    Large,
}

/// A range of a segment: a block, or free memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentBlock {
    /// Where it begins, a device address.
    #[serde(serialize_with = "integer::one")]
    pub address: u64,
    /// Its size in bytes, as placed.
    #[serde(serialize_with = "integer::one")]
    pub size: u64,
    /// Bytes asked for; at most its size, and 0 where no block lies.
    #[serde(serialize_with = "integer::one")]
    pub requested_size: u64,
    /// What it is.
    pub state: BlockState,
    /// Where in the program it was allocated, innermost frame first; empty where not recorded.
    #[serde(default)]
    pub frames: Vec<Frame>,
    /// What the host gave with the call that allocated it; files leave it out.
    #[serde(skip)]
    pub context: Option<HostContext>,
    /// What a freed block waits for. Not part of PyTorch's format: viewers ignore it, and it is
    /// written only where it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Vec<Waiting>>,
}

/// What a range of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// A block that has not been freed.
    ActiveAllocated,
    /// A block that has been freed and that no stream may take yet.
    ActivePendingFree,
    /// Free. Some streams may still have to wait for it ([`SegmentBlock::waiting`]).
    Inactive,
}

impl BlockState {
    /// Whether [`Segment::active_size`] counts it.
    pub fn is_active(self) -> bool {
        self != Self::Inactive
    }
}

/// One thing that a freed block waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The stream whose work may still use the block, as a raw handle; `None` where the reason is
    /// no stream's.
    #[serde(default, serialize_with = "integer::optional")]
    pub stream: Option<u64>,
    /// The free marker on that stream which is not proven yet, as a raw node handle; `None` where
    /// the reason is no marker.
    #[serde(default, serialize_with = "integer::optional")]
    pub marker: Option<u64>,
    /// The reason, for a person.
    pub reason: String,
}

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The source file.
    pub filename: String,
    /// The line in it, counted from 1; 0 where unknown.
    pub line: u32,
    /// The function.
    pub name: String,
}
