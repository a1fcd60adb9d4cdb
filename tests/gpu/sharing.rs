//! Memory of one process that another one maps.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use regraph::driver::cuda::CudaDriver;
use regraph::driver::{Driver, HostApi, MemoryHandle};
use regraph::engine::Config;
use regraph::settings::Settings;
use regraph_plugin::{Plugin, Shared};
use regraph_tagged::{CudaProgram, Program, Tagged, Work};

use crate::device::gpu::turn;

const MIB: u64 = 1 << 20;
const TAG: u64 = 0x5eed;
/// Set for the other process alone.
const RECEIVER: &str = "REGRAPH_TEST_RECEIVER";

fn plugin(settings: &str) -> Plugin<CudaProgram> {
    let settings = Settings::parse(settings).unwrap();
    let config = Config::default().settings(settings);
    // SAFETY: handles are given to calls while what they name lives.
    Plugin::new(config, |device| CudaProgram::on(unsafe { CudaDriver::new(device) }?))
}

fn write(gpu: &CudaProgram, (address, bytes): (u64, u64), tag: u64) {
    let stream = gpu.create_stream().unwrap();
    let outputs = [Tagged { address, bytes, tag }];
    gpu.launch(stream, Work { outputs: &outputs, ..Work::default() }, false).unwrap();
    gpu.synchronize().unwrap();
}

fn holds(gpu: &CudaProgram, (address, bytes): (u64, u64), tag: u64) -> bool {
    gpu.synchronize().unwrap();
    gpu.read_tags(address, bytes).unwrap().iter().all(|&found| found == tag)
}

/// Opens what the first line names, looks what is there and writes something else.
#[test]
#[ignore = "the other process of the test below, with an NVIDIA GPU"]
fn receives() {
    if std::env::var_os(RECEIVER).is_none() {
        return;
    }
    let Some(Ok(line)) = std::io::stdin().lines().next() else { return };
    let mut words = line.split(' ');
    let (Some(handle), Some(offset), Some(bytes)) = (words.next(), words.next(), words.next())
    else {
        return;
    };
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let handle: Vec<u8> = handle.as_bytes().chunks(2).map(byte).collect();
    let place = |address| (address + offset.parse::<u64>().unwrap(), bytes.parse().unwrap());
    let theirs = plugin("exportable:True");
    let opened = theirs.open_shared(0, &handle).unwrap();
    let gpu = theirs.engine(0).unwrap().driver();
    assert!(holds(gpu, place(opened.address), TAG));
    write(gpu, place(opened.address), TAG + 1);
    theirs.close_shared(opened.id).unwrap();
    assert_eq!(theirs.open_shared(0, &handle).unwrap().address % (2 * MIB), 0);
    println!("\nread and written");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn another_process_reads_and_writes_blocks() {
    let _turn = turn();
    for settings in
        ["exportable:True", "exportable:True,expandable_segments:False", "caching:False"]
    {
        let ours = plugin(settings);
        let gpu = ours.engine(0).unwrap().driver();
        let stream = gpu.create_stream().unwrap();
        let blocks = [3, 5].map(|mib| ours.allocate(mib * MIB, 0, stream).unwrap());
        let place = (blocks[1], 5 * MIB);
        write(gpu, place, TAG);
        let Shared { handle, offset, .. } = ours.share(blocks[1]).unwrap();
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "sharing::receives", "--nocapture"])
            .env(RECEIVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let handle: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut given = other.stdin.take().unwrap();
        writeln!(given, "{handle} {offset} {}", place.1).unwrap();
        let said = BufReader::new(other.stdout.take().unwrap());
        // To the end: it must not write to a pipe that is closed.
        let done = said.lines().filter(|line| line.as_ref().unwrap() == "read and written").count();
        assert!(other.wait().unwrap().success() && done == 1, "{settings}");
        assert!(holds(gpu, place, TAG + 1), "{settings}");
        for block in blocks {
            ours.free(block, 0).unwrap();
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_is_held_by_descriptors_and_imports() {
    let _turn = turn();
    // SAFETY: handles are given to calls while what they name lives.
    let gpu = unsafe { CudaDriver::new(0) }.unwrap();
    let plain = gpu.create(2 * MIB).unwrap();
    assert!(gpu.export(plain).is_err(), "it was not made for that");
    gpu.release(plain).unwrap();
    let bytes = 512 * MIB;
    let free = || gpu.memory_info().unwrap().free;
    let before = free();
    let memory = gpu.create_exportable(bytes).unwrap();
    let descriptor = gpu.export(memory).unwrap();
    gpu.release(memory).unwrap();
    assert!(free() + bytes <= before, "the descriptor keeps it");
    let again = gpu.import(&descriptor).unwrap();
    drop(descriptor);
    assert!(free() + bytes <= before, "the import keeps it");
    gpu.release(again).unwrap();
    assert!(free() + bytes > before);
    let other = std::fs::File::open("/dev/null").unwrap().into();
    assert!(gpu.import(&other).is_err());
    assert!(gpu.open_allocation(&[7; 64]).is_err());
}

/// Prints what exportable memory costs beside plain memory: creating it, and letting the device at it.
#[test]
#[ignore = "needs an NVIDIA GPU; a measurement"]
fn costs_of_exportable_memory() {
    let _turn = turn();
    // SAFETY: handles are given to calls while what they name lives.
    let gpu = unsafe { CudaDriver::new(0) }.unwrap();
    for bytes in [2 * MIB, 20 * MIB, 512 * MIB] {
        let address = gpu.reserve(bytes).unwrap();
        let time = |create: &dyn Fn() -> MemoryHandle| {
            let mut rounds: Vec<[f64; 4]> = (0..32)
                .map(|_| {
                    let begun = Instant::now();
                    let memory = create();
                    let created = begun.elapsed();
                    gpu.map(address, bytes, memory).unwrap();
                    gpu.set_access(address, bytes).unwrap();
                    let mapped = begun.elapsed();
                    gpu.unmap(address, bytes).unwrap();
                    let unmapped = begun.elapsed();
                    gpu.release(memory).unwrap();
                    let released = begun.elapsed();
                    [created, mapped - created, unmapped - mapped, released - unmapped]
                        .map(|time| time.as_secs_f64() * 1e6)
                })
                .collect();
            rounds.sort_by(|one, other| one[0].total_cmp(&other[0]));
            rounds[16]
        };
        let plain = time(&|| gpu.create(bytes).unwrap());
        let exportable = time(&|| gpu.create_exportable(bytes).unwrap());
        println!(
            "{} MiB: create, map, unmap, release in us: plain {plain:.1?}, exportable {exportable:.1?}",
            bytes / MIB
        );
        gpu.unreserve(address, bytes).unwrap();
    }
}
