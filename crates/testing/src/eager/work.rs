//! Launches, waits and streams.

use super::world::{must, Stream, World, Writer};
use regraph::driver::HostApi;
use regraph::engine::{Error, StreamRefusal};
use regraph_tagged::{Program, Tagged, Work};

impl World {
    /// Launches a kernel that writes what its stream has yet to write and reads what it may read.
    pub(super) fn launch(&mut self, stream: usize) {
        let Stream { real, row, capture, .. } = self.streams[stream];
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for number in self.live() {
            let block = &mut self.blocks[number];
            if !block.users.contains(&row) || self.suspended[block.pool] {
                continue;
            }
            let range = Tagged { address: block.address, bytes: block.bytes, tag: block.tag };
            let own = block.users[0] == row;
            match (block.writer, capture) {
                (Writer::NotWritten, None) if own && block.home.is_none() => {
                    block.writer = Writer::Eager(self.order.count(row) + 1);
                    outputs.push(range);
                }
                (Writer::NotWritten, Some(capture)) if own && block.home == Some(capture) => {
                    block.writer = Writer::Node(capture);
                    outputs.push(range);
                }
                (Writer::Eager(count), None)
                    if self.order.precedes((block.users[0], count), row) =>
                {
                    inputs.push(range);
                }
                (Writer::Node(home), Some(capture)) if own && home == capture => {
                    inputs.push(range);
                }
                _ => {}
            }
        }
        let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
        must(self.driver.launch(real, work, false));
        if let Some(capture) = capture {
            self.captures[capture].latest = self.now;
        } else {
            let event = must(self.driver.record(real));
            self.order.push(row, event);
            self.tell(format_args!("operation {} of {row}", self.order.count(row)));
        }
    }

    /// Makes a stream wait for another where that is work outside captures.
    pub(super) fn wait(&mut self, stream: usize, on: usize) -> bool {
        let (stream, on) = (self.streams[stream], self.streams[on]);
        if stream.capture.is_some() || on.capture.is_some() || stream.row == on.row {
            return false;
        }
        self.tell(format_args!("wait of {} on {}", stream.row, on.row));
        must(self.driver.wait(stream.real, on.real));
        self.order.wait(stream.row, on.row);
        true
    }

    /// Uses a block on another stream, ordered after its allocation.
    pub(super) fn share(&mut self, block: usize, stream: usize, last: bool) {
        let owner = self.blocks[block].users[0];
        let Stream { row, capture, .. } = self.streams[stream];
        if self.blocks[block].home.is_some() {
            return;
        }
        if row != owner {
            let Some(on) = self.streams.iter().position(|it| it.row == owner) else { return };
            if capture.is_none() && !self.wait(stream, on) {
                return;
            }
        }
        self.record_stream(block, stream, last);
    }

    pub(super) fn complete(&mut self, stream: usize) {
        self.tell(format_args!("{} completes", self.streams[stream].row));
        must(self.driver.complete(self.streams[stream].real));
    }

    pub(super) fn mark(&mut self, stream: usize) {
        self.tell(format_args!("mark of {}", self.streams[stream].row));
        self.engine.mark_stream(self.streams[stream].name).expect("a stream of its own");
    }

    /// Destroys a stream that only its own blocks name, and makes another.
    pub(super) fn replace_stream(&mut self, stream: usize) {
        let Stream { name, real, row, capture } = self.streams[stream];
        let foreign = |block: &usize| self.blocks[*block].users[1..].contains(&row);
        if capture.is_some() || self.live().iter().any(foreign) {
            return;
        }
        self.tell(format_args!("stream {row} retires"));
        match self.engine.retire_stream(name) {
            Ok(()) => {}
            Err(error @ Error::Stream { why: StreamRefusal::InUse, .. }) => {
                return self.excuse(&error)
            }
            Err(error) => panic!("retire_stream: {error}"),
        }
        must(self.driver.destroy_stream(real));
        self.renamed.name(name, None);
        self.spare_names.push(name);
        self.streams.remove(stream);
        self.create_stream();
    }

    /// Nothing has gone wrong on the device so far.
    pub(super) fn judge_device(&mut self) {
        // Some stream may be capturing.
        let done = self.driver.complete_all_checked();
        let wrong = must(self.driver.take_wrong_tags());
        let sound = done.is_ok() && wrong == 0;
        assert!(sound || self.flaw.is_some(), "a block was taken away while in use: {done:?}");
        self.caught |= !sound;
    }
}
