//! What changes to a trace do to its minimum.

use regraph::settings::Programmatic;
use regraph_trace::minimum;
use regraph_trace::{Operation, Trace};

use super::traces::{random, Kinds, REAL};
use crate::device::trace;

fn least(trace: &Trace, policy: Programmatic) -> Vec<u64> {
    let certificates = minimum::of_trace(trace, policy);
    certificates.iter().map(|certificate| certificate.minimum_bytes).collect()
}

fn traces() -> impl Iterator<Item = Trace> {
    let kinds = Kinds { programmatic: true, set_backs: false, outside: true };
    let drawn = (0..100).map(move |seed| random(seed, 100, kinds));
    drawn.chain([trace(REAL[3].0)])
}

#[test]
fn other_numbers_of_streams_change_nothing() {
    let other = |stream: u16| if stream < 8 { 7 - stream } else { stream };
    for trace in traces() {
        let renamed = trace.operations().iter().cloned().map(|mut operation| {
            match &mut operation {
                Operation::Wait { stream, on } => {
                    (*stream, *on) = (other(*stream), other(*on));
                }
                Operation::Begin { stream, .. }
                | Operation::Kernel { stream, .. }
                | Operation::Terminals { stream, .. }
                | Operation::Alloc { stream, .. }
                | Operation::Use { stream, .. }
                | Operation::LastUse { stream, .. } => *stream = other(*stream),
                _ => {}
            }
            operation
        });
        let renamed = Trace::new(renamed.collect()).unwrap();
        for &policy in Programmatic::ALL {
            assert_eq!(least(&renamed, policy), least(&trace, policy));
        }
    }
}

#[test]
fn two_blocks_in_the_place_of_one_need_as_much() {
    const SECOND: u32 = 1 << 20;
    for trace in traces() {
        let mut operations = Vec::new();
        for operation in trace.operations() {
            let mut first = operation.clone();
            let mut second = None;
            match operation {
                &Operation::Alloc { id, bytes, stream } if bytes > 512 => {
                    first = Operation::Alloc { id, bytes: 512, stream };
                    let (id, bytes) = (id + SECOND, bytes - 512);
                    second = Some(Operation::Alloc { id, bytes, stream });
                }
                Operation::Use { id, .. }
                | Operation::LastUse { id, .. }
                | Operation::Free { id } => {
                    let other = id + SECOND;
                    let split = operations.iter().any(
                        |before| matches!(before, Operation::Alloc { id, .. } if *id == other),
                    );
                    second = split.then_some(match *operation {
                        Operation::Use { stream, .. } => Operation::Use { id: other, stream },
                        Operation::LastUse { stream, .. } => {
                            Operation::LastUse { id: other, stream }
                        }
                        _ => Operation::Free { id: other },
                    });
                }
                _ => {}
            }
            operations.push(first);
            operations.extend(second);
        }
        let split = Trace::new(operations).unwrap();
        assert!(split.blocks() > trace.blocks());
        for &policy in Programmatic::ALL {
            assert_eq!(least(&split, policy), least(&trace, policy));
        }
    }
}

#[test]
fn a_later_free_needs_no_less() {
    let mut more = 0;
    for trace in traces().take(60) {
        let before = least(&trace, Programmatic::Deny);
        for (at, operation) in trace.operations().iter().enumerate() {
            let &Operation::Free { id } = operation else { continue };
            for delay in [1, 10, usize::MAX] {
                let mut operations = trace.operations().to_vec();
                operations.remove(at);
                let to = at.saturating_add(delay).min(operations.len());
                operations.insert(to, Operation::Free { id });
                let after = least(&Trace::new(operations).unwrap(), Programmatic::Deny);
                assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
                more += usize::from(before != after);
            }
        }
    }
    assert!(more > 100, "{more}");
}

#[test]
fn what_proves_more_needs_no_more() {
    for trace in traces() {
        let [deny, lag, trust] =
            [Programmatic::Deny, Programmatic::Lag, Programmatic::Trust].map(|p| least(&trace, p));
        let no_more = |these: &[u64], those: &[u64]| these.iter().zip(those).all(|(a, b)| a <= b);
        assert!(no_more(&trust, &deny) && no_more(&trust, &lag));
    }
}
