//! Captures of a trace in a probe.

use std::collections::BTreeMap;

use crate::{Launch, SimDriver};
use regraph::driver::{
    CaptureMode, CaptureStatus, Driver, DriverError, ErrorKind, GraphHandle, HostApi, NodeHandle,
    StreamHandle,
};
use regraph::graphs::{Capture, Error, Graph, Memory};
use regraph_trace::{dependencies, BlockIndex, Members, Operation, StreamIndex, Trace};

use super::Probe;

/// The graphs of a trace, and what their captures allocated and did not free. Dropping it gives both back.
#[derive(Debug)]
pub struct Replayed {
    _blocks: BTreeMap<BlockIndex, Memory<SimDriver>>,
    _graphs: Vec<Graph<SimDriver>>,
}

/// A capture under way.
struct UnderWay {
    capture: Capture<SimDriver>,
    graph: GraphHandle,
    members: Members,
    /// By number.
    nodes: Vec<NodeHandle>,
}

impl Probe {
    /// What the pool holds with the captures of these traces, made in turn, in bytes. They are gone afterwards.
    ///
    /// # Errors
    /// The engine's.
    pub fn held_by<'a>(&self, traces: impl IntoIterator<Item = &'a Trace>) -> Result<u64, Error> {
        let replayed = traces.into_iter().map(|trace| self.replay(trace));
        let _held = replayed.collect::<Result<Vec<_>, _>>()?;
        self.reserved()
    }

    /// Makes the captures of a trace in the probe's pool, one after the other, on streams of their own. What
    /// the program had outside its captures is not there.
    ///
    /// # Errors
    /// The engine's.
    pub fn replay(&self, trace: &Trace) -> Result<Replayed, Error> {
        let mut streams = BTreeMap::new();
        let mut blocks = BTreeMap::new();
        let mut graphs = Vec::new();
        let mut under_way = None;
        for (index, operation) in trace.operations().iter().enumerate() {
            for stream in operation.streams() {
                if let std::collections::btree_map::Entry::Vacant(new) = streams.entry(stream) {
                    new.insert(self.stream()?);
                }
            }
            match *operation {
                Operation::Begin { stream, .. } => {
                    let members = Members::new(stream, &trace.operations()[index + 1..]);
                    under_way = Some(self.begin(streams[&stream], members)?);
                }
                Operation::End {} => {
                    let Some(UnderWay { capture, members, .. }) = under_way.take() else {
                        continue;
                    };
                    for stream in members.inside().map(|stream| streams[&stream]) {
                        if stream != capture.stream() {
                            self.driver().wait(capture.stream(), stream)?;
                        }
                    }
                    graphs.push(capture.finish()?);
                }
                _ => {
                    let Some(under_way) = &mut under_way else { continue };
                    for stream in operation.streams() {
                        self.enter(under_way, stream, &streams)?;
                    }
                    self.step(under_way, operation, &streams, &mut blocks)?;
                }
            }
        }
        Ok(Replayed { _blocks: blocks, _graphs: graphs })
    }

    fn driver(&self) -> &SimDriver {
        self.engine().driver()
    }

    fn begin(&self, stream: StreamHandle, members: Members) -> Result<UnderWay, Error> {
        let capture = Capture::begin(self.pool(), stream, CaptureMode::Relaxed)?;
        let CaptureStatus::Active { graph, .. } =
            self.driver().capture_status(stream, &mut Vec::new())?
        else {
            return Err(not_capturing());
        };
        Ok(UnderWay { capture, graph, members, nodes: Vec::new() })
    }

    /// Lets a stream into the capture, with no terminals, if it belongs there and is not in it.
    fn enter(
        &self,
        under_way: &mut UnderWay,
        stream: StreamIndex,
        streams: &BTreeMap<StreamIndex, StreamHandle>,
    ) -> Result<(), Error> {
        if under_way.members.enters_at_once(stream) {
            self.driver().wait(streams[&stream], under_way.capture.stream())?;
            self.driver().set_terminals(streams[&stream], &[])?;
        }
        Ok(())
    }

    fn step(
        &self,
        under_way: &mut UnderWay,
        operation: &Operation,
        streams: &BTreeMap<StreamIndex, StreamHandle>,
        blocks: &mut BTreeMap<BlockIndex, Memory<SimDriver>>,
    ) -> Result<(), Error> {
        let UnderWay { capture, graph, members, nodes } = under_way;
        match *operation {
            Operation::Kernel { stream, programmatic, .. } => {
                let stream = streams[&stream];
                self.driver().launch_kernel(stream, Launch { kernel: None, programmatic })?;
                let mut terminals = Vec::new();
                self.driver().capture_status(stream, &mut terminals)?;
                nodes.push(terminals.first().ok_or_else(not_capturing)?.node);
            }
            Operation::Wait { stream, on } => {
                if members.waits(stream, on) {
                    self.driver().wait(streams[&stream], streams[&on])?;
                }
            }
            Operation::Node { ref after, ref programmatic, .. } => {
                let after = dependencies(nodes, after, programmatic);
                nodes.push(self.driver().add_kernel_node(*graph, &after, None)?);
            }
            Operation::Terminals { stream, nodes: ref terminals } => {
                let stream = streams[&stream];
                // What a set-back leaves behind cannot be told from other streams' work later.
                self.engine().observe(stream)?;
                self.driver().set_terminals(stream, &dependencies(nodes, terminals, &[]))?;
                self.engine().observe(stream)?;
            }
            Operation::Alloc { id, bytes, stream } => {
                blocks.insert(id, capture.allocate(bytes, streams[&stream])?);
            }
            Operation::Use { id, stream } => {
                blocks.get(&id).map_or(Ok(()), |it| it.record_stream(streams[&stream]))?;
            }
            Operation::LastUse { id, stream } => {
                blocks.get(&id).map_or(Ok(()), |it| it.record_use(streams[&stream]))?;
            }
            Operation::Free { id } => drop(blocks.remove(&id)),
            Operation::Begin { .. } | Operation::End {} => {}
        }
        Ok(())
    }
}

fn not_capturing() -> Error {
    DriverError::new("cuStreamGetCaptureInfo", 0, ErrorKind::CaptureInvalidated).into()
}
