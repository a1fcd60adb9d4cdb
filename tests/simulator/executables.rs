//! Executable graphs: what an update does, what it is refused for, and what they take of the device.

use regraph::driver::{
    CaptureMode, Driver, DriverError, EdgeData, ErrorKind, ExecutableHandle, Functions,
    GraphHandle, GraphShape, HostApi, StreamHandle,
};
use regraph_sim::{SimConfig, SimDriver};

use crate::common::noted::{Noted, Notes};

struct Bench {
    sim: SimDriver,
    stream: StreamHandle,
    other: StreamHandle,
    notes: Notes,
}

fn bench() -> Bench {
    let sim = SimDriver::new(SimConfig::default());
    let (stream, other) = (sim.create_stream().unwrap(), sim.create_stream().unwrap());
    Bench { sim, stream, other, notes: Notes::default() }
}

fn kernel(number: u64) -> Noted {
    Noted { number, ..Noted::default() }
}

impl Bench {
    fn capture(&self, body: impl FnOnce()) -> GraphHandle {
        self.sim.begin_capture(self.stream, CaptureMode::Relaxed).unwrap();
        body();
        self.sim.end_capture(self.stream).unwrap()
    }

    fn chain(&self, kernels: &[Noted]) -> GraphHandle {
        self.capture(|| {
            for kernel in kernels {
                self.notes.launch(&self.sim, self.stream, kernel.clone());
            }
        })
    }

    fn ran(&self, executable: ExecutableHandle) -> Vec<u64> {
        self.sim.replay(executable, self.stream).unwrap();
        self.sim.complete_all();
        self.notes.take()
    }

    fn is_like(&self, one: GraphHandle, other: GraphHandle, functions: Functions) -> bool {
        let [one, other] = [one, other].map(|graph| GraphShape::of(&self.sim, graph).unwrap());
        one.is_like(&other, functions)
    }
}

