//! Pools and their heaps: one for small blocks, one for large blocks, and one for blocks whose memory comes at
//! the end of their capture, once there was one. A heap's number follows from its pool's row, and the
//! rows of pools that are gone are used again: no table grows with the pools that ever were.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use super::allocate::POLLED;
use super::config::PoolConfig;
use super::layout::Arena;
use super::lending::Spare;
use super::live_blocks::BlockSite;
use super::names::{GraphId, PoolId, PoolLabel};
use super::{Engine, Error, Level, PoolRefusal};
use crate::driver::{CaptureId, Driver, DriverError};
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, Verdict};
use crate::heap::{is_small, Heap, Holding, Mark, Plan, PlannedHeap, Presence, Requester, Supply};
use crate::index::{Map, Table};
use crate::sync::{AtomicBool, Ordering};

/// Numbers of heaps of a pool, and which is which. The fourth stands for no heap: so a heap's pool is found by a shift.
const HEAPS: usize = 4;
const SMALL: usize = 0;
const LARGE: usize = 1;
const PLANNED: usize = 2;

/// Does the same with a heap and with one of blocks which get their memory later.
macro_rules! with_heap {
    ($pools:expr, $number:expr, |$heap:ident| $do:expr) => {
        match $pools.find_heap($number) {
            Some($heap) => $do,
            None => {
                let $heap = $pools.planned($number);
                $do
            }
        }
    };
    (mut $pools:expr, $number:expr, |$heap:ident| $do:expr) => {
        match $pools.find_heap_mut($number) {
            Some($heap) => $do,
            None => {
                let $heap = $pools.planned_mut($number);
                $do
            }
        }
    };
}
pub(super) use with_heap;

const GONE: &str = "heaps live as long as their pool, and rows name them";

#[derive(Debug)]
pub(super) struct PoolRow {
    id: PoolId,
    /// As the host gave it, but with the settings' bounds of plans where it had none.
    config: PoolConfig,
    /// Of blocks that get their memory at the end of their capture, once there was one.
    planned: Option<Box<PlannedHeap>>,
    /// Whether its heaps grow in place.
    grows_in_place: bool,
    /// Graphs whose memory lies here.
    graphs: usize,
    /// Captures under way that use it.
    captures: usize,
    /// Where captures lay that followed a layout.
    arena: Option<Arena>,
    /// Who may have what is free here.
    spare: Spare,
    /// What is to be completed before memory goes to others than users of the pool, one mark for a timeline at most.
    settling: SmallVec<[Mark; 2]>,
    /// Who keeps what its live blocks hold while its memory is away, by number.
    asleep: Option<u64>,
    /// Whether its memory moves to the host or back, so that copies may read or write it.
    moving: bool,
    /// What is lent of its graphs' memory.
    lending: Loans,
    /// Whether the next launch has anything to ask, since something is lent or was, or since the pool is shut: shared
    /// with who launches its graphs.
    asks: Arc<AtomicBool>,
    /// Who orders the launches of its graphs; `Some(None)` where that is gone.
    owner: Option<Option<Owner>>,
}

/// What a pool lends of its graphs' memory between their launches.
#[derive(Debug, Default)]
struct Loans {
    /// Live blocks in it: how many, and their bytes.
    live: (usize, u64),
    /// What the next launch comes after, where that is more than nothing: at most one mark for a timeline.
    behind: SmallVec<[Mark; 2]>,
    /// Whether some of that came after the launch under way has asked.
    unfollowed: bool,
    /// Whether a launch has come after all of that since anything was lent.
    passed: bool,
}

/// The heaps in which a block may lie: the one that is searched first, and that grows, and the one that is searched
/// then, which may be the same.
pub(super) type Homes = [u32; 2];

impl PoolRow {
    fn heap(&self, kind: usize) -> u32 {
        (HEAPS * self.id.row() + kind) as u32
    }

    pub(super) fn small(&self) -> u32 {
        self.heap(SMALL)
    }

    /// The heap of blocks which get their memory at the end of their capture, once there was one.
    pub(super) fn planned(&self) -> Option<u32> {
        self.planned.as_ref().map(|_| self.heap(PLANNED))
    }

    pub(super) fn planned_heap(&self) -> Option<&PlannedHeap> {
        self.planned.as_deref()
    }

