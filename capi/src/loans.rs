//! Loans from process to process: what a pool's graphs do not keep between launches.

use std::time::Duration;

use regraph::engine::{Loan, LoanState, TakenLoan};
use regraph::graphs::Error;

use crate::arguments::null;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::or_default;
use crate::handles::{regraph_loan_id, regraph_pool, regraph_stream, stream as named};

/// No process has taken the loan.
pub const REGRAPH_LOAN_OFFERED: i32 = 0;
/// A process has the loan.
pub const REGRAPH_LOAN_TAKEN: i32 = 1;
/// The loan is back, or was called back before a process took it: no process has it or gets it.
pub const REGRAPH_LOAN_BACK: i32 = 2;

/// A loan that another process may take.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_loan {
    /// Its id in the process that lends.
    pub id: regraph_loan_id,
    /// The size that was requested, in bytes.
    pub bytes: u64,
    /// What regraph_loan_take() takes the loan by: bytes that the caller sends to the other process by any means, and
    /// destroys with regraph_loan_handle_destroy().
    pub handle: *mut u8,
    /// How many bytes the handle has.
    pub handle_bytes: usize,
}

/// A loan of another process that this one has taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_taken_loan {
    /// Its id in the process that has taken it.
    pub id: regraph_loan_id,
    /// Its device address.
    pub address: u64,
    /// Its size, in bytes.
    pub bytes: u64,
}

impl From<Loan> for regraph_loan {
    fn from(loan: Loan) -> Self {
        let (id, bytes, handle_bytes) = (loan.id.into(), loan.bytes, loan.handle.len());
        let handle = Box::into_raw(loan.handle.into_boxed_slice()).cast();
        Self { id, bytes, handle, handle_bytes }
    }
}

copied! {
    TakenLoan => regraph_taken_loan { id, address, bytes }
}

/// Lends `bytes` to another process on the device, as regraph_pool_borrow() does to a stream of this one: memory that the
/// pool's graphs do not keep between launches. `loan` gets the loan, with a handle that the caller destroys. `stream`
/// does not capture; the lent block is that stream's here. Waits until the device has done all work. The engine needs the
/// setting "exportable:True", and the system Linux; the first loan opens a Unix socket without a file name, which a
/// thread of the library serves.
///
/// Until the loan is back regraph_launch_graph() and regraph_launch_executable() refuse the pool's graphs with
/// REGRAPH_ERROR_BLOCKS_LENT. The loan is back when the other process has given it back or has ended, and the next of these
/// calls finds out by itself; regraph_loan_recall() asks for it. Whole pieces of memory are mapped by the other process,
/// which is trusted to leave alone what lies beside the loan, and to give it back before it ends where its work may
/// outlive it: under MPS, or where processes that it has forked keep the driver's files open.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NOTHING_LENT, REGRAPH_ERROR_NOT_SHARED, REGRAPH_ERROR_DEVICE_CAPTURES,
/// REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_ZERO_BYTES, REGRAPH_ERROR_CAPTURING,
/// REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER. Nothing is lent then.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_lend(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: u64,
    stream: regraph_stream,
    loan: *mut regraph_loan,
) -> regraph_error {
    call!(
        engine,
        loan = engine
            .pool(pool.into(), "lend_to_process")?
            .lend_to_process(bytes, named(stream))?
            .into()
    )
}

/// Destroys the handle of a loan, which has `handle_bytes` bytes; the loan stays. Does nothing for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_loan_handle_destroy(handle: *mut u8, handle_bytes: usize) {
    or_default(|| {
        if !handle.is_null() {
            let handle = std::ptr::slice_from_raw_parts_mut(handle, handle_bytes);
            // SAFETY: the contract of all calls: it came from `into_raw`, with so many bytes.
            drop(unsafe { Box::from_raw(handle) });
        }
    });
}

