//! Which launches may start early: what an earlier attempt at a capture tells of the next one.
//!
//! When a block is handed out, nothing tells whether the stream's next launch will be programmatic. A program that is
//! captured again makes the same launches again, though, however its blocks lie. So a capture that was refused tells
//! for each allocation, by stream in order of first sight and by number there, whether a programmatic edge leads on
//! from one of the stream's terminals at that point. Where none does, every user of the block comes behind each
//! terminal by a full edge first, and `deny`'s proof holds; where one does, the next attempt proves as under `lag`.
//!
//! A wrong forecast costs memory or a refusal, never safety: the checker judges every attempt by the edges alone.

use std::sync::Arc;

use super::Outlook;
use regraph_driver::{Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph_record::index::Map;
use regraph_record::journal::{Entry, Journal};

/// An allocation of an earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expected {
    bytes: u64,
    /// Whether what comes next may start early.
    early: bool,
}

/// A stream of an earlier attempt.
#[derive(Clone, Debug, Default)]
struct Row {
    allocations: Vec<Expected>,
    /// Whether any has something early behind it.
    early: bool,
}

/// What refused captures tell.
#[derive(Clone, Debug, Default)]
pub struct Foresight {
    /// The streams of the latest one, in order of first sight.
    rows: Vec<Row>,
    /// The streams that had early launches in any.
    early: Vec<StreamHandle>,
    /// Whether a refused capture told nothing new: then any launch of any stream may start early.
    any: bool,
}

/// How far a stream has gone the way that was foreseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    /// Its allocations so far.
    pub(super) allocations: usize,
    /// Whether one differed.
    pub(super) astray: bool,
}

/// A stream of the journal that is being read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    row: usize,
    /// Whether something may start early behind its terminals.
    early: bool,
    /// Whether its allocations so far are those that were known.
    known: bool,
}

impl Foresight {
    /// Adds what a capture tells that was refused for a programmatic edge, from its journal. One that
    /// tells nothing new was foreseen in vain: any launch may start early from then on. There are
    /// finitely many streams and allocations, so a program is refused finitely often.
    ///
    /// Costs a few operations for each fact of the journal.
    #[must_use]
    pub fn learn(&self, journal: &Journal) -> Self {
        let mut sources: Map<NodeHandle, ()> = Map::default();
        for (_, dependencies) in journal.nodes() {
            let early = dependencies.iter().filter(|it| it.edge == EdgeData::PROGRAMMATIC);
            sources.extend(early.map(|dependency| (dependency.node, ())));
        }
        let starts_early = |terminal: Dependency| {
            terminal.edge == EdgeData::PROGRAMMATIC || sources.contains_key(&terminal.node)
        };
        let mut next = Self { rows: Vec::new(), early: self.early.clone(), any: self.any };
        let mut streams: Map<StreamHandle, Reading> = Map::default();
        let mut learned = false;
        for entry in journal.iter() {
            match entry {
                Entry::Terminals { stream, terminals } => {
                    let row = streams.len();
                    let seen = Reading { row, early: false, known: true };
                    let stream = streams.entry(stream).or_insert(seen);
                    stream.early = terminals.iter().any(starts_early);
                    next.rows.resize(next.rows.len().max(stream.row + 1), Row::default());
                }
                Entry::Allocate { stream: handle, bytes, .. } => {
                    let Some(stream) = streams.get_mut(&handle) else { continue };
                    let row = &mut next.rows[stream.row];
                    let known = self.expected(stream.row, row.allocations.len());
                    let known = known.filter(|known| stream.known && known.bytes == bytes);
                    stream.known = known.is_some();
                    let known = known.is_some_and(|known| known.early);
                    learned |= stream.early && !known;
                    let early = stream.early || known;
                    row.allocations.push(Expected { bytes, early });
                    row.early |= early;
                    if stream.early && !next.early.contains(&handle) {
                        next.early.push(handle);
                    }
                }
                _ => {}
            }
        }
        next.any |= !learned;
        next
    }

    /// What kind of edges a capture is to expect.
    pub fn outlook(self: &Arc<Self>) -> Outlook {
        match self.any {
            true => Outlook::Early,
            false => Outlook::Foreseen(Arc::clone(self)),
        }
    }

    fn expected(&self, row: usize, allocation: usize) -> Option<&Expected> {
        self.rows.get(row)?.allocations.get(allocation)
    }

    /// Whether it may say of any launch of a stream that it starts early.
    #[inline]
    pub(super) fn concerns(&self, row: usize, stream: StreamHandle) -> bool {
        self.rows.get(row).is_some_and(|row| row.early) || self.early.contains(&stream)
    }

    /// Whether what a stream launches next may start early.
    #[inline]
    pub(super) fn starts_early(&self, row: usize, stream: StreamHandle, course: Course) -> bool {
        if course.astray {
            return self.early.contains(&stream);
        }
        self.expected(row, course.allocations).is_some_and(|expected| expected.early)
    }

    /// Whether a stream's next allocation is the one that was foreseen.
    #[inline]
    pub(super) fn expects(&self, row: usize, course: Course, bytes: u64) -> bool {
        self.expected(row, course.allocations).is_some_and(|expected| expected.bytes == bytes)
    }
}
