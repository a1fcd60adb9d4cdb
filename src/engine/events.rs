//! The history as viewers know it.

use std::time::{SystemTime, UNIX_EPOCH};

use super::config::Config;
use super::history::{Action as Happened, Event, Ring};
use super::picture::Stacks;
use super::state::State;
use crate::snapshot::{Action, Annotation, Stage, TraceEntry};

impl State {
    /// The history as viewers know it, captures, and whether it may be incomplete.
    pub(super) fn events(
        &self,
        config: &Config,
        stacks: &mut Stacks,
    ) -> (Vec<TraceEntry>, Vec<Annotation>, bool) {
        let Some(history) = &self.history else { return (Vec::new(), Vec::new(), false) };
        let mut events: Vec<Event> = Vec::new();
        // Before what a full ring still has, the others know a part of the story only.
        let mut begin = 0;
        let mut full = false;
        let mut add = |history: &Ring| {
            if history.is_full() {
                full = true;
                begin = begin.max(history.events().next().map_or(0, |event| event.stamp));
            }
            events.extend(history.events());
        };
        add(history);
        for front in self.fronts.used() {
            front.history.as_deref().into_iter().for_each(&mut add);
        }
        events.retain(|event| event.stamp >= begin);
        events.sort_by_key(|event| event.stamp);
        let clock = history.clock();
        let now = clock.raw();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = |stamp: u64| {
            let ago = clock.delta_as_nanos(stamp, now) / 1_000;
            (unix.as_micros() as u64).saturating_sub(ago)
        };
        let mut trace = Vec::new();
        let mut annotations = Vec::new();
        for event in events {
            let time_us = time(event.stamp);
            let (first, second) = match event.action {
                Happened::Allocate => (Action::Alloc, None),
                Happened::Free => (Action::FreeRequested, None),
                Happened::FreeCompleted => (Action::FreeRequested, Some(Action::FreeCompleted)),
                Happened::Completed => (Action::FreeCompleted, None),
                Happened::Segment => (Action::SegmentAlloc, None),
                Happened::Map => (Action::SegmentMap, None),
                Happened::SegmentBack => (Action::SegmentFree, None),
                Happened::Unmap => (Action::SegmentUnmap, None),
                Happened::OutOfMemory => (Action::Oom, None),
                Happened::CaptureBegin | Happened::CaptureEnd => {
                    let begins = event.action == Happened::CaptureBegin;
                    let stage = if begins { Stage::Start } else { Stage::End };
                    let annotation =
                        Annotation::capture(event.address, stage, config.device, time_us);
                    annotations.push(annotation);
                    continue;
                }
            };
            let frames = stacks.of(event.frames.as_ref());
            for action in std::iter::once(first).chain(second) {
                let (address, bytes) = (event.address, event.bytes);
                let stream = event.stream.bits() as u64;
                let mut entry = if action == Action::Oom {
                    TraceEntry::oom(bytes, address, stream, time_us)
                } else {
                    TraceEntry::new(action, address, bytes, stream, time_us)
                };
                entry.pool_id = (u64::from(event.pool.number()), 0);
                entry.frames.clone_from(&frames);
                trace.push(entry);
            }
        }
        (trace, annotations, full)
    }
}
