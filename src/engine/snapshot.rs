//! Snapshots: the segments, the blocks in them, why each waits, and the history; and what is free, as a stream sees it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{json, Value};
use smallvec::SmallVec;

use super::allocate::POLLED;
use super::history::{Asked, EventKind, Frames, HistoryOptions, Pasts, SegmentOrigins};
use super::live_blocks::{BlockSite, LiveBlock};
use super::names::{BlockId, PoolId, PoolLabel};
use super::oom::OutOfMemory;
use super::pools::{with_heap, Pools};
use super::report::{BlockReport, FreeRange, Refusal, WaitReason};
use super::stream_cache::StreamCache;
use super::waits::Wait;
use super::{one_stream, Engine, Error, HostCalls, Level, Locked, State};
use crate::capture::NodeIndex;
use crate::driver::{AsStream, Driver};
use crate::heap::{Heap, RangeId, RangeState, Requester, Users};
use crate::index::Map;
use crate::policy::Reuse;
use crate::settings::Settings;
use crate::snapshot::{
    BlockState, Frame, HostContext, Segment, SegmentBlock, SegmentType, Setting, Snapshot, Waiting,
};
use crate::sync::Ordering;

/// Fields of a structure by their names, as JSON.
macro_rules! fields {
    ($of:ident: $($field:ident),*) => {
        BTreeMap::from([$((stringify!($field), json!($of.$field))),*])
    };
}

impl<D: Driver> Engine<D> {
    /// All memory that the engine holds, block by block, with what each freed block waits for, and the history if one
    /// is kept, as of one moment during the call.
    ///
    /// Other calls wait while it copies: some 100 ns for each range and each waiting block, and some 100 ns for each
    /// 256 events. Frames are looked up and the result is formatted after that, while other calls go on.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.alter(|locked| locked.rows())?.format())
    }

    /// Every free range of a pool in address order, and for each that `stream` may not take now, why, and which marker
    /// it waits for.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::CaptureInvalidated`],
    /// [`StreamRefusal::PerThread`](crate::StreamRefusal::PerThread), or the driver's.
    pub fn explain(&self, pool: PoolId, stream: impl AsStream) -> Result<Vec<FreeRange>, Error> {
        const CALL: &str = "explain";
        let stream = one_stream(stream.as_stream(), CALL)?;
        self.change(|locked| {
            locked.state.pool(pool, CALL)?;
            // A request does this first as well, so the next one finds what is told here.
            locked.take_back(Some(pool), |_| true);
            locked.poll_waits(POLLED);
            let asks = match locked.capture_of(stream, CALL)? {
                Some(capture) => locked.state.captures.slot(capture).map(|slot| {
                    let stream = locked.look(slot, stream);
                    let share = self.config.settings.reuse == Reuse::CrossStream;
                    Requester::Capture { capture: slot, stream, share }
                }),
                None => {
                    let timeline = locked.state.timelines.known(stream);
                    Some(Requester::Outside { timeline })
                }
            };
            let mut ranges = locked.free_ranges(pool, asks);
            for range in &mut ranges {
                if let Some(
                    Refusal::Marker { node, kernel, .. }
                    | Refusal::EarlyLaunch { node, kernel, .. },
                ) = &mut range.refusal
                {
                    *kernel = self.driver.kernel_name(*node);
                }
            }
            Ok(ranges)
        })
    }

    /// Keeps a history of the latest events from now on, for snapshots. `options` say how many events, with how much of
    /// each, and whether earlier ones are forgotten.
    pub fn keep_history(&self, options: &HistoryOptions) -> Result<(), Error> {
        self.alter(|locked| locked.state.keep_history(locked.caches, options))
    }

    /// Writes what memory holds when a request has failed for the first time, where the settings name a file.
    pub(super) fn dump_first(&self, report: &OutOfMemory) {
        let Some(path) = self.config.settings.oom_dump.as_deref() else { return };
        if self.dumped.swap(true, Ordering::Relaxed) {
            return;
        }
        let (process, device) = (std::process::id().to_string(), report.device.to_string());
        let path = path.replace("%p", &process).replace("%d", &device);
        let dumped = self.dump(report, &path);
        self.tell(Level::Warn, || match dumped {
            Ok(()) => {
                format!("a request failed for want of memory; what memory holds is in {path}")
            }
            Err(error) => format!("{path}, the dump, cannot be written: {error}"),
        });
    }

    fn dump(&self, report: &OutOfMemory, path: &str) -> Result<(), Box<dyn std::error::Error>> {
        let dump = Dump { out_of_memory: self.told(report)?, snapshot: self.snapshot()? };
        let mut file = BufWriter::new(File::create(path)?);
        serde_json::to_writer(&mut file, &dump)?;
        Ok(file.flush()?)
    }

    /// A report with all pools, in the form of a file.
    fn told(&self, report: &OutOfMemory) -> Result<Value, Error> {
        let label = |pool: &PoolLabel| {
            let [name, region] = [&pool.name, &pool.tag].map(|it| it.as_deref());
            json!({"id": pool.id.number(), "name": name, "region": region})
        };
        let mut pools = Vec::new();
        for pool in self.pools()? {
            // One that another thread has destroyed since holds nothing.
            let Ok(it) = self.pool_statistics(pool.id) else { continue };
            let graphs = self.host().graph_count(pool.id).unwrap_or(0);
            let mut told = fields!(it: reserved, suspended, allocated, active, blocks, lent);
            told.extend([("pool", label(&pool)), ("graphs", json!(graphs))]);
            pools.push(json!(told));
        }
        /// How many blocks are named.
        const BLOCKS: usize = 32;
        let blocks = self.with(&mut *self.lock()?).largest_blocks(BLOCKS);
        let blocks = blocks.iter().map(|block| {
            json!({
                "pool": label(&block.pool),
                "address": block.address,
                "bytes": block.bytes,
                "stream": block.stream.bits(),
                "frames": block.origin,
            })
        });
        let waits = report.waits.iter().map(|range| {
            let reason = range.refusal.as_ref().map(ToString::to_string);
            json!({"address": range.address, "bytes": range.bytes, "reason": reason})
        });
        let mut told = fields!(report: requested, device, limit, reserved, allocated, takeable,
            waiting, kept_by_graphs, engine_limit, engine_reserved, engine_allocated,
            engine_suspended, in_graphs, capturing, device_free, device_total);
        told.extend([
            ("text", json!(report.to_string())),
            ("stream", json!(report.stream.bits())),
            ("pool", label(&report.pool)),
            ("pools", json!(pools)),
            ("largest_blocks", blocks.collect()),
            ("waits", waits.collect()),
        ]);
        Ok(json!(told))
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Pool, address, sizes and stream of a live block.
    pub fn block_report(&self, block: BlockId) -> Result<BlockReport, Error> {
        let mut state = self.0.lock()?;
        let locked = self.0.with(&mut state);
        let (&LiveBlock { site, bytes, ref asked, .. }, requested) =
            locked.live_block(block, "block_report")?;
        let pools = &locked.state.pools;
        let (pool, (address, _)) = (pools.pool_of(site.heap), pools.place(site));
        Ok(BlockReport { pool, address, requested, bytes, stream: asked.stream })
    }
}

