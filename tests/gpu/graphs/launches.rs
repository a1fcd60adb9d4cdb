//! Graphs of one pool, launched on many streams.

use std::sync::Arc;

use super::{Bench, Device, MIB};

twins! {
    launches_without_an_order_show
    threads_launch_the_graphs_of_a_pool
    a_stream_s_handle_may_be_given_again
}

/// Shows that launches in any order test something: by hand, without the order.
fn launches_without_an_order_show<P: Device>(driver: &Arc<P>) {
    let wrong = (0..40).any(|seed| {
        driver.schedule(seed);
        let bench = Bench::new(driver);
        let streams: [_; 4] = bench.streams();
        let graphs: Vec<_> = (0..4)
            .map(|number| {
                let pair = [streams[0], streams[1]];
                bench.chain(pair, (1000 * (number + 1), 6, MIB, 20_000)).unwrap()
            })
            .collect();
        for round in 0..20 {
            let executable = graphs[round % 4].0.executable().unwrap();
            bench.driver.replay(executable, streams[round % 3]).unwrap();
        }
        bench.wrong() > 0
    });
    assert!(wrong, "graphs that share memory ran side by side and no kernel noticed");
}

fn threads_launch_the_graphs_of_a_pool<P: Device>(driver: &Arc<P>) {
    driver.schedule(7);
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    let graphs: Vec<_> = (0..4)
        .map(|number| bench.chain([s, t], (1000 * (number + 1), 5, MIB, 2_000)).unwrap().0)
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (bench, graphs) = (&bench, &graphs);
            scope.spawn(move || {
                let stream = bench.streams::<1>()[0];
                for round in 0..100 {
                    graphs[(thread + round) % 4].launch(stream).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.wrong(), 0);
    bench.close_after(graphs);
}

/// A launch on a new stream comes after those on one that is gone, also if it has the same handle.
fn a_stream_s_handle_may_be_given_again<P: Device>(driver: &Arc<P>) {
    let (bench, [s, t]) = Bench::new(driver).with_streams();
    let (first, _) = bench.chain([s, t], (1000, 6, MIB, 50_000)).unwrap();
    let (second, _) = bench.chain([s, t], (2000, 6, MIB, 0)).unwrap();
    for round in 0..20 {
        let [stream] = bench.streams();
        let graph = if round % 2 == 0 { &first } else { &second };
        graph.launch(stream).unwrap();
        bench.driver.destroy_stream(stream).unwrap();
    }
    assert_eq!(bench.wrong(), 0);
    bench.close_after((first, second));
}
