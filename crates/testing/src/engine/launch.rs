//! Launches, waits and events.

use arbitrary::{Result, Unstructured};

use regraph_paths::Nodes;

use super::world::{must, Launch, Launched, Standing, World};
use regraph::driver::{Dependency, Driver, EdgeData, HostApi, NodeHandle, NodeKind};
use regraph_tagged::{Program, Tagged, Work};

impl World {
    /// Launches a kernel that uses what its stream may use.
    pub(super) fn launch(&mut self, stream: usize, programmatic: bool) {
        let standing = self.standing(stream);
        let dependencies = match standing {
            Standing::Ruined(_) => return,
            Standing::Eager => Vec::new(),
            Standing::Inside(_) => self.next_dependencies(stream, programmatic),
        };
        if dependencies.iter().any(|it| it.edge == EdgeData::PROGRAMMATIC) {
            if let Standing::Inside(capture) = standing {
                self.captures[capture].traits.programmatic = true;
            }
        }
        let completed = match standing {
            Standing::Inside(capture) => self.captures[capture].nodes.completed(&dependencies),
            _ => Nodes::new(),
        };
        let mut inputs = Vec::new();
        let mut outputs = Vec::new();
        let number = self.launches.len();
        for block in self.live() {
            let owned = self.blocks[block].owner() == stream;
            let Some((_, last)) = self.blocks[block].uses.iter().find(|it| it.0 == stream) else {
                continue;
            };
            let it = &self.blocks[block];
            let range = Tagged { address: it.address, bytes: it.bytes, tag: it.tag };
            match (it.writer, standing) {
                // A use after the last use is the host's lie, not a launch of ours.
                _ if last.is_some() => {}
                (None, standing) => {
                    // Graphs share their memory: outputs do not last until another one runs.
                    let home = it.home;
                    let here = match standing {
                        Standing::Inside(capture) => Some(capture),
                        _ => None,
                    };
                    if owned && home == here && !programmatic {
                        outputs.push(range);
                        self.blocks[block].writer = Some(number);
                    }
                }
                (Some(writer), Standing::Inside(capture)) => {
                    if let Launched::Node { capture: there, node } = self.launches[writer].what {
                        if there == capture && completed.contains(&node) {
                            inputs.push(range);
                        }
                    }
                }
                (Some(writer), _) => {
                    let eager = matches!(self.launches[writer].what, Launched::Eager(_));
                    if eager && owned && !programmatic {
                        inputs.push(range);
                    }
                }
            }
        }
        let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
        must(self.driver.launch(self.streams[stream], work, programmatic));
        match standing {
            Standing::Inside(capture) => {
                let node = self.terminal_nodes(stream)[0];
                self.enter_node(capture, stream, node);
            }
            _ => {
                let event = must(self.driver.record(self.streams[stream]));
                self.log(stream, Launched::Eager(event));
            }
        }
    }

    /// What the stream's next kernel will depend on.
    fn next_dependencies(&self, stream: usize, programmatic: bool) -> Vec<Dependency> {
        let mut terminals = self.terminals(stream);
        for terminal in terminals.iter_mut().filter(|_| programmatic) {
            let kernel = must(self.driver.node_kind(terminal.node)) == NodeKind::KERNEL;
            if kernel && terminal.edge == EdgeData::FULL {
                terminal.edge = EdgeData::PROGRAMMATIC;
            }
        }
        terminals
    }

    /// Enters a new node of a capture as work of a stream.
    pub(super) fn enter_node(&mut self, capture: usize, stream: usize, node: NodeHandle) {
        self.know_node(capture, node);
        self.log(stream, Launched::Node { capture, node });
    }

    /// Enters a new node that no stream launched.
    pub(super) fn know_node(&mut self, capture: usize, node: NodeHandle) {
        let mut dependencies = Vec::new();
        must(self.driver.dependencies(node, &mut dependencies));
        self.captures[capture].nodes.enter(node, &dependencies);
    }

    fn log(&mut self, stream: usize, what: Launched) {
        self.tell(format_args!("launch {} on {stream}: {what:?}", self.launches.len()));
        self.launches.push(Launch { time: self.now, stream, what });
    }

    /// Makes one stream wait for another, where that is legal.
    pub(super) fn wait(&mut self, stream: usize, on: usize) {
        match (self.standing(stream), self.standing(on)) {
            (Standing::Eager, Standing::Eager) => {}
            (Standing::Inside(here), Standing::Inside(there)) if here == there => {}
            (Standing::Eager, Standing::Inside(capture)) => {
                self.captures[capture].nodes.streams.push(stream);
            }
            _ => return,
        }
        self.tell(format_args!("wait of {stream} on {on}"));
        must(self.driver.wait(self.streams[stream], self.streams[on]));
    }

    pub(super) fn record_event(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let kind = u.int_in_range(0..=9u8)?;
        let kind = if self.ordered { 0 } else { kind };
        let handle = self.streams[stream];
        let event = match (kind, self.standing(stream)) {
            (_, Standing::Ruined(_)) => return Ok(()),
            (0..=7, _) | (_, Standing::Eager) => must(self.driver.record(handle)),
            (8, Standing::Inside(_)) => {
                must(self.driver.record_programmatic(handle, EdgeData::PROGRAMMATIC))
            }
            (_, Standing::Inside(_)) => {
                must(self.driver.record_programmatic(handle, EdgeData::LAUNCH_ORDER))
            }
        };
        self.events.push((event, self.capture_of(stream)));
        Ok(())
    }

    /// Waits for an event, perhaps of long ago. With `ruin` even where that ruins captures.
    pub(super) fn wait_event(&mut self, stream: usize, event: usize, ruin: bool) {
        let (event, home) = self.events[event];
        let before = self.standing(stream);
        let legal = match (before, home) {
            (Standing::Ruined(_), _) => false,
            (Standing::Eager, None) => true,
            (Standing::Inside(here), Some(home)) => here == home,
            (Standing::Eager, Some(home)) => self.is_sound(home),
            (Standing::Inside(_), None) => false,
        };
        if !legal && !ruin {
            return;
        }
        self.tell(format_args!("wait of {stream} for an event of {home:?}"));
        let waited = self.driver.wait_event(self.streams[stream], event);
        if waited.is_ok() {
            if let (Standing::Eager, Standing::Inside(capture)) = (before, self.standing(stream)) {
                self.captures[capture].nodes.streams.push(stream);
            }
        }
        self.note_edges(stream);
    }

    /// Notes which kinds of edges a stream's next node will have.
    pub(super) fn note_edges(&mut self, stream: usize) {
        let Standing::Inside(capture) = self.standing(stream) else {
            return;
        };
        for terminal in self.terminals(stream) {
            let traits = &mut self.captures[capture].traits;
            match terminal.edge {
                EdgeData::FULL => {}
                EdgeData::PROGRAMMATIC => traits.programmatic = true,
                _ => traits.launch_order = true,
            }
        }
    }
}
