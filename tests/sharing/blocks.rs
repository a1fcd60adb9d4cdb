//! Blocks that other processes and other devices map: engines on one simulated machine stand for the processes.

use std::sync::Arc;

use super::exportable;
use crate::common::{bench, bench_on, Bench, MIB};
use regraph::driver::{Descriptor, Driver, ErrorKind, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{
    Block, Config, Engine, Error, GraphId, ImportId, Lent, PoolConfig, PoolRefusal, Shared,
    SharedPiece, SharingRefusal, Unknown, WhyNotShared,
};
use regraph::regions::{Regions, Tags};
use regraph::settings::{PlanChoice, Settings};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};
use regraph_testing::Given;

/// Another process on the same device.
fn other(b: &Bench) -> Engine<Arc<SimDriver>> {
    Engine::new(b.driver.clone(), exportable())
}

fn pieces(b: &Bench, block: Block) -> (u64, Vec<SharedPiece>) {
    match b.engine.sharing().share(block.id).unwrap() {
        Shared::Pieces { offset, pieces } => (offset, pieces),
        shared => panic!("{shared:?}"),
    }
}

/// What is sent: sizes and descriptors, as copies in the other process.
fn sent(pieces: &[SharedPiece]) -> Vec<(u64, Descriptor)> {
    let copy = |piece: &SharedPiece| piece.export.descriptor().try_clone().unwrap();
    pieces.iter().map(|piece| (piece.bytes, copy(piece))).collect()
}

fn import(
    engine: &Engine<Arc<SimDriver>>,
    sent: &[(u64, Descriptor)],
) -> Result<(ImportId, u64), Error> {
    let pieces: Vec<_> = sent.iter().map(|(bytes, descriptor)| (*bytes, descriptor)).collect();
    engine.sharing().import(&pieces)
}

fn write(b: &Bench, stream: StreamHandle, (address, bytes): (u64, u64), tag: u64) {
    let outputs = [Tagged { address, bytes, tag }];
    b.driver.launch(stream, Work { outputs: &outputs, ..Work::default() }, false).unwrap();
}

fn holds(b: &Bench, (address, bytes): (u64, u64), tag: u64) -> bool {
    b.driver.synchronize().unwrap();
    b.driver.read_tags(address, bytes).unwrap().iter().all(|&found| found == tag)
}

/// Why a block is not shared, and the words for that.
fn why_not_shared(b: &Bench, block: Block) -> (WhyNotShared, String) {
    let error = b.engine.sharing().share(block.id).unwrap_err();
    let text = error.to_string();
    match error {
        Error::Sharing { why: SharingRefusal::NotShared { why, .. }, .. } => (why, text),
        error => panic!("{error}"),
    }
}

fn planned(plan: PlanChoice) -> Bench {
    bench(Config::default().settings(Settings::default().exportable(true).plan(plan)))
}

/// A bench that maps ahead.
fn growing() -> Bench {
    let settings = Settings::default().exportable(true).growth_step_bytes(Some(64 * MIB));
    bench(Config::default().settings(settings))
}

/// Four blocks of 8 MiB, each with a kernel behind its allocation.
fn four_blocks(b: &Bench, stream: StreamHandle) -> [Block; 4] {
    [(); 4].map(|()| {
        let block = b.engine.allocate(b.pool, 8 * MIB, stream).unwrap();
        b.launch(stream);
        block
    })
}

fn with_block() -> (Bench, StreamHandle, Block) {
    let (b, [s]) = bench(exportable()).with_streams();
    let block = b.allocate(s);
    (b, s, block)
}

