//! Figures in Prometheus's text format.

use std::fmt::{self, Write};

use crate::driver::{Driver, Transfer};
use crate::engine::{Engine, Error, PoolStatistics, Statistics, Unknown};
use crate::regions::{Region, Regions};
use crate::shown::shown;

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It rises and falls.
    Gauge,
    /// It rises, until [`Engine::reset_accumulated`] sets it to zero.
    Counter,
}

/// What a metric is of, and where it comes from.
#[derive(Clone, Copy)]
enum Of {
    Device(fn(&Statistics) -> f64),
    /// The most that may be held on a device, where there is a limit.
    Limit,
    Pool(fn(&PoolStatistics) -> f64),
    /// The graphs of a pool.
    Graphs,
    Region(fn(&Region) -> f64),
}

/// A row of the list of metrics.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, with its unit at the end.
    pub name: &'static str,
    /// How it changes.
    pub kind: MetricKind,
    of: Of,
    /// What it says.
    pub help: &'static str,
}

impl Metric {
    /// The names of its labels.
    pub fn labels(&self) -> &'static [&'static str] {
        match self.of {
            Of::Device(_) | Of::Limit => &["device"],
            Of::Pool(_) | Of::Graphs => &["device", "pool", "name", "region"],
            Of::Region(_) => &["device", "region"],
        }
    }
}

shown!([] Metric: |it| name = it.name);

impl fmt::Display for MetricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        })
    }
}

/// Figures of engines and their regions, each read when it is added, while other threads go on. `Display` writes them
/// in Prometheus's text format, version 0.0.4.
///
/// ```
/// # use regraph::{Config, Engine, Metrics};
/// # use regraph_sim::{SimConfig, SimDriver};
/// # fn main() -> Result<(), regraph::Error> {
/// # let engine = Engine::new(SimDriver::new(SimConfig::default()), Config::default());
/// let text = Metrics::of(&engine)?.to_string();
/// assert!(text.contains("regraph_reserved_bytes{device=\"0\"} 0\n"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The row of each sample, its labels and its value.
    samples: Vec<(usize, String, f64)>,
}

/// Makes the list of metrics and its documentation of one table.
macro_rules! metrics {
    ($($name:literal: $kind:ident of $of:ident $(|$it:ident| $value:expr)?, $help:literal;)*) => {
        impl Metrics {
            /// All metrics, in the order in which they are written. Names and meanings stay; later versions may add
            /// some.
            ///
            /// | metric | kind | of a | meaning |
            /// |---|---|---|---|
            $(#[doc = concat!("| `", $name, "` | ", stringify!($kind), " | ", stringify!($of), " | ", $help, " |")])*
            pub const LIST: &'static [Metric] = &[$(Metric {
                name: $name,
                kind: MetricKind::$kind,
                of: Of::$of$((|$it| $value as f64))?,
                help: $help,
            },)*];
        }
    };
}

metrics! {
    "regraph_reserved_bytes": Gauge of Device |it| it.all.reserved_bytes.current,
        "Held from the driver.";
    "regraph_reserved_bytes_peak": Gauge of Device |it| it.all.reserved_bytes.peak,
        "The most that was held since peaks were reset.";
    "regraph_memory_limit_bytes": Gauge of Limit,
        "The most that may be held; missing where there is no limit.";
    "regraph_allocated_bytes": Gauge of Device |it| it.all.allocated_bytes.current,
        "In blocks that have not been freed.";
    "regraph_allocated_bytes_peak": Gauge of Device |it| it.all.allocated_bytes.peak,
        "The most in such blocks since peaks were reset.";
    "regraph_requested_bytes": Gauge of Device |it| it.all.requested_bytes.current,
        "What was asked for in these blocks, before it was rounded.";
    "regraph_active_bytes": Gauge of Device |it| it.all.active_bytes.current,
        "In blocks that have not been freed, and in freed ones that no stream may take yet.";
    "regraph_inactive_split_bytes": Gauge of Device |it| it.all.inactive_split_bytes.current,
        "Free in segments that are, or may be, in use elsewhere.";
    "regraph_suspended_bytes": Gauge of Device |it| it.all.suspended_bytes.current,
        "Given back by pools that sleep or are suspended, and needed again when these wake.";
    "regraph_lost_bytes": Gauge of Device |it| it.lost_bytes,
        "In blocks that are never freed, since uses of them may not be known.";
    "regraph_blocks": Gauge of Device |it| it.all.allocation.current,
        "Blocks that have not been freed.";
    "regraph_segments": Gauge of Device |it| it.all.segment.current,
        "Pieces of memory that are held from the driver.";
    "regraph_allocations_total": Counter of Device |it| it.all.allocation.allocated,
        "Blocks that were handed out.";
    "regraph_frees_total": Counter of Device |it| it.all.allocation.freed,
        "Blocks that were freed.";
    "regraph_allocated_bytes_total": Counter of Device |it| it.all.allocated_bytes.allocated,
        "Bytes of the blocks that were handed out.";
    "regraph_driver_allocations_total": Counter of Device |it| it.counts.num_device_alloc,
        "Pieces of memory that were got from the driver.";
    "regraph_driver_frees_total": Counter of Device |it| it.counts.num_device_free,
        "Pieces of memory that were given back to it.";
    "regraph_stream_waits_total": Counter of Device |it| it.counts.num_sync_all_streams,
        "How often the host was made to wait for the work of streams.";
    "regraph_allocation_retries_total": Counter of Device |it| it.counts.num_alloc_retries,
        "Requests that were tried again after memory had been given back.";
    "regraph_out_of_memory_total": Counter of Device |it| it.counts.num_ooms,
        "Requests that failed for want of memory.";
    "regraph_captures_verified_total": Counter of Device |it| it.counts.num_captures_verified,
        "Captures that the checker has accepted.";
    "regraph_captures_unjudged_total": Counter of Device |it| it.counts.num_captures_unjudged,
        "Captures that have ended and that it did not judge.";
    "regraph_captures_refused_total": Counter of Device |it| it.counts.num_captures_refused,
        "Captures that were refused at their end.";
    "regraph_captures_again_total": Counter of Device |it| it.counts.num_captures_again,
        "Refused captures that the host was asked to make again.";
    "regraph_check_seconds_total": Counter of Device |it| it.counts.check_ns as f64 / 1e9,
        "How long the checker has judged.";
    "regraph_pool_reserved_bytes": Gauge of Pool |it| it.reserved,
        "Held from the driver by a pool.";
    "regraph_pool_allocated_bytes": Gauge of Pool |it| it.allocated,
        "In its blocks that have not been freed.";
    "regraph_pool_active_bytes": Gauge of Pool |it| it.active,
        "In these, and in its freed blocks that no stream may take yet.";
    "regraph_pool_suspended_bytes": Gauge of Pool |it| it.suspended,
        "Given back while it sleeps or is suspended.";
    "regraph_pool_lent_bytes": Gauge of Pool |it| it.lent,
        "In its blocks in memory of graphs that is lent between their launches.";
    "regraph_pool_blocks": Gauge of Pool |it| it.blocks,
        "Its blocks that have not been freed.";
    "regraph_pool_graphs": Gauge of Graphs,
        "Its graphs.";
    "regraph_region_awake_bytes": Gauge of Region |it| it.awake_bytes,
        "Held from the driver by a region.";
    "regraph_region_asleep_bytes": Gauge of Region |it| it.asleep_bytes,
        "Given back while it sleeps.";
    "regraph_region_host_bytes": Gauge of Region |it| it.host_bytes,
        "Kept of it in memory of the host.";
    "regraph_region_file_bytes": Gauge of Region |it| it.file_bytes,
        "Kept of it in files.";
}

