//! Captures whose memory was bound at their end: one piece may lie behind several addresses.

use regraph_check::Common;

use super::*;

const PAGE: u64 = 0x1000;
const MEMORY: Common = Common::Memory { memory: 7, offset: 0 };

/// As `reuse_across`, but that block 2 has an address of its own. Nothing is bound yet.
fn apart(from: &[usize]) -> Scene {
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).node(2, from);
    scene.look(0, &[0]).look(1, &[0]).allocate_at(1, 0, 0, PAGE);
    scene.look(0, &[1]).free(1);
    scene.look(1, from).allocate_at(2, 1, PAGE, PAGE);
    scene.look(1, &[2]).free(2);
    scene
}

#[test]
fn one_memory_behind_two_addresses_needs_a_path() {
    apart(&[0]).legal(0);
    apart(&[0]).bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 8, 0).legal(0);
    // Two stretches of one memory.
    apart(&[0]).bound(0, 2 * PAGE, 7, 0).legal(0);
    let alias = |from| {
        let mut scene = apart(from);
        scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0);
        scene
    };
    alias(&[0, 1]).legal(1);
    alias(&[0]).not_ordered(1, 2);
    // One byte is enough.
    apart(&[0]).bound(PAGE - 1, 1, 7, 4).bound(PAGE + 5, 1, 7, 4).not_ordered(1, 2);
    apart(&[0]).bound(PAGE - 1, 1, 7, 4).bound(PAGE + 5, 1, 7, 5).legal(0);
}

#[test]
fn bindings_hold_wherever_they_come() {
    let scene = apart(&[0]);
    let mut first = Scene { finished: scene.finished.clone(), ..Scene::new() };
    first.bound(PAGE, PAGE, 7, 0).bound(0, PAGE, 7, 0);
    scene.journal.iter().for_each(|entry| first.journal.push(entry));
    first.not_ordered(1, 2);
}

#[test]
fn messages_name_the_memory() {
    let text = |scene: &Scene| scene.deny().expect_err("wrong").to_string();
    assert_eq!(
        text(apart(&[0]).bound(0, PAGE, 7, 0x40).bound(PAGE, PAGE, 7, 0x40)),
        "block 1 at 0x0+4096 (stream 0x50) may be used by node 0x1001, and block 2 at 0x1000+4096 \
         (stream 0x51), which shares physical memory 7 (from byte 0x40 on) with it, by node 0x1002: \
         no path of the graph makes the second wait for the first to complete; if edges were \
         removed or made programmatic after the blocks were handed out, put them back, or capture \
         without binding memory at the end"
    );
    assert_eq!(
        text(apart(&[0, 1]).bound(0, 0x800, 7, 0).bound(0x800, 0x800, 7, 0)),
        "block 1 at 0x0+4096 (stream 0x50) has physical memory 7 (from byte 0x0 on) at two of its \
         addresses, so that a write to one changes the other; map each piece of memory once within \
         a block"
    );
    let mut live = Scene::new();
    live.look(0, &[]).allocate_at(1, 0, 0, PAGE).allocate_at(2, 0, PAGE, PAGE);
    live.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0);
    assert_eq!(
        text(&live),
        "block 2 at 0x1000+4096 (stream 0x50) was handed out over block 1 at 0x0+4096 (stream 0x50) \
         on physical memory 7 (from byte 0x0 on), which had not been freed"
    );
}

#[test]
fn what_shares_an_address_is_judged_once() {
    let mut scene = reuse_across(&[0, 1]);
    scene.bound(0x10000, PAGE, 7, 0).legal(1);
    reuse_across(&[0]).bound(0x10000, PAGE, 7, 0).not_ordered(1, 2);
}

#[test]
fn live_blocks_share_no_memory() {
    let scene = |free: bool| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[1]);
        scene.look(0, &[0]).allocate_at(1, 0, 0, PAGE);
        scene.look(0, &[1]);
        if free {
            scene.free(1);
        }
        scene.allocate_at(2, 0, PAGE, PAGE).look(0, &[2]).free(2);
        if !free {
            scene.free(1);
        }
        scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0);
        scene
    };
    scene(true).legal(1);
    // Freed behind node 2, it may be used by that too.
    scene(false).not_ordered(2, 2);
}