#[test]
fn another_process_reads_and_writes_a_block() {
    let (b, [s, t]) = bench(exportable()).with_streams();
    let first = b.engine.allocate(b.pool, 3 * MIB, s).unwrap();
    let second = b.engine.allocate(b.pool, 5 * MIB, s).unwrap();
    write(&b, s, (second.address, second.bytes), 7);
    let (offset, pieces) = pieces(&b, second);
    let theirs = other(&b);
    let (id, address) = import(&theirs, &sent(&pieces)).unwrap();
    let there = (address + offset, second.bytes);
    assert!(holds(&b, there, 7), "they see what was written here");
    write(&b, t, there, 8);
    assert!(holds(&b, (second.address, second.bytes), 8), "and the other way");
    let all: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    assert_eq!(b.driver.behind(address, all), b.driver.behind(second.address - offset, all));
    assert!(!theirs.host().owns(address), "nothing of it is handed out there");
    assert_eq!(theirs.statistics().unwrap().all.reserved_bytes.current, 0);
    theirs.sharing().close_import(id).unwrap();
    theirs.sharing().close_import(id).unwrap();
    assert_eq!(b.driver.behind(address, all), None);
    b.engine.free(first.id).unwrap();
    b.engine.free(second.id).unwrap();
}

#[test]
fn a_piece_is_exported_once() {
    let (b, [s]) = bench(exportable()).with_streams();
    let blocks: [Block; 2] =
        std::array::from_fn(|_| b.engine.allocate(b.pool, 3 * MIB, s).unwrap());
    let serials = |block| {
        let (_, pieces) = pieces(&b, block);
        pieces.iter().map(|piece| piece.export.serial()).collect::<Vec<_>>()
    };
    let [one, two] = blocks.map(serials);
    assert_eq!(one, serials(blocks[0]));
    assert_eq!(one[0], two[0], "both lie on the first piece");
    assert_eq!(two.len(), 2);
    assert_eq!(b.driver.calls(Call::Export), 2);
    // A block of the stream cache is shared as any other.
    b.engine.free(blocks[0].id).unwrap();
    let again = b.engine.allocate(b.pool, 3 * MIB, s).unwrap();
    assert_eq!(again.address, blocks[0].address);
    assert_eq!(serials(again), one);
    let refused = b.engine.sharing().share(blocks[0].id);
    assert!(matches!(refused, Err(Error::Unknown { what: Unknown::Block(_), .. })));
}

#[test]
fn what_is_unmapped_here_lives_on_there() {
    let (b, s, block) = with_block();
    write(&b, s, (block.address, block.bytes), 3);
    b.driver.synchronize().unwrap();
    let (offset, shared) = pieces(&b, block);
    let export = Arc::downgrade(&shared[0].export);
    let theirs = other(&b);
    let (id, address) = import(&theirs, &sent(&shared)).unwrap();
    drop(shared);
    b.engine.free(block.id).unwrap();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.engine.statistics().unwrap().all.reserved_bytes.current, 0);
    assert!(export.upgrade().is_none(), "the descriptor is closed with the piece");
    assert!(b.driver.used_bytes() > 0, "the memory is theirs now");
    assert!(holds(&b, (address + offset, block.bytes), 3));
    let next = b.allocate(s);
    write(&b, s, (next.address, next.bytes), 4);
    assert!(holds(&b, (address + offset, block.bytes), 3), "new memory, other contents");
    theirs.sharing().close_import(id).unwrap();
    b.engine.free(next.id).unwrap();
    b.driver.synchronize().unwrap();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.driver.used_bytes(), 0);
}

#[test]
fn the_other_order_of_ends() {
    let (b, s, block) = with_block();
    let (_, shared) = pieces(&b, block);
    let sent = sent(&shared);
    let theirs = other(&b);
    let (first, one) = import(&theirs, &sent).unwrap();
    let (second, two) = import(&theirs, &sent).unwrap();
    assert_ne!(one, two, "each import has addresses of its own");
    theirs.sharing().close_import(first).unwrap();
    assert!(b.driver.behind(two, 4 * MIB).is_some());
    theirs.sharing().close_import(second).unwrap();
    write(&b, s, (block.address, block.bytes), 9);
    assert!(holds(&b, (block.address, block.bytes), 9));
    // An import that is left stays with the driver.
    import(&theirs, &sent).unwrap();
    drop(theirs);
    drop(shared);
    b.engine.free(block.id).unwrap();
    b.driver.synchronize().unwrap();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.driver.used_bytes(), 4 * MIB);
}

