//! The allocator's settings: values only, and the one-line text that they are written as.
//!
//! The text has the form of PyTorch's (`PYTORCH_ALLOC_CONF`): `key:value,key:[a:b,c:d]`, with white space allowed
//! around every token. A key that PyTorch has too means the same here. One MB is 1,048,576 bytes. A key may stand once.
//!
//! [`Settings`] has the keys as a table.
//!
//! Keys of PyTorch that mean nothing here are refused with the reason. Booleans are written `True` and `False`, as in
//! PyTorch.
//!
//! ```
//! use regraph::settings::Settings;
//!
//! let settings = Settings::parse("max_split_size_mb:64, roundup_power2_divisions:[256:1,>:4]")?;
//! assert_eq!(settings.max_split_bytes, Some(64 << 20));
//! assert_eq!(settings.rounding.round(600 << 20), 640 << 20);
//! assert_eq!(settings.to_string(), "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4]");
//! # Ok::<(), regraph::settings::SettingsError>(())
//! ```

mod error;
mod rounding;
mod text;

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

pub use error::SettingsError;
pub use rounding::Rounding;

use crate::plan::Options;
pub use crate::policy::{PlanChoice, Programmatic, Reuse};
use text::{Boolean, Dialect, Divisions, Form, Megabytes, Name, Optional, Plain, SettingKey};

/// The longest text of settings that is read, in bytes.
pub const TEXT_LIMIT: usize = 1 << 16;

/// The environment variable that holds the text of the settings.
pub const ALLOC_CONF: &str = "REGRAPH_ALLOC_CONF";

/// The environment variable that turns caching off if it is `1`.
pub const NO_MEMORY_CACHING: &str = "REGRAPH_NO_MEMORY_CACHING";

/// The least that PyTorch allows for sizes that concern splitting, in bytes.
const SPLIT_LEAST: u64 = 20 << 20;

const BOOLEAN: &str = "True or False";

