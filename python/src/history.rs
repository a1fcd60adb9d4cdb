//! Figures, history and snapshots, as the allocator class in `regraph/torch/cxx` asks for them.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pyo3::prelude::*;
use regraph::driver::StreamHandle;
use regraph::engine::{set_host_context, HistoryOptions};
use regraph::settings::Rounding;
use regraph::snapshot::{
    Action, Annotation, AnnotationStage, BlockState, HostContext, Segment, SegmentBlock,
    SegmentType, Setting, Snapshot, TraceEntry,
};
use regraph_plugin::{Happening, FIGURES};

use crate::allocator::{self, allocator};
use crate::hooks::{guarded, number, or_throw, unlocked};
use crate::stacks;

/// In the order of PyTorch's numbers.
const ACTIONS: [Action; 9] = [
    Action::Alloc,
    Action::FreeRequested,
    Action::FreeCompleted,
    Action::SegmentAlloc,
    Action::SegmentFree,
    Action::SegmentMap,
    Action::SegmentUnmap,
    Action::Snapshot,
    Action::Oom,
];

fn code(action: Action) -> c_int {
    ACTIONS.iter().position(|&it| it == action).unwrap_or(ACTIONS.len()) as c_int
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(history_setting, module)?)
}

/// How many events the settings have histories keep, and whether with stacks of native code.
#[pyfunction]
fn history_setting() -> PyResult<(usize, bool)> {
    let settings = allocator()?.settings();
    Ok((settings.history, settings.stacks))
}

/// The functions' addresses by their names.
pub(crate) fn addresses() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([
        ("stats", stats as unsafe extern "C-unwind" fn(c_int, *mut i64) as usize),
        ("stats_reset_peak", stats_reset_peak as extern "C-unwind" fn(c_int) as usize),
        (
            "stats_reset_accumulated",
            stats_reset_accumulated as extern "C-unwind" fn(c_int) as usize,
        ),
        (
            "stats_of_pools",
            stats_of_pools
                as unsafe extern "C-unwind" fn(
                    c_int,
                    *mut c_void,
                    extern "C" fn(*mut c_void, u64, u64, *const i64),
                ) as usize,
        ),
        (
            "block_row",
            block_row as unsafe extern "C" fn(*mut c_void, *mut LiveRow) -> bool as usize,
        ),
        (
            "context_set",
            context_set as unsafe extern "C" fn(*mut c_void, Option<DropContext>) as usize,
        ),
        ("history_record", history_record as extern "C-unwind" fn(usize, bool, bool, u32) as usize),
        (
            "snapshot_visit",
            snapshot_visit
                as unsafe extern "C-unwind" fn(u64, u64, bool, *mut c_void, *const Visitor)
                as usize,
        ),
        (
            "oom_observe",
            oom_observe as unsafe extern "C-unwind" fn(OomObserver, LastResort) as usize,
        ),
        ("watch", watch as unsafe extern "C-unwind" fn(Watcher) as usize),
    ])
}

/// Fills in a device's figures ([`regraph_plugin::Plugin::figures`]).
///
/// # Safety
/// `figures` has room for [`FIGURES`] numbers.
unsafe extern "C-unwind" fn stats(device: c_int, figures: *mut i64) {
    let numbers = or_throw(guarded(|| Ok(allocator()?.figures(number(device))?)));
    // SAFETY: as above.
    unsafe { figures.cast::<[i64; FIGURES]>().write_unaligned(numbers) };
}

extern "C-unwind" fn stats_reset_peak(device: c_int) {
    or_throw(unlocked(|| Ok(allocator()?.reset_peaks(number(device))?)));
}

extern "C-unwind" fn stats_reset_accumulated(device: c_int) {
    or_throw(unlocked(|| Ok(allocator()?.reset_accumulated(number(device))?)));
}

/// Tells what each named pool holds ([`regraph_plugin::Plugin::reserved_by_pools`]).
///
/// # Safety
/// `each` is for `data`, and throws nothing.
unsafe extern "C-unwind" fn stats_of_pools(
    device: c_int,
    data: *mut c_void,
    each: extern "C" fn(*mut c_void, u64, u64, *const i64),
) {
    let pools = or_throw(unlocked(|| Ok(allocator()?.reserved_by_pools(number(device)))));
    for (key, figures) in pools {
        each(data, key.0, key.1, figures.as_ptr());
    }
}

/// A live block.
#[repr(C)]
struct LiveRow {
    stream: *mut c_void,
    pool: [u64; 2],
    requested: u64,
    bytes: u64,
    device: c_int,
}

/// Fills in what is known of the live block at an address; false where there is none.
///
/// # Safety
/// `row` can be written.
unsafe extern "C" fn block_row(address: *mut c_void, row: *mut LiveRow) -> bool {
    let Ok(block) = guarded(|| Ok(allocator()?.live_block(address as u64)?)) else { return false };
    let (requested, bytes, stream) = (block.requested, block.bytes, block.stream.as_raw());
    let (device, pool) = (block.device as c_int, [block.key.0, block.key.1]);
    // SAFETY: as above.
    unsafe { row.write(LiveRow { stream, pool, requested, bytes, device }) };
    true
}