#[test]
fn memory_that_was_not_made_for_it_is_refused() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let block = b.allocate(s);
    let (why, text) = why_not_shared(&b, block);
    assert!(matches!(why, WhyNotShared::NotExportable));
    assert!(text.contains("exportable:True"), "{text}");
    assert_eq!(b.driver.calls(Call::Export), 0);
}

#[test]
fn memory_of_a_source_of_the_host_s_is_refused() {
    let (b, [s]) = bench(exportable()).with_streams();
    let pool =
        b.engine.create_pool(PoolConfig::default().source(Arc::new(Given::new(b.driver.clone()))));
    let block = b.engine.allocate(pool, 4 * MIB, s).unwrap();
    assert!(matches!(why_not_shared(&b, block).0, WhyNotShared::FromSource));
    // Nor is it opened to other devices: the source does that.
    b.driver.add_device(SimConfig::default());
    let calls = b.driver.calls(Call::SetAccess);
    b.engine.sharing().open_to(1).unwrap();
    assert_eq!(b.driver.calls(Call::SetAccess), calls);
    b.engine.free(block.id).unwrap();
}

#[test]
fn suspended_memory_is_refused_and_new_memory_is_another() {
    let (b, _, block) = with_block();
    let (_, before) = pieces(&b, block);
    let (serial, export) = (before[0].export.serial(), Arc::downgrade(&before[0].export));
    drop(before);
    b.driver.synchronize().unwrap();
    b.engine.host().suspend_discarding_all(b.pool).unwrap();
    assert!(export.upgrade().is_none(), "or the memory would not go");
    assert_eq!(b.driver.used_bytes(), 0);
    assert!(matches!(why_not_shared(&b, block).0, WhyNotShared::Suspended));
    b.engine.host().resume_pool(b.pool).unwrap();
    let (_, after) = pieces(&b, block);
    assert_ne!(after[0].export.serial(), serial);
}

#[test]
fn memory_that_comes_at_the_end_of_a_capture_is_refused() {
    let (b, [s], capture) = planned(PlanChoice::Exact).capturing();
    let block = b.allocate(s);
    let refused = || {
        let (why, text) = why_not_shared(&b, block);
        assert!(matches!(why, WhyNotShared::Planned));
        assert!(text.contains("plan:none"), "{text}");
    };
    refused();
    b.launch(s);
    b.end(s, capture);
    refused();
}

#[test]
fn a_shared_piece_is_not_exchanged_at_the_end() {
    let (b, [s], capture) = growing().capturing();
    let blocks = four_blocks(&b, s);
    let held = b.driver.used_bytes();
    assert!(held > 32 * MIB, "something was mapped ahead");
    let behind = |block: Block| b.driver.behind(block.address, block.bytes).unwrap();
    let before = behind(blocks[3]);
    let (offset, shared) = pieces(&b, blocks[3]);
    let theirs = other(&b);
    let (_, address) = import(&theirs, &sent(&shared)).unwrap();
    b.end(s, capture);
    assert_eq!(behind(blocks[3]), before, "its memory has not moved");
    assert_eq!(b.driver.behind(address + offset, blocks[3].bytes), Some(before));
    assert_eq!(b.driver.used_bytes(), held);
    assert_eq!(b.engine.statistics().unwrap().all.reserved_bytes.current, held);
}

/// A graph with an output and a temporary block, whose memory others have got by handles of their own after its capture.
fn graph_with_exported_memory(b: &Bench, stream: StreamHandle) -> (GraphId, Block, Block) {
    let capture = b.begin(stream);
    let output = b.allocate(stream);
    let temporary = b.engine.allocate(b.pool, 24 * MIB, stream).unwrap();
    b.launch_and_free(stream, temporary);
    let report = b.end(stream, capture);
    // It was freed in the capture: what others have is named by its address.
    assert!(b.engine.sharing().keep_exported(temporary.address, temporary.bytes).unwrap());
    (report.graph, output, temporary)
}

