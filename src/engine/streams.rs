//! Streams outside captures: timelines, positions and fences (design/allocator.md, "Streams outside captures").
//!
//! No event is recorded while the timeline's stream captures, nor where it may begin to meanwhile (another thread named
//! it last, and any thread has captured), nor on one of an unknown device. The timeline then *owes* a fence; one that
//! is recorded later covers all that was submitted before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use crate::driver::{
    self, CaptureId, CaptureStatus, Driver, ErrorKind, EventHandle, HostApi, StreamHandle,
};
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, times, Verdict};
use crate::heap::{Mark, TimelineId};
use crate::index::{Map, Table};
use crate::recent::{stream_key, Recent};
use crate::sync::thread_local;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamStatus {
    /// In no capture.
    Outside,
    Inside(CaptureId),
    /// In no capture that gives a graph, and no event can be recorded on it.
    Barred,
    /// Perhaps in a capture: it is unknown in which.
    Unclear,
    /// It does not capture, and a wait for the device alone tells of its work: its handle means a default stream of
    /// another context ([`ErrorKind::OtherContext`]), or its context is destroyed ([`ErrorKind::ContextDestroyed`]).
    Elsewhere,
}

/// What a timeline owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owed {
    Nothing,
    /// A fence that could not be recorded when it was asked for, or a wait for the device.
    Fence,
    /// A wait for the device: no event on the stream covers what its handle meant in another context.
    Wait,
}

#[derive(Debug)]
struct Timeline {
    stream: StreamHandle,
    /// Tells the streams apart that ever had the handle, or the row.
    number: u64,
    /// The position that is open: what is freed now belongs to it.
    open: u64,
    completed: u64,
    /// Whether anything waits for the open position to be closed.
    wanted: bool,
    owes: Owed,
    /// Behind all that the stream was given until its next capture, where the host has said so.
    expected: Option<u64>,
    /// Closed positions with their events, in order.
    fences: VecDeque<(u64, Event)>,
    /// What waits for a position, by the caller's numbers.
    parked: BTreeMap<u64, Vec<u32>>,
    life: Life,
    /// The thread that named the stream last, if any has.
    thread: Weak<()>,
    /// The device that the stream belongs to, once it was asked for.
    device: Option<u32>,
    /// The last capture of this stream that has ended here, with its age; the driver may still report it.
    ended: Option<(u64, CaptureId)>,
}

impl Timeline {
    /// That of a stream which has been given nothing.
    fn new(stream: StreamHandle, number: u64, open: u64, completed: u64) -> Self {
        Self {
            stream,
            number,
            open,
            completed,
            wanted: false,
            owes: Owed::Nothing,
            expected: None,
            fences: VecDeque::new(),
            parked: BTreeMap::new(),
            life: Life::Used,
            thread: Weak::new(),
            device: None,
            ended: None,
        }
    }
}

/// What has become of a timeline's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Used,
    /// The host has destroyed the stream, and its work may not have completed.
    Retired,
    /// The row is another stream's to have.
    Vacant,
}

/// An event that each fence, and each wait for it, has a share in: it is recorded anew, or destroyed, by the last.
/// Shares are made and given up with the engine's lock held.
pub(super) type Event = Arc<EventHandle>;

thread_local! {
    /// Lives as long as its thread.
    static HERE: Arc<()> = Arc::new(());
}

/// Tells threads apart that live at the same time. Those that end while they ask are all one.
#[inline]
pub(super) fn this_thread() -> usize {
    HERE.try_with(|here| Arc::as_ptr(here) as usize).unwrap_or(0)
}