type DropContext = extern "C" fn(*mut c_void);

/// A context of C++'s, deleted with its last user.
struct Context(*mut c_void, DropContext);

// SAFETY: what it points to is not changed any more and may be deleted by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        self.1(self.0);
    }
}

/// Gives the thread's calls from now on a context, which is deleted by `drop` when nothing has it any
/// more, under locks of engines; null ends that.
///
/// # Safety
/// `context` is the caller's to give away, and any thread may delete it.
unsafe extern "C" fn context_set(context: *mut c_void, drop: Option<DropContext>) {
    let given = drop.filter(|_| !context.is_null());
    let set = guarded(|| {
        set_host_context(given.map(|drop| HostContext::new(Context(context, drop))));
        Ok(())
    });
    // A panic leaves a call without a context.
    let _ = set;
}

/// Keeps the latest `entries` events from now on; zero ends that and forgets them. `skipped`: a bit for
/// each of PyTorch's actions that is not kept.
extern "C-unwind" fn history_record(entries: usize, clear: bool, origins: bool, skipped: u32) {
    or_throw(guarded(|| {
        let skips = |action: &Action| skipped & (1 << code(*action)) != 0;
        let options = HistoryOptions::latest(entries)
            .clear(clear)
            .origins(origins)
            .snapshots(true)
            .skipped(ACTIONS.into_iter().filter(skips).collect());
        allocator()?.keep_history(options)?;
        // PyTorch gathers stacks itself.
        stacks::want(stacks::For::History, false);
        Ok(())
    }));
}

/// A text that lives as long as the call that it is given to.
#[repr(C)]
struct Text {
    start: *const u8,
    length: usize,
}

impl Text {
    fn new(text: &str) -> Self {
        Self { start: text.as_ptr(), length: text.len() }
    }
}

#[repr(C)]
struct SegmentRow {
    address: u64,
    total: u64,
    allocated: u64,
    active: u64,
    requested: u64,
    stream: *mut c_void,
    pool: [u64; 2],
    context: *const c_void,
    /// How many pieces of memory came on its device before it, or -1.
    arrival: i64,
    device: c_int,
    large: bool,
    expandable: bool,
}

#[repr(C)]
struct BlockRow {
    size: u64,
    requested: u64,
    context: *const c_void,
    allocated: bool,
    active: bool,
}

#[repr(C)]
struct EntryRow {
    address: u64,
    size: u64,
    stream: *mut c_void,
    pool: [u64; 2],
    context: *const c_void,
    time_us: i64,
    action: c_int,
    device: c_int,
}

#[repr(C)]
struct AnnotationRow {
    name: Text,
    time_us: i64,
    device: c_int,
    begins: bool,
}

#[repr(C)]
struct SettingsRow {
    text: Text,
    garbage_collection_threshold: f64,
    /// -1 for none.
    max_split_size: i64,
    /// By the power of two that an interval of sizes begins at, from 1 MB on.
    divisions: [u64; Rounding::INTERVALS],
    expandable: bool,
}

/// Is shown a snapshot: each segment with its blocks behind it, then what happened on each device, in order. May throw.
#[repr(C)]
pub(crate) struct Visitor {
    segment: extern "C-unwind" fn(*mut c_void, *const SegmentRow),
    block: extern "C-unwind" fn(*mut c_void, *const BlockRow),
    entry: extern "C-unwind" fn(*mut c_void, *const EntryRow),
    annotation: extern "C-unwind" fn(*mut c_void, *const AnnotationRow),
    settings: extern "C-unwind" fn(*mut c_void, *const SettingsRow),
}

/// Takes a snapshot and shows it: of one pool, or of everything under the name of two zeros.
///
/// # Safety
/// `visitor` is one, for `data`.
unsafe extern "C-unwind" fn snapshot_visit(
    first: u64,
    second: u64,
    traces: bool,
    data: *mut c_void,
    visitor: *const Visitor,
) {
    // SAFETY: as above.
    let visitor = unsafe { &*visitor };
    let snapshot = or_throw(unlocked(allocator::snapshot));
    // Outside `guarded`: what these throw is C++'s.
    show_settings(&snapshot, data, visitor);
    let wanted = |key: (u64, u64)| (first, second) == (0, 0) || key == (first, second);
    for segment in snapshot.segments.iter().filter(|it| wanted(it.segment_pool_id)) {
        (visitor.segment)(data, &segment_row(segment));
        for block in &segment.blocks {
            (visitor.block)(data, &block_row_of(block));
        }
    }
    if !traces {
        return;
    }
    for (device, trace) in snapshot.device_traces.iter().enumerate() {
        for entry in trace {
            (visitor.entry)(data, &entry_row(entry, device));
        }
    }
    for Annotation { name, stage, device, time_us } in &snapshot.external_annotations {
        let row = AnnotationRow {
            name: Text::new(name),
            time_us: *time_us as i64,
            device: *device as c_int,
            begins: *stage == AnnotationStage::Start,
        };
        (visitor.annotation)(data, &row);
    }
}