fn is_exported(error: &Error) -> bool {
    matches!(error, Error::Pool { why: PoolRefusal::Exported, .. })
        && error.to_string().contains("graphs are destroyed")
}

#[test]
fn what_others_have_exported_stays_behind_its_addresses() {
    let (b, [s, t]) = growing().with_streams();
    let (graph, output, temporary) = graph_with_exported_memory(&b, s);
    let behind = || b.driver.behind(temporary.address, temporary.bytes);
    let before = behind();
    assert!(before.is_some());
    // Trimming.
    b.engine.empty_cache().unwrap();
    assert_eq!(behind(), before);
    // Suspension, with and without blocks that are lost.
    assert!(is_exported(&b.engine.host().suspend_discarding_outputs(b.pool).unwrap_err()));
    assert!(is_exported(&b.engine.host().suspend_discarding_all(b.pool).unwrap_err()));
    assert!(!b.engine.host().is_suspended(b.pool).unwrap());
    // Lending: work outside captures is on the same memory.
    let lent = b.engine.host().lend(b.pool, 16 * MIB, t, Lent::Temporary).unwrap().unwrap();
    assert!((temporary.address..temporary.address + temporary.bytes).contains(&lent.address));
    assert_eq!(behind(), before);
    b.engine.free(lent.id).unwrap();
    b.driver.synchronize().unwrap();
    // A later capture grows the pool, and gives what it mapped ahead back.
    let capture = b.begin(s);
    let more: [Block; 4] = std::array::from_fn(|_| b.engine.allocate(b.pool, 24 * MIB, s).unwrap());
    b.launch(s);
    more.iter().for_each(|block| b.engine.free(block.id).unwrap());
    let later = b.end(s, capture).graph;
    assert_eq!(behind(), before);
    // Compaction has nothing to move here.
    assert_eq!(b.engine.host().compact_pool(b.pool).unwrap(), 0);
    assert_eq!(behind(), before);
    // When no block and no graph uses it, it goes, and is forgotten.
    b.engine.free(output.id).unwrap();
    for graph in [graph, later] {
        b.engine.release_graph(graph).unwrap();
    }
    b.driver.synchronize().unwrap();
    b.engine.empty_cache().unwrap();
    assert_eq!(behind(), None);
    let block = b.allocate(s);
    b.engine.free(block.id).unwrap();
    b.driver.synchronize().unwrap();
    assert!(b.engine.host().suspend_discarding_outputs(b.pool).unwrap() > 0);
}

#[test]
fn a_piece_that_is_exported_in_a_capture_is_not_exchanged_at_its_end() {
    let run = |exported: bool| {
        let (b, [s], capture) = growing().capturing();
        let blocks = four_blocks(&b, s);
        let last = blocks[3].address;
        let before = b.driver.behind(last, MIB).unwrap();
        assert!(!exported || b.engine.sharing().keep_exported(last, 1).unwrap());
        b.end(s, capture);
        b.driver.behind(last, MIB) == Some(before)
    };
    assert_eq!([true, false].map(run), [true, false]);
}

