//! Random bindings against the naive definition, and right ones with two pages swapped.

use regraph_check::Common;

use super::*;

/// A binding: address, bytes, memory, offset.
type Binding = (u64, u64, u64, u64);

fn with(scene: &Scene, bindings: &[Binding], shared: &[(u64, u64, u64, bool)]) -> Scene {
    let mut scene = scene.clone();
    for &(address, bytes, memory, offset) in bindings {
        scene.bound(address, bytes, memory, offset);
    }
    for &(memory, bytes, graph, output_freed) in shared {
        scene.shared_with(memory, bytes, graph);
        if output_freed {
            scene.output_freed(memory, graph);
        }
    }
    scene
}

/// The same with everything that binds somewhere else in the journal.
fn shuffled(u: &mut Unstructured<'_>, scene: &Scene) -> Drawn<Scene> {
    let binds = |entry: &Entry<'_>| {
        matches!(entry, Entry::Bound { .. } | Entry::Shared { .. } | Entry::OutputFreed { .. })
    };
    let mut early: Vec<Entry<'_>> = scene.journal.iter().filter(binds).collect();
    let mut shuffled = Scene { finished: scene.finished.clone(), ..Scene::new() };
    for entry in scene.journal.iter().filter(|entry| !binds(entry)) {
        if !early.is_empty() && u.ratio(1, 5)? {
            let at = u.choose_index(early.len())?;
            shuffled.journal.push(early.swap_remove(at));
        }
        shuffled.journal.push(entry);
    }
    early.into_iter().for_each(|entry| shuffled.journal.push(entry));
    Ok(shuffled)
}

/// Pages of all addresses that blocks may lie at, each bound somewhere or nowhere.
fn any_bindings(u: &mut Unstructured<'_>, reach: u64) -> Drawn<Vec<Binding>> {
    let page = u.int_in_range(1..=4)?;
    let mut bindings = Vec::new();
    for address in (0..reach + 2).step_by(page as usize) {
        if u.ratio(1, 6)? {
            continue;
        }
        // A page may lie askew in a memory, and be told of in part, or twice.
        let offset = if u.ratio(1, 8)? { u.int_in_range(0..=3)? } else { 0 };
        let bytes = if u.ratio(1, 8)? { u.int_in_range(0..=page + 1)? } else { page };
        let binding = (address, bytes, u.int_in_range(0..=5)?, offset);
        bindings.push(binding);
        if u.ratio(1, 30)? {
            bindings.push(binding);
        }
    }
    Ok(bindings)
}

/// What the random tests came to.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn count(&mut self, answer: &std::result::Result<Summary, Violation>) {
        let memory = |common: &Common| matches!(common, Common::Memory { .. });
        let kind = match answer {
            Ok(Summary { pairs: 0, .. }) => "legal, no pairs",
            Ok(_) => "legal",
            Err(Violation::NotOrdered { common, .. }) if memory(common) => "not ordered",
            Err(Violation::LiveOverlap { common, .. }) if memory(common) => "live",
            Err(Violation::OutsideUse { common, .. }) if memory(common) => "outside",
            Err(Violation::Standing { common, .. }) if memory(common) => "standing",
            Err(Violation::Unattributed { common, .. }) if memory(common) => "stray",
            Err(Violation::Folded { .. }) => "folded",
            Err(Violation::Overwritten { .. }) => "overwritten",
            Err(Violation::BoundTwice { .. }) => "twice",
            Err(Violation::BoundBeyond { .. }) => "beyond",
            Err(_) => "by address",
        };
        *self.0.entry(kind).or_default() += 1;
    }
}

#[test]
fn random_bindings_agree_with_the_naive_definition() {
    let mut tally = Tally::default();
    cases(900, 512..=4_096, |u| {
        let (scene, reach) = match u.arbitrary()? {
            true => busy(u)?,
            false => (play(u, 8)?, 8),
        };
        let bindings = any_bindings(u, reach)?;
        let mut shared = Vec::new();
        for memory in 0..6 {
            while u.ratio(1, 12)? {
                let graph = u.int_in_range(0..=2)?;
                shared.push((memory, u.int_in_range(3..=8)?, graph, u.arbitrary()?));
            }
        }
        let scene = with(&scene, &bindings, &shared);
        let scene = shuffled(u, &scene)?;
        for &policy in Programmatic::ALL {
            tally.count(&agree(&scene, policy));
        }
        Ok(())
    });
    println!("{tally:?}");
    assert!(tally.0.contains_key("legal"), "{tally:?}");
}

