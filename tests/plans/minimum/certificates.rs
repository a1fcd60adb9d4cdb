//! Certificates hold, and changed ones do not.

use std::collections::HashMap;

use regraph::settings::Programmatic;
use regraph_trace::certify::{check, Certificate, CertifiedBlock, Passed, Refusal, Threshold};
use regraph_trace::minimum;
use regraph_trace::{Operation, Trace};

use super::traces::{kernel, random, Kinds, REAL};
use crate::device::trace;

const ALL: Kinds = Kinds { programmatic: true, set_backs: true, outside: true };

#[test]
fn real_traces_have_their_known_minima_and_certificates() {
    for (name, expected) in REAL {
        let trace = trace(name);
        for &policy in Programmatic::ALL {
            let certificates = minimum::of_trace(&trace, policy);
            assert_eq!(certificates.len(), 1, "{name}");
            assert_eq!(check(&trace, &certificates[0]), Ok(()), "{name}, {policy}");
            assert_eq!(minimum::of_pools(&trace, &certificates, 1), certificates[0].minimum_bytes);
            let mebibytes = certificates[0].minimum_bytes as f64 / f64::from(1 << 20);
            match policy {
                // Any next launch may be programmatic.
                Programmatic::Lag => assert!(mebibytes > expected, "{name}"),
                _ => assert_eq!(mebibytes, expected, "{name}, {policy}"),
            }
        }
    }
}

#[test]
fn random_captures_have_certificates_that_survive_a_file() {
    for seed in 0..200 {
        let trace = random(seed, 150, ALL);
        for &policy in Programmatic::ALL {
            let certificates = minimum::of_trace(&trace, policy);
            assert_eq!(certificates.len(), trace.captures());
            let mut file = Vec::new();
            for certificate in &certificates {
                assert_eq!(check(&trace, certificate), Ok(()), "seed {seed}, {policy}");
                certificate.write(&mut file).unwrap();
            }
            assert_eq!(Certificate::read(file.as_slice()).unwrap(), certificates);
        }
    }
}

#[test]
fn covers_pass_on_what_there_is() {
    for seed in 0..200 {
        let trace = random(seed, 150, ALL);
        let bytes = |operation: &Operation| match *operation {
            Operation::Alloc { id, bytes, .. } => Some((id, bytes.next_multiple_of(512))),
            _ => None,
        };
        let blocks: HashMap<_, _> = trace.operations().iter().filter_map(bytes).collect();
        for &policy in Programmatic::ALL {
            for Certificate { cover, minimum_bytes, .. } in minimum::of_trace(&trace, policy) {
                let (mut given, mut taken) = (HashMap::new(), HashMap::new());
                for Passed { from, to, bytes } in cover {
                    assert!(from != to && bytes > 0, "seed {seed}, {policy}: {from} to {to}");
                    *given.entry(from).or_insert(0) += bytes;
                    *taken.entry(to).or_insert(0) += bytes;
                }
                let within = |(block, bytes): (&u32, &u64)| bytes <= &blocks[block];
                assert!(
                    given.iter().all(within) && taken.iter().all(within),
                    "seed {seed}, {policy}"
                );
                // Nothing that was taken over is new as well.
                let new: u64 =
                    given.keys().map(|from| blocks[from] - taken.get(from).unwrap_or(&0)).sum();
                assert!(new <= minimum_bytes, "seed {seed}, {policy}");
            }
        }
    }
}

#[test]
fn no_certificate_says_more_than_the_minimum() {
    for seed in 0..40 {
        let trace = random(seed, 100, ALL);
        for certificate in minimum::of_trace(&trace, Programmatic::Deny) {
            let named = |id| certificate.antichain.iter().any(|block| block.id == id);
            for operation in trace.operations() {
                let &Operation::Alloc { id, bytes, stream } = operation else { continue };
                if named(id) {
                    continue;
                }
                let bytes = bytes.next_multiple_of(512);
                let mut more = certificate.clone();
                more.minimum_bytes += bytes;
                more.antichain.push(CertifiedBlock { id, bytes });
                assert!(check(&trace, &more).is_err(), "seed {seed}, block {id}");
                let nodes = (0..certificate.nodes as u32).collect();
                more.thresholds.push(Threshold { stream, nodes });
                assert!(check(&trace, &more).is_err(), "seed {seed}, block {id}");
                more.thresholds = vec![Threshold { stream, nodes: Vec::new() }];
                assert!(check(&trace, &more).is_err(), "seed {seed}, block {id}");
            }
        }
    }
}

/// Two streams, each with a block that the other does not wait for; one block before both.
fn small() -> (Trace, Certificate) {
    let alloc = |id, stream| Operation::Alloc { id, bytes: 1000, stream };
    let operations = vec![
        Operation::Begin { stream: 0, pool: 0 },
        alloc(0, 0),
        kernel(0, false),
        Operation::Free { id: 0 },
        Operation::Wait { stream: 1, on: 0 },
        alloc(1, 0),
        alloc(2, 1),
        kernel(0, false),
        kernel(1, false),
        alloc(3, 1),
        Operation::Free { id: 3 },
        Operation::Free { id: 1 },
        Operation::Free { id: 2 },
        Operation::Wait { stream: 0, on: 1 },
        kernel(0, false),
        Operation::End {},
    ];
    let trace = Trace::new(operations).unwrap();
    let certificate = minimum::of_trace(&trace, Programmatic::Deny).remove(0);
    (trace, certificate)
}

