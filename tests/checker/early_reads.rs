//! Reads of what nothing in the graph wrote before are found where nodes' parameters show them.

use std::sync::Arc;

use crate::common::{bench, remove_last_edge, Bench, MIB};
use regraph::driver::{Access, Driver, HostApi, NodeHandle, NodeKind, NodePointer, StreamHandle};
use regraph::engine::{Block, Config};
use regraph::reports::{EarlyRead, Filled};
use regraph::settings::Settings;
use regraph_check::uses::{find, Search};
use regraph_sim::{Kernel, KernelMemory, Launch};

/// A node of any type, with what the driver tells of its parameters.
#[derive(Debug)]
struct Node(NodeKind, Vec<NodePointer>);

impl Kernel for Node {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.1.iter().map(|pointer| (pointer.address, 512)).collect()
    }

    fn kind(&self) -> NodeKind {
        self.0
    }

    fn pointers(&self) -> Vec<NodePointer> {
        self.1.clone()
    }

    fn start(&self, _: &mut KernelMemory<'_>) {}

    fn end(&self, _: &mut KernelMemory<'_>) {}
}

/// Memory of the host, which no block lies in.
const HOST: u64 = 0x10;

trait Nodes {
    fn node(&self, stream: StreamHandle, kind: NodeKind, pointers: &[(u64, Access)]) -> NodeHandle;

    fn copy(&self, stream: StreamHandle, from: u64, to: u64) -> NodeHandle {
        self.node(stream, NodeKind::COPY, &[(from, Access::Reads), (to, Access::Writes)])
    }

    fn fill(&self, stream: StreamHandle, at: u64) -> NodeHandle {
        self.node(stream, NodeKind::FILL, &[(at, Access::Writes)])
    }

    fn kernel(&self, stream: StreamHandle, words: &[u64]) -> NodeHandle {
        let words: Vec<_> = words.iter().map(|&word| (word, Access::Unknown)).collect();
        self.node(stream, NodeKind::KERNEL, &words)
    }
}

impl Nodes for Bench {
    fn node(&self, stream: StreamHandle, kind: NodeKind, pointers: &[(u64, Access)]) -> NodeHandle {
        let pointers =
            pointers.iter().map(|&(address, access)| NodePointer { address, access }).collect();
        let kernel: Arc<dyn Kernel> = Arc::new(Node(kind, pointers));
        let launch = Launch { kernel: Some(kernel), programmatic: false };
        self.driver.launch_kernel(stream, launch).unwrap();
        // None of work that is not captured.
        let terminals = self.driver.terminals(stream).unwrap();
        terminals.first().map_or(NodeHandle::from_bits(0), |terminal| terminal.node)
    }
}

fn searching() -> Bench {
    let settings = Settings::parse("early_reads:True").unwrap();
    bench(Config::default().settings(settings).find_late_uses(false))
}

/// Node, block, and whether it is known to read.
fn found(early: &[EarlyRead]) -> Vec<(NodeHandle, u64, bool)> {
    early.iter().map(|it| (it.node, it.block.address, it.reads)).collect()
}

fn free(b: &Bench, blocks: &[Block]) {
    blocks.iter().for_each(|block| b.engine.free(block.id).unwrap());
}

#[test]
fn a_copy_from_what_nothing_wrote_is_found() {
    let (b, [s], capture) = searching().capturing();
    let [from, to] = [b.allocate(s), b.allocate(s)];
    let copy = b.copy(s, from.address + 1024, to.address);
    // What it wrote may be read, and what it read is read again.
    let again = b.copy(s, to.address, HOST);
    let second = b.copy(s, from.address, HOST);
    free(&b, &[from, to]);
    let report = b.finish(s, capture);
    let early = &report.early_reads;
    assert_eq!(found(early), [(copy, from.address, true), (second, from.address, true)]);
    assert!(early.iter().all(|it| it.node != again));
    let first = &early[0];
    assert_eq!((first.address, first.offset), (from.address + 1024, 1024));
    assert_eq!((first.kind, first.filled), (Some(NodeKind::COPY), Filled::Unknown));
    assert!(first.is_likely());
    let text = first.to_string();
    for part in [
        &format!("node {:#x} (a copy) reads address", copy.bits()),
        &format!("1024 bytes into block {} at", from.id.number().0),
        "which nothing in the graph writes before",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("guess"), "{text}");
}

/// What is filled, copied to, or among a kernel's parameters before may have been written.
#[test]
fn what_may_have_been_written_before_is_not_told() {
    let (b, [s, t], capture) = searching().capturing();
    let blocks = [b.allocate(s), b.allocate(s), b.allocate(s)];
    b.fill(s, blocks[0].address + 512);
    b.copy(s, HOST, blocks[1].address);
    b.driver.wait(t, s).unwrap();
    for block in &blocks {
        b.engine.record_stream(block.id, t).unwrap();
    }
    b.copy(t, blocks[0].address, blocks[2].address);
    b.copy(t, blocks[1].address, HOST);
    let kernel = b.kernel(t, &[blocks[2].address, blocks[0].address, 7]);
    b.driver.wait(s, t).unwrap();
    free(&b, &blocks);
    let report = b.finish(s, capture);
    assert!(report.early_reads.is_empty(), "{:?} {kernel:?}", report.early_reads);
}

/// A writer that no edge puts before the read does not count, nor one that comes after it.
#[test]
fn a_writer_counts_only_before_the_read() {
    let (b, [s, t], capture) = searching().capturing();
    b.launch(s);
    let block = b.allocate(s);
    b.driver.wait(t, s).unwrap();
    b.engine.record_stream(block.id, t).unwrap();
    b.fill(s, block.address);
    let beside = b.copy(t, block.address, HOST);
    b.driver.wait(t, s).unwrap();
    b.copy(t, block.address, HOST);
    b.driver.wait(s, t).unwrap();
    free(&b, &[block]);
    let next = b.allocate(s);
    let before = b.copy(s, next.address, HOST);
    b.fill(s, next.address);
    b.copy(s, next.address, HOST);
    free(&b, &[next]);
    let report = b.finish(s, capture);
    let [one, other] = &found(&report.early_reads)[..] else { panic!("{:?}", report.early_reads) };
    assert_eq!([one.0, other.0], [beside, before]);
    assert_eq!(next.address, block.address, "another block's writes do not count for this one");
}

/// The first kernels with an address in a block are guesses, all that are without order.
#[test]
fn kernels_are_guesses() {
    let (b, [s, t], capture) = searching().capturing();
    b.launch(s);
    let block = b.allocate(s);
    b.driver.wait(t, s).unwrap();
    b.engine.record_stream(block.id, t).unwrap();
    let one = b.kernel(s, &[block.address]);
    let other = b.kernel(t, &[block.address + 2048, block.address]);
    b.kernel(t, &[block.address]);
    b.driver.wait(s, t).unwrap();
    b.copy(s, block.address, HOST);
    free(&b, &[block]);
    let report = b.finish(s, capture);
    let early = &report.early_reads;
    assert_eq!(found(early), [(one, block.address, false), (other, block.address, false)]);
    for it in early {
        assert!(!it.is_likely());
        assert!(it.to_string().contains("(a guess: the node may write there only)"), "{it}");
    }
}

/// What something outside the graph has used comes before bare guesses, and what is known before both.
#[test]
fn blocks_that_something_else_may_have_filled_come_first() {
    let (b, [s, eager]) = searching().with_streams();
    let input = b.allocate(s);
    b.fill(s, input.address);
    b.engine.host().expect_capture(s).unwrap();
    b.driver.complete_all();
    let capture = b.begin(s);
    let [bare, outside, copied] = [b.allocate(s), b.allocate(s), b.allocate(s)];
    // A library that initialises its workspace on a stream that does not capture.
    b.engine.record_stream(outside.id, eager).unwrap();
    b.fill(eager, outside.address);
    let bare_node = b.kernel(s, &[bare.address]);
    let outside_node = b.kernel(s, &[outside.address]);
    let input_node = b.kernel(s, &[input.address]);
    let copy = b.copy(s, copied.address, HOST);
    free(&b, &[input, bare, outside, copied]);
    let report = b.finish(s, capture);
    let told: Vec<_> =
        report.early_reads.iter().map(|it| (it.node, it.filled, it.is_likely())).collect();
    let expected = [
        (copy, Filled::Unknown, true),
        (input_node, Filled::Before, true),
        (outside_node, Filled::Outside, true),
        (bare_node, Filled::Unknown, false),
    ];
    assert_eq!(told, expected);
    let texts: Vec<String> = report.early_reads.iter().map(ToString::to_string).collect();
    assert!(texts[1].contains("from before the capture, which freed it"), "{}", texts[1]);
    assert!(texts[2].contains("something outside the capture uses the block"), "{}", texts[2]);
}

/// An address behind a block may be an iterator's end, or the next block, which is written then.
#[test]
fn the_end_of_a_block_is_no_read_of_the_next_one_and_may_be_a_write() {
    for both in [false, true] {
        let (b, [s], capture) = searching().capturing();
        let [low, high] = [b.allocate(s), b.allocate(s)];
        assert_eq!(high.address, low.address + 4 * MIB);
        b.fill(s, low.address);
        let words = [low.address, high.address, high.address + 512];
        let kernel = b.kernel(s, &words[..2 + usize::from(both)]);
        b.copy(s, high.address, HOST);
        free(&b, &[low, high]);
        let told = found(&b.finish(s, capture).early_reads);
        let expected = [(kernel, high.address, false)];
        assert_eq!(told, if both { &expected[..] } else { &[] });
    }
}

/// Weights and other blocks from elsewhere are read as a rule; a number may be no address.
#[test]
fn nothing_is_told_of_other_memory() {
    let (b, [s]) = searching().with_streams();
    let weights = b.allocate(s);
    b.fill(s, weights.address);
    b.driver.complete_all();
    let capture = b.begin(s);
    b.kernel(s, &[weights.address, 3, u64::MAX]);
    b.copy(s, weights.address, HOST);
    assert!(b.finish(s, capture).early_reads.is_empty());
    free(&b, &[weights]);
}

/// Unordered kernels without number are told up to the bound, and an edge that was taken away counts: it held when
/// the node was captured.
#[test]
fn many_findings_and_edited_edges() {
    let (b, [s], capture) = searching().capturing();
    let blocks: Vec<Block> = (0..120).map(|_| b.allocate(s)).collect();
    for block in &blocks {
        b.kernel(s, &[block.address]);
    }
    let copied = b.copy(s, blocks[119].address, HOST);
    free(&b, &blocks);
    let last = b.allocate(s);
    let read = b.copy(s, last.address, HOST);
    free(&b, &[last]);
    let report = b.finish(s, capture);
    assert_eq!(report.early_reads.len(), regraph::reports::MOST);
    assert_eq!((report.early_reads[0].node, report.early_reads[0].reads), (read, true));
    assert!(report.early_reads.iter().all(|it| it.node != copied));

    let capture = b.begin(s);
    let block = b.allocate(s);
    b.fill(s, block.address);
    b.engine.observe(s).unwrap();
    b.copy(s, block.address, HOST);
    b.engine.observe(s).unwrap();
    remove_last_edge(&b.driver, s);
    free(&b, &[block]);
    assert!(b.finish(s, capture).early_reads.is_empty());
}

#[test]
fn it_is_asked_for_by_a_setting_and_by_a_call() {
    let (b, [s], capture) = bench(Config::default().find_late_uses(false)).capturing();
    let block = b.allocate(s);
    let copy = b.copy(s, block.address, HOST);
    free(&b, &[block]);
    let journal = b.engine.host().journal(capture).unwrap().unwrap();
    let graph = b.graph(s);
    let report = b.finish(s, capture);
    assert!(report.early_reads.is_empty(), "the setting is off by default");
    let search = Search { early_reads: true, ..Search::default() };
    let called = find(&journal, &*b.driver, graph, search).unwrap();
    assert_eq!(found(&called.early_reads), [(copy, block.address, true)]);
    assert!(called.late_uses.is_empty());
    let nothing = find(&journal, &*b.driver, graph, Search::default()).unwrap();
    assert_eq!(nothing, Default::default());
    assert_eq!(b.driver.node_kind(copy).unwrap(), NodeKind::COPY);
    assert!(b.reserved() >= 4 * MIB);
}