#[test]
fn a_free_without_work_before_it_may_come_after_the_next_allocation() {
    // Block 1 is freed while block 2 is there, and nothing was launched in between.
    let scene = |free: bool| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[1]);
        scene.look(0, &[0]).allocate_at(1, 0, 0, PAGE);
        scene.look(0, &[1]).allocate_at(2, 0, PAGE, PAGE);
        if free {
            scene.free(1);
        }
        scene.look(0, &[2]).free(2);
        scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0);
        scene
    };
    scene(true).legal(1);
    let answer = scene(false).deny();
    assert!(matches!(answer, Err(Violation::LiveOverlap { common: MEMORY, .. })), "{answer:?}");
}

#[test]
fn blocks_without_users_have_no_memory() {
    // Block 2 is live beside block 1, but nothing uses it.
    let scene = |freed: bool| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]);
        scene.look(0, &[0]).look(1, &[0]).allocate_at(2, 1, PAGE, PAGE);
        if freed {
            scene.free(2);
        }
        scene.allocate_at(1, 0, 0, PAGE).allocate_at(3, 1, 2 * PAGE, PAGE).free(3);
        scene.look(0, &[1]).free(1);
        scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0).bound(2 * PAGE, PAGE, 7, 0);
        scene
    };
    scene(true).legal(0);
    // One that was not freed is the host's.
    let answer = scene(false).deny();
    assert!(matches!(answer, Err(Violation::LiveOverlap { common: MEMORY, .. })), "{answer:?}");
    // Nor do they carry an order from the block before them to the one behind them.
    let chain = |from: &[usize]| {
        let mut scene = apart(from);
        scene.allocate_at(3, 0, 2 * PAGE, PAGE).free(3);
        for address in [0, PAGE, 2 * PAGE] {
            scene.bound(address, PAGE, 7, 0);
        }
        scene
    };
    chain(&[0, 1]).legal(1);
    chain(&[0]).not_ordered(1, 2);
}

#[test]
fn outside_users_are_followed_by_nothing_on_their_memory() {
    let mut scene = apart(&[0, 1]);
    scene.outside(1).legal(0);
    scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0);
    let answer = scene.deny();
    assert!(matches!(answer, Err(Violation::OutsideUse { common: MEMORY, .. })), "{answer:?}");
}

#[test]
fn pages_at_a_boundary_are_shared_byte_by_byte() {
    // Blocks 1 and 2 meet in the middle of the second page; block 3 has a page to itself.
    let scene = |page: u64, from: &[usize]| {
        let mut scene = Scene::new();
        scene.node(0, &[]).node(1, &[0]).node(2, &[0]).node(3, from);
        scene.look(0, &[0]).look(1, &[0]);
        scene.allocate_at(1, 0, 0, PAGE * 3 / 2).allocate_at(2, 1, PAGE * 3 / 2, PAGE * 3 / 2);
        scene.look(0, &[1]).free(1).look(1, &[2]).free(2);
        scene.look(0, from).allocate_at(3, 0, 8 * PAGE, PAGE).look(0, &[3]).free(3);
        (0..3).for_each(|page| {
            scene.bound(page * PAGE, PAGE, page, 0);
        });
        scene.bound(8 * PAGE, PAGE, page, 0);
        scene
    };
    for (page, from, pairs) in [(0, &[1][..], 1), (1, &[1, 2], 2), (2, &[2], 1), (3, &[0], 0)] {
        scene(page, from).legal(pairs);
    }
    scene(0, &[2]).not_ordered(1, 3);
    scene(1, &[2]).not_ordered(1, 3);
    scene(1, &[1]).not_ordered(2, 3);
    scene(2, &[1]).not_ordered(2, 3);
}

#[test]
fn standing_memory_is_kept_clear_of_until_it_is_settled() {
    let standing = |scene: &Scene| {
        let answer = scene.deny();
        assert!(matches!(answer, Err(Violation::Standing { common: MEMORY, .. })), "{answer:?}");
    };
    let mut scene = apart(&[0]);
    scene.standing_at(9, 0x50000, PAGE).bound(0x50000, PAGE, 7, 0);
    scene.legal(0);
    scene.bound(0, PAGE, 7, 0);
    standing(&scene);
    // The memory comes at the end, so it is time enough to be gone by then.
    scene.settled(9).legal(0);

    let mut idle = Scene::new();
    idle.look(0, &[]).allocate(1, 0).standing_at(9, 0x50000, PAGE);
    idle.bound(0x10000, PAGE, 7, 0).bound(0x50000, PAGE, 7, 0);
    standing(&idle);
    idle.free(1).legal(0);
}

