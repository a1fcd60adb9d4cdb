//! Snapshots: an allocator's memory and its latest events as plain data, and as files that
//! PyTorch's tools read.
//!
//! The layout is that of `torch.cuda.memory._snapshot()`. `MemoryViz.js` and `_memory_viz.py` open
//! what [`Snapshot::write_pickle`] writes; a newer `MemoryViz.js` opens JSON too. One field is our
//! own: [`SegmentBlock::waiting`] says what a freed block waits for.

mod context;
mod event;
mod file;
mod integer;
mod segment;
mod setting;

pub use context::HostContext;
pub use event::{Action, Annotation, AnnotationStage, TraceEntry};
pub use file::INPUT_LIMIT;
pub use segment::{BlockState, Frame, Segment, SegmentBlock, SegmentType, Waiting};
pub use setting::Setting;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An allocator's memory and its latest events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Every segment.
    pub segments: Vec<Segment>,
    /// Events by device number, oldest first. Viewers show a device only if it has a list here,
    /// though that may be empty.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// The allocator's settings.
    #[serde(default)]
    pub allocator_settings: BTreeMap<String, Setting>,
    /// Beginnings and ends, among them those of captures.
    #[serde(default)]
    pub external_annotations: Vec<Annotation>,
}
