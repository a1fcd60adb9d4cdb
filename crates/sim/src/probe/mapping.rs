//! What mapping memory takes on a device.

use std::time::{Duration, Instant};

use regraph::driver::{Driver, Result};

/// How many mappings are timed. Each takes some 20 microseconds, so all take less than a millisecond.
const TIMED: u64 = 16;

/// How a device maps memory: what a plan (`plan:exact`) needs and pays there, known before the first capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// Unit of physical memory, in bytes; a power of two.
    pub granularity: u64,
    /// What one mapping takes until it can be accessed: the median of 16, each of one unit. On one H200
    /// the time did not depend on the size.
    pub time: Duration,
}

impl Mapping {
    /// Maps one unit of memory at 16 addresses, and gives all back; `None` where the device has no
    /// virtual memory management: there no capture can have its memory at its end, and a layout
    /// ([`Pool::capture_twice`](regraph::graphs::Pool::capture_twice)) is what is left.
    ///
    /// May be called while streams capture or work runs; both make the time longer.
    ///
    /// # Errors
    /// The first call of the driver that fails. Whatever was made is given back as far as the driver lets it.
    pub fn measure<D: Driver + ?Sized>(device: &D) -> Result<Option<Self>> {
        let Some(granularity) = device.memory_support().granularity() else {
            return Ok(None);
        };
        let start = device.reserve(TIMED * granularity)?;
        let measured = at(device, start, granularity);
        let unreserved = device.unreserve(start, TIMED * granularity);
        let mut times = measured?;
        unreserved?;
        times.sort_unstable();
        let time = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(Some(Self { granularity, time }))
    }
}

/// The times of mappings at reserved addresses.
fn at<D: Driver + ?Sized>(device: &D, start: u64, granularity: u64) -> Result<Vec<Duration>> {
    let memory = device.create(granularity)?;
    let mut times = Vec::new();
    let mut mapped = Vec::new();
    let mut result = Ok(());
    for address in (0..TIMED).map(|index| start + index * granularity) {
        let started = Instant::now();
        result = device.map(address, granularity, memory);
        if result.is_err() {
            break;
        }
        mapped.push(address);
        result = device.set_access(address, granularity);
        if result.is_err() {
            break;
        }
        times.push(started.elapsed());
    }
    for address in mapped {
        result = result.and(device.unmap(address, granularity));
    }
    result.and(device.release(memory)).map(|()| times)
}
