//! Why a stream cannot take free memory.

use std::ffi::c_char;
use std::ptr::null_mut;

use regraph::driver::StreamHandle;
use regraph::engine::{FreeRange, Refusal, WaitReason};

use crate::arguments::give;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::handles::{
    raw_node, raw_stream, regraph_capture_id, regraph_node, regraph_pool, regraph_stream,
    stream as named,
};
use crate::rows::Rows;

/// Why a stream cannot take a free range. Later versions may add reasons: treat an unknown one as a reason, too.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum regraph_refusal {
    /// The stream can take the range.
    REGRAPH_REFUSAL_NONE = 0,
    /// The node `marker` must have completed first, and no path of edges that prove this leads from
    /// it to the stream's terminals. `stream` is the stream of the block that lay there.
    REGRAPH_REFUSAL_MARKER = 1,
    /// The setting "reuse" allows only its own stream to take it: `stream`.
    REGRAPH_REFUSAL_OWN_STREAM_ONLY = 2,
    /// `stream`, which is not in the block's capture, used the block.
    REGRAPH_REFUSAL_OUTSIDE_STREAM = 3,
    /// `stream` was set back while it used the block, or continued after an edge that proves nothing.
    REGRAPH_REFUSAL_UNTRUSTED = 4,
    /// `capture` began later in the same pool and is under way.
    REGRAPH_REFUSAL_NESTED_CAPTURE = 5,
    /// The setting "reuse" holds it until the capture's end.
    REGRAPH_REFUSAL_POLICY = 6,
    /// `capture` was under way at the same time as the block's capture, and still is.
    REGRAPH_REFUSAL_CAPTURE = 7,
    /// Work of `stream` outside captures may still use it.
    REGRAPH_REFUSAL_OUTSIDE_WORK = 8,
    /// `stream` freed it outside captures: that stream can take it at once, other streams when the
    /// work of `stream` has completed.
    REGRAPH_REFUSAL_ORDERED = 9,
    /// The range belongs to another capture that is under way.
    REGRAPH_REFUSAL_OTHER_CAPTURE = 10,
    /// A graph of the pool uses the range, and the stream is not capturing.
    REGRAPH_REFUSAL_USED_BY_GRAPH = 11,
    /// The range's pool is suspended: no memory lies behind its addresses.
    REGRAPH_REFUSAL_SUSPENDED = 12,
    /// The node `marker` must have completed first. It precedes the stream's next work, but that may be launched
    /// programmatically and start before the node has completed. `stream` is the stream of the block that lay there.
    REGRAPH_REFUSAL_EARLY_LAUNCH = 13,
    /// Another reason; `text` says which.
    REGRAPH_REFUSAL_OTHER = 99,
}

/// A free range, and whether one stream can take it. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_free_range {
    /// Its device address.
    pub address: u64,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The number, in messages and journals, of the last block that lay there; valid with `has_block`.
    pub block: u64,
    /// The node that must have completed first; NULL if the refusal names none.
    pub marker: regraph_node,
    /// The stream that the refusal names; valid with `has_stream`, since NULL is a stream.
    pub stream: regraph_stream,
    /// The capture that the refusal names, or 0.
    pub capture: regraph_capture_id,
    /// The refusal in words; empty if there is none. Lives as long as the explanation.
    pub text: *const c_char,
    /// Why the stream cannot take it.
    pub refusal: regraph_refusal,
    /// Whether a block lay there.
    pub has_block: bool,
    /// Whether the refusal names a stream.
    pub has_stream: bool,
}

/// Which of a pool's free ranges one stream can take, and why it cannot take the others.
#[derive(Debug)]
pub struct regraph_explanation(Rows<regraph_free_range>);

impl regraph_explanation {
    fn new(ranges: &[FreeRange]) -> Self {
        let mut list = Rows::new();
        for range in ranges {
            let reason = range.refusal.as_ref().map(Refusal::to_string).unwrap_or_default();
            let text = list.text(reason);
            list.push(told(range, text));
        }
        Self(list)
    }
}

