//! `regraph certify`.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::Args;
use regraph_trace::certify::{check, Certificate};

use super::failure::Failure;
use super::load::{self, load};

#[derive(Args)]
pub struct Arguments {
    /// The trace, JSON Lines in format v1; `-` is standard input.
    trace: PathBuf,
    /// The certificates, one a line.
    file: PathBuf,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    let trace = load(&arguments.trace)?;
    let name = arguments.file.display();
    let bad = |error: &dyn std::fmt::Display| Failure::Input(format!("{name}: {error}"));
    let file = File::open(&arguments.file).map_err(|error| bad(&error))?;
    let certificates = Certificate::read(BufReader::new(file)).map_err(|error| bad(&error))?;
    if certificates.is_empty() {
        return Err(bad(&"expected a certificate, found none"));
    }
    let mut output = io::stdout().lock();
    for certificate in &certificates {
        let &Certificate { capture, minimum_bytes, programmatic, .. } = certificate;
        check(&trace, certificate).map_err(|refusal| {
            Failure::Other(format!("{name}: nothing is proven of capture {capture}: {refusal}"))
        })?;
        writeln!(
            output,
            "no placement of capture {capture} of {} that adds no edges can use less than {} bytes \
             ({:.1} MiB): these {} blocks are pairwise unordered (programmatic {}, {} thresholds)",
            load::name(&arguments.trace),
            minimum_bytes,
            minimum_bytes as f64 / f64::from(1 << 20),
            certificate.antichain.len(),
            programmatic,
            certificate.thresholds.len(),
        )?;
        let ids: Vec<_> = certificate.antichain.iter().map(|block| block.id.to_string()).collect();
        writeln!(output, "  {}", ids.join(" "))?;
    }
    output.flush()?;
    Ok(())
}
