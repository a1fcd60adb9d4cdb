//! Streams outside captures, and what of their work has completed.
//!
//! A *lane* is a stream as the engine knows it outside captures. Its work completes in order, so
//! time on it is counted in *epochs*: the engine now and then records an event, a *fence*, which
//! closes the epoch that is open; when the event has completed, so has everything that was submitted
//! in that epoch and before. Memory freed in an epoch is free for everyone once it is completed.
//!
//! No event is recorded while the lane's stream captures: it would become a part of the graph. The
//! lane then *owes* a fence, which is recorded when the capture is over. It comes after all that was
//! submitted before the capture, so it covers that too.

use std::collections::{BTreeMap, VecDeque};

use crate::driver::{CaptureStatus, Driver, ErrorKind, EventHandle, StreamHandle};
use crate::heap::LaneIndex;
use crate::index::{new_map, Map};

/// A point on a lane: reached once the epoch is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) lane: LaneIndex,
    pub(super) epoch: u64,
}

#[derive(Debug)]
struct Lane {
    stream: StreamHandle,
    /// The epoch that is open: what is freed now belongs to it.
    open: u64,
    completed: u64,
    /// Whether anything waits for the open epoch to be closed.
    wanted: bool,
    /// Whether a fence could not be recorded when it was asked for.
    owes: bool,
    /// Closed epochs with their events, in order.
    fences: VecDeque<(u64, EventHandle)>,
    /// What waits for an epoch, by the caller's numbers.
    parked: BTreeMap<u64, Vec<u32>>,
    busy: bool,
    retired: bool,
}

