//! Ids of objects, and CUDA's handles.

use regraph::driver::{CaptureId, ExecutableHandle, GraphHandle, NodeHandle, StreamHandle};
use regraph::engine::{Block, BlockId, GraphId, LoanId, PoolId};

use crate::arguments::null;
use crate::failure::Fallible;

/// No limit, or an unknown number of bytes.
pub const REGRAPH_NO_LIMIT: u64 = u64::MAX;

/// CUDA's stream.
#[derive(Debug)]
pub struct CUstream_st {
    _private: [u8; 0],
}

/// CUDA's graph.
#[derive(Debug)]
pub struct CUgraph_st {
    _private: [u8; 0],
}

/// CUDA's node of a graph.
#[derive(Debug)]
pub struct CUgraphNode_st {
    _private: [u8; 0],
}

/// CUDA's executable graph.
#[derive(Debug)]
pub struct CUgraphExec_st {
    _private: [u8; 0],
}

/// A stream: the same type as CUstream and cudaStream_t. NULL is the legacy default stream, also in a program that is
/// built for per-thread default streams, in which 0 is the calling thread's own: give these functions 2 for that, which
/// they refuse, as regraph.hpp does.
pub type regraph_stream = *mut CUstream_st;

/// A graph: the same type as CUgraph and cudaGraph_t.
pub type regraph_graph = *mut CUgraph_st;

/// A node of a graph: the same type as CUgraphNode and cudaGraphNode_t. Unique within a capture.
pub type regraph_node = *mut CUgraphNode_st;

/// An executable graph: the same type as CUgraphExec and cudaGraphExec_t.
pub type regraph_executable = *mut CUgraphExec_st;

/// The driver's id of a capture (cuStreamGetCaptureInfo()). Unique in a process.
pub type regraph_capture_id = u64;

/// The id of a pool. No id is given twice in a process: calls reject the id of a pool that was
/// destroyed or that belongs to another engine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_pool {
    /// For the library only. All zero is no valid id.
    pub words: [u64; 2],
}

/// The id of a graph's claim on the memory of its pools. No id is given twice in a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_graph_id {
    /// For the library only. All zero is no valid id.
    pub words: [u64; 2],
}

/// The id of a loan between processes. No id is given twice in a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_loan_id {
    /// For the library only. All zero is no valid id.
    pub words: [u64; 2],
}

/// The id of a live block. No id is given twice in a process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_block_id {
    /// For the library only. All zero is no valid id.
    pub words: [u64; 3],
}

/// A live block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_block {
    /// Its id, for later calls.
    pub id: regraph_block_id,
    /// Its device address, a multiple of 512.
    pub address: u64,
    /// The size that was requested, in bytes.
    pub bytes: u64,
}

macro_rules! words {
    ($($id:ident is $rust:ident;)*) => {$(
        impl From<$id> for $rust {
            #[inline]
            fn from(id: $id) -> Self {
                Self::from_bits(id.words)
            }
        }

        impl From<$rust> for $id {
            #[inline]
            fn from(id: $rust) -> Self {
                Self { words: id.bits() }
            }
        }
    )*};
}

words! {
    regraph_pool is PoolId;
    regraph_graph_id is GraphId;
    regraph_loan_id is LoanId;
    regraph_block_id is BlockId;
}

impl From<Block> for regraph_block {
    #[inline]
    fn from(block: Block) -> Self {
        Self { id: block.id.into(), address: block.address, bytes: block.bytes }
    }
}

#[inline]
pub(crate) fn stream(raw: regraph_stream) -> StreamHandle {
    StreamHandle::from_raw(raw.cast())
}

pub(crate) fn graph(raw: regraph_graph) -> Fallible<GraphHandle> {
    (!raw.is_null()).then(|| GraphHandle::from_raw(raw.cast())).ok_or_else(|| null("graph"))
}

pub(crate) fn executable(raw: regraph_executable) -> Fallible<ExecutableHandle> {
    (!raw.is_null()).then_some(ExecutableHandle(raw as usize)).ok_or_else(|| null("executable"))
}

pub(crate) fn capture(id: regraph_capture_id) -> CaptureId {
    CaptureId(id)
}

pub(crate) fn raw_stream(stream: StreamHandle) -> regraph_stream {
    stream.as_raw().cast()
}

pub(crate) fn raw_graph(graph: GraphHandle) -> regraph_graph {
    graph.as_raw().cast()
}

pub(crate) fn raw_executable(executable: ExecutableHandle) -> regraph_executable {
    executable.0 as regraph_executable
}

pub(crate) fn raw_node(node: NodeHandle) -> regraph_node {
    node.as_raw().cast()
}
