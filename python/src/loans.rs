//! Memory that a pool's graphs do not keep between launches, for other processes.

use std::borrow::Cow;
use std::time::Duration;

use pyo3::prelude::*;
use regraph::driver::StreamHandle;
use regraph::sync::{Mutex, Rank};
use regraph_plugin::{LoanId, LoanState};

use crate::allocator::allocator;
use crate::errors::raised;

/// Adds the classes to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Loan>()?;
    module.add_class::<TakenLoan>()
}

/// A loan to another process; nothing before it begins. One that is dropped is asked for.
#[pyclass(frozen)]
struct Loan(Mutex<Option<LoanId>>);

#[pymethods]
impl Loan {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Rank::Python, None))
    }

    /// Lends what a pool's graphs do not keep between launches, and returns the loan's handle.
    fn begin(
        &self,
        py: Python<'_>,
        device: u32,
        pool: (u64, u64),
        bytes: u64,
        stream: usize,
    ) -> PyResult<Cow<'static, [u8]>> {
        let stream = StreamHandle::from_bits(stream);
        let lend = || allocator()?.lend_to_process(device, pool, bytes, stream).map_err(raised);
        let loan = py.detach(lend)?;
        *self.0.lock() = Some(loan.id);
        Ok(loan.handle.into())
    }

    /// Asks for it, and waits for at most so many seconds until it is back. Says whether it is.
    fn recall(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let Some(loan) = *self.0.lock() else { return Ok(true) };
        py.detach(|| allocator()?.recall_loan(loan, patience(seconds)).map_err(raised))
    }

    /// Where it is: "offered", "taken" or "back".
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        let Some(loan) = *self.0.lock() else { return Ok("back") };
        Ok(match py.detach(|| allocator()?.loan_state(loan).map_err(raised))? {
            LoanState::Offered => "offered",
            LoanState::Taken => "taken",
            LoanState::Back => "back",
        })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(loan) = *self.0.lock() else { return };
        // One that is unknown was lent by the process that this one was forked from.
        end_quietly(|| drop(allocator().map(|it| it.recall_loan(loan, Duration::ZERO))));
    }
}

/// A loan of another process; nothing before it is taken. One that is dropped is given back.
#[pyclass(frozen)]
struct TakenLoan(Mutex<Option<LoanId>>);

#[pymethods]
impl TakenLoan {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Rank::Python, None))
    }

    /// Takes the loan that a handle names: its address and its bytes.
    fn take(&self, py: Python<'_>, device: u32, handle: &[u8]) -> PyResult<(u64, u64)> {
        let taken = py.detach(|| allocator()?.take_loan(device, handle).map_err(raised))?;
        *self.0.lock() = Some(taken.id);
        Ok((taken.address, taken.bytes))
    }

    /// Whether it is this process's.
    fn is_taken(&self) -> bool {
        let loan = *self.0.lock();
        loan.is_some_and(|loan| allocator().is_ok_and(|it| it.has_loan(loan)))
    }

    /// Whether its lender has asked for it, or has ended, after a wait of at most so many seconds.
    fn wait_for_recall(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let Some(loan) = *self.0.lock() else { return Ok(true) };
        py.detach(|| allocator()?.wait_for_recall(loan, patience(seconds)).map_err(raised))
    }

    /// Gives it back, after a wait for all devices. Does nothing where it is not taken.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        let Some(loan) = *self.0.lock() else { return Ok(()) };
        py.detach(|| match allocator()? {
            allocator if allocator.has_loan(loan) => allocator.give_back_loan(loan).map_err(raised),
            _ => Ok(()),
        })
    }
}

impl Drop for TakenLoan {
    fn drop(&mut self) {
        let Some(loan) = *self.0.lock() else { return };
        // Where something captures, it is this process's until its end.
        end_quietly(|| drop(allocator().map(|it| it.give_back_loan(loan))));
    }
}

/// Does what ends an object that is dropped, without the interpreter's lock: what is waited for may need that. Where the
/// interpreter ends `end` is dropped, and not called.
pub(crate) fn end_quietly(end: impl FnOnce() + Send) {
    Python::try_attach(|py| py.detach(end));
}

/// A wait in seconds, which is none where it is not above zero; one that is too long has no end.
fn patience(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}
