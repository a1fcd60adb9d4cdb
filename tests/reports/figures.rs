//! Figures over many pools: what is counted as it happens is what a sum over all blocks says.

use std::collections::BTreeMap;

use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{BlockId, Config, PoolConfig, PoolId};
use regraph_testing::Kept;

use crate::common::{bench, Bench};

/// Blocks and what was asked for in them, in bytes: of all pools, and of each.
#[derive(Default)]
struct Model {
    all: [Kept; 2],
    pools: BTreeMap<PoolId, [Kept; 2]>,
}

impl Model {
    fn allocate(&mut self, pool: PoolId, bytes: u64) {
        for kept in [&mut self.all, self.pools.get_mut(&pool).unwrap()] {
            kept[0].add(1);
            kept[1].add(bytes);
        }
    }

    fn free(&mut self, pool: PoolId, bytes: u64) {
        for kept in [&mut self.all, self.pools.get_mut(&pool).unwrap()] {
            kept[0].current -= 1;
            kept[1].current -= bytes;
        }
    }

    fn each(&mut self, change: impl Fn(&mut Kept)) {
        self.all.iter_mut().chain(self.pools.values_mut().flatten()).for_each(change);
    }

    fn judge(&self, b: &Bench, pool: PoolId) {
        for (kept, pool) in [(self.all, None), (self.pools[&pool], Some(pool))] {
            let found = match pool {
                Some(pool) => b.engine.statistics_of(pool),
                None => b.engine.statistics(),
            };
            let found = found.unwrap().all;
            kept[0].judge(found.allocation, &format!("{pool:?}: blocks"));
            kept[1].judge(found.requested_bytes, &format!("{pool:?}: bytes asked for"));
        }
    }
}

/// Pools come and go, blocks of few sizes on several streams too, outside captures and in them, and peaks and sums
/// are reset; now and then the test asks for all figures, and in between for none.
#[test]
fn many_pools_are_added_up_as_if_each_block_were() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (b, streams) = bench(Config::default().report_leaks(false)).with_streams::<3>();
        let mut model = Model::default();
        let mut live: Vec<(BlockId, PoolId, u64)> = Vec::new();
        let mut made = Vec::new();
        for step in 0..1500 {
            if made.len() < 2 || made.len() < 40 && random.u32(..12) == 0 {
                let pool = b.engine.create_pool(PoolConfig::default());
                model.pools.insert(pool, Default::default());
                made.push(pool);
            }
            let pool = made[random.usize(..made.len())];
            match random.u32(..100) {
                0..50 => {
                    let bytes = [3 << 9, 1 << 16, 3 << 20][random.usize(..3)];
                    let stream = streams[random.usize(..3)];
                    let block = b.engine.allocate(pool, bytes, stream).unwrap();
                    model.allocate(pool, bytes);
                    live.push((block.id, pool, bytes));
                }
                50..90 if !live.is_empty() => {
                    let (block, pool, bytes) = live.swap_remove(random.usize(..live.len()));
                    b.engine.free(block).unwrap();
                    model.free(pool, bytes);
                }
                90..93 => {
                    let stream = streams[random.usize(..3)];
                    b.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
                    let capture = b.engine.begin_capture(pool, stream).unwrap();
                    for stays in [false, random.bool()] {
                        let block = b.engine.allocate(pool, 1 << 16, stream).unwrap();
                        model.allocate(pool, 1 << 16);
                        b.launch(stream);
                        match stays {
                            true => live.push((block.id, pool, 1 << 16)),
                            false => {
                                b.engine.free(block.id).unwrap();
                                model.free(pool, 1 << 16);
                            }
                        }
                    }
                    let report = b.engine.end_capture(capture, b.graph(stream)).unwrap();
                    b.driver.end_capture(stream).unwrap();
                    b.engine.release_graph(report.graph).unwrap();
                }
                93..96 if b.engine.destroy_pool(pool).is_ok() => {
                    made.retain(|&it| it != pool);
                    assert_eq!(model.pools.remove(&pool).unwrap()[0].current, 0);
                }
                96 => {
                    b.engine.reset_peaks().unwrap();
                    model.each(Kept::reset_peak);
                }
                97 => {
                    b.engine.reset_accumulated().unwrap();
                    model.each(Kept::reset_accumulated);
                }
                98 => drop(b.engine.empty_cache().unwrap()),
                _ => {}
            }
            if step % 40 == 0 {
                let pool = made.get(random.usize(..made.len().max(1)));
                pool.into_iter().for_each(|&pool| model.judge(&b, pool));
            }
        }
        made.iter().for_each(|&pool| model.judge(&b, pool));
    }
}

/// More sizes than are searched for those that nothing is left of: they come, go and come again.
#[test]
fn thousands_of_sizes_are_cached_dropped_and_cached_again() {
    let (b, [s]) = bench(Config::default().report_leaks(false)).with_streams();
    for _ in 0..3 {
        let sizes = 1..=5000_u64;
        let blocks: Vec<_> =
            sizes.map(|step| b.engine.allocate(b.pool, step << 9, s).unwrap()).collect();
        let live = b.engine.pool_statistics(b.pool).unwrap();
        assert_eq!((live.blocks, live.requested), (5000, 512 * 5000 * 5001 / 2));
        blocks.iter().for_each(|block| b.engine.free(block.id).unwrap());
        // A size that the stream gave back comes from where it was.
        let again = b.engine.allocate(b.pool, 4999 << 9, s).unwrap();
        assert_eq!(again.address, blocks[4998].address);
        b.engine.free(again.id).unwrap();
        b.engine.empty_cache().unwrap();
        let live = b.engine.pool_statistics(b.pool).unwrap();
        assert_eq!((live.blocks, live.allocated, live.active), (0, 0, 0));
    }
}
