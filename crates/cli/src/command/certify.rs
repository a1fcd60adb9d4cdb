//! `regraph certify`.

use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::Args;
use regraph_cli::mebibytes;
use regraph_cli::shell::failure::Failure;
use regraph_cli::shell::progress;
use regraph_trace::certify::{check, Certificate};
use regraph_trace::Trace;

use regraph_cli::shell::load::{self, load};

#[derive(Args)]
pub struct Arguments {
    /// The trace, JSON Lines in format v1; `-` is standard input.
    trace: PathBuf,
    /// The certificates, one a line; `-` is standard input.
    file: PathBuf,
}

pub fn main(arguments: &Arguments) -> Result<(), Failure> {
    load::one_stdin([&arguments.trace, &arguments.file])?;
    let trace = load(&arguments.trace)?;
    let name = load::name(&arguments.file);
    let bad = |error: &dyn std::fmt::Display| Failure::Input(format!("{name}: {error}"));
    let file = load::open(&arguments.file).map_err(|error| bad(&error))?;
    let certificates = Certificate::read(BufReader::new(file)).map_err(|error| bad(&error))?;
    if certificates.is_empty() {
        return Err(bad(&"expected a certificate, found none"));
    }
    let mut output = io::stdout().lock();
    let bar = progress::bar(certificates.len());
    for certificate in &certificates {
        let capture = certificate.capture;
        check(&trace, certificate).map_err(|refusal| {
            Failure::Other(format!("{name}: nothing is proven of capture {capture}: {refusal}"))
        })?;
        bar.inc(1);
        bar.suspend(|| tell(certificate, &trace, &load::name(&arguments.trace), &mut output))?;
    }
    bar.finish_and_clear();
    output.flush()?;
    Ok(())
}

/// Says what a certificate proves, and of which blocks.
fn tell(
    certificate: &Certificate,
    trace: &Trace,
    name: &str,
    output: &mut impl Write,
) -> io::Result<()> {
    let &Certificate { capture, minimum_bytes, programmatic, .. } = certificate;
    writeln!(
        output,
        "no placement of capture {capture} of {} that adds no edges can use less than {} bytes \
             ({:.1} MiB): these {} blocks are pairwise unordered (programmatic {}, {} thresholds)",
        name,
        minimum_bytes,
        mebibytes(minimum_bytes.into()),
        certificate.antichain.len(),
        programmatic,
        certificate.thresholds.len(),
    )?;
    let ids: Vec<_> = certificate.antichain.iter().map(|block| block.id.to_string()).collect();
    writeln!(output, "  {}", ids.join(" "))?;
    if !trace.labels().is_empty() {
        let blocks = certificate.antichain.iter().map(|block| (block.id, block.bytes));
        for (what, count, bytes) in trace.labels().group(blocks) {
            let what = what.as_deref().unwrap_or("no name and no line of code");
            writeln!(output, "  {:>10.2} MiB in {count:>5}  {what}", mebibytes(bytes.into()))?;
        }
    }
    Ok(())
}
