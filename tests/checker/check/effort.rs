//! What the judge takes in steps, of captures of which all but a few steps would be too many.

use regraph_record::effort::spent;

use super::*;

/// The steps of judging a capture, twice as [`Scene::check`] does.
fn effort(scene: &Scene, legal: bool) -> u64 {
    let before = spent();
    assert_eq!(scene.deny().is_ok(), legal);
    spent() - before
}

/// One stream waits for all others, one after another, without a node in between.
#[test]
fn joins_take_steps_for_each_terminal() {
    let streams = 300;
    let mut scene = Scene::new();
    scene.node(0, &[]);
    (1..=streams).for_each(|it| {
        scene.node(it, &[0]).look(it, &[it]);
    });
    scene.look(0, &[0]).allocate(1, 0);
    let (mut terminals, mut told) = (vec![0], 0);
    for it in (1..=streams).rev() {
        terminals.push(it);
        scene.look(0, &terminals);
        told += terminals.len() as u64;
    }
    // What they all lead to depends on them in another order.
    terminals.sort_unstable();
    scene.node(streams + 1, &terminals).look(0, &[streams + 1]).free(1);
    let effort = effort(&scene, true);
    assert!(effort <= 8 * told, "{effort} steps for {told} terminals");
}
