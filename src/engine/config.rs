//! Choices made when an engine or a pool is created. [`Tuning`] has those that change while the engine works; [`Flaw`]
//! names the safety rules that tests leave out of an engine, to see that what finds faults finds theirs.

use std::sync::Arc;

use super::{memory, Engine, Error, HostCalls};
use crate::driver::{Driver, Source};
use crate::plan::Options;
use crate::policy::{Programmatic, Reuse};
use crate::settings::{Rounding, Settings, SettingsError};
use crate::sync::{AtomicU64, Ordering};

/// Choices for an engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Limits, how memory is cut, and what is recorded. A value beyond its bounds counts as the nearest bound;
    /// [`Settings::validate`] names such a value.
    pub settings: Settings,
    /// Whether captures keep a journal even if `settings.check` is off, so that
    /// [`HostCalls::journal`](crate::engine::HostCalls::journal) can show it. Default: no.
    pub journal: bool,
    /// Whether [`Engine::end_capture`](super::Engine::end_capture) looks among the parameters of the graph's nodes for
    /// uses of blocks later than was recorded ([`LateUse`](crate::LateUse)), lists them in the report and logs them as
    /// a warning. Only where captures keep a journal: with `settings.check` or `journal`. Default: in builds with debug
    /// assertions, and there only.
    pub find_late_uses: bool,
    /// Whether a capture with a use that `find_late_uses` finds is refused: [`Error::LateUse`](super::Error::LateUse).
    /// Default: no, since a number may look like an address.
    pub refuse_late_uses: bool,
    /// Whether blocks that were never freed are logged as a warning when the engine is dropped. Default: yes.
    pub report_leaks: bool,
    /// Whether libraries may add nodes to captures by themselves, as communication libraries do, on streams of their
    /// own that the host does not name. With this set, such a node is taken to use no block where it depends on no node
    /// of a named stream. Without it the checker refuses the capture, since a stream may have been set back unseen.
    /// Default: no.
    pub foreign_nodes: bool,
    /// Whether the host may tell of a capture's end long after it, or never, as a host does that learns of captures by
    /// their requests alone. The capture that an invalidated stream was last seen in may then be over and have a graph.
    /// So requests on that stream fail, but only [`Engine::abandon_capture`](super::Engine::abandon_capture) rolls
    /// anything back. Default: no.
    pub late_ends: bool,
    /// Whether the host promises that a graph which is launched reads no block that was freed before, unless the block
    /// is a graph's: a block of work outside captures that is freed inside one is free for such work again once its
    /// streams have left their captures. Without the promise it belongs to the graphs of its pool from then on.
    /// Default: no.
    pub keeps_inputs: bool,
    /// From how many nodes on a capture that ends in two steps
    /// ([`Engine::close_capture`](super::Engine::close_capture)) is judged on a thread of its own.
    /// Default: 256; a smaller one is judged in less time than a thread takes to begin.
    pub judge_aside: usize,
    /// A safety rule to leave out, to see that the checker notices.
    #[cfg(all(feature = "flaws", debug_assertions))]
    flaw: Option<Flaw>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            journal: false,
            find_late_uses: cfg!(debug_assertions),
            refuse_late_uses: false,
            report_leaks: true,
            foreign_nodes: false,
            late_ends: false,
            keeps_inputs: false,
            judge_aside: 256,
            #[cfg(all(feature = "flaws", debug_assertions))]
            flaw: None,
        }
    }
}

/// Methods that set a field of a value, to what they are given or to what is made of that, and give the value back.
/// Those in brackets are named as their field, whose documentation says what it is.
macro_rules! setters {
    (
        $([$($plain:ident: $of:ty $(= $made:expr)?),+])?
        $($(#[$doc:meta])* $name:ident: $kind:ty => $($field:ident).+;)*
    ) => {$($(
        #[doc = concat!("Sets the field `", stringify!($plain), "`.")]
        #[must_use]
        pub fn $plain(mut self, $plain: $of) -> Self {
            $(let $plain = $made;)?
            self.$plain = $plain;
            self
        }
    )+)?$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$($field).+ = $name;
            self
        }
    )*};
}
pub(crate) use setters;