    pub(super) fn config(&self) -> &PoolConfig {
        &self.config
    }

    pub(super) fn set_name(&mut self, name: Option<Arc<str>>) {
        self.config.name = name;
    }

    pub(super) fn label(&self) -> PoolLabel {
        PoolLabel { id: self.id, name: self.config.name.clone(), tag: self.config.tag.clone() }
    }

    /// The heaps for a block of this size. Where heaps grow in place, a capture's blocks of all sizes
    /// lie in one of them; what the other one has idle is taken before that one grows.
    #[inline]
    pub(super) fn homes(&self, bytes: u64, requester: Requester) -> Homes {
        let [small, large] = self.heaps();
        match requester {
            Requester::Capture { .. } | Requester::Lent { .. } if self.grows_in_place => {
                [large, small]
            }
            _ => {
                let own = if is_small(bytes) { small } else { large };
                [own, own]
            }
        }
    }

    /// Its heaps: of small and of large blocks.
    pub(super) fn heaps(&self) -> [u32; 2] {
        [self.heap(SMALL), self.heap(LARGE)]
    }

    /// Its heaps: of small blocks, of large ones, and of those that get their memory at their capture's end, if any.
    pub(super) fn all_heaps(&self) -> SmallVec<[u32; HEAPS]> {
        self.heaps().into_iter().chain(self.planned()).collect()
    }

    /// The heap of captures' blocks, where that is one.
    pub(super) fn shared(&self) -> Option<u32> {
        self.grows_in_place.then(|| self.heap(LARGE))
    }

    pub(super) fn graphs(&self) -> usize {
        self.graphs
    }

    /// Whether it has no graph, and no capture that may become one.
    pub(super) fn is_without_graphs(&self) -> bool {
        self.graphs + self.captures == 0
    }

    pub(super) fn captures(&self) -> usize {
        self.captures
    }

    pub(super) fn add_capture(&mut self) {
        self.captures += 1;
    }

    pub(super) fn remove_capture(&mut self) {
        self.captures -= 1;
    }

    pub(super) fn arena(&self) -> Option<Arena> {
        self.arena
    }

    pub(super) fn set_arena(&mut self, arena: Arena) {
        self.arena = Some(arena);
    }

    pub(super) fn spare(&self) -> Spare {
        self.spare
    }

    /// What must be completed before free memory of the pool may leave it.
    pub(super) fn settling(&self) -> &[Mark] {
        &self.settling
    }

    /// Keeps free memory in the pool until these marks are reached.
    pub(super) fn settle_behind(&mut self, marks: &[Mark]) {
        marks.iter().for_each(|&mark| raise(&mut self.settling, mark));
    }

    pub(super) fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    pub(super) fn lent(&self) -> (usize, u64) {
        self.lending.live
    }

    pub(super) fn asks(&self) -> &Arc<AtomicBool> {
        &self.asks
    }

    pub(super) fn add_lent(&mut self, bytes: u64) {
        self.asks.store(true, Ordering::Relaxed);
        self.lending.live.0 += 1;
        self.lending.live.1 += bytes;
    }

    pub(super) fn remove_lent(&mut self, bytes: u64) {
        self.lending.live.0 -= 1;
        self.lending.live.1 -= bytes;
    }

    /// What the next launch of a graph comes after: all that has used memory which was lent.
    pub(super) fn borrowers(&self) -> &[Mark] {
        &self.lending.behind
    }

    /// Makes the next launch of a graph come after a mark.
    pub(super) fn launch_behind(&mut self, mark: Mark) {
        self.asks.store(true, Ordering::Relaxed);
        self.lending.unfollowed = true;
        raise(&mut self.lending.behind, mark);
    }

    /// A launch comes after all marks so far.
    pub(super) fn set_followed(&mut self) {
        self.lending.unfollowed = false;
    }

    /// Whether a launch has come after all that was lent and freed, since this was last asked.
    pub(super) fn take_passed(&mut self) -> bool {
        std::mem::take(&mut self.lending.passed)
    }
}

/// Adds a mark to those of which each timeline has at most one, the latest.
fn raise(marks: &mut SmallVec<[Mark; 2]>, mark: Mark) {
    match marks.iter_mut().find(|it| it.timeline == mark.timeline) {
        Some(known) => known.position = known.position.max(mark.position),
        None => marks.push(mark),
    }
}

