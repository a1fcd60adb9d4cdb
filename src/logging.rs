//! Messages of the library: all of them go through the `log` crate, target `regraph`.

use std::fmt::Display;

use log::{LevelFilter, Log, Metadata, Record};

/// How many lines one message has at the most.
const LINES: usize = 10;

/// Warns with a headline and the first few of `items`, a line each.
pub(crate) fn warn_list<T: Display>(headline: &str, items: &[T]) {
    let lines = [headline.to_owned()].into_iter().chain(first_of(items, LINES));
    log::warn!(target: "regraph", "{}", lines.collect::<Vec<_>>().join("\n  "));
}

/// The first `most` of `items` as texts, and one that says how many more there are.
pub(crate) fn first_of<T: Display>(items: &[T], most: usize) -> impl Iterator<Item = String> + '_ {
    let more = items.len().checked_sub(most + 1).map(|more| format!("and {} more", more + 1));
    items.iter().take(most).map(T::to_string).chain(more)
}

/// Writes the library's messages to standard error, in a process that has no logger for the `log`
/// crate. Does nothing where the process has one.
///
/// Rust programs choose a logger of their own; the C library and the Python package call this.
pub fn log_to_stderr() {
    static TO_STDERR: ToStderr = ToStderr;
    if log::set_logger(&TO_STDERR).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

struct ToStderr;

impl Log for ToStderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("regraph")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("regraph: {}", record.args());
        }
    }

    fn flush(&self) {}
}
