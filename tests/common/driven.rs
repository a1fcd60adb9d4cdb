//! What tests of drivers ask of a driver.

use std::fmt::Debug;

use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Dependency, DriverError, EdgeData, ErrorKind,
    GraphHandle, NodeHandle, StreamHandle,
};
use regraph_tagged::{Program, Work};

/// Streams, the first of which captures.
pub fn capturing<const N: usize>(driver: &impl Program) -> [StreamHandle; N] {
    let streams = [(); N].map(|()| driver.create_stream().unwrap());
    driver.begin_capture(streams[0], CaptureMode::Relaxed).unwrap();
    streams
}

/// What a call that fills a list finds in it.
fn stale() -> Vec<Dependency> {
    vec![Dependency::full(NodeHandle::from_bits(1))]
}

pub fn status(driver: &impl Program, stream: StreamHandle) -> CaptureStatus {
    let mut terminals = stale();
    let status = driver.capture_status(stream, &mut terminals).unwrap();
    assert!(terminals.is_empty() || matches!(status, CaptureStatus::Active { .. }));
    status
}

pub fn active(driver: &impl Program, stream: StreamHandle) -> (CaptureId, GraphHandle) {
    match status(driver, stream) {
        CaptureStatus::Active { capture, graph } => (capture, graph),
        other => panic!("not capturing: {other:?}"),
    }
}

pub fn terminals(driver: &impl Program, stream: StreamHandle) -> Vec<Dependency> {
    let mut terminals = stale();
    driver.capture_status(stream, &mut terminals).unwrap();
    sorted(terminals)
}

/// Launches and returns the new node.
pub fn node(
    driver: &impl Program,
    stream: StreamHandle,
    work: Work<'_>,
    early: bool,
) -> NodeHandle {
    driver.launch(stream, work, early).unwrap();
    let terminals = terminals(driver, stream);
    assert_eq!(terminals.len(), 1, "a launched node is the only terminal");
    assert_eq!(terminals[0].edge, EdgeData::FULL);
    terminals[0].node
}

pub fn launch(driver: &impl Program, stream: StreamHandle) -> NodeHandle {
    node(driver, stream, Work::default(), false)
}

pub fn dependencies(driver: &impl Program, node: NodeHandle) -> Vec<Dependency> {
    let mut dependencies = stale();
    driver.dependencies(node, &mut dependencies).unwrap();
    sorted(dependencies)
}

/// A driver names nodes in no order that it promises.
pub fn sorted(mut dependencies: Vec<Dependency>) -> Vec<Dependency> {
    dependencies.sort_by_key(|dependency| dependency.node);
    dependencies
}

pub fn full(nodes: &[NodeHandle]) -> Vec<Dependency> {
    sorted(nodes.iter().map(|&node| Dependency::full(node)).collect())
}

pub fn refused<T: Debug>(result: Result<T, DriverError>, kind: ErrorKind) {
    assert_eq!(result.expect_err("the call is refused").kind, kind);
}