/// The pools of an engine.
#[derive(Debug, Default)]
pub(super) struct Pools {
    engine: u32,
    /// How many there were so far.
    made: u64,
    rows: Table<Option<Box<PoolRow>>>,
    graphs: Map<GraphId, GraphUse>,
    /// How many graphs there were so far.
    graphs_made: u64,
    /// [`HEAPS`] for each row; that of planned blocks lies in the row itself.
    heaps: Vec<Option<Box<Heap>>>,
    /// Those that lend what is free in them, in the order in which they began to.
    offering: Vec<PoolId>,
    /// Pools whose owners are gone: the one that is looked at next is the last.
    leaving: Vec<PoolId>,
    /// The heaps that were changed since they were last counted, in the order in which that began, and a bit for each.
    changed: (Vec<u32>, FixedBitSet),
    /// The tags of regions that sleep, with who keeps what they held, by number: pools that are made of one sleep.
    asleep: BTreeMap<Arc<str>, u64>,
}

impl Pools {
    pub(super) fn new(engine: u32) -> Self {
        Self { engine, ..Self::default() }
    }

    /// The row of a heap's pool.
    #[inline]
    pub(super) fn row(heap: u32) -> usize {
        heap as usize / HEAPS
    }

    /// Whether a heap is its pool's of small blocks.
    pub(super) fn is_small(heap: u32) -> bool {
        heap as usize % HEAPS == SMALL
    }

    /// Whether a heap is its pool's of blocks that get their memory later.
    pub(super) fn is_planned(heap: u32) -> bool {
        heap as usize % HEAPS == PLANNED
    }

    /// What a pool's heaps of small and large blocks hold in live blocks, in bytes.
    pub(super) fn bytes_in_blocks(&self, id: PoolId) -> u64 {
        let heaps = self.get(id).map(PoolRow::heaps).into_iter().flatten();
        heaps.map(|heap| self.heap(heap).bytes_in_blocks()).sum()
    }

    /// How many pools there are.
    pub(super) fn count(&self) -> usize {
        self.rows.used()
    }

    /// Adds a pool whose heaps get their memory as planned.
    pub(super) fn add(&mut self, config: PoolConfig, small: Plan, large: Plan) -> PoolId {
        let row = self.rows.take_vacant(|| None) as usize;
        self.heaps.resize_with(HEAPS * self.rows.len(), || None);
        let id = PoolId::new(self.engine, self.made, row);
        self.made += 1;
        let asleep = config.tag.as_ref().and_then(|tag| self.asleep.get(tag).copied());
        let pool = Box::new(PoolRow {
            id,
            config,
            planned: None,
            grows_in_place: large.grows_in_place(),
            graphs: 0,
            captures: 0,
            arena: None,
            spare: Spare::default(),
            settling: SmallVec::new(),
            asleep,
            moving: false,
            lending: Loans::default(),
            asks: Arc::new(AtomicBool::new(asleep.is_some())),
            owner: None,
        });
        for (heap, plan) in pool.heaps().into_iter().zip([small, large]) {
            let mut made = Heap::new(plan);
            if asleep.is_some() {
                *made.holding_mut().presence_mut() = Presence::Suspended;
            }
            self.heaps[heap as usize] = Some(made);
        }
        self.rows[row] = Some(pool);
        id
    }

    /// Takes a pool that nothing uses away, and closes its heaps: all, and returns the driver's first error.
    pub(super) fn remove(&mut self, id: PoolId, driver: &impl Driver) -> Result<(), DriverError> {
        let pool = self.rows[id.row()].take();
        self.rows.vacate(id.row() as u32);
        self.offering.retain(|&lender| lender != id);
        self.leaving.retain(|&leaving| leaving != id);
        let heaps = pool.iter().flat_map(|pool| pool.heaps());
        let heaps = heaps.filter_map(|heap| self.heaps[heap as usize].take());
        let closed = heaps.map(|heap| heap.close(driver)).fold(Ok(()), Result::and);
        let planned = pool.and_then(|pool| pool.planned);
        closed.and(planned.map_or(Ok(()), |heap| heap.close(driver)))
    }