fn told(range: &FreeRange, text: *const c_char) -> regraph_free_range {
    let told = regraph_free_range {
        address: range.address,
        bytes: range.bytes,
        block: range.block.map_or(0, |block| block.0),
        marker: null_mut(),
        stream: null_mut(),
        capture: 0,
        text,
        refusal: regraph_refusal::REGRAPH_REFUSAL_NONE,
        has_block: range.block.is_some(),
        has_stream: false,
    };
    let because = |refusal| regraph_free_range { refusal, ..told };
    let of = |stream: StreamHandle, refusal| regraph_free_range {
        stream: raw_stream(stream),
        has_stream: true,
        ..because(refusal)
    };
    use regraph_refusal as why;
    match &range.refusal {
        None => told,
        Some(Refusal::Marker { node, owner, .. }) => regraph_free_range {
            marker: raw_node(*node),
            ..of(*owner, why::REGRAPH_REFUSAL_MARKER)
        },
        Some(Refusal::EarlyLaunch { node, owner, .. }) => regraph_free_range {
            marker: raw_node(*node),
            ..of(*owner, why::REGRAPH_REFUSAL_EARLY_LAUNCH)
        },
        Some(Refusal::OwnStreamOnly { owner }) => of(*owner, why::REGRAPH_REFUSAL_OWN_STREAM_ONLY),
        Some(Refusal::Ordered { owner }) => of(*owner, why::REGRAPH_REFUSAL_ORDERED),
        Some(Refusal::OtherCapture) => because(why::REGRAPH_REFUSAL_OTHER_CAPTURE),
        Some(Refusal::UsedByGraph) => because(why::REGRAPH_REFUSAL_USED_BY_GRAPH),
        Some(Refusal::Suspended) => because(why::REGRAPH_REFUSAL_SUSPENDED),
        Some(Refusal::Waiting(reason)) => match reason {
            WaitReason::OutsideStream(stream) => of(*stream, why::REGRAPH_REFUSAL_OUTSIDE_STREAM),
            WaitReason::Untrusted(stream) => of(*stream, why::REGRAPH_REFUSAL_UNTRUSTED),
            WaitReason::OutsideWork(stream) => of(*stream, why::REGRAPH_REFUSAL_OUTSIDE_WORK),
            WaitReason::Policy => because(why::REGRAPH_REFUSAL_POLICY),
            WaitReason::NestedCapture(capture) => regraph_free_range {
                capture: capture.0,
                ..because(why::REGRAPH_REFUSAL_NESTED_CAPTURE)
            },
            WaitReason::Capture(capture) => {
                regraph_free_range { capture: capture.0, ..because(why::REGRAPH_REFUSAL_CAPTURE) }
            }
            _ => because(why::REGRAPH_REFUSAL_OTHER),
        },
        Some(_) => because(why::REGRAPH_REFUSAL_OTHER),
    }
}

/// Lists every free range of a pool, in order of addresses, with whether `stream` can take it now, and if not, why not.
/// `explanation` gets a list to be destroyed with regraph_explanation_destroy().
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_PER_THREAD_STREAM,
/// REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_explain(
    engine: *const regraph_engine,
    pool: regraph_pool,
    stream: regraph_stream,
    explanation: *mut *mut regraph_explanation,
) -> regraph_error {
    call!(
        engine,
        explanation = give(regraph_explanation::new(&engine.explain(pool.into(), named(stream))?))
    )
}

/// The number of ranges of an explanation; 0 for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_explanation_count(
    explanation: *const regraph_explanation,
) -> usize {
    count!(explanation)
}

/// One range of an explanation, by its index from 0. Lives as long as the explanation; NULL for
/// NULL and for an index beyond the end.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_explanation_get(
    explanation: *const regraph_explanation,
    index: usize,
) -> *const regraph_free_range {
    row!(explanation, index)
}

/// Destroys an explanation. Does nothing for NULL.
///
/// Threads: any, while no other call uses the explanation.
#[no_mangle]
pub unsafe extern "C" fn regraph_explanation_destroy(explanation: *mut regraph_explanation) {
    destroy!(explanation)
}