/// All timelines of an engine.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    rows: Table<Timeline>,
    by_stream: Map<StreamHandle, TimelineId>,
    recent: Recent<TimelineId, 32>,
    /// Timelines with fences, or that owe one; in the order in which they are looked at next.
    busy: VecDeque<TimelineId>,
    /// Events that have completed, by device; some may still be waited for.
    spare: BTreeMap<u32, Vec<Event>>,
    /// How often a stream has come, or gone to another thread: it stays the same as long as neither happens.
    changes: u64,
    /// Whether any thread has said that it may capture on a stream, or was seen to.
    any_captures: bool,
    /// The numbers of streams that were forgotten and may go on: each has its own again when it comes, and so has another
    /// stream that comes with the handle.
    going_on: Map<StreamHandle, u64>,
}

impl Timelines {
    /// A mark that is reached at any position of its timeline. There is one wherever a block has been.
    pub(super) fn passed() -> Mark {
        Mark { timeline: TimelineId::new(0), position: 0 }
    }

    /// The timeline of a stream, new at its first sight.
    pub(super) fn of(&mut self, stream: StreamHandle) -> TimelineId {
        if let Some(timeline) = self.recent.get(stream_key(stream)) {
            return timeline;
        }
        if let Some(&timeline) = self.by_stream.get(&stream) {
            self.recent.put(stream_key(stream), timeline);
            return timeline;
        }
        let number = self.going_on.remove(&stream).unwrap_or_else(|| {
            self.changes += 1;
            self.changes
        });
        let row = self.rows.take_vacant(|| Timeline::new(stream, number, 1, 0));
        let timeline = TimelineId::from_raw(row);
        let row = &mut self.rows[timeline.index()];
        // The positions of a row that was another's go on: what still names an old one finds it completed.
        *row = Timeline::new(stream, number, row.open, row.completed);
        self.by_stream.insert(stream, timeline);
        self.recent.put(stream_key(stream), timeline);
        timeline
    }

    /// The timeline of a stream that is the calling thread's from now on, to capture on it or not. Says whether it was not
    /// before.
    pub(super) fn assign(&mut self, stream: StreamHandle, captures: bool) -> (TimelineId, bool) {
        let timeline = self.of(stream);
        self.any_captures |= captures;
        let thread = &mut self.rows[timeline.index()].thread;
        // No other thread has the address while a reference is held.
        if thread.as_ptr() as usize == this_thread() {
            return (timeline, false);
        }
        *thread = HERE.try_with(Arc::downgrade).unwrap_or_default();
        self.changes += 1;
        (timeline, true)
    }

    read!(changes: u64);

    /// Whether no other living thread has named a stream last.
    pub(super) fn is_mine(&self, stream: StreamHandle) -> bool {
        self.known(stream).is_none_or(|timeline| {
            let thread = &self.rows[timeline.index()].thread;
            // Streams of exited threads are unowned.
            thread.as_ptr() as usize == this_thread() || thread.strong_count() == 0
        })
    }

    /// Asks where a stream is, as far as that may be asked.
    pub(super) fn ask(&self, driver: &impl Driver, stream: StreamHandle) -> StreamStatus {
        let status = if self.is_mine(stream) {
            driver.capture_of(stream)
        } else {
            match driver.is_capturing(stream) {
                Ok(false) => Ok(CaptureStatus::None),
                Ok(true) => return StreamStatus::Unclear,
                Err(error) => Err(error),
            }
        };
        match status {
            Ok(CaptureStatus::None) => StreamStatus::Outside,
            Ok(CaptureStatus::Active { capture, .. }) => StreamStatus::Inside(capture),
            // Of a capture that is ruined no graph comes; and the legacy stream beside a capture does
            // not capture itself. Neither can be marked now.
            Ok(CaptureStatus::Invalidated) => StreamStatus::Barred,
            Err(error) => match error.kind {
                ErrorKind::CaptureImplicit => StreamStatus::Barred,
                ErrorKind::OtherContext | ErrorKind::ContextDestroyed => StreamStatus::Elsewhere,
                _ => StreamStatus::Unclear,
            },
        }
    }

