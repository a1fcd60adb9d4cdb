//! Streams of the host: which of them capture, what comes after what, and what becomes of them.

use arbitrary::{Result, Unstructured};
use regraph::driver::{EventHandle, StreamHandle};
use regraph::graphs::{Error, StreamRefusal};
use regraph_tagged::{Program, Tagged};

use super::blocks::{Borrowed, Kind};
use super::World;

/// A stream, with the driver's number of it: another may have its handle once it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) handle: StreamHandle,
    number: u64,
}

impl Stream {
    pub(super) fn create(driver: &impl Program) -> Self {
        let handle = driver.create_stream().expect("there is room for it");
        Self { handle, number: driver.stream_id(handle).expect("the stream is there") }
    }
}

/// A stream that was destroyed, with an event behind all that it was given.
pub(super) type Gone = (Stream, EventHandle);

impl<P: Program> World<'_, P> {
    pub(super) fn is_capturing(&self, stream: Stream) -> bool {
        self.open.iter().any(|open| open.streams.contains(&stream))
    }

    /// How many streams do not capture.
    pub(super) fn free_streams(&self) -> usize {
        self.streams.iter().filter(|&&it| !self.is_capturing(it)).count()
    }

    /// A stream that does not capture.
    pub(super) fn free_stream(&self, u: &mut Unstructured<'_>) -> Result<usize> {
        let (first, all) = (u.choose_index(self.streams.len())?, self.streams.len());
        let mut others = (first..first + all).map(|it| it % all);
        let free = others.find(|&it| !self.is_capturing(self.streams[it]));
        Ok(free.expect("captures leave one out"))
    }

    /// An event behind all that a stream was given.
    fn behind(&self, stream: Stream) -> EventHandle {
        let event = self.driver.create_event().expect("there is room for it");
        self.driver.record_event(event, stream.handle).expect("the stream does not capture");
        event
    }

    pub(super) fn wait_for(&self, stream: Stream, event: EventHandle) {
        let waited = self.driver.wait_for_event(stream.handle, event);
        waited.expect("streams outside captures may wait");
    }

    pub(super) fn wait(&self, stream: Stream, on: Stream) {
        match self.gone_streams.iter().find(|it| it.0 == on) {
            Some(&(_, event)) => self.wait_for(stream, event),
            None if stream != on => {
                let waited = self.driver.wait(stream.handle, on.handle);
                waited.expect("streams outside captures may wait");
            }
            None => {}
        }
    }

    /// Makes a stream come after all that the others were given, but for those that capture.
    pub(super) fn follow_all(&self, stream: Stream) {
        let others = self.streams.iter().filter(|&&other| !self.is_capturing(other));
        others.for_each(|&other| self.wait(stream, other));
    }

    /// Everything that streams are given from now on comes after what one was given.
    pub(super) fn all_follow(&mut self, stream: Stream) {
        let others = self.streams.iter().filter(|&&other| !self.is_capturing(other));
        others.for_each(|&other| self.wait(other, stream));
        for at in 0..self.open.len() {
            let event = self.gone_streams.iter().find(|it| it.0 == stream).map(|it| it.1);
            let event = event.unwrap_or_else(|| self.behind(stream));
            self.open[at].behind.push(event);
        }
    }

    /// A stream is destroyed, and another one takes its part, maybe by the same handle.
    pub(super) fn retire(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let borrows = |it: &&Borrowed| it.is_lent() && !it.ended && !self.is_capturing(it.stream);
        let borrower = self.blocks.iter().find(borrows).map(|it| it.stream);
        let borrower = borrower.filter(|_| u.ratio(2, 3).unwrap_or_default());
        let slot = match self.streams.iter().position(|&it| Some(it) == borrower) {
            Some(slot) => slot,
            None => self.free_stream(u)?,
        };
        self.homes.iter_mut().for_each(|home| home.lending[slot] = None);
        let old = self.streams[slot];
        let uses = |it: &&Borrowed| it.stream == old && !it.ended && it.written;
        let used: Vec<(Tagged, Kind)> =
            self.blocks.iter().filter(uses).map(|it| (it.place, it.kind)).collect();
        used.iter().for_each(|(place, _)| self.work(old, &[*place], &[]));
        if used.iter().any(|(_, kind)| matches!(kind, Kind::Output { .. })) {
            // As of every output, the host orders its uses before the launches of older graphs.
            self.all_follow(old);
        }
        self.tell_uses(old);
        match self.engine.retire_stream(old.handle) {
            Ok(()) => {}
            Err(Error::Stream { why: StreamRefusal::InUse, .. }) => return Ok(()),
            Err(error) => panic!("retire: {error}"),
        }
        self.ended = true;
        self.gone_streams.push((old, self.behind(old)));
        self.driver.destroy_stream(old.handle).expect("it does not capture");
        let new = Stream::create(&self.driver);
        self.streams[slot] = new;
        self.count("handles that streams had before", u64::from(new.handle == old.handle));
        // What the others come after it comes after too.
        let others = (1..self.streams.len()).map(|it| (slot + it) % self.streams.len());
        let mut others = others.map(|it| self.streams[it]);
        self.wait(new, others.find(|&it| !self.is_capturing(it)).unwrap_or(old));
        if self.lent_all {
            self.wait(new, old);
        }
        let outputs = self.graphs.iter_mut().flat_map(|it| &mut it.outputs);
        outputs.filter(|it| it.stream == old).for_each(|it| it.ended = true);
        self.blocks.iter_mut().filter(|it| it.stream == old).for_each(|it| it.ended = true);
        self.saved.iter_mut().for_each(|it| it.note_end(old));
        if u.ratio(1, 2)? {
            let gone = |it: &mut Borrowed| it.stream == old && it.captured.is_none();
            let gone: Vec<Borrowed> = self.blocks.extract_if(.., gone).collect();
            gone.iter().for_each(|block| self.free_block(block));
        }
        Ok(())
    }
}