    /// A new graph, with its claim on pools.
    pub(super) fn add_graph(&mut self, graph: GraphUse) -> GraphId {
        for &pool in &graph.0 {
            if let Some(pool) = self.get_mut(pool) {
                pool.graphs += 1;
            }
        }
        let id = GraphId::new(self.engine, self.graphs_made);
        self.graphs_made += 1;
        self.graphs.insert(id, graph);
        id
    }

    /// Ends a graph's claim on its pools.
    pub(super) fn remove_graph(&mut self, id: GraphId) -> Option<GraphUse> {
        let graph = self.graphs.remove(&id)?;
        for &pool in &graph.0 {
            if let Some(pool) = self.get_mut(pool) {
                pool.graphs -= 1;
            }
        }
        Some(graph)
    }

    /// The pools that a graph uses; none of a graph that is unknown.
    pub(super) fn pools_of(&self, id: GraphId) -> SmallVec<[PoolId; 1]> {
        self.graphs.get(&id).map(|(pools, _)| SmallVec::from_slice(pools)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn get(&self, id: PoolId) -> Option<&PoolRow> {
        self.rows.get(id.row())?.as_deref().filter(|pool| pool.id == id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: PoolId) -> Option<&mut PoolRow> {
        self.rows.get_mut(id.row())?.as_deref_mut().filter(|pool| pool.id == id)
    }

    /// Sets who may have what is free in a pool.
    pub(super) fn set_spare(&mut self, id: PoolId, spare: Spare) {
        let Some(pool) = self.get_mut(id).filter(|pool| pool.spare != spare) else { return };
        pool.spare = spare;
        self.offering.retain(|&lender| lender != id);
        if matches!(spare, Spare::Offered | Spare::OfferedWhenShort) {
            self.offering.push(id);
        }
    }

    /// Whether a pool gives what is free in it to the driver where others need that.
    pub(super) fn gives(&self, id: PoolId) -> bool {
        let spare = self.get(id).map(PoolRow::spare);
        !matches!(spare, Some(Spare::Kept | Spare::OfferedWhenShort))
    }

    /// Notes whose a pool is, or that its owner is gone.
    pub(super) fn set_owner(&mut self, id: PoolId, owner: Option<Owner>) {
        self.leaving.retain(|&leaving| leaving != id);
        let gone = owner.is_none();
        if let Some(row) = self.get_mut(id) {
            row.owner = Some(owner);
            self.leaving.extend(gone.then_some(id));
        }
    }

    /// Of so many pools whose owners are gone, in turn, those that no graph uses, nor a capture that may become one. Not
    /// looked for among all pools: each pool that is made asks.
    pub(super) fn leaving(&mut self, most: usize) -> Vec<PoolId> {
        let most = most.min(self.leaving.len());
        self.leaving.rotate_right(most);
        let leaves = |id: &PoolId| self.get(*id).is_some_and(PoolRow::is_without_graphs);
        self.leaving[..most].iter().copied().filter(leaves).collect()
    }

    pub(super) fn offering(&self) -> &[PoolId] {
        &self.offering
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PoolRow> + Clone {
        self.rows.iter().flatten().map(Box::as_ref)
    }

    /// The names of all pools.
    pub(super) fn ids(&self) -> Vec<PoolId> {
        self.iter().map(|pool| pool.id).collect()
    }

    /// Who keeps what the live blocks of a pool hold while its memory is away, by number.
    pub(super) fn keeper_of(&self, id: PoolId) -> Option<u64> {
        self.get(id)?.asleep
    }

    pub(super) fn set_keeper(&mut self, id: PoolId, asleep: Option<u64>) {
        if let Some(pool) = self.get_mut(id) {
            pool.asleep = asleep;
        }
    }

    /// Whether copies may read or write a pool's memory. Until they are done only the movement that copies gives memory
    /// back.
    pub(super) fn is_moving(&self, id: PoolId) -> bool {
        self.get(id).is_some_and(|pool| pool.moving)
    }

    pub(super) fn set_moving(&mut self, id: PoolId, moving: bool) {
        if let Some(pool) = self.get_mut(id) {
            pool.moving = moving;
        }
    }

    /// Whether a region sleeps.
    pub(super) fn is_asleep(&self, tag: &str) -> bool {
        self.asleep.contains_key(tag)
    }

    /// Notes that a region sleeps, and who keeps what it held; or that it sleeps no more, where the same kept that.
    pub(super) fn set_asleep(&mut self, tag: &Arc<str>, by: u64, asleep: bool) {
        if asleep {
            self.asleep.entry(tag.clone()).or_insert(by);
        } else if self.asleep.get(tag) == Some(&by) {
            self.asleep.remove(tag);
        }
    }

    /// Forgets that regions without pools sleep whose keeper has no use for that.
    pub(super) fn keep_asleep(&mut self, by: u64, wanted: impl Fn(&str) -> bool) {
        if self.asleep.is_empty() {
            return;
        }
        let tags: BTreeSet<Arc<str>> = self.tagged().map(|(tag, _)| tag.clone()).collect();
        self.asleep.retain(|tag, of| *of != by || wanted(tag) || tags.contains(tag));
    }

    /// The pools of regions by the tags of these.
    pub(super) fn tagged(&self) -> impl Iterator<Item = (&Arc<str>, PoolId)> {
        self.iter().filter_map(|pool| Some((pool.config.tag.as_ref()?, pool.id)))
    }

    /// A pool for messages.
    pub(super) fn label(&self, id: PoolId) -> PoolLabel {
        self.get(id).map_or(PoolLabel::from(id), PoolRow::label)
    }

    /// What a call that refuses a pool fails with.
    #[cold]
    pub(super) fn refuse(&self, id: PoolId, call: &'static str, why: PoolRefusal) -> Error {
        Error::Pool { call, pool: Box::new(self.label(id)), why }
    }

    #[inline]
    pub(super) fn heap(&self, heap: u32) -> &Heap {
        self.heaps[heap as usize].as_ref().expect(GONE)
    }

    #[inline]
    pub(super) fn heap_mut(&mut self, heap: u32) -> &mut Heap {
        self.change(heap);
        self.counted_heap_mut(heap)
    }

    /// A heap whose figures the caller counts itself, or does not change.
    #[inline]
    pub(super) fn counted_heap_mut(&mut self, heap: u32) -> &mut Heap {
        self.heaps[heap as usize].as_mut().expect(GONE)
    }

    /// Has a heap counted at the end of the call, as [`Pools::heap_mut`] and its like do.
    #[inline]
    pub(super) fn change(&mut self, heap: u32) {
        let (list, marks) = &mut self.changed;
        if !marks.contains(heap as usize) {
            marks.grow_and_insert(heap as usize);
            list.push(heap);
        }
    }

    /// The heap that was changed last of those that are still to be counted, which is to be counted now.
    #[inline]
    pub(super) fn take_changed(&mut self) -> Option<u32> {
        let (list, marks) = &mut self.changed;
        let heap = list.pop()?;
        marks.set(heap as usize, false);
        Some(heap)
    }

    /// A heap, if its pool is still there.
    #[inline]
    pub(super) fn find_heap(&self, heap: u32) -> Option<&Heap> {
        self.heaps.get(heap as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn find_heap_mut(&mut self, heap: u32) -> Option<&mut Heap> {
        self.change(heap);
        self.find_counted_heap_mut(heap)
    }

    /// A heap as by [`Pools::counted_heap_mut`], if its pool is still there and it has memory behind every block.
    #[inline]
    pub(super) fn find_counted_heap_mut(&mut self, heap: u32) -> Option<&mut Heap> {
        self.heaps.get_mut(heap as usize)?.as_deref_mut()
    }

    /// A heap of blocks which get their memory later.
    pub(super) fn planned(&self, heap: u32) -> &PlannedHeap {
        let pool = self.rows[Self::row(heap)].as_ref();
        pool.and_then(|pool| pool.planned.as_deref()).expect(GONE)
    }

    pub(super) fn planned_mut(&mut self, heap: u32) -> &mut PlannedHeap {
        self.change(heap);
        let pool = self.rows[Self::row(heap)].as_mut();
        pool.and_then(|pool| pool.planned.as_deref_mut()).expect(GONE)
    }

    /// Address and size of a block's range.
    pub(super) fn place(&self, site: BlockSite) -> (u64, u64) {
        with_heap!(self, site.heap, |heap| heap.extent(site.range))
    }

    /// Takes a block's range out of use without making it free.
    pub(super) fn free_later(&mut self, BlockSite { number, heap, range }: BlockSite) {
        match self.find_heap_mut(heap) {
            Some(heap) => heap.free_later(range, number),
            None => self.planned_mut(heap).free_later(range),
        }
    }

    /// The heap that an address belongs to, whichever block lies there.
    pub(super) fn heap_around(&self, address: u64) -> Option<u32> {
        let mut heaps = self.iter().flat_map(PoolRow::all_heaps);
        heaps.find(|&heap| with_heap!(self, heap, |heap| heap.owns(address)))
    }

    /// The heaps of all pools.
    pub(super) fn heaps(&self) -> impl Iterator<Item = &Heap> {
        self.heaps.iter().flatten().map(Box::as_ref)
    }

    /// The heaps of all pools of blocks which get their memory later.
    pub(super) fn iter_planned(&self) -> impl Iterator<Item = &PlannedHeap> {
        self.iter().filter_map(|pool| pool.planned.as_deref())
    }

    /// The numbers of the heaps of small and large blocks, of one pool or of all.
    pub(super) fn heaps_of(&self, pool: Option<PoolId>) -> Vec<u32> {
        match pool {
            Some(pool) => self.get(pool).into_iter().flat_map(PoolRow::heaps).collect(),
            None => self.iter().flat_map(PoolRow::heaps).collect(),
        }
    }

    /// The numbers of the heaps of blocks which get their memory later, of one pool or of all.
    pub(super) fn planned_heaps(&self, pool: Option<PoolId>) -> Vec<u32> {
        match pool {
            Some(pool) => self.get(pool).and_then(PoolRow::planned).into_iter().collect(),
            None => self.iter().filter_map(PoolRow::planned).collect(),
        }
    }

    /// The heap of a pool for blocks that get their memory later, new at the first; `exportable` as for
    /// [`PlannedHeap::new`].
    pub(super) fn planned_heap(&mut self, id: PoolId, exportable: bool) -> u32 {
        let pool = self.get_mut(id).expect("a requester names a pool");
        pool.planned.get_or_insert_with(|| Box::new(PlannedHeap::new(exportable)));
        pool.heap(PLANNED)
    }

    /// The row of a heap's pool, if it is still there.
    #[inline]
    pub(super) fn find_pool(&self, heap: u32) -> Option<&PoolRow> {
        self.rows.get(Self::row(heap))?.as_deref()
    }

    #[inline]
    pub(super) fn pool_of(&self, heap: u32) -> PoolId {
        self.find_pool(heap).expect(GONE).id
    }

    pub(super) fn holdings(&self, id: PoolId) -> impl Iterator<Item = &Holding> {
        let heaps = self.get(id).map(PoolRow::all_heaps).unwrap_or_default();
        heaps.into_iter().map(|heap| with_heap!(self, heap, |heap| heap.holding()))
    }

    /// What a pool holds, in bytes.
    pub(super) fn reserved(&self, id: PoolId) -> u64 {
        self.holdings(id).map(Holding::reserved).sum()
    }

    /// What the driver has of a pool's memory until that is resumed, in bytes.
    pub(super) fn missing(&self, id: PoolId) -> u64 {
        self.holdings(id).map(Holding::suspended).sum()
    }

    /// What all pools hold, in bytes.
    pub(super) fn reserved_by_all(&self) -> u64 {
        let planned: u64 = self.iter_planned().map(PlannedHeap::reserved).sum();
        planned + self.heaps().map(Heap::reserved).sum::<u64>()
    }

    /// How much more a pool may hold by its own limit, in bytes.
    pub(super) fn room(&self, id: PoolId) -> u64 {
        let limit = self.get(id).and_then(|pool| pool.config.max_bytes);
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.reserved(id)))
    }

    /// Whether nothing of a pool may be handed out: it is suspended, or short of a part of its memory.
    #[inline]
    pub(super) fn is_shut(&self, id: PoolId) -> bool {
        self.is_open(id) == Some(false)
    }

    /// Whether a pool is neither suspended nor short of a part; `None` where there is no such pool.
    #[inline]
    pub(super) fn is_open(&self, id: PoolId) -> Option<bool> {
        // All heaps of a pool are open, or none is.
        Some(!self.heap(self.get(id)?.heap(LARGE)).holding().presence().is_shut())
    }

    /// Whether a pool is suspended: what its blocks held is lost, or may be.
    pub(super) fn is_suspended(&self, id: PoolId) -> bool {
        self.holdings(id).any(|holding| holding.presence() == Presence::Suspended)
    }

    /// Says the same of how much of each heap of a pool is there.
    pub(super) fn set_presence(&mut self, id: PoolId, set: impl Fn(&mut Presence)) {
        for heap in self.get(id).map(PoolRow::all_heaps).unwrap_or_default() {
            set(with_heap!(mut self, heap, |heap| heap.holding_mut().presence_mut()));
        }
        self.note_asks(id);
    }

    /// Notes whether the next launch of a pool's graphs has anything to ask.
    fn note_asks(&self, id: PoolId) {
        let Some(PoolRow { lending, asks, .. }) = self.get(id) else { return };
        let lends = lending.live.0 > 0 || !lending.behind.is_empty();
        asks.store(lends || self.is_shut(id), Ordering::Release);
    }

    /// The launch of a pool's graph that [`PoolRow::set_followed`] was called for is submitted.
    pub(super) fn forget_borrowers(&mut self, id: PoolId) {
        // Else a block has been freed since then: the next launch comes after all of them once more.
        if let Some(row) = self.get_mut(id).filter(|row| !row.lending.unfollowed) {
            row.lending.behind.clear();
            row.lending.passed = true;
        }
        self.note_asks(id);
    }

    /// Nothing of a pool is lent any more: it has no graph.
    pub(super) fn end_lending(&mut self, id: PoolId) {
        self.get_mut(id).into_iter().for_each(|pool| pool.lending = Loans::default());
        self.note_asks(id);
    }
}

/// The pools that a graph uses, and its capture, where it has blocks in planned heaps.
type GraphUse = (SmallVec<[PoolId; 1]>, Option<CaptureId>);

#[cfg(debug_assertions)]
impl Pools {
    pub(super) fn verify(&self) -> Verdict {
        self.rows.verify(|_, row| row.is_some())?;
        for (row, (pool, heaps)) in self.rows.iter().zip(self.heaps.chunks(HEAPS)).enumerate() {
            let there = [pool.is_some(), pool.is_some(), false, false];
            let there = heaps.iter().map(Option::is_some).eq(there);
            let named = pool.as_ref().is_none_or(|pool| pool.id.row() == row);
            holds!(
                there && named,
                "row {row} of pools has others' heaps, or another pool: {pool:?}"
            );
        }
        let listed = |list: &[PoolId], is_of: &dyn Fn(&PoolRow) -> bool| {
            let mut listed = list.to_vec();
            let mut all: Vec<PoolId> =
                self.iter().filter(|it| is_of(it)).map(|pool| pool.id).collect();
            all.sort_unstable();
            listed.sort_unstable();
            all == listed
        };
        let offers = |it: &PoolRow| matches!(it.spare, Spare::Offered | Spare::OfferedWhenShort);
        holds!(listed(&self.offering, &offers), "{:?} are listed as offering", self.offering);
        let leaves = |it: &PoolRow| matches!(it.owner, Some(None));
        holds!(listed(&self.leaving, &leaves), "{:?} are listed as leaving", self.leaving);
        Ok(())
    }

    /// Whether a heap is still to be counted.
    pub(super) fn is_changed(&self, heap: u32) -> bool {
        self.changed.1.contains(heap as usize)
    }

    /// Who keeps what a region holds that sleeps, by number.
    pub(super) fn keeper_of_region(&self, tag: &str) -> Option<u64> {
        self.asleep.get(tag).copied()
    }

    pub(super) fn each_graph(&self) -> impl Iterator<Item = &GraphUse> {
        self.graphs.values()
    }

    /// The heaps of all pools with their numbers, those of planned blocks among them.
    pub(super) fn each_heap(&self) -> impl Iterator<Item = (&PoolRow, u32)> {
        self.iter().flat_map(|pool| pool.all_heaps().into_iter().map(move |heap| (pool, heap)))
    }
}

pub(crate) type Owner = Weak<dyn Any + Send + Sync>;

impl<D: Driver> Engine<D> {
    /// Creates an empty pool. Memory comes with the first allocation. An engine in which a thread has panicked makes no
    /// pool: each call with the id that this returns fails with [`Error::Poisoned`].
    pub fn create_pool(&self, mut config: PoolConfig) -> PoolId {
        /// Address space for small blocks, in bytes; another such segment follows where it is full.
        const SMALL_RESERVE: u64 = 16 << 30;
        /// So many pools reserve addresses for all of the device's memory each, and `n` of them, if they are more, for
        /// so many `n`-ths of it: a process has addresses for some 900 times the memory of a large device.
        const ROOMY: u64 = 64;
        /// Reserved where the driver does not tell how much memory there is, in bytes.
        const FALLBACK: u64 = 64 << 30;
        let unit = self.driver.memory_support().granularity().unwrap_or(1);
        let made = self.alter(|locked| {
            locked.destroy_leaving(POLLED);
            let room = locked.state.tuning.device_bytes(locked.driver).unwrap_or(FALLBACK);
            let settings = locked.state.tuning.settings();
            let limit = config.max_bytes.unwrap_or(u64::MAX);
            let pools = locked.state.pools.count() as u64 + 1;
            let reserve = |bytes: u64| {
                let share = bytes / pools.max(ROOMY) * ROOMY;
                share.min(limit).max(1).next_multiple_of(unit)
            };
            let plan = |small: bool, bytes: u64| {
                let supply = if !settings.caching || config.uncached {
                    Supply::Uncached
                } else if settings.expandable_segments && config.is_mapped() {
                    Supply::Growing { reserve: reserve(bytes) }
                } else if settings.expandable_segments || !settings.exportable {
                    Supply::Fixed
                } else {
                    Supply::Allocated
                };
                Plan::new(small, supply, config.no_split, settings)
            };
            let small = plan(true, SMALL_RESERVE.min(room));
            let large = plan(false, room);
            // What the settings say of plans stays as it is.
            config.plan = config.plan.take().or_else(|| self.config.settings.plan_options());
            let pool = locked.state.pools.add(config, small, large);
            locked.state.say_of(pool, Level::Debug, |pool| format!("{pool} was made"));
            pool
        });
        // An engine that a thread has panicked in makes none: every call with the name says so.
        made.unwrap_or_else(|_| PoolId::of_none(self.number))
    }

    /// Gives all memory of a pool back to the driver. One that a [`graphs::Pool`](crate::graphs::Pool) owns goes like any
    /// other: calls of that value fail with [`Error::Unknown`] then.
    ///
    /// # Errors
    /// [`PoolRefusal::InUse`] while a block of the pool is live, a capture into it is under way, a graph of it exists,
    /// work may still use a freed block, or its region goes to sleep or wakes; [`Error::Unknown`]; the driver's: then
    /// the pool is of no use any more, and what is left of its memory goes when another pool is made or the cache emptied,
    /// but for memory that was allocated and not mapped.
    pub fn destroy_pool(&self, pool: PoolId) -> Result<(), Error> {
        self.change(|locked| {
            locked.settle_loans();
            locked.destroy_pool(pool)
        })
    }

    /// Notes whose a pool is, until [`Engine::let_pool_go`].
    pub(crate) fn own_pool(&self, pool: PoolId, owner: Owner) {
        self.state.lock().pools.set_owner(pool, Some(owner));
    }

    /// Whose a pool is; `None` for one that was only ever named, and for one whose owner is gone.
    pub(crate) fn owner_of(&self, pool: PoolId) -> Option<Owner> {
        self.state.lock().pools.get(pool)?.owner.clone().flatten()
    }

    /// Destroys a pool whose owner is gone: now, or when another pool is made or the cache is emptied. It offers nothing
    /// from now on, or blocks of other pools would keep it.
    pub(crate) fn let_pool_go(&self, pool: PoolId) {
        // A poisoned engine keeps what it has.
        let _ = self.alter(|locked| {
            locked.state.pools.set_spare(pool, Spare::default());
            locked.state.pools.set_owner(pool, None);
            locked.destroy_leaving(POLLED);
        });
    }
}
