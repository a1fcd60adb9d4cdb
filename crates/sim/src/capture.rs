//! Streams and captures: forks, joins, launches, and what ruins a capture.

use std::thread::{self, ThreadId};

use super::events::Recorded;
use super::execute::{Order, Step};
use super::graph::NewNode;
use super::kernel::Launch;
use super::refusal::{Fallible, Refusal};
use super::slots::{self, short};
use super::State;
use regraph::driver::{CaptureId, GraphHandle, StreamHandle};
use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, EdgeData, ErrorKind, NodeHandle, NodeKind,
};

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) device: u32,
    /// No other stream has it, also where the slot is given again.
    pub(super) number: u64,
    life: Life,
    blocking: bool,
    capture: Option<u32>,
    terminals: Vec<Dependency>,
    /// The last work outside captures.
    pub(super) last: Option<Step>,
    last_is_kernel: bool,
}

/// What has become of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// Its work goes on, and each call with it is refused.
    WithoutContext,
    Destroyed,
}

/// What is answered to a call with a stream that is not there.
#[cold]
fn refused(gone: Option<&Stream>) -> Refusal {
    match gone.map(|it| it.life) {
        Some(Life::WithoutContext) => ErrorKind::ContextDestroyed.into(),
        _ => ErrorKind::InvalidValue.into(),
    }
}

impl Stream {
    pub(super) fn new(blocking: bool, device: u32, number: u64) -> Self {
        Self {
            device,
            number,
            life: Life::Alive,
            blocking,
            capture: None,
            terminals: Vec::new(),
            last: None,
            last_is_kernel: false,
        }
    }

    pub(super) fn is_capturing(&self) -> bool {
        self.capture.is_some()
    }

    /// Whether the stream can be used and is in no capture.
    pub(super) fn is_idle(&self) -> bool {
        self.life == Life::Alive && self.capture.is_none()
    }

    /// Whether it synchronises with the legacy stream of a device, outside captures.
    pub(super) fn is_blocking_on(&self, device: u32) -> bool {
        self.blocking && self.capture.is_none() && self.device == device
    }

    /// Notes the end of a graph as the stream's last work.
    pub(super) fn follow(&mut self, end: Step) {
        self.last = Some(end);
        self.last_is_kernel = false;
    }
}

/// A capture; its slot is its number less one.
#[derive(Debug)]
pub(super) struct Capture {
    graph: usize,
    /// Whether the graph was made for this capture.
    own: bool,
    origin: usize,
    mode: CaptureMode,
    thread: ThreadId,
    invalidated: bool,
    ended: bool,
    streams: Vec<usize>,
    /// Nodes that some stream has let go of, which need not rejoin.
    dropped: Vec<NodeHandle>,
}

/// Adds terminals to a set. A node is in it once, by the edge that promises more.
fn unite(terminals: &mut Vec<Dependency>, more: &[Dependency]) {
    for new in more {
        match terminals.iter_mut().find(|old| old.node == new.node) {
            Some(old) if new.edge == EdgeData::FULL => old.edge = EdgeData::FULL,
            Some(_) => {}
            None => terminals.push(*new),
        }
    }
}

impl State {
    #[inline]
    pub(super) fn capture_status(&self, stream: StreamHandle) -> Fallible<CaptureStatus> {
        let slot = slots::of_stream(stream);
        let stream = match self.streams.get(slot) {
            Some(stream) if stream.life == Life::Alive => stream,
            gone => return Err(refused(gone)),
        };
        self.refuse_elsewhere(slot)?;
        let Some(capture) = stream.capture else {
            if slot == slots::LEGACY && self.blocking_captures > 0 {
                return Err(ErrorKind::CaptureImplicit.into());
            }
            return Ok(CaptureStatus::None);
        };
        let state = &self.captures[capture as usize];
        if state.invalidated {
            return Ok(CaptureStatus::Invalidated);
        }
        Ok(CaptureStatus::Active {
            capture: CaptureId(self.first_capture + u64::from(capture)),
            graph: slots::graph(state.graph),
        })
    }

    /// Refuses a default stream of a thread to which another context is current.
    fn refuse_elsewhere(&self, slot: usize) -> Fallible<()> {
        let elsewhere = slot < slots::CREATED && !self.elsewhere.is_empty();
        match elsewhere && self.elsewhere.contains(&thread::current().id()) {
            true => Err(ErrorKind::OtherContext.into()),
            false => Ok(()),
        }
    }

