//! Pages of memory that lie at two addresses at the same time, with other bytes in use at each.
//!
//! ```text
//! cargo test --release --test gpu plans::bytes -- --ignored
//! ```
//!
//! CUDA does not promise that this works (assumption 15 of `design/safety.md`): on a GPU these tests look for
//! wrong values.

use std::sync::Arc;

use fastrand::Rng;
use regraph::plan::Options;
use regraph::settings::PlanShare;

use super::many::wild;
use super::{launch, range, Bench, Block, Device, MIB, PAGE};

twins! {
    kernels_run_at_once_on_pages_with_two_addresses
    random_graphs_keep_their_tags
}

fn by_bytes() -> Options {
    Options::default().share(PlanShare::Bytes)
}

/// Ends of blocks beside each other on four streams that never wait for each other, in pieces from 512 bytes on.
fn kernels_run_at_once_on_pages_with_two_addresses<P: Device>(driver: &Arc<P>) {
    let mut saved = 0;
    for seed in 0..12 {
        driver.schedule(seed);
        let mut random = Rng::with_seed(seed);
        let bench = Bench::new(driver, by_bytes());
        let streams: [_; 4] = bench.streams();
        let (graph, (kept, saves)) = bench
            .capture(streams[0], |capture| {
                for &stream in &streams[1..] {
                    bench.driver.wait(stream, streams[0])?;
                }
                let mut live: Vec<Vec<(Block<P>, u64)>> = streams.map(|_| Vec::new()).into();
                for step in 0..20 {
                    for (which, &stream) in streams.iter().enumerate() {
                        let ends = [512, 4096, MIB, PAGE - 512, random.u64(1..4096) * 512];
                        let bytes = random.u64(0..3) * PAGE + ends[random.usize(..5)];
                        let memory = capture.allocate(bytes, stream)?;
                        let tag = 1000 * (1 + which as u64) + step;
                        // What was written before is there still, with others at work beside it.
                        let inputs: Vec<_> =
                            live[which].iter().map(|(memory, tag)| range(memory, *tag)).collect();
                        launch(&*bench.driver, stream, (&inputs, &[range(&memory, tag)]), 2_000);
                        launch(&*bench.driver, stream, (&[range(&memory, tag)], &[]), 2_000);
                        live[which].push((memory, tag));
                        if live[which].len() > 2 {
                            live[which].remove(random.usize(..2));
                        }
                    }
                }
                let saves = saves(&bench, capture)?;
                for &stream in &streams[1..] {
                    bench.driver.wait(streams[0], stream)?;
                }
                Ok((live.into_iter().flatten().collect::<Vec<_>>(), saves))
            })
            .unwrap();
        saved += saves;
        for _ in 0..20 {
            graph.launch(streams[0]).unwrap();
        }
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        for (memory, tag) in &kept {
            assert!(bench.holds(memory, *tag), "seed {seed}, output {tag}");
        }
        drop((graph, kept));
        bench.close();
    }
    assert!(saved > 0, "pages lie at two addresses");
}

/// How many pages a capture needs less than if none lay at two addresses at the same time.
fn saves<P: Device>(
    bench: &Bench<P>,
    capture: &regraph::graphs::Capture<super::Shared<P>>,
) -> Result<u64, regraph::graphs::Error> {
    let bytes = |share| -> Result<u64, regraph::Error> {
        bench.engine.plan_capture(capture.id(), Some(Options::default().share(share)))?;
        let plans = bench.engine.preview_plan(capture.id())?;
        Ok(plans.iter().map(|(_, plan)| plan.bytes()).sum::<u64>())
    };
    let without = bytes(PlanShare::Pages)?;
    let with = bytes(PlanShare::Bytes)?;
    Ok((without - with) / PAGE)
}