/// What is written of a request that failed: a snapshot, with what it was about.
#[derive(Serialize)]
struct Dump {
    out_of_memory: Value,
    #[serde(flatten)]
    snapshot: Snapshot,
}

/// What is known of a range that is in a block, or was.
pub(super) type Occupant = (BlockState, Asked);

/// Frames are looked up once for each stack.
#[derive(Default)]
pub(super) struct Stacks(BTreeMap<usize, Vec<Frame>>);

impl Stacks {
    /// The frames by name, and what only the host can read.
    pub(super) fn of(&mut self, of: Option<&Arc<Frames>>) -> (Vec<Frame>, Option<HostContext>) {
        let Some(of) = of else { return (Vec::new(), None) };
        let frames = self.0.entry(Arc::as_ptr(of) as usize).or_insert_with(|| of.resolve());
        (frames.clone(), of.context().cloned())
    }
}

/// What keeps a range that is in no block: each of its markers, or one other reason.
type KeptBy = SmallVec<[Refusal; 1]>;

/// A range of a heap, by the heap's number.
pub(super) type Range = (u32, RangeId);

impl State {
    /// Who is in the ranges of heaps, or was there and is not quite gone; of a range the last one counts.
    pub(super) fn occupants<'a>(
        &self,
        caches: impl IntoIterator<Item = &'a StreamCache>,
        wanted: impl Fn(u32) -> bool,
    ) -> Vec<(Range, Occupant)> {
        let mut occupants = Vec::new();
        let mut add = |site: BlockSite, state: BlockState, asked: &Asked| {
            if wanted(site.heap) {
                occupants.push(((site.heap, site.range), (state, asked.clone())));
            }
        };
        for block in self.blocks.iter().filter(|block| !block.is_leased()) {
            add(block.site, BlockState::ActiveAllocated, &block.asked);
        }
        for (_, cached, lease) in caches.into_iter().flat_map(StreamCache::leases) {
            let Some(block) = self.blocks.leased(lease.row) else { continue };
            let state = if cached { BlockState::Inactive } else { BlockState::ActiveAllocated };
            add(block.site, state, &lease.asked);
        }
        for wait in self.waiting.iter() {
            // What is no single block counts as free memory that waits.
            if let Some(asked) = wait.asked() {
                add(wait.site(), BlockState::ActivePendingFree, asked);
            }
        }
        occupants
    }

    fn wait_reasons(&self) -> Map<Range, WaitReason> {
        let reason = |it: &Wait| ((it.site().heap, it.site().range), it.reason(&self.timelines));
        self.waiting.iter().map(reason).collect()
    }

    /// What keeps a range that is in no block from streams that prove nothing; `reasons` are those of what waits.
    fn kept_by(
        &self,
        state: RangeState,
        markers: &[NodeIndex],
        reason: impl FnOnce() -> Option<WaitReason>,
    ) -> KeptBy {
        match state {
            RangeState::Waiting => reason().map(Refusal::Waiting).into_iter().collect(),
            RangeState::StreamOrdered { timeline, .. } => {
                let owner = self.timelines.stream(timeline);
                [Refusal::Ordered { owner }].into_iter().collect()
            }
            RangeState::Pending { capture, owner, .. } => {
                let Some(proof) = self.captures.find(capture).map(|it| &it.proof) else {
                    return SmallVec::new();
                };
                let owner = proof.stream_handle(owner);
                let refusal = |&marker: &NodeIndex| Refusal::Marker {
                    node: proof.node_handle(marker),
                    owner,
                    kernel: None,
                };
                markers.iter().map(refusal).collect()
            }
            _ => SmallVec::new(),
        }
    }

    fn heap_rows(&self, number: u32, reasons: &mut Map<Range, WaitReason>) -> HeapRows {
        let heap = self.pools.find_heap(number);
        let shut = with_heap!(self.pools, number, |heap| heap.holding().presence().is_shut());
        let mut ranges = Vec::new();
        if !shut {
            with_heap!(self.pools, number, |heap| ranges.extend(heap.mapped().map(
                |(id, place, of)| {
                    let reason = || reasons.remove(&(number, id));
                    (id, place, of, self.kept_by(heap.state(id), heap.markers(id), reason))
                }
            )));
        }
        HeapRows {
            number,
            pool: self.pools.pool_of(number),
            growable: heap.map(Heap::growable).unwrap_or_default(),
            ranges,
            still_held: heap.filter(|_| shut).map(Heap::still_held).unwrap_or_default(),
            premapped: heap.filter(|_| !shut).map_or_else(Vec::new, |heap| {
                heap.premapped_ranges().map(|(place, _)| place).collect()
            }),
        }
    }
}

