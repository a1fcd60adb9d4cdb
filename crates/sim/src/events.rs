//! Events: positions in a stream's work, or terminals of a capture.

use super::execute::{Order, Step};
use super::refusal::{Fallible, Refusal};
use super::slots;
use super::State;
use regraph::driver::{Dependency, EdgeData, ErrorKind, EventHandle, NodeKind, StreamHandle};

/// What an event was last recorded behind.
#[derive(Clone, Debug, Default)]
pub(super) enum Recorded {
    #[default]
    Never,
    /// Work outside captures; `None` where the stream had none.
    Eager(Option<Step>),
    /// The terminals of a stream in a capture, as they were.
    Captured { capture: usize, terminals: Vec<Dependency> },
}

#[derive(Debug)]
pub(super) struct Event {
    device: u32,
    destroyed: bool,
    recorded: Recorded,
}

/// An event that the host recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SimEvent(EventHandle);

impl SimEvent {
    /// The event itself.
    pub fn handle(self) -> EventHandle {
        self.0
    }
}

impl State {
    pub(super) fn create_event(&mut self, device: u32) -> EventHandle {
        self.events.push(Event { device, destroyed: false, recorded: Recorded::Never });
        slots::event(self.events.len() - 1)
    }

    /// The engine's way to record: never into a capture.
    pub(super) fn record_event(
        &mut self,
        event: EventHandle,
        stream: StreamHandle,
    ) -> Fallible<()> {
        let slot = self.event(event)?;
        // Refused on the legacy stream beside a blocking capture, it leaves that as it is.
        self.capture_status(stream)?;
        let stream = self.stream(stream)?;
        if self.events[slot].device != self.streams[stream].device {
            return Err(Refusal::invalid_handle());
        }
        if self.capture_of(stream).is_some() {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        if stream == slots::LEGACY {
            self.join_blocking();
        }
        self.events[slot].recorded = Recorded::Eager(self.streams[stream].last);
        Ok(())
    }

    /// Has the legacy stream wait for what blocking streams still have to do, as its next action does.
    fn join_blocking(&mut self) {
        let device = self.streams[slots::LEGACY].device;
        let steps = self.streams.iter().enumerate().filter_map(|(slot, it)| {
            let waited_for = slot == slots::LEGACY || it.is_blocking_on(device);
            it.last.filter(|&step| waited_for && !self.execution.is_done(step))
        });
        let steps: Vec<Step> = steps.collect();
        if !steps.is_empty() {
            let end = self.execution.push(None, steps.into_iter().map(|step| (step, Order::Full)));
            self.streams[slots::LEGACY].follow(end);
        }
    }

    /// Asking about an event that was captured ruins the capture.
    pub(super) fn query_event(&mut self, event: EventHandle) -> Fallible<bool> {
        match self.events[self.event(event)?].recorded {
            Recorded::Never | Recorded::Eager(None) => Ok(true),
            Recorded::Eager(Some(step)) => Ok(self.execution.is_done(step)),
            Recorded::Captured { capture, .. } => Err(self.asked_captured(capture)),
        }
    }

    fn asked_captured(&mut self, capture: usize) -> Refusal {
        if self.ruin(capture) {
            ErrorKind::CapturedEvent.into()
        } else {
            ErrorKind::InvalidValue.into()
        }
    }

    /// Completes what the event stands behind, and what that waits for.
    pub(super) fn synchronize_event(&mut self, event: EventHandle) -> Fallible<()> {
        match self.events[self.event(event)?].recorded {
            Recorded::Never | Recorded::Eager(None) => {}
            Recorded::Eager(Some(step)) => {
                self.execution.run_until([step], &self.graphs, &self.memory);
            }
            Recorded::Captured { capture, .. } => return Err(self.asked_captured(capture)),
        }
        Ok(())
    }

    pub(super) fn destroy_event(&mut self, event: EventHandle) -> Fallible<()> {
        let slot = self.event(event)?;
        let event = &mut self.events[slot];
        (event.destroyed, event.recorded) = (true, Recorded::Never);
        Ok(())
    }

    /// The host's way to record. With an edge, the event fires early, as the edge says, for each
    /// kernel that it stands behind.
    pub(super) fn record(
        &mut self,
        stream: StreamHandle,
        early: Option<EdgeData>,
    ) -> Fallible<SimEvent> {
        let stream = self.used_stream(stream)?;
        let mut recorded = self.position(stream)?;
        if let (Some(edge), Recorded::Captured { terminals, .. }) = (early, &mut recorded) {
            for terminal in terminals {
                if self.graphs.kind(terminal.node)? == NodeKind::KERNEL {
                    terminal.edge = edge;
                }
            }
        }
        let event = self.create_event(self.streams[stream].device);
        self.events[slots::of_event(event)].recorded = recorded;
        Ok(SimEvent(event))
    }

    pub(super) fn wait_event(&mut self, stream: StreamHandle, event: EventHandle) -> Fallible<()> {
        let slot = self.event(event)?;
        let stream = self.used_stream(stream)?;
        let recorded = self.events[slot].recorded.clone();
        self.wait_for(stream, &recorded)
    }

    fn event(&self, event: EventHandle) -> Fallible<usize> {
        let slot = slots::of_event(event);
        match self.events.get(slot) {
            Some(it) if !it.destroyed => Ok(slot),
            _ => Err(ErrorKind::InvalidValue.into()),
        }
    }
}
