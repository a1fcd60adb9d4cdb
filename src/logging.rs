//! What the library tells its host: messages, which all go through the `log` crate with the target `regraph`, and what
//! else is said once a call holds no lock any more. With the setting `nvtx` a profiler shows the messages of an engine
//! as marks, and as ranges what takes an engine long ([`Teller`]).
//!
//! A logger and an observer are the host's code, which may make any call. So what is said while the engine's lock is
//! held is kept ([`Messages`]) until it is released; and a caller with locks of its own held has all told when it has
//! released those too ([`tell_later`]). A message of a level that the `log` crate does not let through is not put into
//! words: it costs a look at `log::max_level`.
//!
//! `warn` says what a program should know, such as a use later than was recorded; `info` what happens seldom and an
//! operator asks for: engines, verdicts, plans, sleep, shortage of memory; `debug` each growth, give back, capture and
//! pool, and what pools lend to a stream.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{stderr, Write};

pub use log::Level;
use log::{LevelFilter, Log, Metadata, Record};

pub(crate) use crate::driver::nvtx::Range;
use crate::driver::nvtx::{profiler, Profiler};
use crate::sync::{must_hold_none, thread_local};

/// The environment variable that says from which level on messages are told where the host has no logger of its own:
/// `off`, `error`, `warn`, `info` or `debug`.
pub const LOG: &str = "REGRAPH_LOG";

/// How many lines one message has at the most.
const LINES: usize = 10;

/// Something to be told when no lock is held.
type Telling = Box<dyn FnOnce()>;

thread_local! {
    /// How much is told when the calling thread has released its locks; `None` where it tells at once. Counted apart from
    /// the list, since mostly there is nothing, and a look at a value with a destructor costs more.
    static KEPT: Cell<Option<usize>> = const { Cell::new(None) };
    /// That, in the order in which it was said.
    static LATER: RefCell<Vec<Telling>> = const { RefCell::new(Vec::new()) };
}

/// Tells what was said since it was made when it is dropped: see [`tell_later`].
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "what is said is told when it is dropped"]
pub struct Later {
    outermost: bool,
}

/// Has messages of the calling thread, and observers of its requests that fail, told when what is returned is dropped.
/// It is made before the locks under which the calls are made, and so dropped behind them: loggers and observers may
/// make any call.
#[doc(hidden)]
pub fn tell_later() -> Later {
    let outermost = kept().is_none();
    if outermost {
        keep(Some(0));
    }
    Later { outermost }
}

fn kept() -> Option<usize> {
    // A thread that ends tells at once.
    KEPT.try_with(Cell::get).ok().flatten()
}

fn keep(many: Option<usize>) {
    let _ = KEPT.try_with(|kept| kept.set(many));
}

impl Drop for Later {
    fn drop(&mut self) {
        if self.outermost {
            let many = kept();
            keep(None);
            if many > Some(0) {
                tell_kept();
            }
        }
    }
}

#[cold]
fn tell_kept() {
    let told = LATER.try_with(RefCell::take).unwrap_or_default();
    // A panic tells of itself.
    if !std::thread::panicking() {
        told.into_iter().for_each(|tell| tell());
    }
}

/// Calls code of the host's when the calling thread holds no lock of the library: now, or later.
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn call_host(what: &'static str, call: impl FnOnce() + 'static) {
    let mut call: Option<Telling> = Some(Box::new(call));
    if let Some(many) = kept() {
        let _ = LATER.try_with(|later| {
            later.borrow_mut().extend(call.take());
            keep(Some(many + 1));
        });
    }
    if let Some(call) = call {
        must_hold_none(what);
        call();
    }
}

/// Whether the `log` crate lets messages of a level through. Asks no logger: that would be code of the host's.
#[inline]
fn is_heard(level: Level) -> bool {
    level <= log::STATIC_MAX_LEVEL && level <= log::max_level()
}

/// Tells a message of something that happened, when the calling thread holds no lock of the library.
#[doc(hidden)]
#[cfg_attr(debug_assertions, track_caller)]
pub fn tell(level: Level, text: impl FnOnce() -> String) {
    // Builds with debug assertions find out where one would be told with a lock held, whether someone listens or not.
    if is_heard(level) || cfg!(debug_assertions) {
        tell_text(None, level, text());
    }
}

#[cold]
#[cfg_attr(debug_assertions, track_caller)]
fn tell_text(profiler: Option<&'static Profiler>, level: Level, text: String) {
    call_host("a message is told", move || {
        if let Some(profiler) = profiler {
            profiler.mark(&text);
        }
        log::log!(target: "regraph", level, "{text}");
    });
}

/// Tells of an engine: messages, each with the device's name, and ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Teller {
    device: u32,
    /// Shows them too, where the settings ask for that and there is one.
    profiler: Option<&'static Profiler>,
}