impl Config {
    /// The default, with the settings that `REGRAPH_ALLOC_CONF` and `REGRAPH_NO_MEMORY_CACHING` name.
    ///
    /// # Errors
    /// What is wrong with the variables, and what is allowed.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Ok(Self::default().settings(Settings::from_environment()?))
    }

    setters! {
        [settings: Settings, journal: bool, find_late_uses: bool, refuse_late_uses: bool, report_leaks: bool,
            foreign_nodes: bool, late_ends: bool, keeps_inputs: bool, judge_aside: usize]
        /// Sets what programmatic edges prove.
        programmatic: Programmatic => settings.programmatic;
        /// Sets which streams may take a free block.
        reuse: Reuse => settings.reuse;
        /// Sets whether the checker judges each capture.
        check: bool => settings.check;
    }

    /// Sets a safety rule to leave out. Without debug assertions none is, whatever is set.
    #[cfg(feature = "flaws")]
    #[doc(hidden)]
    #[must_use]
    pub fn flaw(self, flaw: Option<Flaw>) -> Self {
        #[cfg(debug_assertions)]
        return Self { flaw, ..self };
        #[cfg(not(debug_assertions))]
        {
            let _ = flaw;
            self
        }
    }

    /// Whether this safety rule is left out: never, outside tests. What is shipped or measured has no debug
    /// assertions, and so no such rule, even where the feature is on for another package of the same build.
    #[inline]
    pub(super) fn lacks(&self, flaw: Flaw) -> bool {
        #[cfg(all(feature = "flaws", debug_assertions))]
        {
            // Programs that can leave rules out contain the text, so that one can tell.
            std::hint::black_box("this program can leave safety rules out");
            self.flaw == Some(flaw)
        }
        #[cfg(not(all(feature = "flaws", debug_assertions)))]
        {
            let _ = flaw;
            false
        }
    }
}

/// Choices for a pool.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PoolConfig {
    /// What the pool is called in errors. Default: its number, in order of creation.
    pub name: Option<Arc<str>>,
    /// The tag of the region that the pool belongs to, which sleeps and wakes as one
    /// ([`Regions`](crate::regions::Regions)). Default: none.
    pub tag: Option<Arc<str>>,
    /// The most the pool may hold, in bytes; `None` sets no limit.
    pub max_bytes: Option<u64>,
    /// Whether captures into the pool get their memory at their end, the least that they can run on, and within which
    /// bounds. [`Plans::plan_capture`](crate::engine::Plans::plan_capture) also says what must not be done until then.
    /// Default: as [`Settings::plan`](crate::settings::Settings::plan) has it. It has no effect where the device has no
    /// virtual memory management.
    pub plan: Option<Options>,
    /// Where the pool's memory comes from instead of the driver, in segments of fixed sizes: captures
    /// into it get no memory at their end, and it cannot be suspended. Default: the driver.
    pub source: Option<Arc<dyn Source>>,
    /// Whether every block has a segment of its own: free memory is handed out whole, never in parts.
    /// Captures into the pool get no memory at their end then. Default: no.
    pub no_split: bool,
    /// Whether each block is an allocation of its own, given back when it is free, as everywhere with
    /// [`Settings::caching`](crate::settings::Settings::caching) off. Default: no.
    pub uncached: bool,
    /// Whether work outside captures that asks this pool for memory may get what other pools offer
    /// ([`HostCalls::set_spare`](crate::engine::HostCalls::set_spare)). Default: no.
    pub takes_offers: bool,
}

impl PoolConfig {
    /// Whether the driver maps the pool's memory, so that blocks can lie beside each other, and by plans.
    pub(super) fn is_mapped(&self) -> bool {
        self.source.is_none() && !self.no_split && !self.uncached
    }

    /// Whether streams may keep its blocks when they give them back: those that are had in their own sizes.
    pub(super) fn may_cache(&self) -> bool {
        !self.no_split && !self.uncached
    }

    setters! {
        [no_split: bool, uncached: bool, takes_offers: bool, name: impl Into<Arc<str>> = Some(name.into()),
            tag: impl Into<Arc<str>> = Some(tag.into()), plan: Options = Some(plan), max_bytes: u64 = Some(max_bytes),
            source: Arc<dyn Source> = Some(source)]
    }
}

/// The settings as they are now, and the bounds on memory that follow from them.
#[derive(Debug)]
pub(super) struct Tuning {
    /// As the configuration has them, but for what was changed since.
    settings: Settings,
    /// The most that all pools may hold, in bytes.
    limit: Option<u64>,
    /// The device's memory in bytes, once the driver has told it.
    device_bytes: Option<u64>,
}

