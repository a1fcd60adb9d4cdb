//! Callables: shapes come and go, parts share what they leave, pools are shared.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use regraph::callables::{Callable, Options, Stage};
use regraph::driver::StreamHandle;
use regraph::graphs::{Error, Memory, PoolRefusal};

use super::{launch, range, Bench, Device, Shared, KIB, MIB};

twins! {
    shapes_come_and_go_and_each_call_sees_its_inputs
    parts_leave_their_outputs_to_the_next
    a_part_that_fails_leaves_the_other_shapes
    callables_of_a_pool_share_its_memory
    a_suspended_pool_has_no_inputs_to_fill
}

type Block<P> = Memory<Shared<P>>;
type Outputs<P> = Option<Block<P>>;

fn bytes(shape: u64) -> u64 {
    shape * 96 * KIB
}

/// A static input that holds the shape, since warming up reads it too.
fn input<P: Device>(
    driver: &P,
    stage: &Stage<'_, Shared<P>>,
    shape: u64,
) -> Result<Block<P>, Error> {
    let input = stage.allocate(bytes(shape))?;
    launch(driver, stage.stream(), (&[], &[range(&input, shape)]), 0);
    Ok(input)
}

/// Reads the input, which holds the shape, by way of a temporary block on a second stream.
fn double<P: Device>(
    driver: &P,
    side: StreamHandle,
    stage: &Stage<'_, Shared<P>>,
    (shape, input): (u64, &Block<P>),
    (output, tag): (&mut Outputs<P>, u64),
) -> Result<(), Error> {
    let stream = stage.stream();
    driver.wait(side, stream)?;
    let temporary = stage.pool().allocate(bytes(shape), side)?;
    input.record_stream(side)?;
    launch(driver, side, (&[range(input, shape)], &[range(&temporary, tag + 1)]), 2_000);
    driver.wait(stream, side)?;
    let made = stage.allocate(bytes(shape))?;
    temporary.record_stream(stream)?;
    launch(driver, stream, (&[range(&temporary, tag + 1)], &[range(&made, tag)]), 2_000);
    *output = Some(made);
    Ok(())
}

fn shapes_come_and_go_and_each_call_sees_its_inputs<P: Device>(driver: &Arc<P>) {
    for seed in 0..4 {
        driver.schedule(seed);
        let (bench, [s, t, side]) = Bench::new(driver).with_streams();
        let captured = AtomicU64::new(0);
        let options = Options::default().most_shapes(NonZeroUsize::new(4).unwrap());
        let mut callable =
            Callable::new(&bench.pool, options, |stage: &Stage<'_, Shared<P>>, shape| {
                captured.fetch_add(1, Ordering::Relaxed);
                input(&*bench.driver, stage, *shape)
            })
            .bucket(|shape: &u64| shape.next_multiple_of(4))
            .part(|stage, shape, input: &mut Block<P>, output: &mut Outputs<P>| {
                double(&*bench.driver, side, stage, (*shape, input), (output, 1000 * shape))
            });
        let mut shape = seed + 1;
        for call in 0..200_u64 {
            shape = (shape * 7 + call) % 24 + 1;
            let stream = if call % 3 == 0 { t } else { s };
            let bucket = shape.next_multiple_of(4);
            let output = callable
                .call(stream, &shape, |input| {
                    launch(&*bench.driver, stream, (&[], &[range(input, bucket)]), 0);
                    Ok(())
                })
                .unwrap();
            let output = range(output.as_ref().unwrap(), 1000 * bucket);
            launch(&*bench.driver, stream, (&[output], &[]), 0);
            assert!(callable.shapes() <= 4);
            // The caller's own order: what read the outputs is done before they are written again.
            bench.driver.wait(s, t).unwrap();
            bench.driver.wait(t, s).unwrap();
        }
        assert_eq!(bench.wrong(), 0, "seed {seed}");
        assert!(captured.load(Ordering::Relaxed) > 6, "shapes were evicted and came again");
        drop(callable);
        bench.close();
    }
}

fn parts_leave_their_outputs_to_the_next<P: Device>(driver: &Arc<P>) {
    let (bench, [s, side]) = Bench::new(driver).with_streams();
    type Both<P> = (Outputs<P>, Outputs<P>);
    let make = |stage: &Stage<'_, Shared<P>>, shape: &u64| input(&*bench.driver, stage, *shape);
    let mut callable = Callable::new(&bench.pool, Options::default().warm_ups(2), make)
        .part(|stage, shape, input: &mut Block<P>, both: &mut Both<P>| {
            double(&*bench.driver, side, stage, (*shape, input), (&mut both.0, 1000 * shape))
        })
        .part(|stage, shape, _, both| {
            let saved = both.0.as_ref().unwrap();
            let made = stage.allocate(bytes(*shape))?;
            let inputs = [range(saved, 1000 * shape)];
            launch(&*bench.driver, stage.stream(), (&inputs, &[range(&made, 7)]), 0);
            both.1 = Some(made);
            Ok(())
        });
    for shape in [3, 9, 3, 5] {
        let graphs = callable.shape(s, &shape).unwrap();
        launch(&*bench.driver, s, (&[], &[range(graphs.inputs(), shape)]), 0);
        graphs.launch(0, s).unwrap();
        // Work that no graph holds.
        let (input, (saved, _)) = graphs.inputs_and_outputs();
        let saved = range(saved.as_ref().unwrap(), 1000 * shape);
        launch(&*bench.driver, s, (&[saved, range(input, shape)], &[]), 0);
        graphs.launch(1, s).unwrap();
        let (_, last) = graphs.outputs();
        launch(&*bench.driver, s, (&[saved, range(last.as_ref().unwrap(), 7)], &[]), 0);
    }
    assert_eq!(bench.wrong(), 0);
    drop(callable);
    bench.close();
}