/// A call for several regions moves none where one of them has such memory; `wake` then has nothing to do.
#[test]
fn regions_with_exported_memory_do_not_sleep() {
    let b = bench(exportable());
    let engine = Arc::new(Engine::new(b.driver.clone(), exportable()));
    let regions = Regions::new(&engine);
    let [weights, graphs] = ["weights", "graphs"].map(|tag| {
        let pool = engine.create_pool(PoolConfig::default().tag(tag));
        engine.allocate(pool, 4 * MIB, b.streams::<1>()[0]).unwrap()
    });
    assert!(engine.sharing().keep_exported(graphs.address, graphs.bytes).unwrap());
    let behind = || [weights, graphs].map(|block| b.driver.behind(block.address, block.bytes));
    let before = behind();
    for slept in
        [regions.sleep(Tags::All), regions.sleep(&["graphs"]), regions.try_sleep(Tags::All)]
    {
        let error = slept.unwrap_err();
        assert!(is_exported(&error) && error.to_string().contains("\"graphs\""), "{error}");
    }
    assert_eq!(regions.wake(Tags::All).unwrap(), 0);
    assert_eq!(behind(), before);
    assert!(regions.sleep(&["weights"]).unwrap() > 0);
    // Behind the end of what is mapped there is none, nor has what sleeps any.
    let beyond = engine.sharing().keep_exported(graphs.address, 8 * MIB).unwrap_err();
    assert!(matches!(beyond, Error::NotKept { why: WhyNotShared::Absent, .. }), "{beyond}");
    let error = engine.sharing().keep_exported(weights.address, weights.bytes).unwrap_err();
    assert!(matches!(error, Error::NotKept { why: WhyNotShared::Suspended, .. }), "{error}");
    assert!(regions.wake(Tags::All).unwrap() > 0);
    assert_eq!(behind()[1], before[1]);
}

/// The documented exception: a block that the engine itself has shared may sleep. Others keep the old memory, and what
/// comes is another, with what the block held.
#[test]
fn shared_blocks_sleep_and_others_keep_the_old_memory() {
    let b = bench(exportable());
    let engine = Arc::new(Engine::new(b.driver.clone(), exportable()));
    let regions = Regions::new(&engine);
    let [s] = b.streams();
    let pool = engine.create_pool(PoolConfig::default().tag("weights"));
    let block = engine.allocate(pool, 4 * MIB, s).unwrap();
    write(&b, s, (block.address, block.bytes), 7);
    let Shared::Pieces { offset, pieces } = engine.sharing().share(block.id).unwrap() else {
        panic!()
    };
    let theirs = other(&b);
    let (_, address) = import(&theirs, &sent(&pieces)).unwrap();
    drop(pieces);
    let there = (address + offset, block.bytes);
    regions.sleep(Tags::All).unwrap();
    assert!(holds(&b, there, 7), "the old memory");
    regions.wake(Tags::All).unwrap();
    assert!(holds(&b, (block.address, block.bytes), 7), "what it held");
    write(&b, s, (block.address, block.bytes), 8);
    assert!(holds(&b, there, 7), "which others do not see any more");
}

/// Memory that comes at a capture's end is exchanged by later captures, so it is not promised to others.
#[test]
fn planned_memory_is_not_kept_for_others() {
    let (b, [s], capture) = planned(PlanChoice::Exact).capturing();
    let block = b.allocate(s);
    b.launch(s);
    let refused = || {
        let error = b.engine.sharing().keep_exported(block.address, block.bytes).unwrap_err();
        assert!(matches!(error, Error::NotKept { why: WhyNotShared::Planned, .. }));
        assert!(error.to_string().contains("plan:none"), "{error}");
    };
    refused();
    b.end(s, capture);
    refused();
    b.driver.synchronize().unwrap();
    // A block that has its memory at once, made for others to map, keeps it; also through a suspension before.
    let capture = b.begin(s);
    let fixed = b.engine.allocate_fixed(b.pool, 4 * MIB, s).unwrap();
    b.launch_and_free(s, fixed);
    let graph = b.end(s, capture).graph;
    assert!(b.engine.host().suspend_discarding_all(b.pool).unwrap() > 0);
    let error = b.engine.sharing().keep_exported(fixed.address, fixed.bytes).unwrap_err();
    assert!(matches!(error, Error::NotKept { .. }), "{error}");
    b.engine.host().resume_pool(b.pool).unwrap();
    let before = b.driver.behind(fixed.address, fixed.bytes);
    assert!(before.is_some() && b.driver.is_exportable(fixed.address));
    assert!(b.engine.sharing().keep_exported(fixed.address, fixed.bytes).unwrap());
    assert!(is_exported(&b.engine.host().suspend_discarding_all(b.pool).unwrap_err()));
    b.engine.host().compact_pool(b.pool).unwrap();
    assert_eq!(b.driver.behind(fixed.address, fixed.bytes), before);
    // With its graph it goes.
    b.engine.release_graph(graph).unwrap();
    b.driver.synchronize().unwrap();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.driver.behind(fixed.address, fixed.bytes), None);
    assert!(b.engine.host().suspend_discarding_all(b.pool).unwrap() > 0);
}