impl Teller {
    /// With a profiler, where `shown` says so and the process has one. Tells why the process has none that was named.
    pub(crate) fn new(device: u32, shown: bool) -> Self {
        let found = if shown { profiler() } else { Ok(None) };
        let teller = Self { device, profiler: found.unwrap_or_default() };
        if let Err(why) = found {
            teller.tell(Level::Warn, || format!("no profiler is shown what happens: {why}"));
        }
        teller
    }

    #[inline]
    fn is_heard(&self, level: Level) -> bool {
        self.profiler.is_some() || is_heard(level) || cfg!(debug_assertions)
    }

    /// Tells a message, when the calling thread holds no lock of the library.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn tell(&self, level: Level, text: impl FnOnce() -> String) {
        if self.is_heard(level) {
            self.tell_text(level, &text());
        }
    }

    #[cold]
    #[cfg_attr(debug_assertions, track_caller)]
    fn tell_text(&self, level: Level, text: &str) {
        tell_text(self.profiler, level, format!("device {}: {text}", self.device));
    }

    /// A range that a profiler shows until it is dropped. Locks may be held.
    #[inline]
    pub(crate) fn range(&self, text: impl FnOnce() -> String) -> Option<Range> {
        self.profiler.map(|profiler| self.begin(profiler, text))
    }

    #[cold]
    fn begin(&self, profiler: &'static Profiler, text: impl FnOnce() -> String) -> Range {
        profiler.range(&format!("device {}: {}", self.device, text()))
    }
}

/// What was said with a lock held, to be told once it is released.
#[derive(Debug)]
pub(crate) struct Messages {
    said: Vec<(Level, String)>,
    /// Tells of the engine whose these are.
    teller: Teller,
}

impl Messages {
    pub(crate) fn new(teller: Teller) -> Self {
        Self { said: Vec::new(), teller }
    }

    read!(teller: Teller);

    /// Keeps a message, where someone hears those of its level.
    #[inline]
    pub(crate) fn say(&mut self, level: Level, text: impl FnOnce() -> String) {
        if self.teller.is_heard(level) {
            self.keep(level, text());
        }
    }

    #[cold]
    fn keep(&mut self, level: Level, text: String) {
        self.said.push((level, text));
    }

    /// Warns with a headline and the first few of `items`, a line each.
    pub(crate) fn warn_list<T: Display>(&mut self, headline: &str, items: &[T]) {
        self.say(Level::Warn, || list(headline, items));
    }

    /// What was said, to be told without the lock.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Self> {
        let said = (!self.said.is_empty()).then(|| std::mem::take(&mut self.said))?;
        Some(Self { said, teller: self.teller })
    }

    /// Tells what was said, in that order.
    #[cold]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn tell(self) {
        for (level, text) in self.said {
            self.teller.tell_text(level, &text);
        }
    }
}

/// A headline and the first few of `items`, a line each.
pub(crate) fn list<T: Display>(headline: &str, items: &[T]) -> String {
    let lines = [headline.to_owned()].into_iter().chain(first_of(items, LINES));
    lines.collect::<Vec<_>>().join("\n  ")
}

/// The first `most` of `items` as texts, and one that says how many more there are.
pub(crate) fn first_of<T: Display>(items: &[T], most: usize) -> impl Iterator<Item = String> + '_ {
    let more = items.len().checked_sub(most + 1).map(|more| format!("and {} more", more + 1));
    items.iter().take(most).map(T::to_string).chain(more)
}

/// Has messages told from the level on that `REGRAPH_LOG` says, else from `warn` on, once the process has a logger. Tells
/// it what else the variable says.
pub fn set_level_from_environment() {
    let said = std::env::var_os(LOG).unwrap_or_default();
    let said = said.to_string_lossy();
    let level = said.parse::<LevelFilter>();
    log::set_max_level(*level.as_ref().unwrap_or(&LevelFilter::Warn));
    if level.is_err() && !said.is_empty() {
        tell(Level::Warn, || {
            format!("{LOG}: expected off, error, warn, info or debug, found `{said}`: no effect")
        });
    }
}

/// Writes the library's messages to standard error in a process that has no logger for the `log` crate, from the level
/// in `REGRAPH_LOG` on (`warn` without it). Does nothing in a process that has a logger.
///
/// Rust programs usually install a logger of their own. The command `regraph` calls this.
pub fn log_to_stderr() {
    static TO_STDERR: ToStderr = ToStderr;
    if log::set_logger(&TO_STDERR).is_ok() {
        set_level_from_environment();
    }
}

struct ToStderr;

impl Log for ToStderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("regraph")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            write_to_stderr(record);
        }
    }

    fn flush(&self) {}
}

/// Writes a message to standard error as [`log_to_stderr`] does: those below a warning with their level.
pub fn write_to_stderr(record: &Record<'_>) {
    // Nothing is left to be done where that cannot be written.
    let _ = match record.level() {
        Level::Error | Level::Warn => writeln!(stderr(), "regraph: {}", record.args()),
        level => {
            writeln!(stderr(), "regraph {}: {}", level.as_str().to_lowercase(), record.args())
        }
    };
}
