//! Executable graphs: what they take of the device, and what an update does to them.

use super::execute::{Executable, Step};
use super::kernel::Kernel;
use super::refusal::Fallible;
use super::{slots, SimDriver, State};
use regraph::driver::{
    ErrorKind, ExecutableHandle, GraphHandle, NodeHandle, NodeKind, NodeShape, StreamHandle,
};

/// Executables take memory of the device in pieces of so many bytes.
const PIECE: u64 = 64 << 10;

/// The executables of a machine.
#[derive(Debug, Default)]
pub(super) struct Executables {
    slots: Vec<Option<Executable>>,
    /// What is foreseen that one takes for each node, in bytes, and up to how many times as much it takes.
    node_bytes: u64,
    times: u64,
    /// What each device's executables have taken, and what of that they use. It never goes back.
    memory: Vec<(u64, u64)>,
    /// Those that were destroyed while they ran: until when, and on which device they use how much.
    going: Vec<(Step, (u32, u64))>,
    /// How many more updates succeed before one fails.
    fault: Option<(u64, ErrorKind)>,
}

impl Executables {
    pub(super) fn bytes(&self, nodes: usize) -> u64 {
        self.node_bytes * nodes as u64
    }

    pub(super) fn forget_fault(&mut self) {
        self.fault = None;
    }

    fn get(&mut self, executable: ExecutableHandle) -> Fallible<&mut Executable> {
        let slot = self.slots.get_mut(slots::of_executable(executable));
        slot.and_then(Option::as_mut).ok_or_else(|| ErrorKind::InvalidValue.into())
    }

    /// What a device's executables have taken, and what of that they use.
    fn memory(&mut self, device: u32) -> &mut (u64, u64) {
        let device = device as usize;
        if self.memory.len() <= device {
            self.memory.resize(device + 1, (0, 0));
        }
        &mut self.memory[device]
    }
}