fn show_settings(snapshot: &Snapshot, data: *mut c_void, visitor: &Visitor) {
    let setting = |name: &str| snapshot.allocator_settings.get(name);
    let text = match setting("PYTORCH_CUDA_ALLOC_CONF") {
        Some(Setting::Text(text)) => text.as_str(),
        _ => "",
    };
    let row = SettingsRow {
        text: Text::new(text),
        garbage_collection_threshold: match setting("garbage_collection_threshold") {
            Some(&Setting::Number(share)) => share,
            _ => 0.0,
        },
        max_split_size: match setting("max_split_size") {
            Some(&Setting::Integer(bytes)) => bytes,
            _ => -1,
        },
        divisions: allocator()
            .map_or_else(|_| Default::default(), |it| it.settings().rounding.divisions()),
        expandable: matches!(setting("expandable_segments"), Some(Setting::Boolean(true))),
    };
    (visitor.settings)(data, &row);
}

fn segment_row(segment: &Segment) -> SegmentRow {
    let arrival = allocator().ok().and_then(|it| it.arrival(segment.device, segment.address));
    SegmentRow {
        address: segment.address,
        total: segment.total_size,
        allocated: segment.allocated_size,
        active: segment.active_size,
        requested: segment.requested_size,
        stream: stream(segment.stream),
        pool: [segment.segment_pool_id.0, segment.segment_pool_id.1],
        context: context(segment.context.as_ref()),
        arrival: arrival.map_or(-1, |arrival| arrival as i64),
        device: segment.device as c_int,
        large: segment.segment_type == SegmentType::Large,
        expandable: segment.is_expandable,
    }
}

fn block_row_of(block: &SegmentBlock) -> BlockRow {
    BlockRow {
        size: block.size,
        requested: block.requested_size,
        context: context(block.context.as_ref()),
        allocated: block.state == BlockState::ActiveAllocated,
        active: block.state.is_active(),
    }
}

fn entry_row(entry: &TraceEntry, device: usize) -> EntryRow {
    EntryRow {
        // PyTorch has both in one place.
        address: entry.addr.or(entry.device_free).unwrap_or(0),
        size: entry.size,
        stream: stream(entry.stream),
        pool: [entry.pool_id.0, entry.pool_id.1],
        context: context(entry.context.as_ref()),
        time_us: entry.time_us as i64,
        action: code(entry.action),
        device: device as c_int,
    }
}

fn stream(bits: u64) -> *mut c_void {
    StreamHandle::from_bits(bits as usize).as_raw()
}

fn context(context: Option<&HostContext>) -> *const c_void {
    context
        .and_then(|context| context.get::<Context>())
        .map_or(std::ptr::null(), |context| context.0.cast_const())
}

/// A request that failed. All in bytes.
#[repr(C)]
struct OomRow {
    requested: u64,
    device_total: u64,
    device_free: u64,
    /// What may be held; all that the device has where there is no limit.
    allowed: u64,
    reserved: u64,
    device: c_int,
    /// Whether the request would have gone beyond a limit.
    beyond: bool,
}

/// Told of a request that failed. Must not throw.
type OomObserver = extern "C" fn(*const OomRow);

/// Has libraries give up what they keep until memory is short; false where that freed nothing. Must not throw.
type LastResort = extern "C" fn() -> bool;

/// # Safety
/// `observer` and `last_resort` stay for as long as the process lives.
unsafe extern "C-unwind" fn oom_observe(observer: OomObserver, last_resort: LastResort) {
    or_throw(guarded(|| {
        allocator()?.set_last_resort(Box::new(move || last_resort()));
        allocator()?.observe_out_of_memory(Arc::new(move |device, report| {
            let device_total = report.device_total.unwrap_or(0);
            observer(&OomRow {
                requested: report.requested,
                device_total,
                device_free: report.device_free.unwrap_or(0),
                allowed: report.engine_limit.unwrap_or(device_total),
                reserved: report.engine_reserved,
                device: device as c_int,
                beyond: report.is_beyond_limit(),
            });
        }));
        Ok(())
    }));
}

/// Told of what happens to memory, with locks of engines held; the context is null. Must not throw.
type Watcher = extern "C" fn(*const EntryRow);

/// # Safety
/// `watcher` stays for as long as the process lives.
unsafe extern "C-unwind" fn watch(watcher: Watcher) {
    or_throw(guarded(|| {
        allocator()?.watch(Arc::new(move |it: &Happening| {
            let row = EntryRow {
                address: it.address,
                size: it.bytes,
                stream: it.stream.as_raw(),
                pool: [it.key.0, it.key.1],
                context: std::ptr::null(),
                time_us: 0,
                action: code(it.action),
                device: it.device as c_int,
            };
            watcher(&row);
        }));
        Ok(())
    }));
}
