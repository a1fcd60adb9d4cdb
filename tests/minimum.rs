//! The least memory of captures, and the check of it.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use regraph::certify::check;
use regraph::minimum;
use regraph::policy::Programmatic;
use regraph::trace::{read, Trace};

fn trace(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let file = File::open(folder.join(format!("{name}.jsonl"))).unwrap();
    read(BufReader::new(file)).unwrap()
}

const TRACES: [(&str, f64); 4] = [
    ("decoder_s1", 45.0),
    ("moe_s6", 127.03125),
    ("googlenet_s4", 214.411_132_812_5),
    ("pipeline_s5", 216.0),
];

#[test]
fn real_traces_have_their_known_minima_and_certificates() {
    for (name, minimum) in TRACES {
        let trace = trace(name);
        for &policy in Programmatic::ALL {
            let certificates = minimum::of_trace(&trace, policy);
            assert_eq!(certificates.len(), 1, "{name}");
            assert_eq!(check(&trace, &certificates[0]), Ok(()), "{name}, {policy}");
            println!(
                "{name} {policy} {}",
                certificates[0].minimum_bytes as f64 / f64::from(1 << 20)
            );
            if policy != Programmatic::Lag {
                let bytes = certificates[0].minimum_bytes as f64;
                assert_eq!(bytes / f64::from(1 << 20), minimum, "{name}, {policy}");
                assert_eq!(minimum::of_pools(&trace, &certificates), certificates[0].minimum_bytes);
            }
        }
    }
}