/// What keeps a range, as a snapshot tells it.
fn waiting(refusal: &Refusal) -> Waiting {
    let (stream, marker) = match *refusal {
        Refusal::Marker { node, owner, .. } => (Some(owner), Some(node.bits() as u64)),
        Refusal::Ordered { owner: stream }
        | Refusal::Waiting(
            WaitReason::OutsideStream(stream)
            | WaitReason::Untrusted(stream)
            | WaitReason::OutsideWork(stream),
        ) => (Some(stream), None),
        _ => (None, None),
    };
    let stream = stream.map(|stream| stream.bits() as u64);
    Waiting { stream, marker, reason: refusal.to_string() }
}

/// What a snapshot tells, as it was copied at one moment.
struct Rows {
    device: u32,
    heaps: Vec<HeapRows>,
    occupants: Vec<(Range, Occupant)>,
    origins: SegmentOrigins,
    history: Option<Pasts>,
    settings: Settings,
}

/// The ranges of a heap.
struct HeapRows {
    number: u32,
    pool: PoolId,
    /// By the number of a segment; empty where all can grow.
    growable: Vec<bool>,
    /// Each with its address and size in bytes, the number of its segment, and what keeps it, in any order.
    ranges: Vec<(RangeId, (u64, u64), usize, KeptBy)>,
    /// What a suspended heap still holds, likewise; there are no blocks in it any more.
    still_held: Vec<((u64, u64), usize)>,
    premapped: Vec<(u64, u64)>,
}