    /// Whether a stream's context is destroyed, such as a green one: the handle is no stream's any more.
    pub(super) fn is_gone(driver: &impl Driver, stream: StreamHandle) -> bool {
        matches!(driver.is_capturing(stream), Err(error) if error.kind == ErrorKind::ContextDestroyed)
    }

    #[inline]
    pub(super) fn known(&self, stream: StreamHandle) -> Option<TimelineId> {
        let known = self.recent.get(stream_key(stream));
        known.or_else(|| self.by_stream.get(&stream).copied())
    }

    /// Tells a stream from those that have its handle once it was retired. None where it was never named, or was retired.
    pub(super) fn number(&self, stream: StreamHandle) -> Option<u64> {
        let known = self.known(stream).map(|timeline| self.rows[timeline.index()].number);
        known.or_else(|| self.going_on.get(&stream).copied())
    }

    pub(super) fn stream(&self, timeline: TimelineId) -> StreamHandle {
        self.rows[timeline.index()].stream
    }

    pub(super) fn all(&self) -> impl Iterator<Item = TimelineId> {
        (0..self.rows.len()).map(TimelineId::new)
    }

    /// Notes that a capture has ended here that was seen on a stream. The driver can still report the youngest alone: a
    /// stream is in one capture until that ends in the driver.
    pub(super) fn set_ended(&mut self, stream: StreamHandle, age: u64, capture: CaptureId) {
        let timeline = self.of(stream);
        let ended = &mut self.rows[timeline.index()].ended;
        if ended.is_none_or(|(known, _)| known < age) {
            *ended = Some((age, capture));
        }
    }

    /// Whether a capture has ended here that the driver may still report.
    pub(super) fn has_ended(&self, capture: CaptureId) -> bool {
        self.rows.iter().any(|row| row.ended.is_some_and(|(_, ended)| ended == capture))
    }

    /// What a stream holds so far, or will until the next event behind it.
    pub(super) fn open_mark(&mut self, stream: StreamHandle) -> Mark {
        let timeline = self.of(stream);
        let row = &mut self.rows[timeline.index()];
        row.wanted = true;
        Mark { timeline, position: row.open }
    }

    /// What the handle of a stream holds that is [`StreamStatus::Elsewhere`].
    pub(super) fn mark_elsewhere(&mut self, driver: &impl Driver, stream: StreamHandle) -> Mark {
        let mark = self.open_mark(stream);
        // The host waits for other devices' work: a stream that was gone when it was first met counts as this one's.
        let device = self.device(driver, mark.timeline).unwrap_or_else(|| driver.device());
        self.rows[mark.timeline.index()].device = Some(device);
        self.owe(mark.timeline, Owed::Wait);
        mark
    }

    fn owe(&mut self, timeline: TimelineId, what: Owed) {
        let owes = &mut self.rows[timeline.index()].owes;
        *owes = what.max(*owes);
        self.set_busy(timeline);
    }

    pub(super) fn is_reached(&self, mark: Mark) -> bool {
        self.rows[mark.timeline.index()].completed >= mark.position
    }

    /// A mark behind everything that a stream holds now; `None` where no event can be recorded on it.
    pub(super) fn mark(&mut self, driver: &impl Driver, stream: StreamHandle) -> Option<Mark> {
        let timeline = self.of(stream);
        let position = self.rows[timeline.index()].open;
        self.record(driver, timeline).then_some(Mark { timeline, position })
    }

    /// Has what a stream is given come after a mark; false where no event can be recorded behind that now.
    pub(super) fn lead<D: HostApi>(
        &mut self,
        driver: &D,
        stream: StreamHandle,
        mark: Mark,
    ) -> driver::Result<bool> {
        if self.is_reached(mark) {
            return Ok(true);
        }
        // An event that was behind it may have been lost to a capture of its stream.
        let used = self.rows[mark.timeline.index()].life == Life::Used;
        let lost = used && self.event_behind(mark).is_none();
        if lost && !self.record(driver, mark.timeline) {
            // Owed from now on, so that a wait for the device covers it.
            self.owe(mark.timeline, Owed::Fence);
        }
        match self.event_behind(mark) {
            Some(event) => driver.wait_for_event(stream, event).map(|()| true),
            None => Ok(false),
        }
    }