/// All lanes of an engine.
#[derive(Debug)]
pub(super) struct Lanes {
    rows: Vec<Lane>,
    by_stream: Map<StreamHandle, LaneIndex>,
    vacant: Vec<LaneIndex>,
    /// Lanes with fences, or that owe one; in the order in which they are looked at next.
    busy: VecDeque<LaneIndex>,
    /// Events that have completed.
    spare: Vec<EventHandle>,
    /// How often the host was made to wait for a lane.
    synchronized: u64,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            by_stream: new_map(),
            vacant: Vec::new(),
            busy: VecDeque::new(),
            spare: Vec::new(),
            synchronized: 0,
        }
    }

    /// The lane of a stream, new at its first sight.
    pub(super) fn of(&mut self, stream: StreamHandle) -> LaneIndex {
        if let Some(&lane) = self.by_stream.get(&stream) {
            return lane;
        }
        let lane = match self.vacant.pop() {
            // Its epochs go on: what still names an old one finds it completed.
            Some(lane) => {
                let row = &mut self.rows[lane.index()];
                (row.stream, row.retired) = (stream, false);
                lane
            }
            None => {
                self.rows.push(Lane {
                    stream,
                    open: 1,
                    completed: 0,
                    wanted: false,
                    owes: false,
                    fences: VecDeque::new(),
                    parked: BTreeMap::new(),
                    busy: false,
                    retired: false,
                });
                LaneIndex::new(self.rows.len() - 1)
            }
        };
        self.by_stream.insert(stream, lane);
        lane
    }

    /// The lane of a stream, if it has one.
    pub(super) fn known(&self, stream: StreamHandle) -> Option<LaneIndex> {
        self.by_stream.get(&stream).copied()
    }

    pub(super) fn stream(&self, lane: LaneIndex) -> StreamHandle {
        self.rows[lane.index()].stream
    }

    pub(super) fn all(&self) -> impl Iterator<Item = LaneIndex> {
        (0..self.rows.len()).map(LaneIndex::new)
    }

    /// How often the host was made to wait.
    pub(super) fn synchronized(&self) -> u64 {
        self.synchronized
    }

    /// The open epoch, for something that is freed now.
    pub(super) fn now(&mut self, lane: LaneIndex) -> u64 {
        let row = &mut self.rows[lane.index()];
        row.wanted = true;
        row.open
    }

    pub(super) fn completed(&self, lane: LaneIndex) -> u64 {
        self.rows[lane.index()].completed
    }

    pub(super) fn is_reached(&self, mark: Mark) -> bool {
        self.completed(mark.lane) >= mark.epoch
    }

    /// A mark behind everything that a stream holds now; `None` where no event can be recorded on
    /// it.
    pub(super) fn mark<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        stream: StreamHandle,
    ) -> Option<Mark> {
        let lane = self.of(stream);
        let epoch = self.rows[lane.index()].open;
        self.record(driver, lane).then_some(Mark { lane, epoch })
    }

    /// Sees to it that the open epoch gets closed, now or as soon as that is possible, if anything
    /// waits for it.
    pub(super) fn fence<D: Driver + ?Sized>(&mut self, driver: &D, lane: LaneIndex) {
        let row = &self.rows[lane.index()];
        if row.wanted && !row.owes && !row.retired && !self.record(driver, lane) {
            self.rows[lane.index()].owes = true;
            self.note_busy(lane);
        }
    }

    /// Closes the open epoch of a lane with an event; says whether that was possible.
    fn record<D: Driver + ?Sized>(&mut self, driver: &D, lane: LaneIndex) -> bool {
        let stream = self.rows[lane.index()].stream;
        let captures = |driver: &D| !matches!(driver.capture_of(stream), Ok(CaptureStatus::None));
        if captures(driver) {
            return false;
        }
        let Some(event) = self.spare.pop().or_else(|| driver.create_event().ok()) else {
            return false;
        };
        // If another thread has begun to capture on the stream since the question, the event may be
        // a part of the graph. Nobody may ask about it then: that would ruin the capture.
        if driver.record_event(event, stream).is_err() || captures(driver) {
            let _ = driver.destroy_event(event);
            return false;
        }
        let row = &mut self.rows[lane.index()];
        row.fences.push_back((row.open, event));
        row.open += 1;
        (row.wanted, row.owes) = (false, false);
        self.note_busy(lane);
        true
    }

    fn note_busy(&mut self, lane: LaneIndex) {
        let row = &mut self.rows[lane.index()];
        if !row.busy {
            row.busy = true;
            self.busy.push_back(lane);
        }
    }

    /// Lets the caller's number wait for a mark. [`Lanes::poll`] gives it back.
    pub(super) fn park(&mut self, mark: Mark, number: u32) {
        self.rows[mark.lane.index()].parked.entry(mark.epoch).or_default().push(number);
    }

    /// Looks at up to `most` lanes with open questions, without waiting for any, and gives the
    /// numbers back that wait no longer.
    pub(super) fn poll<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        most: usize,
        ready: &mut Vec<u32>,
    ) {
        for _ in 0..most.min(self.busy.len()) {
            let Some(lane) = self.busy.pop_front() else { return };
            self.look(driver, lane);
            let row = &mut self.rows[lane.index()];
            while let Some(first) = row.parked.first_entry() {
                if *first.key() > row.completed {
                    break;
                }
                ready.extend(first.remove());
            }
            row.busy = !row.fences.is_empty() || row.owes;
            if row.busy {
                self.busy.push_back(lane);
            }
        }
    }

    fn look<D: Driver + ?Sized>(&mut self, driver: &D, lane: LaneIndex) {
        if self.rows[lane.index()].owes {
            self.record(driver, lane);
        }
        let row = &mut self.rows[lane.index()];
        while let Some(&(epoch, event)) = row.fences.front() {
            match driver.query_event(event) {
                Ok(true) => {
                    row.fences.pop_front();
                    row.completed = epoch;
                    self.spare.push(event);
                }
                Err(error)
                    if matches!(error.kind, ErrorKind::CapturedEvent | ErrorKind::InvalidValue) =>
                {
                    // It was captured after all, by a capture that began and ended beside the
                    // record. A later fence covers this epoch too.
                    row.fences.pop_front();
                    let _ = driver.destroy_event(event);
                    (row.wanted, row.owes) = (true, true);
                }
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Waits until everything that closed epochs hold has completed. What cannot be waited for
    /// stays open.
    pub(super) fn synchronize<D: Driver + ?Sized>(&mut self, driver: &D) {
        for row in &self.rows {
            if let Some(&(_, event)) = row.fences.back() {
                // Whether it did, the next poll tells.
                let _ = driver.synchronize_event(event);
                self.synchronized += 1;
            }
        }
    }

    /// Forgets a stream that is about to be destroyed. False where its work cannot be told from
    /// now on, because no event can be recorded on it.
    pub(super) fn retire<D: Driver + ?Sized>(&mut self, driver: &D, lane: LaneIndex) -> bool {
        let row = &self.rows[lane.index()];
        if (row.wanted || row.owes) && !self.record(driver, lane) {
            return false;
        }
        let row = &mut self.rows[lane.index()];
        row.retired = true;
        self.by_stream.remove(&row.stream);
        true
    }

    /// Whether a lane's stream is gone and all its work has completed.
    pub(super) fn is_over(&self, lane: LaneIndex) -> bool {
        let row = &self.rows[lane.index()];
        row.retired && row.fences.is_empty() && !row.owes && !row.wanted
    }

    /// Lets a lane that is over be used for another stream. Nothing may be ordered by it any more.
    pub(super) fn recycle(&mut self, lane: LaneIndex) {
        if !self.vacant.contains(&lane) {
            self.vacant.push(lane);
        }
    }

    /// Gives all events back to the driver.
    pub(super) fn close<D: Driver + ?Sized>(&mut self, driver: &D) {
        let pending = self.rows.iter_mut().flat_map(|row| row.fences.drain(..));
        for event in pending.map(|(_, event)| event).chain(self.spare.drain(..)) {
            let _ = driver.destroy_event(event);
        }
    }
}
