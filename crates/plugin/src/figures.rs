//! What a plug-in tells of its memory, in the shapes that PyTorch gives it.

use std::collections::{BTreeMap, HashMap};

use serde_json::{json, Map, Value};

use regraph::driver::{StreamHandle, Transfer};
use regraph::engine::{self, Counts, Figure, Figures, FreeRange, PoolId, PoolLabel, Statistics};
use regraph::snapshot::Snapshot;
use regraph::Metrics;

use super::device::Device;
use super::oversize::Oversize;
use super::pools::{PoolKey, PoolReport, UNNAMED};
use super::{Error, Plugin};

/// A figure among those of some memory.
pub(super) type Of = fn(&Figures) -> Figure;

/// How each figure is called there, in PyTorch's order.
pub(super) const BY_NAME: [(&str, Of); 9] = [
    ("allocation", |it| it.allocation),
    ("segment", |it| it.segment),
    ("active", |it| it.active),
    ("inactive_split", |it| it.inactive_split),
    ("allocated_bytes", |it| it.allocated_bytes),
    ("reserved_bytes", |it| it.reserved_bytes),
    ("active_bytes", |it| it.active_bytes),
    ("inactive_split_bytes", |it| it.inactive_split_bytes),
    ("requested_bytes", |it| it.requested_bytes),
];