    /// An event behind a mark that was not seen to be reached.
    fn event_behind(&self, mark: Mark) -> Option<EventHandle> {
        let fences = &self.rows[mark.timeline.index()].fences;
        fences.iter().find(|fence| fence.0 >= mark.position).map(|(_, event)| **event)
    }

    /// Marks where a stream stands that is about to capture. A mark from before counts no more.
    pub(super) fn expect(&mut self, driver: &impl Driver, stream: StreamHandle) {
        let mark = self.mark(driver, stream);
        let timeline = self.of(stream);
        self.rows[timeline.index()].expected = mark.map(|mark| mark.position);
    }

    /// Where a stream stood when it was last said to be about to capture, unless that was asked before.
    pub(super) fn take_expected(&mut self, stream: StreamHandle) -> Option<Mark> {
        let timeline = self.known(stream)?;
        let position = self.rows[timeline.index()].expected.take()?;
        Some(Mark { timeline, position })
    }

    /// Sees to it that the open position gets closed, now or as soon as that is possible, if anything waits for it.
    pub(super) fn fence(&mut self, driver: &impl Driver, timeline: TimelineId) {
        let row = &self.rows[timeline.index()];
        let due = row.wanted && row.owes == Owed::Nothing && row.life == Life::Used;
        if due && !self.record(driver, timeline) {
            self.owe(timeline, Owed::Fence);
        }
    }

    /// Closes the open position of a timeline with an event; says whether that was possible.
    fn record(&mut self, driver: &impl Driver, timeline: TimelineId) -> bool {
        let Timeline { stream, owes, .. } = self.rows[timeline.index()];
        let captures = || !matches!(driver.is_capturing(stream), Ok(false));
        // Other streams may join captures of any thread that may capture.
        let may_capture = !self.is_mine(stream) && self.any_captures;
        if owes == Owed::Wait || may_capture || captures() {
            return false;
        }
        let Some(device) = self.device(driver, timeline) else { return false };
        // One that has completed and that no call waits for.
        let spare = self.spare.entry(device).or_default();
        let row = spare.iter().rposition(|event| Arc::strong_count(event) == 1);
        let event = row.map(|row| spare.swap_remove(row));
        let event = event.or_else(|| driver.create_event_on(device).ok().map(Arc::new));
        let Some(event) = event else { return false };
        // If another thread has begun to capture on the stream since the question, the event may be
        // a part of the graph. It must not be asked about then: that would ruin the capture.
        if driver.record_event(*event, stream).is_err() || captures() {
            let _ = driver.destroy_event(*event);
            return false;
        }
        let row = &mut self.rows[timeline.index()];
        row.fences.push_back((row.open, event));
        row.open += 1;
        (row.wanted, row.owes) = (false, Owed::Nothing);
        self.set_busy(timeline);
        true
    }

    /// The device that a timeline's stream belongs to; `None` where its device is unknown.
    pub(super) fn device(&mut self, driver: &impl Driver, timeline: TimelineId) -> Option<u32> {
        let row = &mut self.rows[timeline.index()];
        if row.device.is_none() {
            row.device = driver.device_of_stream(row.stream).ok();
        }
        row.device
    }

    fn set_busy(&mut self, timeline: TimelineId) {
        // Few are: a look at each costs less than what had this one look for an event.
        if !self.busy.contains(&timeline) {
            self.busy.push_back(timeline);
        }
    }

    /// Takes back what [`Timelines::park`] has parked at a mark.
    pub(super) fn unpark(&mut self, mark: Mark, number: u32) {
        if let Some(parked) = self.rows[mark.timeline.index()].parked.get_mut(&mark.position) {
            parked.retain(|&it| it != number);
        }
    }

