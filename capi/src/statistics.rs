//! Statistics.

use std::ffi::c_char;
use std::sync::Arc;

use regraph::driver::Driver;
use regraph::engine::{Counts, Engine, Error, Figure, Figures, Statistics, Unknown};
use regraph::Metrics;

use crate::arguments::give;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{c_text, Fallible};
use crate::handles::regraph_pool;
use crate::rows::Rows;

/// One statistic over time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_figure {
    /// The current value.
    pub current: u64,
    /// The highest value since regraph_reset_peaks().
    pub peak: u64,
    /// The sum of all increases since regraph_reset_accumulated().
    pub allocated: u64,
    /// The sum of all decreases since then.
    pub freed: u64,
}

/// Statistics of some memory, with the meanings that PyTorch gives them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_figures {
    /// Blocks that have not been freed.
    pub allocation: regraph_figure,
    /// Their bytes, each block rounded up to a multiple of 512.
    pub allocated_bytes: regraph_figure,
    /// Their bytes as requested.
    pub requested_bytes: regraph_figure,
    /// Live blocks, and freed blocks that no stream can take yet.
    pub active: regraph_figure,
    /// Their bytes.
    pub active_bytes: regraph_figure,
    /// Free ranges in segments of which another part is, or may be, in use.
    pub inactive_split: regraph_figure,
    /// Their bytes.
    pub inactive_split_bytes: regraph_figure,
    /// Mappings and allocations that are held from the driver.
    pub segment: regraph_figure,
    /// Their bytes.
    pub reserved_bytes: regraph_figure,
    /// Bytes of suspended pools that were given back to the driver and that the pools need again when they are resumed.
    pub suspended_bytes: regraph_figure,
    /// Zero. Later versions may give these names.
    pub unused: [regraph_figure; 6],
}

/// Counts of what an engine did.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_counts {
    /// Requests that were tried again after memory had been given back to the driver.
    pub num_alloc_retries: u64,
    /// Requests that failed for lack of memory.
    pub num_ooms: u64,
    /// How often a call waited for the work of streams.
    pub num_sync_all_streams: u64,
    /// Mappings and allocations that were obtained from the driver.
    pub num_device_alloc: u64,
    /// Mappings and allocations that were given back.
    pub num_device_free: u64,
    /// Captures that the checker has accepted.
    pub num_captures_verified: u64,
    /// Captures that have ended and that it did not judge.
    pub num_captures_unjudged: u64,
    /// Captures that were refused at their end.
    pub num_captures_refused: u64,
    /// Refused captures that the caller was asked to make again (REGRAPH_ERROR_CAPTURE_AGAIN).
    pub num_captures_again: u64,
    /// How long the checker has judged, in nanoseconds.
    pub check_ns: u64,
    /// Zero. Later versions may give these names.
    pub unused: [u64; 6],
}

/// The statistics of an engine or of a pool. But for memory mapped ahead, had at a capture's end, or fixed, reserved_bytes +
/// suspended_bytes = active_bytes (allocated, or freed and not to be had yet) + inactive_split_bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_statistics {
    /// All blocks.
    pub all: regraph_figures,
    /// Blocks of up to 1 MiB. Captures may place a block of any size in either part.
    pub small_pool: regraph_figures,
    /// Larger blocks.
    pub large_pool: regraph_figures,
    /// Counts of what happened on the whole device; the same for every pool.
    pub counts: regraph_counts,
}

copied! {
    Figure => regraph_figure { current, peak, allocated, freed }
    Figures => regraph_figures {
        allocation, allocated_bytes, requested_bytes, active, active_bytes, inactive_split,
        inactive_split_bytes, segment, reserved_bytes, suspended_bytes;
        unused = [Figure::default().into(); 6]
    }
    Counts => regraph_counts {
        num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free,
        num_captures_verified, num_captures_unjudged, num_captures_refused, num_captures_again, check_ns;
        unused = [0; 6]
    }
    Statistics => regraph_statistics { all, small_pool, large_pool, counts }
}