impl Metrics {
    /// The metrics of an engine.
    pub fn of<D: Driver>(engine: &Engine<D>) -> Result<Self, Error> {
        let mut metrics = Self::default();
        metrics.add(engine)?;
        Ok(metrics)
    }

    /// Adds the metrics of another engine, so that one text has several devices. Takes some microseconds for each pool.
    pub fn add<D: Driver>(&mut self, engine: &Engine<D>) -> Result<(), Error> {
        let device = engine.device().to_string();
        let (statistics, limit) = (engine.statistics()?, engine.memory_limit()?);
        self.add_rows(&[&device], |of| match of {
            Of::Device(value) => Some(value(&statistics)),
            Of::Limit => limit.map(|bytes| bytes as f64),
            _ => None,
        });
        for label in engine.pools()? {
            let known = engine.pool_statistics(label.id);
            let known = known.and_then(|known| Ok((known, engine.host().graph_count(label.id)?)));
            let (figures, graphs) = match known {
                // Another thread has destroyed it just now.
                Err(Error::Unknown { what: Unknown::Pool(_), .. }) => continue,
                known => known?,
            };
            let number = label.id.number().to_string();
            let [name, tag] = [&label.name, &label.tag].map(|text| text.as_deref().unwrap_or(""));
            self.add_rows(&[&device, &number, name, tag], |of| match of {
                Of::Pool(value) => Some(value(&figures)),
                Of::Graphs => Some(graphs as f64),
                _ => None,
            });
        }
        Ok(())
    }

    /// Adds the metrics of an engine's regions.
    pub fn add_regions<D: Transfer>(&mut self, regions: &Regions<D>) {
        let device = regions.engine().device().to_string();
        for region in regions.report() {
            self.add_rows(&[&device, &region.tag], |of| match of {
                Of::Region(value) => Some(value(&region)),
                _ => None,
            });
        }
    }

    /// Adds the samples of the rows that have a value, with the values of their labels.
    fn add_rows(&mut self, values: &[&str], value: impl Fn(Of) -> Option<f64>) {
        for (row, metric) in Self::LIST.iter().enumerate() {
            let Some(value) = value(metric.of) else { continue };
            let mut labels = String::new();
            for (label, value) in metric.labels().iter().zip(values) {
                let separator = if labels.is_empty() { "" } else { "," };
                // A text takes all that is written to it.
                let _ = write!(labels, "{separator}{label}=\"{}\"", escaped(value));
            }
            self.samples.push((row, labels, value));
        }
    }

    /// The list as a table in Markdown, for documentation.
    pub fn table() -> String {
        let mut table = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
        for metric in Self::LIST {
            let Metric { name, kind, help, .. } = metric;
            let labels = metric.labels().join(", ");
            // A text takes all that is written to it.
            let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {help} |");
        }
        table
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (row, Metric { name, kind, help, .. }) in Self::LIST.iter().enumerate() {
            let mut samples = self.samples.iter().filter(|(of, ..)| *of == row).peekable();
            if samples.peek().is_some() {
                writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
            }
            for (_, labels, value) in samples {
                writeln!(f, "{name}{{{labels}}} {value}")?;
            }
        }
        Ok(())
    }
}
