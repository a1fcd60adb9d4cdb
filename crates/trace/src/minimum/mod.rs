//! The least memory for the captures of a trace.

mod recorded;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::certify::{Certificate, CertifiedBlock, Passed, Threshold};
use crate::{BlockIndex, Operation, PoolIndex, Trace};
use recorded::{captures, node_index, stream_index, Recorded};
use regraph::settings::Programmatic;
use regraph_plan::lifetimes::Lifetimes;
use regraph_plan::minimum::Minimum;
use regraph_record::journal::{BlockNumber, Entry};

/// A certificate for each capture of a trace, with blocks rounded up to 512 bytes.
///
/// One that is not [`exact`](Minimum::exact) is too high and is refused; that takes a capture with
/// hundreds of branches that never join.
pub fn of_trace(trace: &Trace, policy: Programmatic) -> Vec<Certificate> {
    let captures = captures(trace);
    let capture = |(index, capture): (usize, &Recorded)| certificate(index, capture, policy);
    captures.iter().enumerate().map(capture).collect()
}

/// When the blocks of each of a trace's captures are in use, with blocks rounded up to 512 bytes and numbered as in the
/// trace. Addresses are zero.
pub fn lifetimes(trace: &Trace, policy: Programmatic) -> Vec<Lifetimes> {
    captures(trace).iter().map(|capture| Lifetimes::read(&capture.journal, policy)).collect()
}

/// The least that pools need whose graphs never run at once, where captures leave no block live: of each the most that
/// one of its captures needs, in bytes. Blocks that earlier captures leave live come on top. It is rounded up to whole units of `unit` bytes (1 for the bytes themselves, the device's
/// granularity for what can be mapped). `certificates` are the trace's, one for each capture.
///
/// # Panics
/// Panics if the unit is 0.
pub fn of_pools(trace: &Trace, certificates: &[Certificate], unit: u64) -> u64 {
    let largest = largest_of_pools(trace, certificates);
    largest.map(|it| it.minimum_bytes.next_multiple_of(unit)).sum()
}

/// Of each pool the certificate of the capture that needs most, the first of several. `certificates` are the trace's,
/// one for each capture.
pub fn largest_of_pools<'a>(
    trace: &Trace,
    certificates: &'a [Certificate],
) -> impl Iterator<Item = &'a Certificate> {
    let begins = trace.operations().iter().filter_map(|operation| match *operation {
        Operation::Begin { pool, .. } => Some(pool),
        _ => None,
    });
    let mut pools: BTreeMap<PoolIndex, &Certificate> = BTreeMap::new();
    for (pool, certificate) in begins.zip(certificates) {
        let most = pools.entry(pool).or_insert(certificate);
        if most.minimum_bytes < certificate.minimum_bytes {
            *most = certificate;
        }
    }
    pools.into_values()
}

fn certificate(index: usize, capture: &Recorded, policy: Programmatic) -> Certificate {
    let minimum = Minimum::of(&Lifetimes::read(&capture.journal, policy));
    let mut certificate = Certificate::new(index, (capture.nodes, capture.blocks), policy);
    certificate.minimum_bytes = minimum.bytes;
    let passed = |&(from, to, bytes): &_| Passed { from: id(from), to: id(to), bytes };
    certificate.cover = minimum.flows.iter().map(passed).collect();
    let antichain: HashSet<_> = minimum.antichain.iter().copied().collect();
    let thresholds: HashSet<_> = minimum.thresholds.iter().copied().collect();
    let mut terminals_of = HashMap::new();
    for entry in capture.journal.iter() {
        match entry {
            Entry::Terminals { stream, terminals } => {
                terminals_of.insert(stream, terminals);
            }
            Entry::Allocate { block, stream, bytes, .. } => {
                if antichain.contains(&block) {
                    certificate.antichain.push(CertifiedBlock { id: id(block), bytes });
                }
                if thresholds.contains(&block) {
                    let terminals = terminals_of.get(&stream).copied().unwrap_or_default();
                    let nodes =
                        terminals.iter().map(|terminal| node_index(terminal.node)).collect();
                    certificate.thresholds.push(Threshold { stream: stream_index(stream), nodes });
                }
            }
            _ => {}
        }
    }
    certificate
}

fn id(block: BlockNumber) -> BlockIndex {
    BlockIndex::try_from(block.0).expect("made from one")
}