/// The statistics of all pools.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_get_statistics(
    engine: *const regraph_engine,
    statistics: *mut regraph_statistics,
) -> regraph_error {
    call!(engine, statistics = engine.statistics()?.into())
}

/// The figures of all pools, captures and regions as a text that Prometheus reads, in its format 0.0.4, to be
/// destroyed with regraph_string_destroy(). The table "Metrics" of OPERATING.md lists them.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_metrics(
    engine: *const regraph_engine,
    text: *mut *mut c_char,
) -> regraph_error {
    call!(
        engine,
        text = {
            let mut metrics = Metrics::of(engine)?;
            metrics.add_regions(engine.regions());
            c_text(metrics.to_string()).into_raw()
        }
    )
}

/// The statistics of a pool.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_get_statistics(
    engine: *const regraph_engine,
    pool: regraph_pool,
    statistics: *mut regraph_statistics,
) -> regraph_error {
    call!(engine, statistics = engine.statistics_of(pool.into())?.into())
}

/// Resets peaks to current values.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_reset_peaks(engine: *const regraph_engine) -> regraph_error {
    call!(engine, engine.reset_peaks()?)
}

/// Resets all sums over time and all counts to zero.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_reset_accumulated(engine: *const regraph_engine) -> regraph_error {
    call!(engine, engine.reset_accumulated()?)
}

/// A pool in short. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_pool_info {
    /// The pool.
    pub pool: regraph_pool,
    /// Its name, or NULL where it has none. Lives as long as the list.
    pub name: *const c_char,
    /// The tag of its region, or NULL where it belongs to none. Lives as long as the list.
    pub tag: *const c_char,
    /// Held from the driver, in bytes.
    pub reserved_bytes: u64,
    /// In blocks that have not been freed, in bytes.
    pub allocated_bytes: u64,
    /// Blocks that have not been freed.
    pub blocks: u64,
}

/// The pools at one time, in the order in which they were created.
#[derive(Debug)]
pub struct regraph_pool_list(Rows<regraph_pool_info>);

impl regraph_pool_list {
    fn of<D: Driver>(engine: &Engine<D>) -> Fallible<Self> {
        let mut list = Rows::new();
        for label in engine.pools()? {
            let figures = match engine.pool_statistics(label.id) {
                // Another thread has destroyed it just now.
                Err(Error::Unknown { what: Unknown::Pool(_), .. }) => continue,
                known => known?,
            };
            let mut text = |text: Option<Arc<str>>| {
                text.map_or(std::ptr::null(), |text| list.text(text.to_string()))
            };
            let (name, tag) = (text(label.name), text(label.tag));
            list.push(regraph_pool_info {
                pool: label.id.into(),
                name,
                tag,
                reserved_bytes: figures.reserved,
                allocated_bytes: figures.allocated,
                blocks: figures.blocks as u64,
            });
        }
        Ok(Self(list))
    }
}

/// Lists all pools of an engine, with those that regraph_pool_release() gave up and whose memory is still in
/// use. `pools` gets a list to be destroyed with regraph_pool_list_destroy().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_get_pools(
    engine: *const regraph_engine,
    pools: *mut *mut regraph_pool_list,
) -> regraph_error {
    call!(engine, pools = give(regraph_pool_list::of(engine)?))
}

/// The number of pools of a list; 0 for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_list_count(pools: *const regraph_pool_list) -> usize {
    count!(pools)
}

/// One pool of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_list_get(
    pools: *const regraph_pool_list,
    index: usize,
) -> *const regraph_pool_info {
    row!(pools, index)
}

/// Destroys a list. Does nothing for NULL.
///
/// Threads: any, while no other call uses the list.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_list_destroy(pools: *mut regraph_pool_list) {
    destroy!(pools)
}
