//! What a person at a terminal sees while work goes on; nothing where standard error is no terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps.
pub fn bar(length: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64);
    // A bar in the default style is as good where the template does not parse.
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Says what one long step does, and for how long it has done so.
pub fn spinner(what: String) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