/// The arena of learned and repeated captures is memory as any other.
#[test]
fn the_arena_of_a_layout_stays() {
    let (b, [s]) = planned(PlanChoice::Auto).with_streams();
    let (_, _, temporary) = graph_with_exported_memory(&b, s);
    let before = b.driver.behind(temporary.address, temporary.bytes);
    let (_, _, again) = graph_with_exported_memory(&b, s);
    assert_eq!(b.driver.behind(temporary.address, temporary.bytes), before);
    assert!(b.driver.behind(again.address, again.bytes).is_some());
    assert!(is_exported(&b.engine.host().suspend_discarding_all(b.pool).unwrap_err()));
}

#[test]
fn only_memory_that_is_there_is_kept_for_others() {
    let (b, s, block) = with_block();
    assert!(!b.engine.sharing().keep_exported(64, 1).unwrap(), "others' memory");
    let refused = b.engine.sharing().keep_exported(block.address, 0);
    assert!(matches!(refused, Err(Error::ZeroBytes { .. })));
    // Memory in the middle goes back.
    let [low, middle, _high] = [(); 3].map(|()| b.engine.allocate(b.pool, 2 * MIB, s).unwrap());
    b.engine.free(middle.id).unwrap();
    b.driver.synchronize().unwrap();
    assert_eq!(b.engine.empty_cache().unwrap().released, 2 * MIB);
    let beyond = [u64::MAX, u64::MAX - block.address, 1 << 40].map(|it| (block.address, it));
    for (address, bytes) in beyond.into_iter().chain([(low.address, 6 * MIB)]) {
        let error = b.engine.sharing().keep_exported(address, bytes).unwrap_err();
        assert!(matches!(error, Error::NotKept { .. }), "{error}");
    }
    // Nothing was noted.
    b.driver.synchronize().unwrap();
    assert!(b.engine.host().suspend_discarding_all(b.pool).unwrap() > 0);
    // Whole allocations never move.
    let plain = SimConfig { total_bytes: 256 * MIB, support: MemorySupport::Allocated };
    let (b, [s]) = bench_on(plain, exportable()).with_streams();
    let block = b.allocate(s);
    assert!(b.engine.sharing().keep_exported(block.address, block.bytes).unwrap());
}

#[test]
fn whole_allocations_go_by_their_own_names() {
    let plain = SimConfig { total_bytes: 256 * MIB, support: MemorySupport::Allocated };
    let uncached = Config::default().settings(Settings::default().caching(false));
    for (device, config) in
        [(plain, Config::default()), (SimConfig::default(), uncached), (plain, exportable())]
    {
        let (b, [s]) = bench_on(device, config).with_streams();
        let _first = b.engine.allocate(b.pool, 600 << 10, s).unwrap();
        let block = b.engine.allocate(b.pool, 700 << 10, s).unwrap();
        let shared = b.engine.sharing().share(block.id).unwrap();
        let Shared::Allocation { address, offset } = shared else { panic!("{shared:?}") };
        assert_eq!(address + offset, block.address);
        let name = b.driver.export_allocation(address).unwrap();
        let there = b.driver.open_allocation(&name).unwrap() + offset;
        write(&b, s, (there, block.bytes), 5);
        assert!(holds(&b, (block.address, block.bytes), 5));
        b.driver.close_allocation(there - offset).unwrap();
    }
}

