//! The host time of a capture's end, with the checker's judgement and without.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use std::time::Duration;

use common::host::Host;
use common::meter::Untimed;
use common::script::{Length, Script, JOIN, SMALL};
use criterion::{
    criterion_group, criterion_main, BenchmarkId, Criterion, SamplingMode, Throughput,
};
use regraph::engine::Config;

const STREAMS: usize = 16;

fn bench(criterion: &mut Criterion) {
    for (check, name) in [(true, "end/checked"), (false, "end/unchecked")] {
        let mut group = criterion.benchmark_group(name);
        group.sampling_mode(SamplingMode::Flat);
        for nodes in [1_000, 10_000, 50_000] {
            let script = Script::random(STREAMS, JOIN, SMALL, Length::Nodes(nodes));
            group.throughput(Throughput::Elements(nodes as u64));
            group.bench_with_input(
                BenchmarkId::from_parameter(nodes),
                &script,
                |bencher, script| {
                    bencher.iter_custom(|iterations| {
                        let run = || {
                            let mut host = Host::begin(Config::default().check(check), STREAMS);
                            host.run(&script.calls, &mut Untimed);
                            host.end()
                        };
                        (0..iterations).map(|_| run()).sum()
                    });
                },
            );
        }
        group.finish();
    }
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