    /// The terminals of a stream in a capture that is sound; none of any other.
    pub(super) fn known_terminals(&self, stream: StreamHandle) -> &[Dependency] {
        let stream = self.streams.get(slots::of_stream(stream));
        let stream = stream.filter(|stream| stream.life == Life::Alive);
        let sound = |capture: u32| !self.captures[capture as usize].invalidated;
        match stream {
            Some(stream) if stream.capture.is_some_and(sound) => &stream.terminals,
            _ => &[],
        }
    }

    pub(super) fn stream(&self, stream: StreamHandle) -> Fallible<usize> {
        let slot = slots::of_stream(stream);
        match self.streams.get(slot) {
            Some(it) if it.life == Life::Alive => Ok(slot),
            gone => Err(refused(gone)),
        }
    }

    /// A stream about to get work. The legacy stream would wait for the blocking streams, so that
    /// using it ruins their captures.
    pub(super) fn used_stream(&mut self, stream: StreamHandle) -> Fallible<usize> {
        let slot = self.stream(stream)?;
        self.refuse_elsewhere(slot)?;
        if slot == slots::LEGACY && self.blocking_captures > 0 {
            let ruined = self.streams.iter().filter(|it| it.blocking);
            for capture in ruined.filter_map(|it| it.capture) {
                self.captures[capture as usize].invalidated = true;
            }
            return Err(ErrorKind::CaptureImplicit.into());
        }
        Ok(slot)
    }

    pub(super) fn create_stream(&mut self, blocking: bool, device: u32) -> StreamHandle {
        self.streams_ever += 1;
        let stream = Stream::new(blocking, device, self.streams_ever);
        let slot = match self.vacant_streams.as_mut().and_then(Vec::pop) {
            Some(slot) => {
                let gone = std::mem::replace(&mut self.streams[slot], stream);
                self.left.extend(gone.last.map(|step| (gone.device, step)));
                slot
            }
            None => {
                self.streams.push(stream);
                self.streams.len() - 1
            }
        };
        self.set_gate(slot);
        slots::stream(slot)
    }

    /// Destroys the context of a stream, which has that for itself.
    pub(super) fn destroy_context_of(&mut self, stream: StreamHandle) -> Fallible<()> {
        let slot = self.stream(stream)?;
        self.streams[slot].life = Life::WithoutContext;
        self.set_gate(slot);
        Ok(())
    }

