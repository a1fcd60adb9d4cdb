//! Judge (placeholder until the part is merged).
use crate::driver::{Driver, GraphHandle};
use crate::journal::Journal;
use crate::policy::Programmatic;

/// V.
#[derive(Debug, thiserror::Error)]
#[error("v")]
pub struct Violation;

/// c
pub fn check<D: Driver + ?Sized>(
    _: &Journal,
    _: Programmatic,
    _: &D,
    _: GraphHandle,
) -> Result<(), Violation> {
    Ok(())
}