/// What is counted of a device, by PyTorch's names and in its order.
pub(super) fn counted(counts: &Counts) -> [(&'static str, u64); 5] {
    [
        ("num_alloc_retries", counts.num_alloc_retries),
        ("num_ooms", counts.num_ooms),
        ("num_sync_all_streams", counts.num_sync_all_streams),
        ("num_device_alloc", counts.num_device_alloc),
        ("num_device_free", counts.num_device_free),
    ]
}

impl<D: Transfer> Plugin<D> {
    /// A device's figures, nested as `torch.cuda.memory_stats_as_nested_dict` has them. Beside them stand memory
    /// that suspended pools have given back, of each region, by its tag, what it holds, has given back and keeps
    /// on the host, and the number of captures that ended without a verdict of the checker.
    ///
    /// All figures are zeros of a device that nothing was asked of yet: no engine is made to tell them.
    ///
    /// # Errors
    /// Those of [`Engine::statistics`](regraph::engine::Engine::statistics).
    pub fn statistics(&self, device: u32) -> Result<Value, Error> {
        let (statistics, [blocks, pieces]) = self.counts(device)?;
        let mut all: Map<String, Value> = BY_NAME
            .into_iter()
            .map(|(name, of)| (name.to_owned(), classes(&statistics, of)))
            .collect();
        all.insert("oversize_allocations".to_owned(), json!(numbers(blocks)));
        all.insert("oversize_segments".to_owned(), json!(numbers(pieces)));
        let split = self.settings().max_split_bytes;
        all.insert("max_split_size".to_owned(), split.map_or(json!(-1), |bytes| json!(bytes)));
        all.insert("suspended_bytes".to_owned(), classes(&statistics, |it| it.suspended_bytes));
        let regions = self.regions(device).into_iter().map(|region| {
            let figures = json!({
                "awake_bytes": region.awake_bytes,
                "asleep_bytes": region.asleep_bytes,
                "host_bytes": region.host_bytes,
                "file_bytes": region.file_bytes,
            });
            (region.tag.to_string(), figures)
        });
        let regions: Map<String, Value> = regions.collect();
        if !regions.is_empty() {
            all.insert("regions".to_owned(), Value::Object(regions));
        }
        let unjudged = self.made(device).map_or(0, |device| device.reports.unjudged());
        all.insert("unjudged_captures".to_owned(), json!(unjudged));
        for (name, count) in counted(&statistics.counts) {
            all.insert(name.to_owned(), json!(count));
        }
        Ok(Value::Object(all))
    }

    /// What a device's engine counts, and the numbers of blocks and of pieces of memory that are never split.
    pub(super) fn counts(&self, device: u32) -> Result<(Statistics, [Figure; 2]), Error> {
        let Some(device) = self.made(device) else { return Ok(Default::default()) };
        Ok((device.engine.statistics()?, device.oversize()))
    }

    /// The figures of all devices that there are by now, and of their pools and regions.
    ///
    /// # Errors
    /// Those of [`Metrics::add`].
    pub fn metrics(&self) -> Result<Metrics, Error> {
        let mut metrics = Metrics::default();
        for device in self.devices() {
            metrics.add(&device.engine)?;
            metrics.add_regions(&device.regions);
        }
        Ok(metrics)
    }

    /// What each pool holds on a device that the host has named, in bytes: four numbers each, current,
    /// peak, allocated and freed, for all of it, for small blocks and for large ones. Of a pool that is gone
    /// the sums and the peak stay until they are reset, of the latest 256 of these.
    pub fn reserved_by_pools(&self, device: u32) -> Vec<(PoolKey, [i64; 12])> {
        let Some(device) = self.made(device) else { return Vec::new() };
        let pools = device.pools();
        let mut rows: BTreeMap<PoolKey, [Figure; 3]> = BTreeMap::new();
        let live = pools
            .private
            .iter()
            .filter_map(|(&key, private)| Some((key, device.held_by(private.pool)?)));
        for (key, held) in live.chain(pools.gone.iter().copied()) {
            let row = rows.entry(key).or_default();
            for (sum, figure) in row.iter_mut().zip(held) {
                sum.current += figure.current;
                sum.peak = sum.peak.max(figure.peak);
                sum.allocated += figure.allocated;
                sum.freed += figure.freed;
            }
        }
        let numbers = |held: [Figure; 3]| signed(held.into_iter().flat_map(parts));
        rows.into_iter().map(|(key, held)| (key, numbers(held))).collect()
    }

    /// Sets each peak of a device to the current figure. See
    /// [`Engine::reset_peaks`](regraph::engine::Engine::reset_peaks).
    ///
    /// # Errors
    /// Those of that call.
    pub fn reset_peaks(&self, device: u32) -> Result<(), Error> {
        let Some(device) = self.made(device) else { return Ok(()) };
        device.reset(|figure| figure.peak = 0, Oversize::reset_peak);
        Ok(device.engine.reset_peaks()?)
    }

    /// Sets a device's sums of what came and went to zero. See
    /// [`Engine::reset_accumulated`](regraph::engine::Engine::reset_accumulated).
    ///
    /// # Errors
    /// Those of that call.
    pub fn reset_accumulated(&self, device: u32) -> Result<(), Error> {
        let Some(device) = self.made(device) else { return Ok(()) };
        let reset = |figure: &mut Figure| (figure.allocated, figure.freed) = (0, 0);
        device.reset(reset, Oversize::reset_accumulated);
        Ok(device.engine.reset_accumulated()?)
    }

    /// A device's pools, that of eager work first.
    ///
    /// # Errors
    /// Those of [`Engine::pools`](regraph::engine::Engine::pools).
    pub fn pools(&self, device: u32) -> Result<Vec<PoolReport>, Error> {
        let Some(device) = self.made(device) else { return Ok(Vec::new()) };
        let labels: HashMap<_, _> =
            device.engine.pools()?.into_iter().map(|label| (label.id, label)).collect();
        let report = |(key, pool, graphs): (PoolKey, PoolId, usize)| {
            let figures = device.engine.pool_statistics(pool)?;
            let (reserved, allocated) = (figures.reserved, figures.allocated);
            let label = labels.get(&pool).cloned().unwrap_or(pool.into());
            let PoolLabel { name, tag: region, .. } = label;
            Ok(PoolReport { key, name, region, pool, reserved, allocated, graphs })
        };
        device.all_pools().into_iter().map(report).filter(is_there).collect()
    }

    /// Calls a pool of a device by a text, in messages and reports; none takes it away.
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; [`Error::Driver`] where the device cannot be had.
    pub fn set_pool_name(
        &self,
        device: u32,
        key: PoolKey,
        name: Option<&str>,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let pool = device.pools().named(key, "set_pool_name")?;
        Ok(device.engine.set_pool_name(pool, name)?)
    }

    /// The free ranges of all pools of a device as a stream sees them now, with why it may not take
    /// one. See [`Engine::explain`](regraph::engine::Engine::explain).
    ///
    /// # Errors
    /// Those of that call; [`Error::Driver`] where the device cannot be had.
    pub fn explain(
        &self,
        device: u32,
        stream: StreamHandle,
    ) -> Result<Vec<(PoolKey, Vec<FreeRange>)>, Error> {
        let device = self.device(device)?;
        let explain = |(key, pool, _)| Ok((key, device.engine.explain(pool, stream)?));
        device.all_pools().into_iter().map(explain).filter(is_there).collect()
    }

    /// Everything that all devices hold, with the history where one is kept; pools by the names that
    /// the host gave them.
    ///
    /// # Errors
    /// Those of [`Engine::snapshot`](regraph::engine::Engine::snapshot).
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut whole = Snapshot::default();
        for device in self.devices() {
            let mut snapshot = device.engine.snapshot()?;
            let names = device.pools();
            let key = |(number, _): (u64, u64)| names.key_of(number);
            for segment in &mut snapshot.segments {
                segment.segment_pool_id = key(segment.segment_pool_id);
            }
            for event in snapshot.device_traces.iter_mut().flatten() {
                event.pool_id = key(event.pool_id);
            }
            drop(names);
            let row = device.number as usize;
            whole.device_traces.resize(whole.device_traces.len().max(row + 1), Vec::new());
            if let Some(trace) = snapshot.device_traces.pop() {
                whole.device_traces[row] = trace;
            }
            whole.segments.append(&mut snapshot.segments);
            whole.allocator_settings.append(&mut snapshot.allocator_settings);
            whole.external_annotations.append(&mut snapshot.external_annotations);
        }
        Ok(whole)
    }
}