/// A capture that is right by itself: each block has an address of its own. Answers where the addresses end.
fn busy(u: &mut Unstructured<'_>) -> Drawn<(Scene, u64)> {
    let mut scene = Scene::new();
    let mut ends = vec![BTreeSet::from([0]); u.int_in_range(1..=3)?];
    scene.node(0, &[]);
    let look = |scene: &mut Scene, ends: &[BTreeSet<usize>], on: usize| {
        scene.look(on, &ends[on].iter().copied().collect::<Vec<_>>());
    };
    (0..ends.len()).for_each(|on| look(&mut scene, &ends, on));
    let (mut live, mut numbers, mut address) = (Vec::new(), 0, 0);
    for _ in 0..u.int_in_range(10..=40)? {
        let on = u.choose_index(ends.len())?;
        let action = u.int_in_range(0..=9)?;
        match action {
            0..=2 => {
                look(&mut scene, &ends, on);
                numbers += 1;
                let bytes = u.int_in_range(1..=3)?;
                scene.allocate_at(numbers, on, address, bytes);
                address += bytes;
                live.push((numbers, vec![on]));
            }
            3..=5 if !live.is_empty() => {
                let at = u.choose_index(live.len())?;
                let (block, streams) = live.swap_remove(at);
                streams.into_iter().for_each(|stream| look(&mut scene, &ends, stream));
                scene.free(block);
            }
            6 => {
                let from = ends[on].clone();
                let to = u.choose_index(ends.len())?;
                ends[to].extend(from);
            }
            7 if !live.is_empty() => {
                let at = u.choose_index(live.len())?;
                scene.used(live[at].0, on);
                live[at].1.push(on);
                let point = ends[live[at].1[0]].clone();
                ends[on].extend(point);
            }
            _ => {}
        }
        if !matches!(action, 3..=6) {
            let number = scene.finished.nodes.len();
            scene.node(number, &ends[on].iter().copied().collect::<Vec<_>>());
            ends[on] = BTreeSet::from([number]);
        }
    }
    (0..ends.len()).for_each(|on| look(&mut scene, &ends, on));
    Ok((scene, address))
}

/// Binds page after page to a memory that others have already, where that is right.
fn right_bindings(u: &mut Unstructured<'_>, scene: &Scene, end: u64) -> Drawn<Vec<Binding>> {
    let page = u.int_in_range(1..=4)?;
    let mut bindings: Vec<Binding> = Vec::new();
    let mut memories = 0;
    for address in (0..end).step_by(page as usize) {
        let first = u.int_in_range(0..=memories)?;
        for memory in (0..memories).map(|number| (first + number) % memories).chain([memories]) {
            bindings.push((address, page, memory, 0));
            if with(scene, &bindings, &[]).deny().is_ok() {
                memories = memories.max(memory + 1);
                break;
            }
            bindings.pop();
        }
    }
    Ok(bindings)
}

#[test]
fn a_right_binding_with_two_pages_swapped_is_refused_if_it_is_wrong() {
    let mut tally = Tally::default();
    let (mut right, mut aliased) = (0, 0);
    cases(250, 512..=4_096, |u| {
        let (scene, end) = busy(u)?;
        let before = agree(&scene, Programmatic::Deny).expect("nothing is shared");
        let bindings = right_bindings(u, &scene, end)?;
        let bound = with(&scene, &bindings, &[]);
        let summary = agree(&bound, Programmatic::Deny).expect("right");
        right += 1;
        aliased += usize::from(summary.pairs > before.pairs);
        for _ in 0..4 {
            if bindings.is_empty() {
                break;
            }
            let mut swapped = bindings.clone();
            let (one, other) = (u.choose_index(swapped.len())?, u.choose_index(swapped.len())?);
            (swapped[one].2, swapped[other].2) = (swapped[other].2, swapped[one].2);
            // Or moved within its memory.
            if u.ratio(1, 4)? {
                swapped[one].3 += u.int_in_range(1..=2)?;
            }
            let swapped = shuffled(u, &with(&scene, &swapped, &[]))?;
            tally.count(&agree(&swapped, Programmatic::Deny));
        }
        Ok(())
    });
    println!("{right} right, {aliased} of them with memory at several addresses; then {tally:?}");
    assert!(aliased > 0 && tally.0.contains_key("legal"));
}
