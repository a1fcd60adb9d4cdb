//! Graphs over two devices: one lease on the memory of both, one order of launches.

use std::sync::Arc;

use regraph::callables::{Callable, Options, Stage};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::{self, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool, PoolRefusal};
use regraph_tagged::Work;

use super::{Two, DELAY, MIB};
use crate::bench::range;
use crate::device::Device;

type Shared<P> = Arc<P>;

/// A ping-pong between the devices: each step writes a block of its own device and reads the last one of the other's.
fn ping_pong<P: Device>(
    two: &Two<P>,
    pools: &[Pool<Shared<P>>; 2],
    streams: [StreamHandle; 2],
    tag: u64,
) -> Result<Graph<Shared<P>>, Error> {
    let body = |capture: &Capture<Shared<P>>| {
        two.sides[1].driver.wait(streams[1], streams[0])?;
        capture.join(&pools[1], streams[1])?;
        let mut last: Option<Memory<_>> = None;
        for step in 0..8 {
            let on = step % 2;
            let (side, stream) = (&two.sides[on], streams[on]);
            let next = pools[on].allocate(2 * MIB, stream)?;
            let inputs: Vec<_> = last.iter().map(|last| range(last, tag + step as u64)).collect();
            let outputs = [range(&next, tag + step as u64 + 1)];
            let work = Work { inputs: &inputs, outputs: &outputs, delay: DELAY, ..Work::default() };
            side.driver.launch(stream, work, false)?;
            if let Some(last) = last.replace(next) {
                last.record_stream(stream)?;
            }
            two.sides[1 - on].driver.wait(streams[1 - on], stream)?;
        }
        two.sides[0].driver.wait(streams[0], streams[1])?;
        Ok::<_, Error>(())
    };
    let engine = &two.sides[0].engine;
    Ok(engine.capture(streams[0], &pools[0], CaptureMode::Relaxed, body)?.0)
}

pub fn graphs_keep_their_tags_on_both<P: Device>(two: &Two<P>) {
    for seed in 0..4 {
        two.sides[0].driver.schedule(seed);
        let pools = [0, 1].map(|on| Pool::new(&two.sides[on].engine, PoolConfig::default()));
        let mut streams = [0, 1, 0, 1].map(|on: usize| two.sides[on].stream());
        let graphs: Vec<_> = (0..4)
            .map(|number| {
                let pair = [streams[0], streams[1]];
                ping_pong(two, &pools, pair, 100 * (number + 1)).unwrap()
            })
            .collect();
        // Reuse on both sides: no more than a few blocks of each.
        for pool in &pools {
            assert!(pool.reserved().unwrap() <= 6 * MIB);
        }
        for round in 0..60 {
            graphs[round * 7 % 4].launch(streams[(round * 5 + seed as usize) % 4]).unwrap();
            streams.rotate_left(round % 3);
        }
        assert_eq!(two.wrong_tags(), 0, "seed {seed}");
        // Memory of either is the graphs' while one lives.
        let in_use = two.sides[1].engine.destroy_pool(pools[1].id());
        assert!(
            matches!(
                in_use,
                Err(engine::Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. })
            ),
            "{in_use:?}"
        );
        let before = two.sides[1].engine.statistics().unwrap().all.reserved_bytes.current;
        let held = pools[1].reserved().unwrap();
        graphs.last().unwrap().launch(streams[0]).unwrap();
        drop(graphs);
        for pool in pools {
            pool.synchronize().unwrap();
        }
        let after = two.sides[1].engine.statistics().unwrap().all.reserved_bytes.current;
        assert_eq!(before - after, held);
    }
}

/// A refusal by either engine leaves nothing in the other.
pub fn a_suspended_pool_of_either_launches_nothing<P: Device>(two: &Two<P>) {
    let pools = [0, 1].map(|on| Pool::new(&two.sides[on].engine, PoolConfig::default()));
    let streams = [0, 1].map(|on: usize| two.sides[on].stream());
    let graph = ping_pong(two, &pools, streams, 100).unwrap();
    for pool in &pools {
        graph.launch(streams[1]).unwrap();
        pool.suspend_discarding_all().unwrap();
        let launched = graph.launch(streams[0]);
        assert!(
            matches!(launched, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })),
            "{launched:?}"
        );
        pool.resume().unwrap();
        graph.launch(streams[0]).unwrap();
    }
    assert_eq!(two.wrong_tags(), 0);
    drop(graph);
    pools.iter().for_each(|pool| pool.synchronize().unwrap());
}

/// On memory of the first.
pub fn a_callable_works_on_the_second_device<P: Device>(two: &Two<P>) {
    let [first, second] = &two.sides;
    let pool = Pool::new(&first.engine, PoolConfig::default());
    let stream = second.stream();
    let make = |stage: &Stage<'_, _>, tag: &u64| {
        let input = stage.allocate(MIB)?;
        second.write(stage.stream(), range(&input, *tag));
        Ok::<_, Error>(input)
    };
    let mut callable =
        Callable::new(&pool, Options::default(), make).part(|stage, tag, input, (): &mut ()| {
            second.read(stage.stream(), range(input, *tag));
            Ok(())
        });
    for tag in [1, 2, 1] {
        callable.call(stream, &tag, |_| Ok(())).unwrap();
        assert_eq!(two.wrong_tags(), 0);
    }
}

#[test]
fn simulated() {
    let two = super::two(&engine::Config::default());
    graphs_keep_their_tags_on_both(&two);
    a_suspended_pool_of_either_launches_nothing(&two);
    a_callable_works_on_the_second_device(&two);
}