    /// Lets the caller's number wait for a mark. [`Timelines::poll`] gives it back.
    pub(super) fn park(&mut self, mark: Mark, number: u32) {
        self.rows[mark.timeline.index()].parked.entry(mark.position).or_default().push(number);
    }

    /// Whether [`Timelines::poll`] has anything to look at.
    #[inline]
    pub(super) fn are_busy(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Looks at up to `most` timelines with open questions, and gives the numbers back that wait no longer.
    pub(super) fn poll(&mut self, driver: &impl Driver, most: usize, ready: &mut Vec<u32>) {
        for _ in 0..most.min(self.busy.len()) {
            let Some(&timeline) = self.busy.front() else { return };
            self.look(driver, timeline);
            let row = &mut self.rows[timeline.index()];
            while let Some(first) = row.parked.first_entry() {
                if *first.key() > row.completed {
                    break;
                }
                ready.extend(first.remove());
            }
            match row.fences.is_empty() && row.owes == Owed::Nothing {
                true => drop(self.busy.pop_front()),
                false => self.busy.rotate_left(1),
            }
        }
    }

    fn look(&mut self, driver: &impl Driver, timeline: TimelineId) {
        let Timeline { owes, life, .. } = self.rows[timeline.index()];
        if owes == Owed::Fence && life == Life::Used {
            self.record(driver, timeline);
        }
        let row = &mut self.rows[timeline.index()];
        while let Some((position, event)) = row.fences.pop_front() {
            match driver.query_event(*event) {
                Ok(true) => {
                    row.completed = position;
                    let device = row.device.expect("a fence was recorded with its device known");
                    self.spare.entry(device).or_default().push(event);
                }
                Err(error)
                    if matches!(error.kind, ErrorKind::CapturedEvent | ErrorKind::InvalidValue) =>
                {
                    // It was captured after all, by a capture that began and ended beside the
                    // record. A later fence covers this position too.
                    destroy(driver, event);
                    (row.wanted, row.owes) = (true, row.owes.max(Owed::Fence));
                }
                Ok(false) | Err(_) => {
                    row.fences.push_front((position, event));
                    return;
                }
            }
        }
    }

    /// The events to wait for, with the engine's lock released, until everything that closed positions hold now has
    /// completed; `None` where nothing is open. They go back to [`Timelines::end_wait`].
    pub(super) fn pending(&self) -> Option<Vec<Event>> {
        let last = self.rows.iter().filter_map(|row| row.fences.back());
        let events: Vec<Event> = last.map(|(_, event)| Arc::clone(event)).collect();
        (!events.is_empty()).then_some(events)
    }

    /// A wait is over. What it waited for may be recorded again.
    pub(super) fn end_wait(&mut self, driver: &impl Driver, events: Vec<Event>) {
        // The last share in one that turned out to be captured is a wait's.
        events.into_iter().for_each(|event| destroy(driver, event));
    }

    /// Timelines that owe a fence and whose work a wait for the device covers: of streams of that device, outside
    /// captures. None where any stream captures: the wait would ruin that.
    pub(super) fn owing(&mut self, driver: &impl Driver) -> Option<Vec<TimelineId>> {
        let mut owing = Vec::new();
        for timeline in self.all() {
            let row = &self.rows[timeline.index()];
            // Of a stream that is gone nothing is asked.
            let asked = (row.life == Life::Used).then(|| driver.is_capturing(row.stream));
            let covered = match asked.map(|captures| captures.map_err(|error| error.kind)) {
                None | Some(Ok(false) | Err(ErrorKind::ContextDestroyed)) => true,
                Some(Ok(true) | Err(ErrorKind::CaptureImplicit)) => return None,
                Some(Err(_)) => false,
            };
            owing.extend((covered && row.owes > Owed::Nothing).then_some(timeline));
        }
        owing.retain(|&timeline| self.device(driver, timeline) == Some(driver.device()));
        Some(owing)
    }

    /// Closes, without an event, the positions of timelines that owe one, before a wait until the device has done
    /// all work: that covers them, on streams of other threads too. `None` where a known stream captures; no other may
    /// capture until [`Timelines::end_device_wait`].
    pub(super) fn begin_device_wait(&mut self, driver: &impl Driver) -> Option<Vec<Mark>> {
        let owing = self.owing(driver)?;
        let close = |timeline: TimelineId| {
            let row = &mut self.rows[timeline.index()];
            let position = row.open;
            // What is freed during the wait is wanted anew. The timeline owes until the wait is over.
            (row.open, row.wanted) = (position + 1, false);
            Mark { timeline, position }
        };
        Some(owing.into_iter().map(close).collect())
    }

    /// The wait is over, or has failed: then the next event, or wait, covers the positions.
    pub(super) fn end_device_wait(&mut self, driver: &impl Driver, closed: &[Mark], waited: bool) {
        for &Mark { timeline, position } in closed {
            if waited {
                // Events from before the wait.
                self.look(driver, timeline);
            }
            let row = &mut self.rows[timeline.index()];
            // Where the driver does not say that what lies before is over, that stays open too.
            let over = row.fences.front().is_none_or(|&(first, _)| first > position);
            if !waited || !over {
                (row.wanted, row.owes) = (true, row.owes.max(Owed::Fence));
            } else {
                row.completed = row.completed.max(position);
                if !row.wanted {
                    row.owes = Owed::Nothing;
                }
            }
            self.set_busy(timeline);
        }
    }

    /// Forgets a stream that is about to go, whose context is gone, or that goes on; it does not capture. False where no
    /// event can be recorded on it, which could tell of its work.
    pub(super) fn retire(
        &mut self,
        driver: &impl Driver,
        timeline: TimelineId,
        goes_on: bool,
    ) -> bool {
        let row = &self.rows[timeline.index()];
        let asks = row.wanted || row.owes > Owed::Nothing;
        if Self::is_gone(driver, row.stream) {
            if asks {
                self.owe(timeline, Owed::Wait);
            }
        } else if asks && !self.record(driver, timeline) {
            return false;
        }
        let row = &mut self.rows[timeline.index()];
        (row.life, row.ended) = (Life::Retired, None);
        let (stream, number) = (row.stream, row.number);
        self.going_on.extend(goes_on.then_some((stream, number)));
        self.by_stream.remove(&stream);
        self.recent.forget(stream_key(stream));
        true
    }

    /// Lets those of the timelines `asked` be other streams' whose own is gone, with all its work completed, and that no
    /// mark of `ordered` names; looks at no mark where none is so. What waits may still name a completed position of one.
    pub(super) fn recycle(
        &mut self,
        mut asked: Vec<TimelineId>,
        ordered: impl Iterator<Item = Mark>,
    ) {
        asked.retain(|timeline| {
            let row = &self.rows[timeline.index()];
            let owes = row.wanted || row.owes > Owed::Nothing;
            row.life == Life::Retired && row.fences.is_empty() && !owes
        });
        if asked.is_empty() {
            return;
        }
        ordered.for_each(|mark| asked.retain(|&it| it != mark.timeline));
        for timeline in asked {
            self.rows[timeline.index()].life = Life::Vacant;
            self.rows.vacate(timeline.index() as u32);
        }
    }

    /// Whether so many streams are gone that a look at all timelines is worth it.
    pub(super) fn many_retired(&self) -> bool {
        /// Fewer are left to calls that look at all streams anyway.
        const FEW: usize = 64;
        self.retired() > FEW.max(self.rows.len() / 2)
    }

    /// The number of streams that are [`Life::Retired`].
    fn retired(&self) -> usize {
        self.rows.used() - self.by_stream.len()
    }

    /// Makes every timeline the calling thread's: there is no other in the engine.
    pub(super) fn assign_all(&mut self) {
        self.rows.iter_mut().for_each(|row| row.thread = Weak::new());
    }

    /// Gives all events back to the driver.
    pub(super) fn close(&mut self, driver: &impl Driver) {
        let pending = self.rows.iter_mut().flat_map(|row| row.fences.drain(..));
        let spare = std::mem::take(&mut self.spare).into_values().flatten();
        for event in pending.map(|(_, event)| event).chain(spare) {
            destroy(driver, event);
        }
    }
}

#[cfg(debug_assertions)]
impl Timelines {
    pub(super) fn verify(&self) -> Verdict {
        let (mut used, mut retired) = (0, 0);
        self.rows.verify(|_, row| row.life != Life::Vacant)?;
        let busy = times(self.busy.iter().map(|it| it.index()), self.rows.len())?;
        for ((timeline, row), busy) in self.all().zip(&*self.rows).zip(busy) {
            let (known, lately) =
                (self.by_stream.get(&row.stream), self.recent.get(stream_key(row.stream)));
            holds!(
                lately.is_none_or(|lately| known == Some(&lately)),
                "{} is {lately:?} by the latest looks and {known:?} by the table",
                row.stream
            );
            let mine = known == Some(&timeline);
            let lives = match row.life {
                Life::Used => mine,
                Life::Retired => !mine,
                Life::Vacant => !mine && row.fences.is_empty() && row.owes == Owed::Nothing,
            };
            holds!(lives, "{timeline:?} is not its stream's {known:?}: {row:?}");
            used += usize::from(row.life == Life::Used);
            retired += usize::from(row.life == Life::Retired);
            let mut last = row.completed;
            for &(position, _) in &row.fences {
                holds!(last < position, "{timeline:?} has fences out of order: {row:?}");
                last = position;
            }
            holds!(last < row.open, "{timeline:?} has completed more than it was given: {row:?}");
            let due = row.parked.range(..=row.completed).any(|(_, parked)| !parked.is_empty());
            let looked = busy > 0 || !(row.owes > Owed::Nothing || due || !row.fences.is_empty());
            holds!(looked && busy < 2, "{timeline:?} is looked at {busy} times: {row:?}");
            let known = row.fences.is_empty() || row.device.is_some();
            holds!(known, "{timeline:?} has events of no device: {row:?}");
        }
        let counted = (self.by_stream.len(), self.retired());
        holds!(
            (used, retired) == counted,
            "streams in use and retired {counted:?}: {used}, {retired}"
        );
        Ok(())
    }

