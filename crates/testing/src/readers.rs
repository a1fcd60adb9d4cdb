//! The readers of files and settings on any input: it is read or refused, and what was read means
//! the same when it is written and read again.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::engine::Config;
use regraph::settings::Settings;
use regraph::snapshot::Snapshot;
use regraph_plugin::Plugin;
use regraph_sim::{SimConfig, SimDriver};
use regraph_trace::certify::{check, Certificate, CertifiedBlock, Threshold};
use regraph_trace::Trace;

/// Reads any bytes as certificates, and holds each against a small trace.
///
/// # Panics
/// Where the reader, the writer or the check is wrong.
pub fn certificate_reader(data: &[u8]) {
    let Ok(certificates) = Certificate::read(data) else { return };
    let mut text = Vec::new();
    for certificate in &certificates {
        certificate.write(&mut text).expect("writing into memory succeeds");
        if check(&small_trace(), certificate).is_ok() {
            assert!(certificate.minimum_bytes <= 512, "the trace can do with 512 bytes");
        }
    }
    let again = Certificate::read(text.as_slice()).expect("what was written can be read");
    assert_eq!(certificates, again, "a round trip changes nothing");
}

/// Reads any bytes as a CSV file of blocks and intervals.
///
/// # Panics
/// Where the reader makes what is no trace.
pub fn csv_reader(data: &[u8]) {
    let Ok(trace) = regraph_lab::import::csv(data, NonZeroU64::MIN) else { return };
    let again = Trace::new(trace.operations().to_vec()).expect("it keeps the rules of traces");
    assert_eq!(trace, again.with_labels(trace.labels().clone()));
}

/// Reads any bytes as a snapshot, and validates it.
///
/// # Panics
/// Where the reader or the writer is wrong.
pub fn snapshot_reader(data: &[u8]) {
    let Ok(snapshot) = Snapshot::read_json(data) else { return };
    let _ = regraph_trace::snapshot::validate(&snapshot);
    let mut text = Vec::new();
    snapshot.write_json(&mut text).expect("writing into memory succeeds");
    let again = Snapshot::read_json(text.as_slice()).expect("what was written can be read");
    assert_eq!(snapshot, again, "a round trip changes nothing");
}

/// Reads any bytes as settings.
///
/// # Panics
/// Where the reader takes values that are not allowed, or writes other settings than it read.
pub fn settings_reader(data: &[u8]) {
    let Ok(settings) = Settings::parse(&String::from_utf8_lossy(data)) else { return };
    settings.validate().expect("what was read is allowed");
    let again = Settings::parse(&settings.to_string()).expect("what was written can be read");
    assert_eq!(settings.to_string(), again.to_string(), "a round trip changes nothing");
}

/// Reads any bytes as the environment's two variables, which a line feed parts.
///
/// # Panics
/// Where values are taken that are not allowed, or an error does not name its variable.
pub fn environment_reader(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let value = |name: &str| {
        let bytes = if name == "REGRAPH_ALLOC_CONF" { &data[..end] } else { data.get(end + 1..)? };
        Some(OsString::from_vec(bytes.to_vec()))
    };
    match Settings::from_variables(value) {
        Ok(settings) => settings.validate().expect("what was read is allowed"),
        Err(error) => assert!(error.to_string().contains("REGRAPH_"), "{error}"),
    }
}

/// Opens any bytes as another process's handle of memory, and takes them for that of a loan, from a process that there
/// is not.
///
/// # Panics
/// Where memory is mapped.
pub fn handle_reader(data: &[u8]) {
    let mut handle = data.to_vec();
    // The process in a handle of memory, which stands behind 32 bytes in one of a loan.
    for process in [24..28, 56..60] {
        handle.get_mut(process).into_iter().for_each(|it| it.fill(0));
    }
    let device = || Arc::new(SimDriver::new(SimConfig::default()));
    let plugin = Plugin::new(Config::default(), move |_| Ok(device()));
    let opened = plugin.open_shared(0, &handle);
    assert!(opened.is_err(), "{opened:?}");
    #[cfg(target_os = "linux")]
    {
        let taken = plugin.take_loan(0, &handle);
        assert!(taken.is_err(), "{taken:?}");
    }
}

/// A fuzz target, and some text that it takes.
pub type Reader = (fn(&[u8]), Vec<u8>);

/// Some text that each of the readers takes, for [`edited`].
pub fn texts() -> [Reader; 7] {
    let mut certificate = Certificate::new(0, (2, 2), Default::default());
    certificate.minimum_bytes = 512;
    certificate.antichain = vec![CertifiedBlock { id: 0, bytes: 512 }];
    certificate.thresholds = vec![Threshold { stream: 0, nodes: vec![] }];
    let mut certificates = Vec::new();
    certificate.write(&mut certificates).expect("writing into memory succeeds");
    check(&small_trace(), &certificate).expect("it is right");
    let mut snapshot = Vec::new();
    Snapshot::default().write_json(&mut snapshot).expect("writing into memory succeeds");
    let csv = "id,lower,upper,size\na,0,3,4\nb,1,5,7\nc,-3,1,2\n";
    // Of one piece: magic and version, secret, process and board, count; size, serial number, descriptor.
    let numbers = [
        &[0; 4][..],
        &[0xff; 4],
        &[1, 0, 0, 0],
        &(2_u64 << 20).to_le_bytes(),
        &1_u64.to_le_bytes(),
        &[3, 0, 0, 0],
    ];
    let handle = [&b"regraph\x01"[..], &[7; 16], &numbers.concat()].concat();
    let settings = "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:4],caching:true";
    [
        (certificate_reader, certificates),
        (csv_reader, csv.into()),
        (snapshot_reader, snapshot),
        (settings_reader, settings.into()),
        (environment_reader, format!("{settings}\n1").into()),
        // Of a loan: magic and version, number, place and size of the block; the handle of the memory.
        (handle_reader, [&b"regloan\x01"[..], &[0; 24], &handle].concat()),
        (handle_reader, handle),
    ]
}

/// A text with a few bytes changed, taken out or doubled: random bytes alone rarely get far.
pub fn edited(u: &mut Unstructured<'_>, text: &[u8]) -> Result<Vec<u8>> {
    let mut text = text.to_vec();
    for _ in 0..u.int_in_range(0..=4)? {
        if text.is_empty() {
            break;
        }
        let at = u.choose_index(text.len())?;
        let end = (at + u.int_in_range(1..=8)?).min(text.len());
        match u.int_in_range(0..=3)? {
            0 => text[at] = u.arbitrary()?,
            1 => text[at] = *u.choose(b"0123456789-,:[]{}\"\n.e")?,
            2 => drop(text.drain(at..end)),
            _ => {
                let part = text[at..end].to_vec();
                drop(text.splice(at..at, part));
            }
        }
    }
    Ok(text)
}

/// Two blocks of 512 bytes, one after the other.
fn small_trace() -> Trace {
    let text = "{\"op\":\"begin\",\"stream\":0,\"pool\":0}\n\
        {\"op\":\"alloc\",\"id\":0,\"bytes\":512,\"stream\":0}\n\
        {\"op\":\"kernel\",\"stream\":0}\n\
        {\"op\":\"free\",\"id\":0}\n\
        {\"op\":\"alloc\",\"id\":1,\"bytes\":512,\"stream\":0}\n\
        {\"op\":\"kernel\",\"stream\":0}\n\
        {\"op\":\"free\",\"id\":1}\n\
        {\"op\":\"end\"}\n";
    regraph_trace::read(text.as_bytes()).expect("a trace")
}
