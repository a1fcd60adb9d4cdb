//! Lists that callers read.

use std::ffi::{c_char, CString};

use crate::failure::c_text;

/// The rows of a list, and the texts that they point to.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    rows: Vec<T>,
    texts: Vec<CString>,
}

impl<T> Rows<T> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), texts: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: T) {
        self.rows.push(row);
    }

    /// Keeps a text as long as the list. It stays where it is when other texts are added.
    pub(crate) fn text(&mut self, text: String) -> *const c_char {
        let text = c_text(text);
        let place = text.as_ptr();
        self.texts.push(text);
        place
    }

    pub(crate) fn get(&self) -> &[T] {
        &self.rows
    }
}