    /// A mark is on a timeline, not beyond its open position, and will be reached: an event is behind it, or one is
    /// owed, or asked for.
    pub(super) fn verify_mark(&self, mark: Mark) -> Verdict {
        let Mark { timeline, position } = mark;
        let Some(row) = self.rows.get(timeline.index()) else {
            return Err(format!("there is no timeline of {mark:?}"));
        };
        let covered = row.fences.back().is_some_and(|&(last, _)| last >= position)
            || row.owes > Owed::Nothing;
        let reached = position <= row.completed;
        let coming = position <= row.open && (covered || (position == row.open && row.wanted));
        holds!(reached || coming, "{mark:?} is never reached: {row:?}");
        Ok(())
    }

    /// What is parked, each by the mark that it waits for.
    pub(super) fn parked(&self) -> impl Iterator<Item = (Mark, u32)> + '_ {
        self.all().zip(&*self.rows).flat_map(|(timeline, row)| {
            row.parked.iter().flat_map(move |(&position, numbers)| {
                numbers.iter().map(move |&number| (Mark { timeline, position }, number))
            })
        })
    }
}

/// Gives up a share in an event, which goes back to the driver with the last one.
fn destroy(driver: &impl Driver, event: Event) {
    if let Some(event) = Arc::into_inner(event) {
        let _ = driver.destroy_event(event);
    }
}
