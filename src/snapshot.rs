//! Snapshots: an allocator's memory and its latest events as plain data, and as files that PyTorch's tools read.
//!
//! The layout is that of `torch.cuda.memory._snapshot()`. `MemoryViz.js` and `_memory_viz.py` open
//! what `Snapshot::write_pickle` (feature `pickle`) writes; a newer `MemoryViz.js` opens JSON too. One field is our
//! own: [`SegmentBlock::waiting`] says what a freed block waits for.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::sync::Arc;

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
    /// Beginnings and ends in the host's time, such as those of captures.
    #[serde(default)]
    pub external_annotations: Vec<Annotation>,
}

/// The largest snapshot that is read, in bytes. In memory a snapshot takes a few times its size as text.
pub const INPUT_LIMIT: u64 = 1 << 30;

impl Snapshot {
    /// Writes one JSON object.
    pub fn write_json(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::new(output);
        serde_json::to_writer(&mut output, self)?;
        output.write_all(b"\n")?;
        output.flush()
    }

    /// Writes a pickle (feature `pickle`) in protocol 2, with opcodes that every viewer knows. Numbers from 2^63 on
    /// are written too, but viewers cannot calculate with them.
    #[cfg(feature = "pickle")]
    pub fn write_pickle(&self, output: impl Write) -> io::Result<()> {
        let mut output = BufWriter::new(output);
        serde_pickle::to_writer(&mut output, self, serde_pickle::SerOptions::new().proto_v2())
            .map_err(|error| match error {
                serde_pickle::Error::Io(error) => error,
                error => io::Error::other(error),
            })?;
        output.flush()
    }

    /// Reads what [`Snapshot::write_json`] wrote, at most [`INPUT_LIMIT`] bytes. Fields that are not known are ignored.
    ///
    /// # Errors
    /// Failures of the input; and for text that is no snapshot, or too long, [`ErrorKind::InvalidData`] or
    /// [`ErrorKind::UnexpectedEof`], with the line in the message.
    pub fn read_json(input: impl Read) -> io::Result<Self> {
        Self::read_at_most(input, INPUT_LIMIT)
    }

    fn read_at_most(input: impl Read, limit: u64) -> io::Result<Self> {
        let mut input = BufReader::new(input.take(limit + 1));
        let read = serde_json::from_reader(&mut input);
        if input.get_ref().limit() == 0 {
            let message = format!("expected at most {limit} bytes, found more");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        Ok(read?)
    }
}

/// A contiguous range of memory held from the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The stream for which the segment was made, as a raw handle.
    #[serde(serialize_with = "integer::one")]
    pub stream: u64,
    /// The size class of the blocks in it.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentType {
    /// Small blocks.
    Small,
    /// All others.
    #[default]
    Large,
}

/// A range of a segment: a block, or free memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether a block lies there, and in which state.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// A block that has not been freed.
    ActiveAllocated,
    /// A block that has been freed and that no stream may take yet.
    ActivePendingFree,
    /// Free. Some streams may still have to wait for it ([`SegmentBlock::waiting`]).
    #[default]
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
    /// The stream whose work may still use the block, as a raw handle; `None` where the reason is no stream's.
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
    /// Size in bytes: for a block or a failed request as asked for, for a segment the segment's.
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
    /// A group that viewers colour alike. If any entry has one, some entry must have `unknown`: viewers fail otherwise.
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
            compile_context: "N/A".to_owned(),
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

/// A value that the host gave with a call ([`with_context`](crate::engine::with_context)), such as a stack in a form of
/// its own. The engine keeps it with blocks and events without looking into it, and gives it back in snapshots; files
/// leave it out.
///
/// The last holder drops the value. That may be the engine with its locks held, so the value's `drop` must not call the
/// engine.
#[derive(Clone)]
pub struct HostContext(Arc<dyn Any + Send + Sync>);

impl HostContext {
    /// Keeps a value of the host's.
    pub fn new(context: impl Any + Send + Sync) -> Self {
        Self(Arc::new(context))
    }

    /// The value, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for HostContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostContext")
    }
}

/// Contexts are equal if they are the very same.
impl PartialEq for HostContext {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HostContext {}

/// A setting's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Yes or no.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number. JSON has no way to write an infinite one: it becomes [`Setting::Nothing`].
    Number(f64),
    /// A text.
    Text(String),
    /// Settings by name.
    Map(BTreeMap<String, Setting>),
    /// No value.
    Nothing,
}

macro_rules! setting_from {
    ($($type:ty: $kind:ident),*) => {$(
        impl From<$type> for Setting {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        }
    )*};
}

setting_from!(bool: Boolean, i64: Integer, f64: Number, &str: Text);

/// Integers as the viewer can add them.
///
/// serde-pickle writes a `u64` from 2^31 on in nine bytes, which the viewer reads as a `BigInt`;
/// adding a size to such an address fails there. As an `i64` it takes eight, and is a number.
mod integer {
    use serde::{Serialize, Serializer};

    /// Writes one integer.
    pub(super) fn one<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(*value) {
            Ok(signed) => serializer.serialize_i64(signed),
            Err(_) => serializer.serialize_u64(*value),
        }
    }

    /// Writes an integer that may be missing.
    pub(super) fn optional<S: Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Integer).serialize(serializer)
    }

    /// Writes two integers.
    pub(super) fn pair<S: Serializer>(
        value: &(u64, u64),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (Integer(value.0), Integer(value.1)).serialize(serializer)
    }

    struct Integer(u64);

    impl Serialize for Integer {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            one(&self.0, serializer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_refused() {
        let mut text = Vec::new();
        Snapshot::default().write_json(&mut text).expect("memory takes it");
        let length = text.len() as u64;
        assert!(Snapshot::read_at_most(text.as_slice(), length).is_ok());
        let endless = text.as_slice().chain(io::repeat(b' '));
        let error = Snapshot::read_at_most(endless, length).expect_err("there is more");
        assert_eq!(error.to_string(), format!("expected at most {length} bytes, found more"));
    }
}
