//! A host that calls the plug-in in PyTorch's manner.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, Driver, DriverError, ErrorKind, GraphHandle, HostApi,
    StreamHandle,
};
use regraph::engine::Config;
use regraph_plugin::{Filter, Plugin, PoolKey};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

const MIB: u64 = 1 << 20;

pub struct Host {
    pub driver: Arc<SimDriver>,
    pub plugin: Plugin<Arc<SimDriver>>,
}

pub fn host_with(config: Config) -> Host {
    host_on(&Arc::new(SimDriver::new(SimConfig::default())), config)
}

/// On two devices, whose second is given with it.
pub fn host_on_two(config: Config) -> (Host, Arc<SimDriver>) {
    let first = Arc::new(SimDriver::new(SimConfig::default()));
    let second = Arc::new(first.add_device(SimConfig::default()));
    let drivers = [Arc::clone(&first), Arc::clone(&second)];
    let plugin = Plugin::new(config, move |device| Ok(Arc::clone(&drivers[device as usize])));
    (Host { driver: first, plugin }, second)
}

/// On a device that others may be on, and that is the only one.
pub fn host_on(driver: &Arc<SimDriver>, config: Config) -> Host {
    let shared = Arc::clone(driver);
    let plugin = Plugin::new(config, move |device| match device {
        0 => Ok(Arc::clone(&shared)),
        _ => Err(DriverError::new("cuDeviceGet", 101, ErrorKind::InvalidValue)),
    });
    Host { driver: Arc::clone(driver), plugin }
}

/// A filter as PyTorch's: it takes the streams of the capture whose id is stored once it has begun.
pub fn filter(driver: &Arc<SimDriver>) -> (Filter, Arc<AtomicUsize>) {
    let (driver, id) = (Arc::clone(driver), Arc::new(AtomicUsize::new(0)));
    let known = Arc::clone(&id);
    let filter = move |stream| match driver.capture_of(stream) {
        Ok(CaptureStatus::Active { capture, .. }) => {
            capture.0 as usize == known.load(Ordering::Relaxed)
        }
        _ => false,
    };
    (Arc::new(filter), id)
}

impl Host {
    pub fn stream(&self) -> StreamHandle {
        self.driver.create_stream().unwrap()
    }

    pub fn with_streams<const N: usize>(self) -> (Self, [StreamHandle; N]) {
        let streams = [(); N].map(|()| self.stream());
        (self, streams)
    }

    pub fn capture_of(&self, stream: StreamHandle) -> Option<CaptureId> {
        match self.driver.capture_of(stream).unwrap() {
            CaptureStatus::Active { capture, .. } => Some(capture),
            _ => None,
        }
    }

    /// Begins as `torch.cuda.CUDAGraph.capture_begin` does, the pool first, and returns the route to it.
    pub fn begin_in(&self, mode: CaptureMode, stream: StreamHandle, key: PoolKey) -> u64 {
        let (filter, id) = filter(&self.driver);
        let route = self.plugin.begin_pool(0, key, filter).unwrap();
        self.driver.begin_capture(stream, mode).unwrap();
        id.store(self.capture_of(stream).unwrap().0 as usize, Ordering::Relaxed);
        route
    }

    pub fn begin(&self, stream: StreamHandle, key: PoolKey) -> u64 {
        self.begin_in(CaptureMode::Global, stream, key)
    }

    /// Begins a capture and announces it.
    pub fn announce(&self, stream: StreamHandle, key: PoolKey, alone: bool) -> CaptureId {
        let route = self.begin(stream, key);
        self.plugin.capture_begun(0, stream, route, alone).unwrap().unwrap()
    }

    /// Ends as PyTorch does, the pool last.
    pub fn end(&self, stream: StreamHandle, key: PoolKey) -> GraphHandle {
        let graph = self.driver.end_capture(stream).unwrap();
        self.plugin.end_pool(0, key).unwrap();
        graph
    }

    /// Ends an announced capture, which is judged.
    pub fn finish(&self, stream: StreamHandle, key: PoolKey) -> GraphHandle {
        self.plugin.capture_ending(0, stream, |_, _| ()).unwrap();
        let graph = self.end(stream, key);
        self.plugin.capture_ended(0, stream).unwrap();
        graph
    }

    /// Records a graph as CUDA graph trees do.
    pub fn record<R>(
        &self,
        stream: StreamHandle,
        key: PoolKey,
        work: impl FnOnce() -> R,
    ) -> (GraphHandle, R) {
        self.plugin.capture_beginning(0, stream).unwrap();
        self.driver.complete_all();
        let route = self.begin_in(CaptureMode::ThreadLocal, stream, key);
        self.plugin.capture_begun(0, stream, route, true).unwrap();
        let done = work();
        (self.finish(stream, key), done)
    }

    /// A block of 4 MiB.
    pub fn allocate(&self, stream: StreamHandle) -> u64 {
        self.plugin.allocate(4 * MIB, 0, stream).unwrap()
    }

    pub fn free(&self, address: u64) {
        self.plugin.free(address, 0).unwrap();
    }

    pub fn launch(&self, stream: StreamHandle) {
        self.driver.launch(stream, Work::default(), false).unwrap();
    }

    pub fn launch_and_free(&self, stream: StreamHandle, address: u64) {
        self.launch(stream);
        self.free(address);
    }

    /// A block that a kernel used and that is free again.
    pub fn used(&self, stream: StreamHandle) -> u64 {
        let block = self.allocate(stream);
        self.launch_and_free(stream, block);
        block
    }

    pub fn reserved(&self) -> u64 {
        self.plugin.engine(0).unwrap().statistics().unwrap().all.reserved_bytes.current
    }

    pub fn held_by(&self, key: PoolKey) -> u64 {
        let pools = self.plugin.pools(0).unwrap();
        pools.iter().filter(|pool| pool.key == key).map(|pool| pool.reserved).sum()
    }

    /// As `torch.cuda.empty_cache`, often enough for what waits for events.
    pub fn empty(&self) {
        for _ in 0..3 {
            self.driver.complete_all();
            self.plugin.empty_cache().unwrap();
        }
    }
}