impl State {
    pub(super) fn instantiate(
        &mut self,
        device: u32,
        graph: GraphHandle,
    ) -> Fallible<ExecutableHandle> {
        let graph = self.graph(graph)?;
        if self.graphs.any_capturing(graph) {
            return Err(ErrorKind::InvalidValue.into());
        }
        let mut executable = Executable::new(&self.graphs, graph);
        self.let_go();
        let foreseen = self.executables.bytes(self.graphs.nodes(graph).len());
        // Weyl's sequence: by nothing that a program chooses.
        let drawn = (self.executables.slots.len() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes = foreseen * (1 + (drawn >> 32) % self.executables.times.max(1));
        let (taken, used) = self.executables.memory(device);
        let missing = (*used + bytes).saturating_sub(*taken).next_multiple_of(PIECE);
        self.memory.use_up(device, missing)?;
        (*taken, *used) = (*taken + missing, *used + bytes);
        executable.memory = (device, bytes);
        self.executables.slots.push(Some(executable));
        Ok(slots::executable(self.executables.slots.len() - 1))
    }

    pub(super) fn update(
        &mut self,
        executable: ExecutableHandle,
        graph: GraphHandle,
    ) -> Fallible<()> {
        let graph = self.graph(graph)?;
        if self.graphs.any_capturing(graph) {
            return Err(ErrorKind::InvalidValue.into());
        }
        let by = Executable::new(&self.graphs, graph);
        let fault = match &mut self.executables.fault {
            Some((0, _)) => self.executables.fault.take(),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        let found = self.executables.get(executable)?;
        match fault {
            Some((_, kind @ ErrorKind::UpdateRefused)) => return Err(kind.into()),
            // It got half way.
            Some((_, kind)) => {
                found.update_half(&by);
                return Err(kind.into());
            }
            None => {}
        }
        if !found.update(&by) {
            return Err(ErrorKind::UpdateRefused.into());
        }
        Ok(())
    }

    pub(super) fn node_shape(&self, node: NodeHandle) -> Fallible<NodeShape> {
        let (kind, kernel) = self.graphs.told(node)?;
        if ![NodeKind::KERNEL, NodeKind::COPY, NodeKind::FILL].contains(&kind) {
            return Ok(NodeShape::unknown(kind));
        }
        let parameters = kernel.map_or(0, |kernel| kernel.ranges().len());
        let parameters = (0..parameters).map(|at| (8 * at, 8)).collect();
        let shape = NodeShape::new(kind).function(kernel.map(Kernel::function), parameters);
        Ok(shape.fixed(vec![kernel.map_or(0, Kernel::attributes)]))
    }

    pub(super) fn upload(
        &mut self,
        executable: ExecutableHandle,
        stream: StreamHandle,
    ) -> Fallible<()> {
        let slot = self.used_stream(stream)?;
        self.executables.get(executable)?;
        match self.streams[slot].is_capturing() {
            false => Ok(()),
            true => Err(ErrorKind::CaptureUnsupported.into()),
        }
    }

    pub(super) fn replay(
        &mut self,
        executable: ExecutableHandle,
        stream: StreamHandle,
    ) -> Fallible<()> {
        let slot = self.used_stream(stream)?;
        let executable = self.executables.get(executable)?;
        let last = self.streams[slot].last;
        if self.streams[slot].is_capturing() {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        let end = self.execution.replay(executable, last);
        self.streams[slot].follow(end);
        Ok(())
    }

    pub(super) fn destroy_executable(&mut self, executable: ExecutableHandle) -> Fallible<()> {
        let found = self.executables.get(executable)?;
        let (last, memory) = (found.last(), found.memory);
        self.executables.slots[slots::of_executable(executable)] = None;
        match last {
            Some(step) => self.executables.going.push((step, memory)),
            None => self.executables.memory(memory.0).1 -= memory.1,
        }
        Ok(())
    }

    /// Has executables that were destroyed and have finished use no memory any more.
    fn let_go(&mut self) {
        let Self { executables, execution, .. } = self;
        let done = executables.going.extract_if(.., |(step, _)| execution.is_done(*step));
        for (_, (device, bytes)) in done.collect::<Vec<_>>() {
            executables.memory(device).1 -= bytes;
        }
    }
}

/// What tests ask of executables.
impl SimDriver {
    /// Has each executable that is made from now on take so many bytes for each of its graph's nodes. The device's memory
    /// gets less by it in pieces of 64 KiB, and not more when executables are destroyed: the next ones use what
    /// those had. At first executables take none.
    pub fn charge_executables(&self, bytes_a_node: u64) {
        self.charge_executables_up_to(bytes_a_node, 1);
    }

    /// As [`SimDriver::charge_executables`], but an executable takes up to so many times as much as is foreseen for it,
    /// drawn for each.
    pub fn charge_executables_up_to(&self, bytes_a_node: u64, times: u64) {
        let executables = &mut self.lock().executables;
        (executables.node_bytes, executables.times) = (bytes_a_node, times);
    }

    /// What executables have of this device's memory, in bytes: in use now, those included that were destroyed while
    /// they run.
    pub fn executable_memory(&self) -> u64 {
        let mut state = self.lock();
        state.let_go();
        state.executables.memory(self.device).1
    }

    /// What executables have taken of this device's memory, in bytes, in use or not.
    pub fn taken_by_executables(&self) -> u64 {
        self.lock().executables.memory(self.device).0
    }

    /// How many executables there are.
    pub fn executables(&self) -> usize {
        self.lock().executables.slots.iter().flatten().count()
    }

    /// Makes one coming update of an executable fail; zero is the very next. One that is refused leaves the
    /// executable as it was; after any other failure half of its nodes are updated.
    pub fn fail_update_nth(&self, n: u64, kind: ErrorKind) {
        self.lock().executables.fault = Some((n, kind));
    }
}
