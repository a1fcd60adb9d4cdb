//! What happened: entries of a device's trace, and annotations.

use serde::{Deserialize, Serialize};

use super::context::HostContext;
use super::integer;
use super::segment::Frame;

/// What viewers print where nothing is compiled.
const NO_COMPILE_CONTEXT: &str = "N/A";

/// One event of a device's trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// Where: a device address, and 0 for [`Action::Snapshot`]. `None` for [`Action::Oom`] only.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "integer::optional"
    )]
    pub addr: Option<u64>,
    /// Bytes free on the device. For [`Action::Oom`] only.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "integer::optional"
    )]
    pub device_free: Option<u64>,
    /// Bytes: for a block and a failed request as asked for, for a segment its own.
    #[serde(serialize_with = "integer::one")]
    pub size: u64,
    /// The stream, as a raw handle.
    #[serde(serialize_with = "integer::one")]
    pub stream: u64,
    /// When, in microseconds since the Unix epoch.
    #[serde(default, serialize_with = "integer::one")]
    pub time_us: u64,
    /// What was being compiled; "N/A" for nothing.
    #[serde(default)]
    pub compile_context: String,
    /// The user's own text.
    #[serde(default)]
    pub user_metadata: String,
    /// The pool, as in a segment.
    #[serde(default, serialize_with = "integer::pair")]
    pub pool_id: (u64, u64),
    /// Where in the program, innermost frame first; not written where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// What the host gave with the call; files leave it out.
    #[serde(skip)]
    pub context: Option<HostContext>,
    /// A group that viewers colour alike. If any entry has one, some entry must have `unknown`:
    /// viewers fail otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
}

impl TraceEntry {
    /// An event at an address, of pool (0, 0), without frames.
    pub fn new(action: Action, addr: u64, size: u64, stream: u64, time_us: u64) -> Self {
        Self {
            action,
            addr: Some(addr),
            device_free: None,
            size,
            stream,
            time_us,
            compile_context: NO_COMPILE_CONTEXT.to_owned(),
            user_metadata: String::new(),
            pool_id: (0, 0),
            frames: Vec::new(),
            context: None,
            category: None,
        }
    }

    /// A request of `size` bytes that failed with `device_free` bytes free on the device.
    pub fn oom(size: u64, device_free: u64, stream: u64, time_us: u64) -> Self {
        Self {
            addr: None,
            device_free: Some(device_free),
            ..Self::new(Action::Oom, 0, size, stream, time_us)
        }
    }
}

/// What happened. These are all that every viewer knows; captures are [`Annotation`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// The user freed a block.
    FreeRequested,
    /// The block's memory became free. It comes after [`Action::FreeRequested`] of the same
    /// address and before any of its bytes is handed out again.
    FreeCompleted,
    /// A segment was got from the driver.
    SegmentAlloc,
    /// A segment was given back.
    SegmentFree,
    /// A piece of an expandable segment was mapped.
    SegmentMap,
    /// A piece of an expandable segment was unmapped.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    Oom,
}

/// The beginning or end of something in the host's time, such as a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// What begins or ends.
    pub name: String,
    /// Which of the two.
    pub stage: AnnotationStage,
    /// The device's number.
    pub device: u32,
    /// When, in microseconds since the Unix epoch.
    #[serde(serialize_with = "integer::one")]
    pub time_us: u64,
}

impl Annotation {
    /// The beginning or end of a capture, by the driver's capture id.
    pub fn capture(id: u64, stage: AnnotationStage, device: u32, time_us: u64) -> Self {
        Self { name: format!("capture {id}"), stage, device, time_us }
    }
}

/// Beginning or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AnnotationStage {
    /// The beginning.
    Start,
    /// The end.
    End,
}
