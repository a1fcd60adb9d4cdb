//! What only the run of a capture wrote, and no node of its graph. `tests/graphs/state.rs` has all mechanisms.

use std::sync::Arc;

use super::MIB;
use crate::device::Device;
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool};
use regraph::regions::{Regions, Tags};
use regraph::settings::Settings;
use regraph_tagged::{Tagged, Work};

const BYTES: u64 = 4 * MIB;
const STATE: u64 = 7;

twins! {
    a_sleep_keeps_it_in_live_blocks_and_in_outputs
    poison_takes_the_place_of_it_before_the_first_launch
}

struct Host<P: Device> {
    driver: Arc<P>,
    engine: Arc<Engine<Arc<P>>>,
    stream: StreamHandle,
    graph: Graph<Arc<P>>,
    live: Memory<Arc<P>>,
    temporary: u64,
    output: u64,
}

impl<P: Device> Host<P> {
    /// A graph that reads three blocks, which eager work has filled while it was captured.
    fn new(driver: &Arc<P>, settings: &str) -> Self {
        let config = Config::default().settings(Settings::parse(settings).unwrap());
        let engine = Arc::new(Engine::new(driver.clone(), config));
        let pool = Pool::new(&engine, PoolConfig::default().tag("graphs"));
        let [stream, eager] = [(); 2].map(|()| driver.create_stream().unwrap());
        let body = |capture: &Capture<Arc<P>>| {
            let blocks: Result<Vec<_>, Error> =
                (0..3).map(|_| capture.allocate(BYTES, stream)).collect();
            let blocks = blocks?;
            for block in &blocks {
                let whole = [Tagged { address: block.address(), bytes: BYTES, tag: STATE }];
                let fill = Work { outputs: &whole, ..Work::default() };
                driver.launch(eager, fill, false).unwrap();
                let read = Work { inputs: &whole, ..Work::default() };
                driver.launch(stream, read, false).unwrap();
            }
            let [live, temporary, output] =
                <[_; 3]>::try_from(blocks).unwrap_or_else(|_| unreachable!("three blocks"));
            Ok::<_, Error>((live, temporary.address(), output))
        };
        let captured = engine.capture(stream, &pool, CaptureMode::Relaxed, body).unwrap();
        let (graph, (live, temporary, freed)) = captured;
        let output = freed.address();
        drop(freed);
        driver.synchronize().unwrap();
        Self { driver: driver.clone(), engine, stream, graph, live, temporary, output }
    }

    fn launch(&self) -> bool {
        self.graph.launch(self.stream).unwrap();
        self.driver.synchronize().unwrap();
        self.driver.take_wrong_tags().unwrap() == 0
    }

    fn tags(&self, address: u64) -> Vec<u64> {
        self.driver.read_tags(address, BYTES).unwrap()
    }

    fn holds(&self, address: u64) -> bool {
        self.tags(address).iter().all(|&tag| tag == STATE)
    }
}

fn a_sleep_keeps_it_in_live_blocks_and_in_outputs<P: Device>(driver: &Arc<P>) {
    let h = Host::new(driver, "");
    assert!(h.launch());
    let regions = Regions::new(&h.engine);
    assert!(regions.sleep(Tags::All).unwrap() >= 3 * BYTES);
    // What the host keeps is the live block and the output, and not the temporary one.
    assert_eq!(regions.report()[0].host_bytes, 2 * BYTES);
    regions.wake(Tags::All).unwrap();
    assert!(h.holds(h.live.address()) && h.holds(h.output));
}

fn poison_takes_the_place_of_it_before_the_first_launch<P: Device>(driver: &Arc<P>) {
    let h = Host::new(driver, "poison:True");
    assert!(h.holds(h.temporary));
    assert!(!h.launch());
    assert!(h.tags(h.temporary).iter().all(|&tag| tag == u64::MAX));
    assert!(h.holds(h.live.address()) && h.holds(h.output));
}