#[test]
fn what_lasts_is_not_overwritten_by_others() {
    let overwritten = |scene: &Scene, block: u64| {
        let answer = scene.deny();
        let is = matches!(
            answer,
            Err(Violation::Overwritten { block: place, memory: 7 }) if place.block.0 == block
        );
        assert!(is, "{answer:?}");
    };
    let bound = |mut scene: Scene| {
        scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 8, 0).bound(2 * PAGE, PAGE, 7, PAGE);
        scene.shared(7, 2 * PAGE);
        scene
    };
    let freed = bound(apart(&[0]));
    freed.legal(0);
    let mut lasting = freed.clone();
    // Where they lie counts, not whether anything uses them; and not only where others begin.
    overwritten(lasting.allocate_at(5, 0, 2 * PAGE + 5, 1), 5);
    overwritten(freed.clone().outside(1), 1);
    freed.clone().outside(2).legal(0);
    // A memory that nothing is bound to.
    freed.clone().shared(70, 1).legal(0);
    // The host has freed what the one graph left there, but not what another writes there.
    lasting.clone().output_freed(7, 0).legal(0);
    lasting.clone().output_freed(8, 0).deny().unwrap_err();
    overwritten(lasting.clone().output_freed(7, 1), 5);
    overwritten(lasting.clone().output_freed(7, 0).shared_with(7, 2 * PAGE, 1), 5);
    lasting.output_freed(7, 0).output_freed(7, 1).shared_with(7, 2 * PAGE, 1).legal(0);
}

#[test]
fn contradictory_bindings_are_refused() {
    let twice = |scene: &Scene, wanted: u64, pair: [u64; 2]| {
        let answer = scene.deny();
        let is = matches!(
            answer,
            Err(Violation::BoundTwice { address, memories }) if address == wanted && memories == pair
        );
        assert!(is, "{answer:?}");
    };
    let bound = || {
        let mut scene = apart(&[0]);
        scene.bound(PAGE, PAGE, 7, 0);
        scene
    };
    twice(bound().bound(PAGE, PAGE, 8, 0), PAGE, [7, 8]);
    twice(bound().bound(2 * PAGE - 1, 1, 7, 0), 2 * PAGE - 1, [7, 7]);
    twice(bound().bound(0, PAGE + 1, 9, 0), PAGE, [9, 7]);
    // Told again, in part or beyond; or beside; or of no length.
    bound().bound(PAGE, PAGE, 7, 0).legal(0);
    bound().bound(PAGE + 1, PAGE, 7, 1).bound(PAGE + 9, 1, 7, 9).legal(0);
    bound().bound(2 * PAGE, PAGE, 8, 0).bound(0, PAGE, 8, PAGE).legal(0);
    bound().bound(PAGE + 1, 0, 8, 0).legal(0);

    let beyond = |scene: &Scene, wanted: u64| {
        let answer = scene.deny();
        let is = matches!(
            answer,
            Err(Violation::BoundBeyond { address, memory: 7 }) if address == wanted
        );
        assert!(is, "{answer:?}");
    };
    beyond(bound().shared(7, PAGE - 1), PAGE);
    bound().shared(7, PAGE).legal(0);
    beyond(bound().shared(7, PAGE).bound(4 * PAGE, 1, 7, PAGE), 4 * PAGE);
    beyond(apart(&[0]).bound(u64::MAX, 2, 7, 0), u64::MAX);
    beyond(apart(&[0]).bound(0, 2, 7, u64::MAX - 1), 0);
}

#[test]
fn strays_are_refused_where_memory_is_shared() {
    let mut scene = apart(&[0, 1]);
    scene.node(3, &[1]).look(0, &[1]);
    scene.finished.nodes[3].1 = vec![(0, FULL)];
    scene.legal(0);
    scene.bound(0, PAGE, 7, 0).bound(PAGE, PAGE, 7, 0);
    let answer = scene.deny();
    assert!(matches!(answer, Err(Violation::Unattributed { common: MEMORY, .. })), "{answer:?}");
}
