//! What bounds the nodes that may touch a block: its allocation and its free markers.

use std::collections::HashMap;

use super::model::Model;
use regraph_trace::Members;
use regraph_trace::{BlockIndex, NodeIndex, Operation, StreamIndex};

/// A block of a capture, between its allocation and its free there.
pub(super) struct Lifetime {
    pub(super) block: BlockIndex,
    pub(super) stream: StreamIndex,
    /// The first node that comes behind the allocation in host order.
    pub(super) first: NodeIndex,
    /// Its stream's terminals at the allocation: what touches the block follows all of them.
    pub(super) terminals: Vec<NodeIndex>,
    /// The streams that use it, each with its terminals at its last use where that is recorded.
    pub(super) users: HashMap<StreamIndex, Option<Vec<NodeIndex>>>,
    pub(super) end: Option<End>,
}

/// A block's free.
pub(super) struct End {
    /// The first node that comes behind it in host order.
    pub(super) node: NodeIndex,
    /// What touched the block is, or precedes, one of these.
    pub(super) markers: Vec<NodeIndex>,
}

/// The finished graph and the blocks allocated in a capture, from the operations behind its `begin`. Blocks allocated
/// while their stream is outside the capture are left out: the graph may not rely on them.
pub(super) fn lifetimes(origin: StreamIndex, operations: &[Operation]) -> (Model, Vec<Lifetime>) {
    let mut members = Members::new(origin, operations);
    let mut model = Model::default();
    let mut lifetimes: Vec<Lifetime> = Vec::new();
    let mut places = HashMap::new();
    for operation in operations {
        for stream in operation.streams() {
            members.enters_at_once(stream);
        }
        match *operation {
            Operation::Wait { stream, on } => {
                if members.waits(stream, on) {
                    model.follow(operation);
                }
            }
            Operation::Alloc { id, stream, .. } if members.is_inside(stream) => {
                places.insert(id, lifetimes.len());
                lifetimes.push(Lifetime {
                    block: id,
                    stream,
                    first: model.len(),
                    terminals: model.terminals(stream).to_vec(),
                    users: HashMap::from([(stream, None)]),
                    end: None,
                });
            }
            Operation::Use { id, stream } => {
                if let Some(&place) = places.get(&id) {
                    lifetimes[place].users.insert(stream, None);
                }
            }
            Operation::LastUse { id, stream } => {
                if let Some(&place) = places.get(&id) {
                    let terminals = model.terminals(stream).to_vec();
                    lifetimes[place].users.insert(stream, Some(terminals));
                }
            }
            Operation::Free { id } => {
                if let Some(place) = places.remove(&id) {
                    let lifetime = &mut lifetimes[place];
                    let mut markers = Vec::new();
                    for (stream, last) in &lifetime.users {
                        match last {
                            Some(nodes) => markers.extend_from_slice(nodes),
                            None => markers.extend_from_slice(model.terminals(*stream)),
                        }
                    }
                    lifetime.end = Some(End { node: model.len(), markers });
                }
            }
            Operation::End {} => break,
            _ => model.follow(operation),
        }
    }
    (model, lifetimes)
}