impl<D: Driver> Locked<'_, D> {
    /// Every range of a pool that is in no block, by address, with the reason why `asks` may not take it. `asks` is
    /// `None` for a capture that has not asked for anything yet.
    pub(super) fn free_ranges(&self, pool: PoolId, asks: Option<Requester>) -> Vec<FreeRange> {
        let Some(row) = self.state.pools.get(pool) else { return Vec::new() };
        let mut ranges = Vec::new();
        let mut reasons = self.state.wait_reasons();
        let outside = matches!(asks, Some(Requester::Outside { .. }));
        for number in row.heaps() {
            let heap = self.state.pools.heap(number);
            let suspended = heap.holding().presence().is_shut().then_some(Refusal::Suspended);
            for (id, block) in heap.unallocated() {
                let (address, bytes) = heap.extent(id);
                let state = heap.state(id);
                let mut kept_by = || {
                    let reason = || reasons.remove(&(number, id));
                    self.state.kept_by(state, heap.markers(id), reason).pop()
                };
                let refusal = match state {
                    RangeState::Waiting => kept_by(),
                    RangeState::Idle { users } | RangeState::Closed { users } => {
                        (users.are_graphs() && outside).then_some(Refusal::UsedByGraph)
                    }
                    RangeState::StreamOrdered { timeline, users } => match asks {
                        Some(Requester::Outside { .. }) if users == Users::Lent => {
                            Some(Refusal::UsedByGraph)
                        }
                        Some(Requester::Outside { timeline: own }) if own == Some(timeline) => None,
                        _ => kept_by(),
                    },
                    RangeState::Pending { capture: of, owner: of_stream, .. } => match asks {
                        Some(Requester::Capture { capture, stream, .. }) if capture == of => {
                            let capture = &self.state.captures.get(capture).proof;
                            let owner = capture.stream_handle(of_stream);
                            if self.config.settings.reuse != Reuse::CrossStream
                                && of_stream != stream
                            {
                                Some(Refusal::OwnStreamOnly { owner })
                            } else {
                                capture.unproven(stream, heap.markers(id)).map(|marker| {
                                    let (node, kernel) = (capture.node_handle(marker), None);
                                    if capture.precedes(stream, marker) {
                                        Refusal::EarlyLaunch { node, owner, kernel }
                                    } else {
                                        Refusal::Marker { node, owner, kernel }
                                    }
                                })
                            }
                        }
                        _ => Some(Refusal::OtherCapture),
                    },
                    RangeState::Allocated | RangeState::Vacant | RangeState::Hole => continue,
                };
                let is_whole = outside && !heap.may_split(bytes);
                let refusal = refusal.or(suspended.clone());
                let refusal = refusal.or(is_whole.then_some(Refusal::NotSplit));
                ranges.push(FreeRange { address, bytes, block, refusal });
            }
            ranges.extend(heap.premapped_ranges().map(|((address, bytes), _)| FreeRange {
                address,
                bytes,
                block: None,
                refusal: Some(Refusal::Ahead),
            }));
        }
        ranges.sort_unstable_by_key(|range| range.address);
        ranges
    }

    fn rows(&mut self) -> Rows {
        let state = &mut *self.state;
        // All at once: what they have handed out, and what their histories say of it, is of one moment.
        let caches: SmallVec<[_; 4]> = self.caches.used().collect();
        let occupants = state.occupants(caches.iter().map(|cache| &**cache), |_| true);
        let history = state.pasts(caches.iter().map(|cache| &**cache));
        drop(caches);
        let heaps = state.pools.iter().flat_map(|row| row.all_heaps());
        let mut reasons = state.wait_reasons();
        let rows = Rows {
            device: self.driver.device(),
            heaps: heaps.map(|heap| state.heap_rows(heap, &mut reasons)).collect(),
            occupants,
            origins: state.segment_origins.clone(),
            history,
            settings: state.tuning.settings().clone(),
        };
        // The next one tells of this one.
        state.record_event(EventKind::Snapshot, (0, 0), None, PoolId::from_bits([0, 0]));
        rows
    }
}

impl Rows {
    fn format(self) -> Snapshot {
        let mut stacks = Stacks::default();
        let occupants = self.occupants.into_iter().collect();
        let mut segments = Vec::new();
        for heap in self.heaps {
            heap.format(self.device, (&occupants, &self.origins), &mut stacks, &mut segments);
        }
        segments.sort_by_key(|segment| segment.address);
        let history = self.history.map(|history| history.tell(self.device, &mut stacks));
        let (trace, external_annotations, full) = history.unwrap_or_default();
        // Viewers take the device's number for a position.
        let mut device_traces = vec![Vec::new(); self.device as usize];
        device_traces.push(trace);
        let allocator_settings = settings(&self.settings, full);
        Snapshot { segments, device_traces, allocator_settings, external_annotations }
    }
}

