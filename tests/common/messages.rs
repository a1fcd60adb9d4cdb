//! What the calling thread's calls tell the process's logger.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;

use log::{Level, LevelFilter, Log, Metadata, Record};

type Listener = Rc<dyn Fn(Level, String)>;

thread_local! {
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "regraph"
    }

    fn log(&self, record: &Record<'_>) {
        // A thread that ends has no listener any more.
        let listener = LISTENER.try_with(|listener| listener.borrow().clone()).ok().flatten();
        if let Some(listener) = listener {
            listener(record.level(), record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Makes calls, of which `listener` is told all messages as they come.
pub fn listening(listener: impl Fn(Level, String) + 'static, calls: impl FnOnce()) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Logger).expect("no test has another logger");
        log::set_max_level(LevelFilter::Debug);
    });
    LISTENER.with(|it| *it.borrow_mut() = Some(Rc::new(listener)));
    calls();
    LISTENER.with(|it| *it.borrow_mut() = None);
}

/// The messages of some calls, in order.
pub fn messages_of(calls: impl FnOnce()) -> Vec<(Level, String)> {
    let messages = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&messages);
    listening(move |level, text| kept.borrow_mut().push((level, text)), calls);
    messages.take()
}