#[test]
fn each_field_is_checked() {
    let (trace, right) = small();
    assert_eq!((right.nodes, right.blocks, right.minimum_bytes), (4, 4, 2048));
    let blocks = [1, 2].map(|id| CertifiedBlock { id, bytes: 1024 });
    let at = |stream, node| Threshold { stream, nodes: vec![node] };
    assert_eq!(right.antichain, blocks);
    assert_eq!(right.thresholds, [at(0, 0), at(1, 0)]);
    assert_eq!(right.cover, [Passed { from: 0, to: 1, bytes: 1024 }]);
    assert_eq!(check(&trace, &right), Ok(()));
    let refused = |change: &dyn Fn(&mut Certificate)| {
        let mut changed = right.clone();
        change(&mut changed);
        assert_ne!(changed, right);
        check(&trace, &changed).unwrap_err()
    };
    assert_eq!(refused(&|c| c.capture = 1), Refusal::Capture(1));
    let other = |what, expected, found| Refusal::Other { what, expected, found };
    assert_eq!(refused(&|c| c.nodes = 5), other("nodes", 5, 4));
    assert_eq!(refused(&|c| c.blocks = 3), other("blocks", 3, 4));
    let sum = |expected, found| Refusal::Sum { expected, found };
    assert_eq!(refused(&|c| c.minimum_bytes = 2560), sum(2560, 2048));
    assert_eq!(refused(&|c| c.antichain.truncate(1)), sum(2048, 1024));
    assert_eq!(refused(&|c| c.antichain[1].id = 1), Refusal::Twice(1));
    assert_eq!(refused(&|c| c.antichain[1].id = 9), Refusal::NoBlock(9));
    // It is over when the others begin.
    assert_eq!(refused(&|c| c.antichain[1].id = 0), Refusal::Over { block: 0, stream: 0 });
    assert_eq!(refused(&|c| c.antichain[1].id = 3), Refusal::Unused(3));
    let bytes = Refusal::Bytes { block: 1, expected: 1536, found: 1024 };
    assert_eq!(refused(&|c| c.antichain[0].bytes = 1536), bytes);
    let beyond = |block, stream| Refusal::Beyond { block, stream };
    assert_eq!(refused(&|c| c.thresholds.truncate(1)), beyond(2, 1));
    assert_eq!(refused(&|c| c.thresholds[0].stream = 1), beyond(1, 0));
    assert_eq!(refused(&|c| c.thresholds[0].nodes.clear()), beyond(1, 0));
    let over = |block, stream| Refusal::Over { block, stream };
    assert_eq!(refused(&|c| c.thresholds[0].nodes = vec![1]), over(1, 0));
    assert_eq!(refused(&|c| c.thresholds[1].nodes = vec![2]), over(2, 1));
    let no_node = Refusal::NoNode { stream: 1, node: 4 };
    assert_eq!(refused(&|c| c.thresholds[1].nodes = vec![0, 4]), no_node);
}

#[test]
fn a_certificate_of_nothing_proves_nothing() {
    let (trace, right) = small();
    let mut empty = right.clone();
    (empty.minimum_bytes, empty.antichain, empty.thresholds) = (0, Vec::new(), Vec::new());
    assert_eq!(check(&trace, &empty), Err(Refusal::Empty(0)));
    // Unless there is nothing that needs memory.
    let idle = [
        Operation::Begin { stream: 0, pool: 0 },
        Operation::Alloc { id: 0, bytes: 1000, stream: 0 },
        Operation::Free { id: 0 },
        kernel(0, false),
        Operation::End {},
    ];
    let idle = Trace::new(idle.to_vec()).unwrap();
    let certificate = minimum::of_trace(&idle, Programmatic::Deny).remove(0);
    assert_eq!((certificate.minimum_bytes, certificate.antichain.len()), (0, 0));
    assert_eq!(check(&idle, &certificate), Ok(()));
}

#[test]
fn thresholds_are_no_more_than_blocks() {
    let (trace, mut certificate) = small();
    certificate.thresholds.push(certificate.thresholds[0].clone());
    let refusal = Refusal::Thresholds { thresholds: 3, blocks: 2 };
    assert_eq!(check(&trace, &certificate), Err(refusal));
}

#[test]
fn an_endless_certificate_is_refused_without_being_kept() {
    let endless = std::io::BufReader::new(std::io::repeat(b'['));
    let message = Certificate::read(endless).unwrap_err().to_string();
    assert!(message.contains("line 1: expected a line of at most 67108864 bytes"), "{message}");
}

#[test]
fn a_file_must_name_the_format() {
    let (_, certificate) = small();
    let mut text = Vec::new();
    certificate.write(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(Certificate::read(text.as_bytes()).is_ok());
    let changes = [
        (
            "regraph certificate",
            "regraph trace",
            "line 1: expected `regraph certificate` of version 2",
        ),
        ("\"version\":2", "\"version\":3", "found `regraph certificate` of 3"),
        (
            "\"deny\"",
            "\"never\"",
            "line 1: expected a certificate: expected one of auto, deny, lag, trust",
        ),
        ("\"nodes\":4,", "", "missing field `nodes`"),
        ("\"nodes\":4,", "\"nodes\":4,\"why\":0,", "unknown field `why`"),
    ];
    for (from, to, expected) in changes {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let message = Certificate::read(changed.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