impl Tuning {
    /// As settings have it, for a device with so much memory in all.
    pub(super) fn new(settings: Settings, total: Option<u64>) -> Self {
        let limit = memory::limit(&settings, total);
        Self { settings, limit, device_bytes: total }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    read!(limit: Option<u64>);

    pub(super) fn set_limit(&mut self, bytes: Option<u64>) {
        self.limit = bytes;
    }

    /// The device's memory in bytes, if its driver tells.
    pub(super) fn device_bytes(&mut self, driver: &impl Driver) -> Option<u64> {
        if self.device_bytes.is_none() {
            self.device_bytes = driver.memory_info().ok().map(|info| info.total);
        }
        self.device_bytes
    }

    /// Takes over what may change.
    fn take(&mut self, settings: &Settings, driver: &impl Driver) {
        let total = self.device_bytes(driver);
        let Self { settings: now, limit, .. } = self;
        let bounds = memory::limit(settings, total);
        if bounds != memory::limit(now, total) {
            *limit = bounds;
        }
        now.rounding = settings.rounding;
        now.garbage_collection_threshold = settings.garbage_collection_threshold;
        now.memory_fraction = settings.memory_fraction;
        now.memory_limit_bytes = settings.memory_limit_bytes;
        now.max_split_bytes = settings.max_split_bytes;
        now.max_non_split_rounding_bytes = settings.max_non_split_rounding_bytes;
        now.expandable_segments = settings.expandable_segments;
    }
}

/// How sizes are rounded, for calls without the engine's lock.
#[derive(Debug)]
pub(super) struct SharedRounding([AtomicU64; 2]);

impl SharedRounding {
    pub(super) fn new(rounding: Rounding) -> Self {
        Self(rounding.to_halves().map(AtomicU64::new))
    }

    #[inline]
    pub(super) fn get(&self) -> Rounding {
        let [low, high] = &self.0;
        Rounding::from_halves([low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)])
    }

    fn set(&self, rounding: Rounding) {
        for (half, bits) in self.0.iter().zip(rounding.to_halves()) {
            half.store(bits, Ordering::Relaxed);
        }
    }
}

impl<D: Driver> Engine<D> {
    /// Sets from now on how sizes are rounded, the garbage threshold and the most that may be held, as `settings` has
    /// them; and for pools that are made later, which free blocks are split and whether segments grow. Nothing else of
    /// `settings` counts. A size that is rounded in another thread meanwhile may be rounded by either.
    pub fn tune(&self, settings: &Settings) -> Result<(), Error> {
        self.alter(|locked| {
            locked.state.tuning.take(settings, locked.driver);
            self.rounding.set(settings.rounding);
        })
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// The settings as they are now: the configuration's, with what [`Engine::tune`] has changed.
    pub fn settings(&self) -> Result<Settings, Error> {
        Ok(self.0.lock()?.tuning.settings().clone())
    }
}

/// The rules that the argument for captures rests on, and the coarse ones outside captures, which random programs of
/// each test run leave out one by one. All other rules are taken out of the source by `cargo xtask mutants`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Markers need not be proven.
    Proof,
    /// The block's own stream sets no marker.
    OwnMarker,
    /// Other streams that used the block set no marker.
    ForeignMarkers,
    /// Streams that were set back keep what they had proven, and their blocks their trust.
    SetBack,
    /// Every edge counts as full.
    EdgeKinds,
    /// A launch that may start early is taken to wait.
    EarlyLaunches,
    /// A stream outside the capture is no reason to wait.
    OutsideUses,
    /// A block in use when another capture of its pool began may be reused as if it had not.
    NestedCapture,
    /// A live block is not listed among those of its pool.
    Unlisted,
    /// A capture is handed out the place of a block that lives.
    Alias,
    /// What a capture leaves behind is free for captures that were under way beside it.
    Hold,
    /// A freed block's memory from before the capture is free at once.
    OlderBlocks,
    /// What a capture frees of memory from before it is free for all its streams at once.
    InputMarkers,
    /// Outside captures what a stream gave back is free for every stream.
    StreamOrder,
    /// Outside captures other streams that used a block need not have completed.
    Events,
    /// What a pool lends is free for every stream, on whichever stream it was freed.
    Lending,
    /// Addresses lie on a piece that others lie on, also where a block there is in use.
    SharedPieces,
    /// Two pieces of a plan, one of them mapped more than once, take each other's places at two addresses.
    SwappedPieces,
}