/// Makes the settings of one table. A row has what is said of it in the table that users see and what else is to be
/// known, a field with its default, and its key in the text: the form of its values, what is allowed (for messages),
/// and, where the form allows too much, whether a value is within its bounds.
macro_rules! settings {
    ($(
        #[doc = $meaning:literal]
        $(#[doc = $more:literal])*
        $field:ident: $type:ty = $default:expr,
        $key:literal: $form:ty, $expected:expr $(, |$value:ident| $valid:expr)?;
    )*) => {
        /// The allocator's settings. The text, [`parse`](Settings::parse), knows whole MB; in code sizes are bytes, and
        /// `None` is what a text cannot say: no limit, or off.
        ///
        /// | key | meaning |
        /// |---|---|
        $(#[doc = concat!("| `", $key, "` |", $meaning, " |")])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Settings {
            $(
                #[doc = concat!("`", $key, "`:", $meaning)]
                $(#[doc = $more])*
                pub $field: $type,
            )*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// Setters that can be chained.
        impl Settings {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Settings#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, value: $type) -> Self {
                    self.$field = value;
                    self
                }
            )*
        }

        /// All keys, in the order in which they are written.
        const KEYS: &[SettingKey] = &[$(
            SettingKey::new(
                $key,
                $expected,
                |value, settings| {
                    settings.$field = <$form>::read(value)?;
                    Ok(())
                },
                |settings| <$form>::write(&settings.$field),
                |_settings| true $(&& {
                    let $value = _settings.$field;
                    $valid
                })?,
            ),
        )*];
    };
}

settings! {
    /// Free blocks of at least this size are never split, and only requests of at least this size get them. At least 20 MB. Default: no limit.
    max_split_bytes: Option<u64> = None,
        "max_split_size_mb": Optional<Megabytes>, "a whole number of MB from 20 to 17592186044415",
        |it| it.is_none_or(|bytes| bytes >= SPLIT_LEAST);
    /// A request of at least `max_split_size_mb` takes a free block only if the block is less than this much larger. At least 20 MB. Default: 20 MB.
    max_non_split_rounding_bytes: u64 = 20 << 20,
        "max_non_split_rounding_mb": Megabytes, "a whole number of MB from 20 to 17592186044415",
        |it| it >= SPLIT_LEAST;
    /// Above this share of the memory that may be held, free segments that were long unused are given back before the device is asked for more. Between 0 and 1, both excluded. Default: off.
    garbage_collection_threshold: Option<f64> = None,
        "garbage_collection_threshold": Optional<Plain>,
        "a share of the allowed memory, above 0 and below 1",
        |it| it.is_none_or(|share| share > 0.0 && share < 1.0);
    /// Sizes are rounded up to the next of this many even steps between two powers of two: one power of two for all sizes, or a list by size ([`Rounding`]). Default: off.
    rounding: Rounding = Rounding::default(),
        "roundup_power2_divisions": Divisions,
        "a power of two, or a list of sizes in MB and divisions such as [256:1,512:2,1024:4,>:8]";
    /// Segments are reserved address ranges that grow in place. Without this and with `exportable` they are the driver's own allocations, which `cuIpcGetMemHandle` names, and pools cannot be suspended. PyTorch's default is `False`. Default: `True`.
    expandable_segments: bool = true,
        "expandable_segments": Boolean, BOOLEAN;
    /// Whether memory is made so that other processes can map it and network cards can reach it; without this, [`Sharing::share`](crate::engine::Sharing::share) shares only memory that is not mapped. Default: `False`.
    exportable: bool = false,
        "exportable": Boolean, BOOLEAN;
    /// The most that may be held, as a share of the device's memory. Above 0, at most 1. Default: off.
    ///
    /// What [`validate`](Settings::validate) refuses counts as the nearer bound, NaN as no limit.
    memory_fraction: Option<f64> = None,
        "per_process_memory_fraction": Optional<Plain>,
        "a share of the device's memory, above 0 and at most 1",
        |it| it.is_none_or(|share| share > 0.0 && share <= 1.0);
    /// The most that may be held, per device. If the share is given too, the smaller one counts. At least 1. Default: off.
    memory_limit_bytes: Option<u64> = None,
        "memory_limit_mb": Optional<Megabytes>, "a whole number of MB from 1 to 17592186044415",
        |it| it.is_none_or(|bytes| bytes >= 1 << 20);
    /// The most that a capture maps at once ahead of what it asks for; what is left at its end goes back to the driver. 0: nothing ahead. Default: off.
    ///
    /// With `None` no capture maps ahead, unless the host lets single captures do so ([`HostCalls::begin_served`]).
    ///
    /// Every mapping costs the driver some 23 us, so growth by small pieces can be most of what a capture costs. With a
    /// step, pieces that were mapped in a capture are exchanged for smaller ones before it ends. So the program must
    /// not register memory of captures under way, as communication libraries do, and must not write to a block of such
    /// a capture from outside without recording the use first ([`Engine::record_stream`]).
    ///
    /// [`HostCalls::begin_served`]: crate::engine::HostCalls::begin_served
    /// [`Engine::record_stream`]: crate::engine::Engine::record_stream
    growth_step_bytes: Option<u64> = None,
        "growth_step_mb": Optional<Megabytes>, "a whole number of MB from 0 to 17592186044415";
    /// How captures get their memory ([`PlanChoice`]): `none`, as they ask for it; `auto`, as they ask for it, close together where a warm-up or an earlier capture has asked for the same; or `exact`, at their end, the least that they can run on, and until then nothing outside may touch their blocks, and the graph is not launched. Default: `none`.
    ///
    /// With [`PlanChoice::Exact`] captures get addresses without memory, and at their end the least memory that they
    /// can run on; blocks share it where the graph proves their order. Until a capture has ended here, the program must
    /// not register its memory, as communication libraries do, must not touch its blocks from outside, and must not
    /// launch its graph. What work outside the capture writes to its blocks until then, as a library may that
    /// initialises its workspace, is lost; blocks of [`Engine::allocate_fixed`] keep it. A mapping costs the driver
    /// some 23 us, for any size.
    ///
    /// [`Engine::allocate_fixed`]: crate::engine::Engine::allocate_fixed
    ///
    /// With [`PlanChoice::Auto`] the engine learns from recent requests outside captures and from each capture that
    /// keeps a record. A later capture whose first request is for as many bytes, or for fewer (a smaller batch), places
    /// its blocks by a layout that a short search makes then, if it takes less memory than the blocks as they come.
    /// What streams knew of each other outside captures is guessed from the blocks that they used of each other, where
    /// these show that each stream that the host comes back to waits for others; after a wrong guess a capture may take
    /// more memory than without. Runs that the host marks ([`Plans::learn`](crate::engine::Plans::learn)) teach, in the
    /// same way, with every choice. With a layout more blocks lie where a freed one lay: what only the run of the
    /// capture wrote to a block that it frees is overwritten sooner.
    plan: PlanChoice = PlanChoice::default(),
        "plan": Name, "none, auto or exact";
    /// The most mappings of a capture's plan; with fewer it may need more memory. At least 1. Default: no limit.
    plan_max_mappings: Option<u64> = None,
        "plan_max_mappings": Optional<Plain>, "a whole number of mappings, at least 1",
        |it| it != Some(0);
    /// The most that a plan maps as one piece: what graphs of a pool share, they share by whole pieces. At least 1. Default: no limit.
    plan_max_piece_bytes: Option<u64> = None,
        "plan_max_piece_mb": Optional<Megabytes>, "a whole number of MB from 1 to 17592186044415",
        |it| it.is_none_or(|bytes| bytes >= 1 << 20);
    /// The most time that a plan's mappings may take, as a share of what the capture took; with less it may need more memory. At least 1. Default: no limit.
    plan_max_share_percent: Option<u64> = None,
        "plan_max_share_percent": Optional<Plain>, "a whole number of percent, at least 1",
        |it| it != Some(0);
    /// How many graphs with plans a pool is to have at one time. Pieces of memory are cut for later graphs to find sizes that fit, which takes mappings: those of the last are not. At least 1. Default: any number.
    plan_pool_graphs: Option<u64> = None,
        "plan_pool_graphs": Optional<Plain>, "a whole number of graphs, at least 1",
        |it| it != Some(0);
    /// How many times as long a layout is searched for, where the least memory is not found at once: for runs that the host has learned and for captures that are run twice. At least 1; more than about thirteen seconds on one core are never searched. Default: 1.
    ///
    /// With 1 a search takes some 0.15 s for some hundred blocks. Layouts do not depend on the machine's speed. The
    /// search for a run that the host has marked ([`Plans::learn`](crate::engine::Plans::learn)) is made at the first
    /// request of the capture that follows it.
    plan_search: usize = 1,
        "plan_search": Plain, "a whole number, at least 1: so many times as long", |it| it != 0;
    /// What programmatic edges prove: `auto`, `deny`, `lag` or `trust` ([`Programmatic`]). Default: `auto`.
    programmatic: Programmatic = Programmatic::default(),
        "programmatic": Name, "auto, deny, lag or trust";
    /// Which streams may take a free block in a capture: `cross_stream`, `own_stream` or `deferred` ([`Reuse`]). Default: `cross_stream`.
    reuse: Reuse = Reuse::default(),
        "reuse": Name, "cross_stream, own_stream or deferred";
    /// Whether the checker judges each capture at its end. Default: `True`.
    check: bool = true,
        "check": Boolean, BOOLEAN;
    /// Whether each capture's graph is searched, at its end, for reads of what nothing in it wrote before: exact for copies, guesses for kernels ([`EarlyRead`](crate::reports::EarlyRead)). Default: `False`.
    ///
    /// The capture's report lists the reads ([`CaptureReport::early_reads`](crate::CaptureReport::early_reads)); all
    /// but bare guesses are logged as a warning. The search needs a journal: `check`, or
    /// [`Config::journal`](crate::Config::journal).
    early_reads: bool = false,
        "early_reads": Boolean, BOOLEAN;
    /// For debugging: before the first launch of each graph, what graphs of its pools do not keep between launches is filled with bytes of 0xFF, so that no launch finds what only the run of a capture wrote there. Default: `False`.
    ///
    /// Bytes of 0xFF are NaN as floating-point numbers and -1 as signed integers. The stream of the launch fills the
    /// memory that [`Lent::Temporary`](crate::engine::Lent::Temporary) names, in all pools of the graph on its device,
    /// before the launch, or before a later launch where a capture into such a pool is under way. This happens only for
    /// graphs that are launched through [`Graph`](crate::Graph) or [`graphs::Lease`](crate::graphs::Lease). Memory that
    /// captures get at their end (`plan:exact`) is not filled: it never holds what the run of the capture wrote.
    poison: bool = false,
        "poison": Boolean, BOOLEAN;
    /// How many events the history keeps; 0 turns it off. Default: 0.
    history: usize = 0,
        "history": Plain, "a whole number of events; 0 turns the history off";
    /// Whether blocks, in reports too, and events of the history carry the host's stack frames; those of Rust and C callers need the feature `stacks`. Default: `False`.
    stacks: bool = false,
        "stacks": Boolean, BOOLEAN;
    /// A file for what memory holds when a request fails for want of it, once for each engine; `%p` in it stands for the process's number, `%d` for the device's. A path without white space and `,:[]`. Default: off.
    ///
    /// The file is JSON, a [`Snapshot`](crate::snapshot::Snapshot) with one field more, `out_of_memory`: the report of
    /// the request in words and figures, every pool, the largest blocks and the largest ranges that wait. It is written
    /// before the request returns and without the engine's lock; a file that is there is replaced.
    oom_dump: Option<String> = None,
        "oom_dump": Optional<Plain>, "a path without white space and `,:[]`";
    /// Whether a profiler that reads NVTX, such as Nsight Systems, shows the messages of the engine as marks and what takes it long as ranges, in the domain `regraph`. Needs the feature `cuda`. Default: `False`.
    ///
    /// All messages from `debug` on are marks, whatever the `log` crate lets through. Ranges begin and end while the
    /// engine holds locks: what the profiler's library does then must not call the engine. Where the environment
    /// variable `NVTX_INJECTION64_PATH`, which profilers set, names no library, nothing is shown and nothing costs more.
    nvtx: bool = false,
        "nvtx": Boolean, BOOLEAN;
    /// `False`: every block is a driver allocation of its own, for debugging. Default: `True`.
    caching: bool = true,
        "caching": Boolean, BOOLEAN;
}

impl Settings {
    /// Reads settings from their text; a key that the text leaves out keeps its default. The empty text gives the
    /// defaults.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        Self::default().overlaid(text)
    }

    /// Every key with its value as text. The value is empty for no limit or off, which a text cannot say.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        KEYS.iter().map(|key| (key.name(), key.value(self)))
    }

    /// The bounds for plans at captures' ends; `None` unless `plan` is `exact`.
    pub fn plan_options(&self) -> Option<Options> {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let options = Options::default()
            .max_mappings(self.plan_max_mappings.map(count))
            .max_piece_bytes(self.plan_max_piece_bytes)
            .max_share_percent(self.plan_max_share_percent)
            .pool_graphs(self.plan_pool_graphs.map(count));
        (self.plan == PlanChoice::Exact).then_some(options)
    }

    /// Reads settings from their text as [`Settings::parse`] does; a key that the text leaves out keeps its value in
    /// `self`.
    pub fn overlaid(self, text: &str) -> Result<Self, SettingsError> {
        text::parse(text, self, Dialect::Own)
    }

    /// Reads settings from a text that is meant for PyTorch; a key that the text leaves out keeps its value in `self`.
    /// The last of several values of a key counts. Keys of PyTorch that mean nothing here are returned, in the text's
    /// order.
    pub fn overlaid_by_pytorch(self, text: &str) -> Result<(Self, Vec<String>), SettingsError> {
        let mut unused = Vec::new();
        let settings = text::parse(text, self, Dialect::PyTorch(&mut unused))?;
        Ok((settings, unused))
    }

    /// Checks that all values are within the bounds that a text has to keep; fields that are set in code may not be.
    ///
    /// # Errors
    /// [`SettingsError::Value`] for the first value that is not.
    pub fn validate(&self) -> Result<(), SettingsError> {
        KEYS.iter().try_for_each(|key| key.validate(self))
    }

    /// Reads the settings from the process environment: `REGRAPH_ALLOC_CONF` holds their text, and
    /// `REGRAPH_NO_MEMORY_CACHING=1` turns `caching` off even if the text says otherwise (`0`, empty or not
    /// set: as the text says).
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::default().overlaid_by_environment()
    }

    /// Reads settings from the process environment as [`Settings::from_environment`] does; a key that the environment
    /// leaves out keeps its value in `self`.
    pub fn overlaid_by_environment(self) -> Result<Self, SettingsError> {
        self.overlaid_by(|name| std::env::var_os(name))
    }

    /// Reads settings as [`from_environment`](Self::from_environment) does, from the variables that `lookup` knows.
    pub fn from_variables(
        lookup: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingsError> {
        Self::default().overlaid_by(lookup)
    }

    fn overlaid_by(self, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let text = |variable, expected| {
            lookup(variable).unwrap_or_default().into_string().map_err(|found| {
                let found = error::quote(&found.to_string_lossy());
                SettingsError::VariableValue { variable, found, expected }
            })
        };
        let mut settings = self.overlaid(&text(ALLOC_CONF, "UTF-8 text")?).map_err(|source| {
            SettingsError::Variable { variable: ALLOC_CONF, source: Box::new(source) }
        })?;
        let (variable, expected) = (NO_MEMORY_CACHING, "1 (no caching), 0 or nothing");
        let flag = text(variable, expected)?;
        match flag.as_str() {
            "1" => settings.caching = false,
            "0" | "" => {}
            found => {
                let found = error::quote(found);
                return Err(SettingsError::VariableValue { variable, found, expected });
            }
        }
        Ok(settings)
    }
}

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        Self::parse(text)
    }
}

/// What differs from the default, in the form that [`Settings::parse`] reads. Sizes that are not
/// whole MB are rounded down.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut separator = "";
        for ((key, value), (_, left_out)) in self.values().zip(default.values()) {
            if value != left_out {
                write!(f, "{separator}{key}:{value}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}
