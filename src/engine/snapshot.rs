//! Snapshots: the segments, the blocks in them, why each waits, and the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::explain::WaitReason;
use super::history::{Action, Asked, Frames, HistoryOptions};
use super::live_blocks::LiveBlock;
use super::names::{BlockId, PoolId, NO_CACHE};
use super::pools::with_heap;
use super::report::BlockReport;
use super::state::{Locked, State};
use super::{Engine, Error};
use crate::capture::NodeIndex;
use crate::driver::{Driver, StreamHandle};
use crate::heap::{Heap, RangeId, State as RangeState};
use crate::index::{new_map, Map};
use crate::settings::Settings;
use crate::snapshot::{Block, BlockState, Frame, Segment, SegmentType, Setting, Snapshot, Waiting};

impl<D: Driver> Engine<D> {
    /// Everything that the engine holds, block by block, with what each freed block waits for, and
    /// the history, where one is kept.
    ///
    /// Costs a look at every range and every event; nothing else goes on meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        self.change(|locked| Ok(locked.snapshot()))
    }

    /// What is known of a live block.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], [`Error::Poisoned`].
    pub fn block_report(&self, block: BlockId) -> Result<BlockReport, Error> {
        let state = self.lock()?;
        let report = |found: &LiveBlock, requested| BlockReport {
            pool: found.pool,
            address: state.pools.extent(found.heap, found.range).0,
            requested,
            bytes: found.bytes,
            stream: found.stream,
        };
        let found = if block.cache == NO_CACHE {
            state.blocks.get(block).map(|found| report(found, found.requested))
        } else {
            let cache = self.caches.get(block.cache).filter(|_| block.engine == self.number);
            let asked = cache.and_then(|cache| cache.asked(block));
            asked.and_then(|(row, requested)| Some(report(state.blocks.leased(row)?, requested)))
        };
        found.ok_or(Error::UnknownBlock { call: "block_report", block: block.number() })
    }

    /// Keeps the latest `entries` events from now on, for snapshots; zero ends that. What was kept
    /// before is forgotten.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn record_history(&self, entries: usize) -> Result<(), Error> {
        self.keep_history(&HistoryOptions::latest(entries))
    }

    /// The same, with a choice of what is kept.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn keep_history(&self, options: &HistoryOptions) -> Result<(), Error> {
        self.change(|locked| {
            locked.state.keep_history(options);
            Ok(())
        })
    }
}

/// What is known of a range that is in a block, or was.
pub(super) struct Occupant {
    pub(super) requested: u64,
    pub(super) state: BlockState,
    pub(super) stream: StreamHandle,
    pub(super) frames: Option<Arc<Frames>>,
}

/// Frames are looked up once for each stack.
#[derive(Default)]
pub(super) struct Stacks(BTreeMap<usize, Vec<Frame>>);

impl Stacks {
    pub(super) fn of(&mut self, frames: Option<&Arc<Frames>>) -> Vec<Frame> {
        let Some(frames) = frames else { return Vec::new() };
        let resolved = self.0.entry(Arc::as_ptr(frames) as usize).or_insert_with(|| {
            let frames = frames.resolve().into_iter();
            frames
                .map(|frame| Frame { filename: frame.file, line: frame.line, name: frame.function })
                .collect()
        });
        resolved.clone()
    }
}

impl State {
    /// Who is in a heap's ranges, or was there and is not quite gone.
    pub(super) fn occupants(&self, number: u32) -> Map<RangeId, Occupant> {
        let mut occupants = new_map();
        for block in self.blocks.iter().filter(|block| block.heap == number && !block.leased) {
            occupants.insert(
                block.range,
                Occupant {
                    requested: block.requested,
                    state: BlockState::ActiveAllocated,
                    stream: block.stream,
                    frames: block.frames.clone(),
                },
            );
        }
        for cache in self.caches.used() {
            for lease in cache.leases() {
                let block = self.blocks.leased(lease.lease);
                let Some(block) = block.filter(|block| block.heap == number) else { continue };
                let state =
                    if lease.cached { BlockState::Inactive } else { BlockState::ActiveAllocated };
                let (requested, stream, frames) = (lease.requested, block.stream, lease.frames);
                occupants.insert(block.range, Occupant { requested, state, stream, frames });
            }
        }
        let held = self.captures.held().map(|held| (held.heap, held.range, Some(&held.asked)));
        let deferred = self.deferred.iter().map(|it| (it.heap, it.range, it.asked.as_ref()));
        for (_, range, asked) in held.chain(deferred).filter(|it| it.0 == number) {
            // What is no single block counts as free memory that waits.
            if let Some(asked) = asked {
                let &Asked { requested, stream, ref frames } = asked;
                let (state, frames) = (BlockState::ActivePendingFree, frames.clone());
                occupants.insert(range, Occupant { requested, state, stream, frames });
            }
        }
        occupants
    }

