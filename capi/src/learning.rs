//! Learning from runs outside captures what captures will ask for.

use crate::engine::regraph_engine;
use crate::error::regraph_error;

/// Notes from now on what is asked for outside captures, in all pools and by all threads, until
/// regraph_learned(): for one run of the work that is to be captured, from where its capture will begin
/// to where it will end. What was noted since an earlier call is forgotten.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_learn(engine: *const regraph_engine) -> regraph_error {
    call!(engine, engine.plans().learn()?)
}

/// Ends what regraph_learn() began. From now on each capture whose first request is for as many bytes as
/// the first one noted lays its blocks out as is best for those noted, in the first pool that it allocates
/// from, and so takes close to the least memory that it can run on; what it asks for otherwise, it gets as
/// usual. Captures with a plan (regraph_plan_capture()) do without this. The latest 16 runs are kept.
/// `blocks` becomes the number of blocks noted, and may be NULL; nothing is kept where there were none.
///
/// What streams know of each other outside captures is guessed from the blocks that
/// regraph_record_stream() names more than one of them for. A wrong guess costs memory and no safety. A run
/// is followed, and a message says where it is not, if each of its streams but the first uses a block of
/// another one in one of the first two turns that the host gives it, or has one turn alone, and, with several
/// streams, if its layout takes less memory than blocks that are placed as they come.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_learned(
    engine: *const regraph_engine,
    blocks: *mut u64,
) -> regraph_error {
    call!(engine, Some(blocks) = engine.plans().learned()? as u64)
}

/// Forgets all that was learned. Captures that follow it already go on.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_forget_learned(engine: *const regraph_engine) -> regraph_error {
    call!(engine, engine.plans().forget_learned()?)
}
