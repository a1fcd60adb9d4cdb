//! Random programs with pools of many planned graphs, which are compacted.
//!
//! Outputs are freed and graphs released in any order, some are captured again, and the pool is compacted,
//! suspended, or compacted with a driver that fails, at any moment between launches. Kernels check what
//! they read, and what lives is looked at after each step that could lose it.

mod host;

use arbitrary::{Result, Unstructured};

pub use host::{ManyGraphs, Shape, PAGE};
use regraph::driver::ErrorKind;
use regraph::plan::Options;

/// Steps after which a program ends, even if bytes are left.
const LONGEST: usize = 60;

/// Runs the program that the bytes spell and checks everything that it shows.
///
/// # Panics
/// Where the engine or the checker is wrong.
pub fn many_graphs(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let bounds = u.arbitrary::<u8>().unwrap_or_default();
    let mappings = match bounds % 4 {
        0 | 1 => None,
        2 => Some(1),
        _ => Some(usize::from(bounds / 4)),
    };
    let mut host = ManyGraphs::new(Options::default().max_mappings(mappings));
    for _ in 0..LONGEST {
        if u.is_empty() {
            break;
        }
        // The bytes never run dry with an error: what is missing reads as zero.
        step(&mut host, &mut u).expect("missing bytes read as zeroes");
        crate::judge_tables(&host.engine);
    }
    host.finish();
}

fn step(host: &mut ManyGraphs, u: &mut Unstructured<'_>) -> Result<()> {
    let graphs = host.graphs();
    let any = |u: &mut Unstructured<'_>| -> Result<Option<usize>> {
        Ok(if graphs.is_empty() { None } else { Some(graphs[u.choose_index(graphs.len())?]) })
    };
    match u.int_in_range(0..=19)? {
        0..=5 => {
            let source = any(u)?;
            let shape = shape(u, source)?;
            host.capture(shape);
        }
        6 | 7 => {
            let (graph, most) = (any(u)?, if u.arbitrary()? { 1 } else { usize::MAX });
            graph.into_iter().for_each(|it| host.drop_outputs(it, most));
        }
        8 | 9 => any(u)?.into_iter().for_each(|it| host.release(it)),
        // One of many is captured again, with what it reads if that is there.
        10 | 11 => {
            if let Some(graph) = any(u)? {
                let mut shape = host.shape(graph);
                host.release(graph);
                shape.sources.retain(|it| host.graphs().contains(it));
                host.capture(shape);
            }
        }
        12 => match u.arbitrary()? {
            true => host.keep_block(size(u)?),
            false => host.drop_block(),
        },
        13 => host.suspend(),
        14 => {
            replay(host, u)?;
            faulty(host, u)?;
            replay(host, u)?;
        }
        15 => replay(host, u)?,
        _ => {
            replay(host, u)?;
            host.compact();
            replay(host, u)?;
        }
    }
    Ok(())
}

fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    let half_pages = 1 + u64::from(u.arbitrary::<u8>()? % 48);
    Ok(half_pages * PAGE / 2 + if u.ratio(1, 2)? { 700 } else { 0 })
}

fn shape(u: &mut Unstructured<'_>, source: Option<usize>) -> Result<Shape> {
    let mut sizes = Vec::new();
    for _ in 0..u.int_in_range(1..=6)? {
        sizes.push(size(u)?);
    }
    Ok(Shape {
        sizes,
        kept: u.int_in_range(0..=2)?,
        sources: source.into_iter().filter(|_| u.ratio(2, 3).unwrap_or_default()).collect(),
        held: if u.ratio(1, 5)? { size(u)? } else { 0 },
        planless: u.ratio(1, 10)?,
    })
}

fn replay(host: &ManyGraphs, u: &mut Unstructured<'_>) -> Result<()> {
    let choices: [u8; 4] = u.arbitrary()?;
    let mut next = choices.into_iter().cycle();
    host.replay(|most| {
        let byte = usize::from(next.next().unwrap_or_default());
        (byte % 2 == 1 && most > 0).then(|| byte / 2 % most)
    });
    Ok(())
}

/// Compacts the pool while the driver fails, and then resumes it while it fails.
fn faulty(host: &ManyGraphs, u: &mut Unstructured<'_>) -> Result<()> {
    host.excess();
    let kind = if u.arbitrary()? { ErrorKind::OutOfMemory } else { ErrorKind::InvalidValue };
    let fail = |u: &mut Unstructured<'_>| -> Result<()> {
        let n = u64::from(u.arbitrary::<u8>()?);
        match u.int_in_range(0..=2)? {
            0 => host.driver.lose_device_at(n, kind.clone()),
            1 => host.driver.fail_any_nth(n, kind.clone()),
            _ => {
                host.driver.fail_any_nth(n, kind.clone());
                host.driver.fail_any_nth(n + u64::from(u.arbitrary::<u8>()? % 8), kind.clone());
            }
        }
        Ok(())
    };
    fail(u)?;
    let done = host.engine.compact_pool(host.pool);
    host.driver.forget_failures();
    let short = |host: &ManyGraphs| host.engine.is_short(host.pool).expect("the pool is there");
    assert!(done.is_err() || !short(host), "memory is missing, and no word of it");
    host.require();
    while short(host) {
        fail(u)?;
        let done = host.engine.resume_pool(host.pool);
        host.driver.forget_failures();
        assert_eq!(done.is_ok(), !short(host));
        host.require();
        if done.is_err() && u.arbitrary()? {
            host.engine.resume_pool(host.pool).expect("there is room for it");
        }
        if u.is_empty() {
            host.engine.resume_pool(host.pool).expect("there is room for it");
        }
    }
    // What could not be released goes now.
    host.engine.empty_cache().expect("the engine is sound");
    host.require();
    assert!(!host.engine.is_suspended(host.pool).expect("the pool is there"));
    Ok(())
}