#[test]
fn every_call_of_an_import_may_fail() {
    let (b, [s]) = bench(exportable()).with_streams();
    let _first = b.engine.allocate(b.pool, 3 * MIB, s).unwrap();
    let block = b.engine.allocate(b.pool, 5 * MIB, s).unwrap();
    let sent = sent(&pieces(&b, block).1);
    assert_eq!(sent.len(), 2);
    let theirs = other(&b);
    let mut n = 0;
    loop {
        let used = b.driver.used_bytes();
        let before = b.driver.total_calls();
        b.driver.fail_any_nth(n, ErrorKind::InvalidValue);
        match import(&theirs, &sent) {
            Err(Error::Driver(error)) => assert_eq!(error.kind, ErrorKind::InvalidValue),
            Err(error) => panic!("{error}"),
            Ok((id, address)) => {
                let imported = b.driver.total_calls() - before;
                let closed = theirs.sharing().close_import(id);
                b.driver.forget_failures();
                assert!(n >= imported || closed.is_ok());
                if closed.is_err() {
                    // Whichever call failed, the import is gone.
                    theirs.sharing().close_import(id).unwrap();
                } else {
                    assert_eq!(b.driver.behind(address, 2 * MIB), None);
                    assert!(n > 10);
                    break;
                }
            }
        }
        assert_eq!(b.driver.used_bytes(), used);
        n += 1;
    }
    assert!(b.driver.behind(block.address, block.bytes).is_some());
}

#[test]
fn an_export_that_fails_leaves_the_block_as_it_is() {
    let (b, [s]) = bench(exportable()).with_streams();
    let _first = b.engine.allocate(b.pool, 3 * MIB, s).unwrap();
    let block = b.engine.allocate(b.pool, 5 * MIB, s).unwrap();
    for n in 0..2 {
        b.driver.fail_nth(Call::Export, n, ErrorKind::Other("too many open files".to_owned()));
        let error = b.engine.sharing().share(block.id).unwrap_err();
        assert!(error.to_string().contains("too many open files"), "{error}");
        // What was exported before that stays so.
    }
    assert_eq!(pieces(&b, block).1.len(), 2);
}

#[test]
fn what_is_another_engine_s_is_neither_closed_nor_offered() {
    let (b, _, block) = with_block();
    let (theirs, (_, shared)) = (other(&b), pieces(&b, block));
    let [(_, address), (id, _)] =
        [&b.engine, &theirs].map(|engine| import(engine, &sent(&shared)).unwrap());
    b.engine.sharing().close_import(id).unwrap();
    assert!(b.driver.behind(address, shared[0].bytes).is_some());
    b.engine.sharing().offer(&shared).unwrap();
    let refused = theirs.sharing().offer(&shared).unwrap_err();
    assert!(refused.to_string().contains("offered by another allocator"), "{refused}");
}

#[test]
fn nonsense_is_not_imported() {
    let (b, _, block) = with_block();
    let shared = pieces(&b, block).1;
    let descriptor = || shared[0].export.descriptor().try_clone().unwrap();
    let other_file: Descriptor = std::fs::File::open("/dev/null").unwrap().into();
    let reserved = b.driver.calls(Call::Reserve);
    for pieces in [vec![], vec![(0, descriptor())], vec![(MIB, descriptor())]] {
        assert!(import(&b.engine, &pieces).is_err());
    }
    let too_many = [(u64::MAX - 2 * MIB + 1, descriptor()), (2 * MIB, descriptor())];
    assert!(import(&b.engine, &too_many).is_err());
    assert_eq!(b.driver.calls(Call::Reserve), reserved, "refused before the driver");
    assert!(import(&b.engine, &[(2 * MIB, descriptor())]).is_err(), "another size");
    assert!(import(&b.engine, &[(4 * MIB, other_file)]).is_err());
    assert_eq!(b.driver.calls(Call::Reserve), b.driver.calls(Call::Unreserve) + reserved);
}

/// Two devices, and an engine on the first.
fn two_devices(config: Config) -> (Bench, Arc<SimDriver>) {
    let b = bench(config);
    let second = Arc::new(b.driver.add_device(SimConfig::default()));
    (b, second)
}

