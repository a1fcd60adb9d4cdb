//! Memory that is there already.
//!
//! A held piece is mapped whole, so it serves where a piece of the plan is as large, or where one can
//! be cut into it and others. Each cut is one more mapping wherever the piece is mapped.

use std::collections::{BTreeMap, BTreeSet};

use super::pieces::Layout;

/// A part of a piece: its pages, and which of the held ones it is.
pub(super) type Part = (u64, Option<u32>);

/// Cuts each piece of the layout into held ones and a new rest. `held` are sizes in pages with their
/// names; at most `spare` mappings are added.
pub(super) fn fit(layout: &Layout, held: &[(u64, u32)], spare: usize) -> Vec<Vec<Part>> {
    let mut uses = vec![0; layout.pieces.len()];
    for (_, piece) in &layout.mappings {
        uses[*piece as usize] += 1;
    }
    let mut by_size: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for &(pages, name) in held.iter().rev() {
        by_size.entry(pages).or_default().push(name);
    }
    let mut parts: Vec<Vec<Part>> = vec![Vec::new(); layout.pieces.len()];
    // What is still without memory: by what is missing, then by what a cut costs.
    let mut open: BTreeSet<(u64, usize, usize)> = BTreeSet::new();
    for (piece, &(pages, lasting)) in layout.pieces.iter().enumerate() {
        if lasting {
            continue;
        }
        match by_size.get_mut(&pages).and_then(Vec::pop) {
            Some(name) => parts[piece].push((pages, Some(name))),
            None => drop(open.insert((pages, uses[piece], piece))),
        }
    }
    let mut spare = spare;
    for (&pages, names) in by_size.iter().rev() {
        for name in names.iter().rev() {
            // Where the least is left over; a piece that is filled needs no cut for a rest.
            let mut places = open.range((pages, 0, 0)..);
            let place = places.find(|(left, uses, _)| *left == pages || *uses <= spare).copied();
            let Some(place @ (left, uses, piece)) = place else { break };
            open.remove(&place);
            parts[piece].push((pages, Some(*name)));
            if left > pages {
                spare -= uses;
                open.insert((left - pages, uses, piece));
            }
        }
    }
    for (parts, &(pages, _)) in parts.iter_mut().zip(&layout.pieces) {
        let rest = pages - parts.iter().map(|part| part.0).sum::<u64>();
        if rest > 0 {
            parts.push((rest, None));
        }
    }
    parts
}