    /// What a range waits for.
    fn waiting_for(
        &self,
        (state, markers): (RangeState, &[NodeIndex]),
        reason: Option<&WaitReason>,
    ) -> Option<Vec<Waiting>> {
        let bits = |stream: StreamHandle| Some(stream.bits() as u64);
        match state {
            RangeState::Waiting => {
                let reason = reason?;
                let stream = match reason {
                    WaitReason::OutsideStream(stream)
                    | WaitReason::Untrusted(stream)
                    | WaitReason::OutsideWork(stream) => bits(*stream),
                    _ => None,
                };
                let text = reason.to_string();
                Some(vec![Waiting { stream, marker: None, reason: text }])
            }
            RangeState::StreamOrdered { timeline, .. } => {
                let owner = self.timelines.stream(timeline);
                let reason = super::Refusal::Ordered { owner }.to_string();
                Some(vec![Waiting { stream: bits(owner), marker: None, reason }])
            }
            RangeState::Pending { capture, owner, .. } => {
                let capture_state = self.captures.find(capture)?;
                let owner = capture_state.proof.stream_handle(owner);
                let markers = markers.iter().map(|&marker| {
                    let node = capture_state.proof.node_handle(marker);
                    let reason = super::Refusal::Marker { node, owner, kernel: None }.to_string();
                    Waiting { stream: bits(owner), marker: Some(node.bits() as u64), reason }
                });
                Some(markers.collect())
            }
            _ => None,
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    fn snapshot(&mut self) -> Snapshot {
        let mut stacks = Stacks::default();
        let mut segments = Vec::new();
        for row in self.state.pools.iter() {
            for heap in row.all_heaps() {
                self.segments(heap, &mut stacks, &mut segments);
            }
        }
        segments.sort_by_key(|segment| segment.address);
        let (trace, annotations, full) = self.events(&mut stacks);
        // Viewers take the device's number for a position.
        let mut device_traces = vec![Vec::new(); self.driver.device() as usize];
        device_traces.push(trace);
        // The next one tells of this one.
        self.state.record_event(Action::Snapshot, (0, 0), None, PoolId::from_bits([0, 0]));
        Snapshot {
            segments,
            device_traces,
            allocator_settings: settings(&self.state.settings, full),
            external_annotations: annotations,
        }
    }

    /// Adds a segment for each run of mapped memory of a heap; of a suspended one only for what it
    /// still holds, in which there are no blocks any more.
    fn segments(&self, number: u32, stacks: &mut Stacks, segments: &mut Vec<Segment>) {
        let heap = self.state.pools.find_heap(number);
        let pool = self.state.pools.pool_of(number);
        let occupants = self.state.occupants(number);
        let reasons = self.state.wait_reasons(number);
        let empty = |address: u64, number: usize| Segment {
            device: self.driver.device(),
            address,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: 0,
            segment_type: if heap.is_some_and(Heap::is_small) {
                SegmentType::Small
            } else {
                SegmentType::Large
            },
            segment_pool_id: (u64::from(pool.number()), 0),
            is_expandable: heap.is_none_or(|heap| heap.is_growable(number)),
            frames: Vec::new(),
            context: None,
            blocks: Vec::new(),
        };
        if with_heap!(self.state.pools, number, |heap| heap.presence().is_shut()) {
            let held = heap.into_iter().flat_map(Heap::still_held);
            segments.extend(held.map(|((address, size), number)| {
                let (state, requested_size) = (BlockState::Inactive, 0);
                let (frames, waiting) = (Vec::new(), None);
                let block =
                    Block { address, size, requested_size, state, frames, context: None, waiting };
                Segment { total_size: size, blocks: vec![block], ..empty(address, number) }
            }));
            return;
        }
        let mut open: Option<(usize, u64)> = None;
        for (id, place, range_of) in with_heap!(self.state.pools, number, |heap| heap.mapped()) {
            let (address, bytes) = place;
            if open.is_none_or(|(owner, end)| owner != range_of || end != address) {
                let origin = self.state.segment_origin(address);
                let frames = stacks.of(origin);
                let context = origin.and_then(|frames| frames.context()).cloned();
                segments.push(Segment { frames, context, ..empty(address, range_of) });
            }
            open = Some((range_of, address + bytes));
            let Some(segment) = segments.last_mut() else { continue };
            let occupant = occupants.get(&id);
            let waiting = with_heap!(self.state.pools, number, |heap| {
                self.state.waiting_for((heap.state(id), heap.markers(id)), reasons.get(&address))
            });
            let state = occupant.map_or(BlockState::Inactive, |occupant| occupant.state);
            let requested = occupant.map_or(bytes, |occupant| occupant.requested.min(bytes));
            segment.total_size += bytes;
            if state.is_active() {
                segment.active_size += bytes;
                segment.requested_size += requested;
            }
            if state == BlockState::ActiveAllocated {
                segment.allocated_size += bytes;
            }
            if let Some(occupant) = occupant.filter(|_| segment.stream == 0) {
                segment.stream = occupant.stream.bits() as u64;
            }
            let origin = occupant.and_then(|occupant| occupant.frames.as_ref());
            let frames = stacks.of(origin);
            let context = origin.and_then(|frames| frames.context()).cloned();
            let requested_size = if state.is_active() { requested } else { 0 };
            let size = bytes;
            let block = Block { address, size, requested_size, state, frames, context, waiting };
            segment.blocks.push(block);
        }
        for ((address, size), _) in heap.into_iter().flat_map(Heap::premapped_ranges) {
            let before = |segment: &&mut Segment| segment.address + segment.total_size == address;
            let Some(segment) = segments.iter_mut().find(before) else { continue };
            segment.total_size += size;
            let (state, frames) = (BlockState::Inactive, Vec::new());
            let (requested_size, context, waiting) = (0, None, None);
            let premapped =
                Block { address, size, requested_size, state, frames, context, waiting };
            segment.blocks.push(premapped);
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
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