/// Graphs of one pool that come and go.
fn random_graphs_keep_their_tags<P: Device>(driver: &Arc<P>) {
    for seed in 0..6 {
        driver.schedule(seed);
        let mut random = Rng::with_seed(seed);
        let bench = Bench::new(driver, by_bytes());
        let [stream] = bench.streams();
        let mut graphs: Vec<_> =
            (0..4).map(|number| wild(&bench, &mut random, 1000 * (number + 1))).collect();
        for round in 0..40 {
            let which = random.usize(..graphs.len());
            graphs[which].0.launch(stream).unwrap();
            if round % 10 == 9 {
                drop(graphs.swap_remove(random.usize(..graphs.len())));
                graphs.push(wild(&bench, &mut random, 1000 * (round + 10)));
            }
        }
        for (graph, _) in &graphs {
            graph.launch(stream).unwrap();
        }
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        for (memory, tag) in graphs.iter().flat_map(|(_, outputs)| outputs) {
            assert!(bench.holds(memory, *tag), "seed {seed}, output {tag}");
        }
        drop(graphs);
        bench.close();
    }
}

/// Copies and sets at the same time as kernels, each on bytes of its own.
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copies_and_sets_run_beside_kernels() {
    use crate::late_uses::{raw, Copy, Fill};
    use regraph::driver::{HostApi, StreamHandle};
    use regraph_tagged::Tagged;

    // SAFETY: the prototypes are those of cuda.h.
    let (set, copy) =
        unsafe { (raw::<Fill>("cuMemsetD8Async"), raw::<Copy>("cuMemcpyDtoDAsync_v2")) };
    let fill = |to: Tagged, value: u8, stream: StreamHandle| {
        // SAFETY: the memory is the test's own.
        assert_eq!(unsafe { set(to.address, value, to.bytes as usize, stream.as_raw()) }, 0);
        Tagged { tag: u64::from_ne_bytes([value; 8]), ..to }
    };
    let move_to = |to: Tagged, from: Tagged, stream: StreamHandle| {
        let bytes = to.bytes as usize;
        // SAFETY: both are the test's own, and as long as each other.
        assert_eq!(unsafe { copy(to.address, from.address, bytes, stream.as_raw()) }, 0);
        Tagged { tag: from.tag, ..to }
    };
    let gpu = crate::device::gpu::open();
    let mut saved = 0;
    for seed in 0..24 {
        let mut random = Rng::with_seed(seed);
        let bench = Bench::new(&gpu.driver, by_bytes());
        let streams: [_; 4] = bench.streams();
        let (graph, saves) = bench
            .capture(streams[0], |capture| {
                for &stream in &streams[1..] {
                    bench.driver.wait(stream, streams[0])?;
                }
                let mut live: Vec<Vec<(Block<_>, Tagged)>> = streams.map(|_| Vec::new()).into();
                for step in 0..18 {
                    for (which, &stream) in streams.iter().enumerate() {
                        let bytes = random.u64(0..2) * PAGE + random.u64(1..4096) * 512;
                        let memory = capture.allocate(bytes, stream)?;
                        let own = range(&memory, 1000 * (1 + which as u64) + step);
                        let holds = match (step as usize + which) % 3 {
                            0 => fill(own, (step + 1) as u8, stream),
                            1 => {
                                let source = capture.allocate(bytes, stream)?;
                                let from = range(&source, own.tag);
                                launch(&*bench.driver, stream, (&[], &[from]), 500);
                                move_to(own, from, stream)
                            }
                            _ => {
                                launch(&*bench.driver, stream, (&[], &[own]), 500);
                                own
                            }
                        };
                        live[which].push((memory, holds));
                        let inputs: Vec<_> = live[which].iter().map(|it| it.1).collect();
                        launch(&*bench.driver, stream, (&inputs, &[]), 2_000);
                        if live[which].len() > 2 {
                            live[which].remove(random.usize(..2));
                        }
                    }
                }
                let saves = saves(&bench, capture)?;
                for &stream in &streams[1..] {
                    bench.driver.wait(streams[0], stream)?;
                }
                Ok(saves)
            })
            .unwrap();
        saved += saves;
        for _ in 0..50 {
            graph.launch(streams[0]).unwrap();
        }
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        drop(graph);
        bench.close();
    }
    assert!(saved > 0, "pages lie at two addresses");
}
