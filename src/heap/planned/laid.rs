//! Addresses of a layout: what lies where in them is known beforehand.

use super::space::{Asker, Space};
use super::PlannedHeap;
use crate::driver::{CaptureId, Driver, DriverError};
use crate::heap::place::Placed;
use crate::heap::segment::unit;

/// Where a layout has a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaidSpot {
    /// From the layout's first address, in bytes.
    pub(crate) offset: u64,
    /// What all of the layout takes, in bytes of whole pages.
    pub(crate) span: u64,
}

/// Addresses for one layout. No other blocks lie there.
#[derive(Debug)]
pub(super) struct Laid {
    start: u64,
    /// So far scratch memory lies behind them.
    mapped: u64,
    end: u64,
    pub(super) space: Space,
}

impl Laid {
    pub(super) fn owns(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

impl PlannedHeap {
    /// The addresses that a layout has for a block, mapped to scratch memory, with `limit` bytes more of it at
    /// most. `None` where the limit allows none, and where what lay there is not proven to be done with.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then but that more addresses may be reserved or mapped.
    pub(crate) fn place_laid<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        asker: Asker<'_>,
        (LaidSpot { offset, span }, bytes): (LaidSpot, u64),
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        if self.enter_capture(capture, unit).laid.is_none() {
            let start = self.next_address(driver, capture, span)?;
            let planned = self.enter_capture(capture, unit);
            planned.taken += span;
            let space = Space::new(unit);
            planned.laid = Some(Laid { start, mapped: start, end: start + span, space });
        }
        let before = self.reserved;
        let place = loop {
            let Some(laid) = &self.enter_capture(capture, unit).laid else { return Ok(None) };
            let &Laid { start, mapped, end, .. } = laid;
            if start + offset + bytes <= mapped {
                break (start + offset, bytes);
            }
            let limit = limit.saturating_sub(self.reserved - before);
            let more = self.lay(driver, capture, (mapped, end - mapped), bytes, limit)?;
            if more == 0 {
                return Ok(None);
            }
            if let Some(laid) = &mut self.enter_capture(capture, unit).laid {
                laid.space.open(mapped, more);
                laid.mapped += more;
            }
        };
        let Some(laid) = &mut self.enter_capture(capture, unit).laid else { return Ok(None) };
        if !laid.space.is_for(&asker, place) {
            return Ok(None);
        }
        let beneath = laid.space.take(asker.stream, place);
        Ok(Some(self.enter_block(capture, place, Some((asker.stream, beneath)))))
    }
}
