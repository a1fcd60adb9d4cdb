//! Captures whose verdict is still to come.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::lease::{owned_pools, Accepted, Lease};
use super::pool::PoolCore;
use super::{Error, Unknown};
use crate::driver::{CaptureId, HostApi};
use crate::engine::CaptureReport;

/// A closed capture whose verdict is still to come ([`Capture::close`](super::Capture::close)): the
/// checker judges it on a thread of its own, while the host ends it in the driver and instantiates its
/// graph. May be moved to another thread.
///
/// Dropped without [`Judging::verdict`], it is rolled back: its graph must never be launched.
pub struct Judging<D: HostApi> {
    capture: CaptureId,
    /// The pools that it uses, the first one first. Taken with the verdict.
    pools: SmallVec<[Arc<PoolCore<D>>; 1]>,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl<D: HostApi> Judging<D> {
    pub(super) fn new(
        capture: CaptureId,
        pools: SmallVec<[Arc<PoolCore<D>>; 1]>,
        kept: Vec<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self { capture, pools, kept }
    }

    /// Waits for the verdict. If the checker has accepted the capture, its graph may be launched, through
    /// the lease.
    ///
    /// # Errors
    /// Those of [`Engine::verdict`](crate::engine::Engine::verdict),
    /// [`PoolRefusal::Going`](crate::PoolRefusal::Going): then the graph must never be launched, and nothing of
    /// the capture is left here.
    pub fn verdict(mut self) -> Result<(Lease<D>, CaptureReport), Error> {
        let mut accepted = Accepted::<D>::new();
        let mut first = None;
        let mut failed = None;
        for pool in std::mem::take(&mut self.pools) {
            let known =
                accepted.iter().find(|(other, _)| Arc::ptr_eq(other.engine(), pool.engine()));
            if let Some(&(_, graph)) = known {
                // One engine judges all its pools at once.
                accepted.push((pool, graph));
                continue;
            }
            match pool.engine().verdict(self.capture) {
                Ok(report) => {
                    accepted.push((pool, report.graph));
                    first.get_or_insert(report);
                }
                // An engine that has refused does not know the capture any more.
                Err(Error::Unknown { what: Unknown::Capture(_), .. }) if failed.is_some() => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        let failed = failed.or_else(|| add_others(&mut accepted).err());
        match (failed, first) {
            (None, Some(report)) => {
                Ok((Lease::new(accepted, std::mem::take(&mut self.kept)), report))
            }
            (failed, _) => {
                // Engines that accepted get their memory back.
                drop(Lease::new(accepted, Vec::new()));
                let unknown =
                    Error::Unknown { call: "verdict", what: Unknown::Capture(self.capture) };
                Err(failed.unwrap_or(unknown))
            }
        }
    }
}

/// Adds the pools that a graph uses and that the capture did not join: it allocated there, or a block
/// of theirs was freed that it may use.
fn add_others<D: HostApi>(accepted: &mut Accepted<D>) -> Result<(), Error> {
    for row in 0..accepted.len() {
        let (engine, graph) = (accepted[row].0.engine().clone(), accepted[row].1);
        for (pool, graph) in owned_pools(&engine, graph)? {
            if !accepted.iter().any(|(other, _)| Arc::ptr_eq(other, &pool)) {
                accepted.push((pool, graph));
            }
        }
    }
    Ok(())
}

impl<D: HostApi> Drop for Judging<D> {
    fn drop(&mut self) {
        for pool in &self.pools {
            // Unknown by now if another pool of the same engine came before.
            let _ = pool.engine().abandon_capture(self.capture);
        }
    }
}

impl<D: HostApi> fmt::Debug for Judging<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judging").field("capture", &self.capture).finish_non_exhaustive()
    }
}