fn kind(result: Result<(), DriverError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn what_an_update_cannot_change_is_refused_and_changes_nothing() {
    let b = bench();
    let first = b.chain(&[kernel(1), kernel(2)]);
    let executable = b.sim.instantiate(first).unwrap();
    let cooperative = Noted { attributes: 1, ..kernel(3) };
    let early = Noted { programmatic: true, ..kernel(4) };
    let conditional = b.chain(&[kernel(3)]);
    let address = b.sim.allocate(512).unwrap();
    let mut nodes = Vec::new();
    b.sim.nodes(conditional, &mut nodes).unwrap();
    b.sim.add_conditional(conditional, &[regraph::driver::Dependency::full(nodes[0])]).unwrap();
    let others = [
        b.chain(&[kernel(3)]),
        b.chain(&[kernel(3), kernel(4), kernel(5)]),
        b.chain(&[kernel(3), cooperative.clone()]),
        b.chain(&[kernel(3), early]),
        b.capture(|| {
            b.sim.wait(b.other, b.stream).unwrap();
            b.notes.note(&b.sim, b.stream, 3);
            b.notes.note(&b.sim, b.other, 4);
            b.sim.wait(b.stream, b.other).unwrap();
        }),
        b.capture(|| {
            b.notes.note(&b.sim, b.stream, 3);
            b.sim.fill(address, 512, 0, b.stream).unwrap();
        }),
        conditional,
    ];
    for graph in others {
        assert!(!b.is_like(first, graph, Functions::Any));
        assert_eq!(kind(b.sim.update(executable, graph)), Some(ErrorKind::UpdateRefused));
        assert_eq!(b.ran(executable), [1, 2]);
    }
    assert_eq!(
        kind(b.sim.update(executable, GraphHandle::from_bits(1))),
        Some(ErrorKind::InvalidValue)
    );
    b.sim.begin_capture(b.stream, CaptureMode::Relaxed).unwrap();
    b.notes.launch(&b.sim, b.stream, cooperative);
    b.sim.destroy_executable(executable).unwrap();
    assert_eq!(kind(b.sim.update(executable, first)), Some(ErrorKind::InvalidValue));
}

#[test]
fn shapes_are_compared_node_for_node() {
    let b = bench();
    let of = |function, parameters| {
        b.chain(&[kernel(1), Noted { function, parameters, ..kernel(2) }, kernel(3)])
    };
    let first = of(7, 2);
    assert!(b.is_like(first, of(7, 2), Functions::Same));
    for other in [of(8, 2), of(7, 3)] {
        assert!(!b.is_like(first, other, Functions::Same));
        assert!(b.is_like(first, other, Functions::Any));
        let executable = b.sim.instantiate(first).unwrap();
        b.sim.update(executable, other).unwrap();
    }
    // What nobody knows of is like nothing, not even itself.
    let graph = of(7, 2);
    b.sim.add_conditional(graph, &[]).unwrap();
    assert!(!b.is_like(graph, graph, Functions::Any));
    let shape = GraphShape::of(&b.sim, graph).unwrap();
    assert_eq!((shape.nodes(), shape.is_forked()), (4, true));
}

#[test]
fn of_several_last_nodes_all_are_alike_or_the_graph_is_like_none() {
    let b = bench();
    let fork = |attributes, edge| {
        let graph = b.capture(|| {
            b.notes.note(&b.sim, b.stream, 1);
            b.sim.wait(b.other, b.stream).unwrap();
            b.notes.note(&b.sim, b.stream, 2);
            b.notes.launch(&b.sim, b.other, Noted { attributes, ..kernel(3) });
            b.sim.wait(b.stream, b.other).unwrap();
        });
        if edge != EdgeData::FULL {
            let mut nodes = Vec::new();
            b.sim.nodes(graph, &mut nodes).unwrap();
            let from = |edge| regraph::driver::Dependency { node: nodes[0], edge };
            b.sim.remove_dependency(graph, from(EdgeData::FULL), nodes[2]).unwrap();
            b.sim.add_dependency(graph, from(edge), nodes[2]).unwrap();
        }
        graph
    };
    let like = |attributes, edge| {
        let (one, other) = (fork(attributes, edge), fork(attributes, edge));
        b.is_like(one, other, Functions::Same)
    };
    assert!(like(0, EdgeData::FULL));
    assert!(!like(1, EdgeData::FULL));
    assert!(!like(0, EdgeData::PROGRAMMATIC));
}

#[test]
fn an_update_that_fails_by_half_leaves_half() {
    let b = bench();
    let graphs = [1, 3].map(|number| b.chain(&[kernel(number), kernel(number + 1)]));
    let executable = b.sim.instantiate(graphs[0]).unwrap();
    b.sim.fail_update_nth(0, ErrorKind::UpdateRefused);
    assert_eq!(kind(b.sim.update(executable, graphs[1])), Some(ErrorKind::UpdateRefused));
    assert_eq!(b.ran(executable), [1, 2]);
    b.sim.fail_update_nth(0, ErrorKind::OutOfMemory);
    assert_eq!(kind(b.sim.update(executable, graphs[1])), Some(ErrorKind::OutOfMemory));
    assert_eq!(b.ran(executable), [3, 2]);
    b.sim.update(executable, graphs[1]).unwrap();
    assert_eq!(b.ran(executable), [3, 4]);
}

#[test]
fn a_device_gets_nothing_back_and_the_next_executable_uses_it() {
    const PIECE: u64 = 64 << 10;
    let b = bench();
    b.sim.charge_executables(PIECE / 4);
    let graph = b.chain(&[kernel(1), kernel(2), kernel(3)]);
    let shape = GraphShape::of(&b.sim, graph).unwrap();
    assert_eq!(b.sim.executable_bytes(&shape), 3 * PIECE / 4);
    let first = b.sim.instantiate(graph).unwrap();
    assert_eq!((b.sim.used_bytes(), b.sim.executable_memory()), (PIECE, 3 * PIECE / 4));
    let second = b.sim.instantiate(graph).unwrap();
    assert_eq!((b.sim.used_bytes(), b.sim.executables()), (2 * PIECE, 2));
    b.sim.destroy_executable(first).unwrap();
    assert_eq!((b.sim.used_bytes(), b.sim.executable_memory()), (2 * PIECE, 3 * PIECE / 4));
    // One that runs has its memory until it has finished.
    b.sim.replay(second, b.stream).unwrap();
    b.sim.destroy_executable(second).unwrap();
    assert_eq!(b.sim.executable_memory(), 3 * PIECE / 4);
    b.sim.instantiate(graph).unwrap();
    b.sim.complete_all();
    assert_eq!(b.notes.take(), [1, 2, 3]);
    b.sim.instantiate(graph).unwrap();
    assert_eq!((b.sim.used_bytes(), b.sim.executable_memory()), (2 * PIECE, 6 * PIECE / 4));
}