fn a_part_that_fails_leaves_the_other_shapes<P: Device>(driver: &Arc<P>) {
    let (bench, [s, side]) = Bench::new(driver).with_streams();
    let mut callable = Callable::new(
        &bench.pool,
        Options::default(),
        |stage: &Stage<'_, Shared<P>>, shape: &u64| input(&*bench.driver, stage, *shape),
    )
    .part(|stage, shape, input: &mut Block<P>, output: &mut Outputs<P>| {
        double(&*bench.driver, side, stage, (*shape, input), (output, 1000 * shape))?;
        // Fails in the warm-up, or in the capture.
        if *shape == 8 || *shape == 9 && stage.capture().is_some() {
            stage.allocate(1 << 60)?;
        }
        Ok(())
    });
    for shape in [4, 8, 4, 9, 5] {
        let result = callable.call(s, &shape, |input| {
            launch(&*bench.driver, s, (&[], &[range(input, shape)]), 0);
            Ok(())
        });
        assert_eq!(result.is_err(), shape > 7, "{shape}");
        assert_eq!(bench.wrong(), 0);
        assert!(!bench.driver.is_capturing(s).unwrap());
    }
    assert_eq!(callable.shapes(), 2);
    drop(callable);
    bench.close();
}

fn callables_of_a_pool_share_its_memory<P: Device>(driver: &Arc<P>) {
    let reserved = |count: u64| {
        let (bench, [s, side]) = Bench::new(driver).with_streams();
        let mut callables: Vec<_> = (0..count)
            .map(|number| {
                let bench = &bench;
                let make = |stage: &Stage<'_, Shared<P>>, shape: &u64| {
                    input(&*bench.driver, stage, *shape)
                };
                Callable::new(&bench.pool, Options::default(), make).part(
                    move |stage, shape, input: &mut Block<P>, output: &mut Outputs<P>| {
                        let temporary = stage.allocate(40 * MIB)?;
                        let tag = 100 * number;
                        let written = [range(&temporary, tag)];
                        launch(&*bench.driver, stage.stream(), (&[], &written), 2_000);
                        drop(temporary);
                        double(&*bench.driver, side, stage, (*shape, input), (output, 1000 * shape))
                    },
                )
            })
            .collect();
        for round in 0..5 {
            for callable in &mut callables {
                let shape = 1 + round % 2;
                let filled = callable.call(s, &shape, |input| {
                    launch(&*bench.driver, s, (&[], &[range(input, shape)]), 0);
                    Ok(())
                });
                assert!(filled.is_ok());
            }
        }
        assert_eq!(bench.wrong(), 0);
        let reserved = bench.pool.reserved().unwrap();
        drop(callables);
        bench.close();
        reserved
    };
    let (one, four) = (reserved(1), reserved(4));
    assert!(four <= one + 4 * MIB, "{one} {four}");
}

fn a_suspended_pool_has_no_inputs_to_fill<P: Device>(driver: &Arc<P>) {
    let (bench, [s, side]) = Bench::new(driver).with_streams();
    let make = |stage: &Stage<'_, Shared<P>>, shape: &u64| input(&*bench.driver, stage, *shape);
    let mut callable = Callable::new(&bench.pool, Options::default(), make).part(
        |stage, shape, input: &mut Block<P>, output: &mut Outputs<P>| {
            double(&*bench.driver, side, stage, (*shape, input), (output, 1000 * shape))
        },
    );
    for suspended in [false, true, false] {
        if suspended {
            bench.driver.synchronize().unwrap();
            bench.pool.suspend_discarding_all().unwrap();
        } else if bench.pool.is_suspended() {
            bench.pool.resume().unwrap();
        }
        let mut filled = false;
        let result = callable.call(s, &3, |input| {
            filled = true;
            launch(&*bench.driver, s, (&[], &[range(input, 3)]), 0);
            Ok(())
        });
        assert_eq!(
            matches!(result, Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. })),
            suspended
        );
        assert_eq!((result.is_ok(), filled), (!suspended, !suspended));
    }
    assert_eq!(bench.wrong(), 0);
    drop(callable);
    bench.close();
}