    pub(super) fn destroy_stream(&mut self, stream: StreamHandle) -> Fallible<()> {
        let slot = self.stream(stream)?;
        if slot < slots::CREATED {
            return Err(ErrorKind::InvalidValue.into());
        }
        if self.streams[slot].capture.is_some() {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        self.streams[slot].life = Life::Destroyed;
        if let Some(vacant) = &mut self.vacant_streams {
            vacant.push(slot);
        }
        self.set_gate(slot);
        Ok(())
    }

    /// The capture that a stream is in.
    pub(super) fn capture_of(&self, stream: usize) -> Option<usize> {
        self.streams[stream].capture.map(|capture| capture as usize)
    }

    /// The capture that a stream is in, refused if it is ruined.
    pub(super) fn sound_capture_of(&self, stream: usize) -> Fallible<Option<usize>> {
        let capture = self.capture_of(stream);
        if capture.is_some_and(|capture| self.captures[capture].invalidated) {
            return Err(ErrorKind::CaptureInvalidated.into());
        }
        Ok(capture)
    }

    pub(super) fn begin_capture(
        &mut self,
        stream: StreamHandle,
        graph: Option<GraphHandle>,
        mode: CaptureMode,
    ) -> Fallible<()> {
        let origin = self.used_stream(stream)?;
        if origin == slots::LEGACY {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        if self.streams[origin].capture.is_some() {
            return Err(Refusal::illegal_state());
        }
        let slot = match graph {
            Some(graph) => {
                let slot = self.graphs.alive(slots::of_graph(graph))?;
                if self.graphs.is_capturing(slot) {
                    return Err(ErrorKind::InvalidValue.into());
                }
                slot
            }
            None => self.graphs.create(false),
        };
        self.graphs.set_capturing(slot, true);
        self.captures.push(Capture {
            graph: slot,
            own: graph.is_none(),
            origin,
            mode,
            thread: thread::current().id(),
            invalidated: false,
            ended: false,
            streams: Vec::new(),
            dropped: Vec::new(),
        });
        let capture = self.captures.len() - 1;
        self.live_captures.push(capture);
        self.enter_capture(origin, capture);
        Ok(())
    }

    pub(super) fn end_capture(&mut self, stream: StreamHandle) -> Fallible<GraphHandle> {
        let slot = self.used_stream(stream)?;
        let Some(capture) = self.capture_of(slot) else {
            return Err(Refusal::illegal_state());
        };
        let state = &mut self.captures[capture];
        if state.origin != slot {
            // As on an H200.
            state.invalidated = true;
            return Err(Refusal::unmatched());
        }
        let (graph, own) = (state.graph, state.own);
        let elsewhere =
            state.mode != CaptureMode::Relaxed && state.thread != thread::current().id();
        // The capture is over in any case: also after an end by another thread, on an H200.
        let failure = if state.invalidated {
            Some(ErrorKind::CaptureInvalidated)
        } else if elsewhere {
            Some(ErrorKind::CaptureWrongThread)
        } else if !self.is_joined(capture) {
            Some(ErrorKind::CaptureUnjoined)
        } else {
            None
        };
        self.leave_capture(capture);
        match failure {
            Some(kind) => {
                if own {
                    self.graphs.destroy(graph);
                }
                Err(kind.into())
            }
            None => Ok(slots::graph(graph)),
        }
    }

    pub(super) fn launch(
        &mut self,
        stream: StreamHandle,
        device: u32,
        Launch { kernel, programmatic }: Launch,
    ) -> Fallible<()> {
        let slot = self.used_stream(stream)?;
        if self.streams[slot].device != device {
            return Err(Refusal::invalid_handle());
        }
        let Some(capture) = self.sound_capture_of(slot)? else {
            let work = self.graphs.store(device, kernel);
            let stream = &mut self.streams[slot];
            let order = if programmatic && stream.last_is_kernel {
                Order::Programmatic
            } else {
                Order::Full
            };
            let before = stream.last.map(|last| (last, order));
            stream.last = Some(self.execution.push(work, before));
            stream.last_is_kernel = true;
            return Ok(());
        };
        let work = self.graphs.store(device, kernel);
        let terminals = &mut self.streams[slot].terminals;
        if programmatic {
            for terminal in terminals.iter_mut() {
                let kernel = self.graphs.kind(terminal.node)? == NodeKind::KERNEL;
                if kernel && terminal.edge == EdgeData::FULL {
                    terminal.edge = EdgeData::PROGRAMMATIC;
                }
            }
        }
        let new = NewNode { kind: NodeKind::KERNEL, work, body: None };
        let node = self.graphs.add(self.captures[capture].graph, terminals, new);
        terminals.clear();
        terminals.push(Dependency::full(node));
        Ok(())
    }

    /// What an event recorded on the stream now stands for.
    pub(super) fn position(&self, stream: usize) -> Fallible<Recorded> {
        Ok(match self.sound_capture_of(stream)? {
            Some(capture) => {
                Recorded::Captured { capture, terminals: self.streams[stream].terminals.clone() }
            }
            None => Recorded::Eager(self.streams[stream].last),
        })
    }

    pub(super) fn wait(&mut self, stream: StreamHandle, on: StreamHandle) -> Fallible<()> {
        let (slot, on) = (self.used_stream(stream)?, self.used_stream(on)?);
        let position = self.position(on)?;
        self.wait_for(slot, &position)
    }

    /// Makes a stream wait for a position: the one place where streams fork and join.
    pub(super) fn wait_for(&mut self, slot: usize, position: &Recorded) -> Fallible<()> {
        let inside = self.capture_of(slot);
        match (inside, position) {
            (_, Recorded::Never) => Ok(()),
            (Some(inside), Recorded::Eager(_)) => {
                self.captures[inside].invalidated = true;
                Err(ErrorKind::CaptureIsolation.into())
            }
            (None, Recorded::Eager(step)) => {
                let stream = &mut self.streams[slot];
                let before = [stream.last, *step].into_iter().flatten();
                let before = before.map(|step| (step, Order::Full));
                stream.last = Some(self.execution.push(None, before));
                stream.last_is_kernel = false;
                Ok(())
            }
            (Some(inside), Recorded::Captured { capture, .. }) if inside != *capture => {
                self.captures[inside].invalidated = true;
                if self.captures[*capture].ended {
                    return Err(ErrorKind::CaptureIsolation.into());
                }
                self.captures[*capture].invalidated = true;
                Err(ErrorKind::CaptureMerge.into())
            }
            (inside, Recorded::Captured { capture, terminals }) => {
                let state = &mut self.captures[*capture];
                if state.ended {
                    return Err(ErrorKind::InvalidValue.into());
                }
                if state.invalidated {
                    return Err(ErrorKind::CaptureInvalidated.into());
                }
                if slot == slots::LEGACY {
                    state.invalidated = true;
                    return Err(ErrorKind::CaptureImplicit.into());
                }
                if inside.is_none() {
                    self.enter_capture(slot, *capture);
                }
                unite(&mut self.streams[slot].terminals, terminals);
                Ok(())
            }
        }
    }

    pub(super) fn set_terminals(
        &mut self,
        stream: StreamHandle,
        terminals: &[Dependency],
    ) -> Fallible<()> {
        let slot = self.used_stream(stream)?;
        let capture = self.sound_capture_of(slot)?.ok_or_else(Refusal::illegal_state)?;
        let state = &mut self.captures[capture];
        for terminal in terminals {
            self.graphs.check(state.graph, *terminal, NodeKind::KERNEL)?;
        }
        let stream = &mut self.streams[slot];
        let kept = |old: &Dependency| terminals.iter().any(|new| new.node == old.node);
        let dropped = stream.terminals.iter().filter(|old| !kept(old));
        state.dropped.extend(dropped.map(|old| old.node));
        stream.terminals.clear();
        unite(&mut stream.terminals, terminals);
        Ok(())
    }

    pub(super) fn terminals(&self, stream: StreamHandle) -> Fallible<&[Dependency]> {
        Ok(&self.streams[self.stream(stream)?].terminals)
    }

    pub(super) fn invalidate(&mut self, stream: StreamHandle) -> Fallible<()> {
        let slot = self.stream(stream)?;
        let capture = self.capture_of(slot).ok_or_else(Refusal::illegal_state)?;
        self.captures[capture].invalidated = true;
        Ok(())
    }

    /// Ruins a capture, if it has not ended.
    pub(super) fn ruin(&mut self, capture: usize) -> bool {
        let state = &mut self.captures[capture];
        state.invalidated |= !state.ended;
        !state.ended
    }

    /// A call that captures forbid, made by the host without switching its thread to relaxed.
    pub(super) fn unsafe_call(&mut self) -> Fallible<()> {
        let mut forbidden = false;
        for capture in &self.live_captures {
            let state = &mut self.captures[*capture];
            let forbids = match state.mode {
                CaptureMode::Global => true,
                CaptureMode::ThreadLocal => state.thread == thread::current().id(),
                CaptureMode::Relaxed => false,
            };
            state.invalidated |= forbids;
            forbidden |= forbids;
        }
        if forbidden {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        Ok(())
    }

    /// A wait for a device, which waits for its streams: in every mode of the thread it is refused
    /// while one of them captures, and invalidates the capture.
    pub(super) fn forbid_captures_on(&mut self, device: u32) -> Fallible<()> {
        let mut forbidden = false;
        for &capture in &self.live_captures {
            let Self { captures, streams, .. } = self;
            if captures[capture].streams.iter().any(|&slot| streams[slot].device == device) {
                captures[capture].invalidated = true;
                forbidden = true;
            }
        }
        if forbidden {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        Ok(())
    }

    fn enter_capture(&mut self, slot: usize, capture: usize) {
        let stream = &mut self.streams[slot];
        stream.capture = Some(short(capture));
        self.blocking_captures += usize::from(stream.blocking);
        self.captures[capture].streams.push(slot);
        self.set_gate(slot);
        self.set_gate(slots::LEGACY);
    }

    fn leave_capture(&mut self, capture: usize) {
        let state = &mut self.captures[capture];
        state.ended = true;
        self.graphs.set_capturing(state.graph, false);
        self.live_captures.retain(|live| *live != capture);
        for slot in std::mem::take(&mut state.streams) {
            let stream = &mut self.streams[slot];
            stream.capture = None;
            stream.terminals.clear();
            self.blocking_captures -= usize::from(stream.blocking);
            self.set_gate(slot);
        }
        self.set_gate(slots::LEGACY);
    }

    /// Whether every forked stream's terminals lead to the origin by full edges, or to nodes that
    /// a stream has let go of: those may stay unreached, and what came before them with them.
    fn is_joined(&self, capture: usize) -> bool {
        let state = &self.captures[capture];
        let forked = state.streams.iter().filter(|slot| **slot != state.origin);
        let wanted = forked
            .flat_map(|slot| &self.streams[*slot].terminals)
            .map(|terminal| terminal.node)
            .collect();
        let full = |edge| edge == EdgeData::FULL;
        let origin = &self.streams[state.origin].terminals;
        let from = origin.iter().filter(|it| full(it.edge)).map(|it| it.node);
        let from = from.chain(state.dropped.iter().copied());
        self.graphs.reaches(state.graph, from, wanted, full)
    }
}
