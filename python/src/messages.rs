//! The library's messages in Python's `logging`.
//!
//! A message comes on the thread of the call that it is of. That thread may hold locks of PyTorch's or of the program's:
//! were it to enter the interpreter, it could wait for ever for a thread that waits for such a lock. So a thread of the
//! module's own tells all messages, in order. It begins with the first one and ends with the interpreter; what comes
//! later goes to standard error.

use std::process;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::{self, JoinHandle};

use log::{Level, LevelFilter, Log, Metadata, Record};
use pyo3::prelude::*;
use regraph::sync::{Mutex, Rank};

use crate::errors::told;

/// The name of the logger.
const LOGGER: &str = "regraph";

enum Told {
    Message(Level, String),
    /// Answered when all before it was told.
    Flush(Sender<()>),
}

/// The thread that tells.
struct Teller {
    /// A process that was forked has no such thread.
    process: u32,
    queue: Sender<Told>,
    thread: JoinHandle<()>,
}

enum State {
    NotBegun,
    Tells(Teller),
    Ended,
}

#[allow(
    clippy::disallowed_types,
    reason = "held for no call of the library's, under any of its locks"
)]
struct Messages(Mutex<State>);

static MESSAGES: Messages = Messages(Mutex::new(Rank::Python, State::NotBegun));

impl Messages {
    /// Puts something into the thread's queue; begins the thread where it has not begun. False where there is none.
    fn put(&self, told: Told, begin: bool) -> bool {
        let mut state = self.0.lock();
        if begin && matches!(*state, State::NotBegun) {
            let (queue, received) = channel();
            let teller = thread::Builder::new().name("regraph-messages".to_owned());
            if let Ok(thread) = teller.spawn(move || tell_all(&received)) {
                *state = State::Tells(Teller { process: process::id(), queue, thread });
            }
        }
        match &*state {
            State::Tells(it) if it.process == process::id() => it.queue.send(told).is_ok(),
            _ => false,
        }
    }
}

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("regraph")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata())
            && !self.put(Told::Message(record.level(), told(record.args())), true)
        {
            regraph::write_to_stderr(record);
        }
    }

    fn flush(&self) {}
}

fn tell_all(received: &Receiver<Told>) {
    for told in received {
        match told {
            Told::Message(level, text) => {
                // The interpreter has ended, and Python's loggers with it.
                let _ = Python::try_attach(|py| {
                    if let Err(error) = tell(py, level, &text) {
                        error.write_unraisable(py, None);
                    }
                });
            }
            Told::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

fn tell(py: Python<'_>, level: Level, text: &str) -> PyResult<()> {
    // Python's numbers.
    let level = match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug | Level::Trace => 10,
    };
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    logger.call_method1("log", (level, text)).map(drop)
}

/// Sends the library's messages to Python's `logging`, but for a process whose programs have another logger.
pub(crate) fn begin() {
    if log::set_logger(&MESSAGES).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Says from which level on messages are told, as Python's `logging` numbers levels.
#[pyfunction]
pub(crate) fn set_log_level(level: i32) {
    log::set_max_level(match level {
        ..=10 => LevelFilter::Debug,
        11..=20 => LevelFilter::Info,
        21..=30 => LevelFilter::Warn,
        31..=40 => LevelFilter::Error,
        _ => LevelFilter::Off,
    });
}

/// Waits until what was said so far is told.
#[pyfunction]
pub(crate) fn flush_messages(py: Python<'_>) {
    let (done, wait) = channel();
    py.detach(move || {
        if MESSAGES.put(Told::Flush(done), false) {
            // It fails where the thread is gone.
            let _ = wait.recv();
        }
    });
}

/// Tells what was said, and ends the thread: the interpreter is about to end.
#[pyfunction]
pub(crate) fn end_messages(py: Python<'_>) {
    py.detach(|| {
        let mut state = MESSAGES.0.lock();
        let ended = std::mem::replace(&mut *state, State::Ended);
        drop(state);
        if let State::Tells(Teller { process, queue, thread }) = ended {
            drop(queue);
            if process == process::id() {
                let _ = thread.join();
            }
        }
    });
}
