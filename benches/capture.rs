//! The host time of a whole capture, from begin to end, with the simulated driver's share.
//!
//! Elements are the steps of the script, so that "time per element" says what one costs; see
//! `scaling` for how that grows.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use std::time::Duration;

use common::host;
use common::script::{Length, Script, JOIN, SMALL};
use criterion::{
    criterion_group, criterion_main, BenchmarkId, Criterion, SamplingMode, Throughput,
};

fn bench(criterion: &mut Criterion) {
    let random = |streams, nodes| Script::random(streams, JOIN, SMALL, Length::Nodes(nodes));
    let by_nodes = [1_000, 10_000, 100_000].map(|nodes| (nodes, random(16, nodes)));
    let by_streams = [1, 2, 4, 8, 16].map(|streams| (streams, random(streams, 10_000)));
    let by_pending = [1_000, 10_000, 100_000].map(|blocks| (blocks, Script::pending(4, blocks)));
    whole(criterion, "capture/nodes", &by_nodes);
    whole(criterion, "capture/streams", &by_streams);
    whole(criterion, "capture/pending", &by_pending);
}

fn whole(criterion: &mut Criterion, name: &str, scripts: &[(usize, Script)]) {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    for (parameter, script) in scripts {
        group.throughput(Throughput::Elements(script.steps as u64));
        group.bench_with_input(
            BenchmarkId::from_parameter(parameter),
            script,
            |bencher, script| {
                bencher.iter_custom(|iterations| {
                    (0..iterations).map(|_| host::whole(host::unchecked(), script)).sum()
                });
            },
        );
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(1))
        .nresamples(10_000);
    targets = bench
}
criterion_main!(benches);
