//! Freed chunks that wait for the work of other streams.

use std::collections::{BTreeMap, VecDeque};

use regraph_trace::StreamIndex;

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// What waits for a stream: when it was freed, and its address, oldest first.
    events: BTreeMap<StreamIndex, VecDeque<(u64, u64)>>,
    /// How many events an address waits for.
    unmet: BTreeMap<u64, usize>,
    now: u64,
}

impl Waiting {
    /// How much was ever added.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn add(&mut self, address: u64, users: &[StreamIndex]) {
        for stream in users {
            self.events.entry(*stream).or_default().push_back((self.now, address));
        }
        self.unmet.insert(address, users.len());
        self.now += 1;
    }

    /// Meets a stream's events before a time; returns the addresses that wait for nothing more.
    pub(super) fn complete(&mut self, stream: StreamIndex, before: u64) -> Vec<u64> {
        let mut done = Vec::new();
        let Some(events) = self.events.get_mut(&stream) else {
            return done;
        };
        while let Some((time, address)) = events.front().copied() {
            if time >= before {
                break;
            }
            events.pop_front();
            if let Some(unmet) = self.unmet.get_mut(&address) {
                *unmet -= 1;
                if *unmet == 0 {
                    self.unmet.remove(&address);
                    done.push(address);
                }
            }
        }
        done
    }

    /// Meets all events.
    pub(super) fn complete_all(&mut self) -> Vec<u64> {
        self.events.clear();
        std::mem::take(&mut self.unmet).into_keys().collect()
    }
}