#[test]
fn another_device_touches_what_is_there_and_what_comes() {
    let plan = Settings::default().exportable(true).plan(PlanChoice::Exact);
    for config in [exportable(), Config::default(), Config::default().settings(plan)] {
        let (b, second) = two_devices(config);
        let [s] = b.streams();
        let capture = b.begin(s);
        let captured = b.allocate(s);
        b.launch(s);
        b.end(s, capture);
        let before = b.allocate(s);
        let reaches = |block: Block| second.behind(block.address, block.bytes).is_some();
        assert!(!reaches(before) && !reaches(captured));
        b.engine.sharing().open_to(1).unwrap();
        assert!(reaches(before) && reaches(captured));
        let after = b.engine.allocate(b.pool, 64 * MIB, s).unwrap();
        assert!(reaches(after));
        let calls = b.driver.total_calls();
        b.engine.sharing().open_to(1).unwrap();
        assert_eq!(b.driver.total_calls(), calls, "once is enough");
    }
}

/// The other device's context may have to be made, which takes long.
#[test]
fn others_go_on_while_memory_is_opened_to_a_device() {
    let (b, second) = two_devices(exportable());
    let [s] = b.streams();
    let (ask, asked) = std::sync::mpsc::channel();
    let (answer, answered) = std::sync::mpsc::channel();
    let answered = std::sync::Mutex::new(answered);
    b.driver.before("cuDeviceCanAccessPeer", move || {
        ask.send(()).unwrap();
        let answered = answered.lock().unwrap();
        answered.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for the engine");
    });
    let host = &b;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            asked.recv().unwrap();
            answer.send(host.allocate(s)).unwrap();
        });
        b.engine.sharing().open_to(1).unwrap();
    });
    let block = b.allocate(s);
    assert!(second.behind(block.address, block.bytes).is_some());
}

#[test]
fn imports_are_opened_to_other_devices_too() {
    let (b, second) = two_devices(exportable());
    let [s] = b.streams();
    let block = b.allocate(s);
    let sent = sent(&pieces(&b, block).1);
    let theirs = other(&b);
    let (_, early) = import(&theirs, &sent).unwrap();
    theirs.sharing().open_to(1).unwrap();
    let (_, late) = import(&theirs, &sent).unwrap();
    for address in [early, late] {
        assert!(second.behind(address, block.bytes).is_some());
    }
}

#[test]
fn access_that_fails_is_given_the_next_time() {
    let mut n = 0;
    loop {
        let (b, second) = two_devices(exportable());
        let [s] = b.streams();
        let blocks: [Block; 3] =
            std::array::from_fn(|n| b.engine.allocate(b.pool, (5 + n as u64) * MIB, s).unwrap());
        b.driver.fail_any_nth(n, ErrorKind::InvalidValue);
        let opened = b.engine.sharing().open_to(1);
        b.driver.forget_failures();
        b.engine.sharing().open_to(1).unwrap();
        for block in blocks {
            assert!(second.behind(block.address, block.bytes).is_some());
        }
        if opened.is_ok() {
            break;
        }
        n += 1;
    }
    assert_eq!(n, 4, "asking, and a call for each piece");
    let (b, _) = two_devices(exportable());
    assert!(b.engine.sharing().open_to(7).is_err(), "there is no such device");
}

#[test]
fn whole_allocations_are_opened_at_once() {
    let plain = SimConfig { total_bytes: 256 * MIB, support: MemorySupport::Allocated };
    let b = bench_on(plain, Config::default());
    let second = Arc::new(b.driver.add_device(plain));
    let [s] = b.streams();
    let block = b.allocate(s);
    assert!(second.behind(block.address, block.bytes).is_none());
    b.engine.sharing().open_to(1).unwrap();
    assert!(second.behind(block.address, block.bytes).is_some());
    let pool = b.engine.create_pool(PoolConfig::default());
    let next = b.engine.allocate(pool, 5 * MIB, s).unwrap();
    assert!(second.behind(next.address, next.bytes).is_some());
}