impl HeapRows {
    /// Adds a segment for each run of mapped memory; of a suspended heap for what it still holds.
    fn format(
        self,
        device: u32,
        (occupants, origins): (&Map<Range, Occupant>, &SegmentOrigins),
        stacks: &mut Stacks,
        segments: &mut Vec<Segment>,
    ) {
        let empty = |address: u64, number: usize| Segment {
            device,
            address,
            segment_type: if Pools::is_small(self.number) {
                SegmentType::Small
            } else {
                SegmentType::Large
            },
            segment_pool_id: (u64::from(self.pool.number()), 0),
            is_expandable: self.growable.get(number).is_none_or(|&growable| growable),
            ..Segment::default()
        };
        let unused =
            |(address, size): (u64, u64)| SegmentBlock { address, size, ..SegmentBlock::default() };
        segments.extend(self.still_held.iter().map(|&(place, number)| {
            let blocks = vec![unused(place)];
            Segment { total_size: place.1, blocks, ..empty(place.0, number) }
        }));
        let mut ranges = self.ranges;
        ranges.sort_unstable_by_key(|&(_, place, ..)| place);
        let mut open: Option<(usize, u64)> = None;
        for (id, (address, bytes), range_of, kept_by) in ranges {
            if open.is_none_or(|(owner, end)| owner != range_of || end != address) {
                let asked = origins.range(..=address).next_back();
                let asked = asked.filter(|(start, (bytes, _))| address - **start < *bytes);
                let (frames, context) = stacks.of(asked.map(|(_, (_, frames))| frames));
                segments.push(Segment { frames, context, ..empty(address, range_of) });
            }
            open = Some((range_of, address + bytes));
            let Some(segment) = segments.last_mut() else { continue };
            let occupant = occupants.get(&(self.number, id));
            let (state, asked) = occupant.map(|it| (it.0, Some(&it.1))).unwrap_or_default();
            let waiting = (!kept_by.is_empty()).then(|| kept_by.iter().map(waiting).collect());
            let requested = asked.map_or(bytes, |asked| asked.requested.min(bytes));
            let requested_size = if state.is_active() { requested } else { 0 };
            segment.total_size += bytes;
            segment.requested_size += requested_size;
            segment.active_size += if state.is_active() { bytes } else { 0 };
            segment.allocated_size += if state == BlockState::ActiveAllocated { bytes } else { 0 };
            if let Some(asked) = asked.filter(|_| segment.stream == 0) {
                segment.stream = asked.stream.bits() as u64;
            }
            let (frames, context) = stacks.of(asked.and_then(|asked| asked.frames.as_ref()));
            let block = unused((address, bytes));
            let block = SegmentBlock { requested_size, state, frames, context, waiting, ..block };
            segment.blocks.push(block);
        }
        for (address, size) in self.premapped {
            let before = |segment: &&mut Segment| segment.address + segment.total_size == address;
            let Some(segment) = segments.iter_mut().find(before) else { continue };
            segment.total_size += size;
            segment.blocks.push(unused((address, size)));
        }
    }
}

/// The settings under the names that viewers know, and our own text.
fn settings(settings: &Settings, full: bool) -> BTreeMap<String, Setting> {
    let integer = |value: u64| Setting::Integer(i64::try_from(value).unwrap_or(i64::MAX));
    let text = settings.to_string();
    let divisions = settings.rounding.divisions();
    let divisions = divisions.iter().enumerate().map(|(interval, &divisions)| {
        // Intervals are named by where they begin, in MB.
        ((1_u64 << interval).to_string(), integer(divisions))
    });
    [
        ("REGRAPH_ALLOC_CONF", Setting::from(text.as_str())),
        ("max_split_size", settings.max_split_bytes.map_or(Setting::Integer(-1), integer)),
        (
            "garbage_collection_threshold",
            Setting::from(settings.garbage_collection_threshold.unwrap_or(0.0)),
        ),
        ("expandable_segments", Setting::from(settings.expandable_segments)),
        ("roundup_power2_divisions", Setting::Map(divisions.collect())),
        ("trace_alloc_max_entries", integer(settings.history as u64)),
        ("trace_alloc_overflowed", Setting::from(full)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
