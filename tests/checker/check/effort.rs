//! What the judge takes in steps, of captures of which all but a few steps would be too many.

use regraph_record::effort::spent;

use super::*;

/// The steps of judging a capture, twice as [`Scene::check`] does.
fn effort(scene: &Scene, legal: bool) -> u64 {
    effort_under(Programmatic::Deny, scene, legal)
}

fn effort_under(policy: Programmatic, scene: &Scene, legal: bool) -> u64 {
    let before = spent();
    assert_eq!(scene.check(policy).is_ok(), legal);
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

/// A stream whose blocks another one takes over and gives back, and a third on which one launch comes behind an edge.
fn handed_over(edge: EdgeData) -> Scene {
    let mut scene = Scene::new();
    scene.node(0, &[]).node(1, &[0]).look(0, &[0]).look(1, &[0]).look(2, &[1]);
    let mut last = 0;
    for block in 1..1000 {
        let (stream, node) = (block % 2, 1 + block + usize::from(block > 500));
        scene.look(stream, &[last]).allocate(block as u64, stream).node(node, &[last]);
        scene.look(stream, &[node]).free(block as u64);
        last = node;
        if block == 500 {
            scene.edges(502, &[(1, edge)]).look(2, &[502]);
        }
    }
    scene
}

#[test]
fn an_edge_that_proves_no_completion_takes_steps_for_what_is_there_at_the_time() {
    for policy in [Programmatic::Deny, Programmatic::Auto] {
        let [full, late] = [FULL, LATE].map(|edge| effort_under(policy, &handed_over(edge), true));
        assert!(late <= full + 100, "{policy:?}: {late} steps, {full} without such an edge");
    }
}

/// Many nodes that no look saw, all behind the last that one did.
#[test]
fn nodes_that_no_look_saw_take_steps_for_each_edge() {
    let scene = |count: usize, chain: bool| {
        let mut scene = Scene::new();
        scene.node(0, &[]).look(0, &[0]);
        for block in 1..=count {
            scene
                .allocate(block as u64, 0)
                .node(block, &[block - 1])
                .look(0, &[block])
                .free(block as u64);
        }
        (count + 1..=2 * count).for_each(|it| {
            scene.node(it, &[if chain { it - 1 } else { count }]);
        });
        scene.marked(true, false);
        scene
    };
    for chain in [false, true] {
        let [few, many] = [100, 1000].map(|count| effort(&scene(count, chain), chain));
        assert!(many <= 20 * few + 1_000, "{many} steps for ten times as many nodes as take {few}");
    }
}
