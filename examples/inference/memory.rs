//! Where the temporaries of a step come from: a device with some allocator, or a probe.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr};
use regraph::driver::sim::SimDriver;
use regraph::driver::{Program, StreamHandle};
use regraph::graphs::{Capture, Memory as Block};
use regraph::probe::Submit;

use super::device::Device;
use super::shape::On;
use super::Result;

/// Where the temporaries of a step come from, and whether there is a device to do it on.
pub trait Memory {
    /// So many `f32`, freed when it is dropped.
    type Buffer;

    fn alloc(&self, len: usize, on: On) -> Result<Self::Buffer>;
    /// The buffer's address, for a stream to use.
    fn address(&self, buffer: &Self::Buffer, on: On) -> Result<u64>;
    /// Does what launches something on a stream, if there is a device.
    fn submit(&self, on: On, work: impl FnOnce(&Device) -> Result<()>) -> Result<()>;
    /// Makes `on` wait for what `other` holds so far.
    fn join(&self, on: On, other: On) -> Result<()>;
}

/// A device with an `alloc`: a regraph capture's, or that of cudarc's streams.
pub struct OnDevice<'a, F> {
    pub device: &'a Device,
    pub alloc: F,
}

impl<B, E, F> Memory for OnDevice<'_, F>
where
    B: DevicePtr<f32>,
    E: Error + 'static,
    F: Fn(&Arc<CudaStream>, usize) -> std::result::Result<B, E>,
{
    type Buffer = B;

    fn alloc(&self, len: usize, on: On) -> Result<B> {
        Ok((self.alloc)(self.device.stream(on), len)?)
    }

    fn address(&self, buffer: &B, on: On) -> Result<u64> {
        // A buffer of this crate remembers the stream here.
        Ok(buffer.device_ptr(self.device.stream(on)).0)
    }

    fn submit(&self, _: On, work: impl FnOnce(&Device) -> Result<()>) -> Result<()> {
        work(self.device)
    }

    fn join(&self, on: On, other: On) -> Result<()> {
        Ok(self.device.stream(on).join(self.device.stream(other))?)
    }
}

/// A regraph capture without a device.
pub struct Probed<'a> {
    pub capture: &'a Capture<SimDriver>,
    pub streams: [StreamHandle; 2],
}

impl Memory for Probed<'_> {
    type Buffer = (Block<SimDriver>, On);

    fn alloc(&self, len: usize, on: On) -> Result<Self::Buffer> {
        let bytes = (len * size_of::<f32>()) as u64;
        Ok((self.capture.allocate(bytes, &self.streams[on as usize])?, on))
    }

    fn address(&self, (block, own): &Self::Buffer, on: On) -> Result<u64> {
        if on != *own {
            block.record_stream(&self.streams[on as usize])?;
        }
        Ok(block.address())
    }

    fn submit(&self, on: On, _: impl FnOnce(&Device) -> Result<()>) -> Result<()> {
        self.capture.engine().driver().submit(&self.streams[on as usize], || Ok(()))
    }

    fn join(&self, on: On, other: On) -> Result<()> {
        let [on, other] = [on, other].map(|on| self.streams[on as usize]);
        Ok(self.capture.engine().driver().wait(on, other)?)
    }
}