/// Asks the process that has a loan for it, and waits at most so many milliseconds until it is back; UINT64_MAX has no
/// end. A loan that no process has taken is back at once. `is_back` gets whether it is.
///
/// Threads: any. Other calls go on meanwhile.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_LOAN.
#[no_mangle]
pub unsafe extern "C" fn regraph_loan_recall(
    engine: *const regraph_engine,
    loan: regraph_loan_id,
    milliseconds: u64,
    is_back: *mut bool,
) -> regraph_error {
    call!(
        engine,
        is_back = engine.sharing().recall_loan(loan.into(), Duration::from_millis(milliseconds))?
    )
}

/// Where a loan of this process to others is: `state` gets one of the REGRAPH_LOAN constants.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_LOAN.
#[no_mangle]
pub unsafe extern "C" fn regraph_loan_get_state(
    engine: *const regraph_engine,
    loan: regraph_loan_id,
    state: *mut i32,
) -> regraph_error {
    call!(
        engine,
        state = match engine.sharing().loan_state(loan.into())? {
            LoanState::Offered => REGRAPH_LOAN_OFFERED,
            LoanState::Taken => REGRAPH_LOAN_TAKEN,
            LoanState::Back => REGRAPH_LOAN_BACK,
        }
    )
}

/// Takes the loan that a handle of `handle_bytes` bytes names, made by another process (regraph_pool_lend()) or by
/// another engine of this one, and maps its memory for this engine's device; what it holds is undefined. `taken` gets the
/// loan. It is this process's until regraph_loan_give_back(), but the lender waits for it from when it asks on: see
/// regraph_loan_wait_for_recall(). Waits some seconds at most for the lender's answer. Where the engine is destroyed
/// before, the memory stays mapped, and the process has the loan until its end.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NOT_TAKEN, REGRAPH_ERROR_NULL, REGRAPH_ERROR_DRIVER. The loan is the lender's then.
#[no_mangle]
pub unsafe extern "C" fn regraph_loan_take(
    engine: *const regraph_engine,
    handle: *const u8,
    handle_bytes: usize,
    taken: *mut regraph_taken_loan,
) -> regraph_error {
    call!(
        engine,
        taken = {
            let handle = (!handle.is_null()).then_some(handle).ok_or_else(|| null("handle"))?;
            let handle = std::slice::from_raw_parts(handle, handle_bytes);
            engine.sharing().take_loan(handle)?.into()
        }
    )
}

/// Whether the lender of a loan that this process has taken has asked for it, or has ended, after a wait of at most so many
/// milliseconds; UINT64_MAX has no end. A lender that has ended waits for nothing, and the memory stays this process's
/// until it gives the loan back.
///
/// Threads: any. Other calls go on meanwhile.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_LOAN.
#[no_mangle]
pub unsafe extern "C" fn regraph_loan_wait_for_recall(
    engine: *const regraph_engine,
    loan: regraph_loan_id,
    milliseconds: u64,
    is_recalled: *mut bool,
) -> regraph_error {
    call!(
        engine,
        is_recalled =
            engine.sharing().wait_for_recall(loan.into(), Duration::from_millis(milliseconds))?
    )
}

/// Gives a loan that this process has taken back, after a wait until the engine's device has done all work, and unmaps
/// its memory. Work of other devices that uses it must have completed before, and no graph that does may be launched any
/// more.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_LOAN. REGRAPH_ERROR_DEVICE_CAPTURES, and REGRAPH_ERROR_DRIVER where the device cannot be
/// waited for: the loan is this process's still.
#[no_mangle]
pub unsafe extern "C" fn regraph_loan_give_back(
    engine: *const regraph_engine,
    loan: regraph_loan_id,
) -> regraph_error {
    call!(
        engine,
        engine.sharing().give_back_loan(loan.into(), || match engine.wait_for_device()? {
            true => Ok(()),
            false => Err(Error::DeviceCaptures { call: "give_back_loan" }),
        })?
    )
}