impl<D: Transfer> Device<D> {
    /// Resets a part of the figures of destroyed pools, and of the counts of oversize blocks.
    fn reset(&self, reset: impl Fn(&mut Figure), reset_oversize: impl Fn(&Oversize)) {
        reset_oversize(self.blocks.oversize());
        self.watch.oversize(self.number, reset_oversize);
        self.pools().gone.retain_mut(|(_, held)| {
            held.iter_mut().for_each(&reset);
            held.iter().any(|it| it.peak + it.allocated + it.freed > 0)
        });
    }

    /// The numbers of blocks and of pieces of memory that are never split.
    fn oversize(&self) -> [Figure; 2] {
        let mut pieces = Figure::default();
        self.watch.oversize(self.number, |oversize| pieces = oversize.figure());
        [self.blocks.oversize().figure(), pieces]
    }

    /// What a pool holds: all of it, for small blocks, for large ones.
    fn held_by(&self, pool: PoolId) -> Option<[Figure; 3]> {
        let figures = self.engine.statistics_of(pool).ok()?;
        Some([&figures.all, &figures.small_pool, &figures.large_pool].map(|it| it.reserved_bytes))
    }

    /// What a pool held, for when it is gone: it holds nothing then.
    pub(super) fn left_by(&self, pool: PoolId) -> Option<[Figure; 3]> {
        let gone = |mut figure: Figure| {
            figure.freed += std::mem::take(&mut figure.current);
            figure
        };
        self.held_by(pool).map(|held| held.map(gone))
    }

    /// Every pool with its name and the number of its graphs, in order of names.
    fn all_pools(&self) -> Vec<(PoolKey, PoolId, usize)> {
        let pools = self.pools();
        let mut all: Vec<_> = pools
            .private
            .iter()
            .map(|(&key, private)| (key, private.pool, private.graphs.len()))
            .collect();
        all.sort_unstable();
        let strays = pools.strays.values().map(|stray| (UNNAMED, stray.pool, 1));
        let uncached = self.uncached.get().map(|&pool| (UNNAMED, pool, 0));
        let in_regions = self.eager_in_regions.lock();
        let in_regions = in_regions.values().map(|&pool| (UNNAMED, pool, 0));
        let eager = [(UNNAMED, self.eager, 0)].into_iter().chain(in_regions).chain(uncached);
        eager.chain(strays).chain(all).collect()
    }
}

/// Whether a pool was looked at, and not destroyed by another thread just before.
fn is_there<T>(found: &Result<T, Error>) -> bool {
    use engine::{Error::Unknown, Unknown::Pool};
    !matches!(found, Err(Error::Engine(Unknown { what: Pool(_), .. })))
}

pub(super) fn parts(it: Figure) -> [u64; 4] {
    [it.current, it.peak, it.allocated, it.freed]
}

/// Numbers as PyTorch has them; -1 behind the last.
pub(super) fn signed<const N: usize>(parts: impl Iterator<Item = u64>) -> [i64; N] {
    let mut numbers = [-1; N];
    let parts = parts.map(|part| i64::try_from(part).unwrap_or(i64::MAX));
    numbers.iter_mut().zip(parts).for_each(|(number, part)| *number = part);
    numbers
}

/// A figure of all blocks, small and large ones.
fn classes(statistics: &Statistics, of: Of) -> Value {
    json!({
        "all": numbers(of(&statistics.all)),
        "small_pool": numbers(of(&statistics.small_pool)),
        "large_pool": numbers(of(&statistics.large_pool)),
    })
}

fn numbers(figure: Figure) -> Value {
    json!({
        "current": figure.current,
        "peak": figure.peak,
        "allocated": figure.allocated,
        "freed": figure.freed,
    })
}
