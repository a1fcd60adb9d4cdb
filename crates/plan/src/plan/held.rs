//! Memory that is there already.
//!
//! A held piece is mapped whole, so it serves where a piece of the plan is as large, or where one can
//! be cut into it and others. Each cut is one more mapping wherever the piece is mapped.

use std::collections::{BTreeMap, BTreeSet};

use super::pieces::Layout;

/// What is at most so many pages is divided less.
const FEW: u64 = 8;
/// The most pages of a part.
const MOST: u64 = 16;

/// A part of a piece: its pages, and which of the held ones it is.
pub(super) type Part = (u64, Option<u32>);

/// Pieces that are there: their sizes in pages, and their names.
pub(super) struct HeldPages {
    /// Those that may hold what lasts.
    pub lasting: Vec<(u64, u32)>,
    pub others: Vec<(u64, u32)>,
}

/// Cuts each piece of the layout into held ones and a new rest, which may be divided. At most `spare` mappings are added.
///
/// What may hold what lasts goes there first. The rest of it serves what does not last, where nothing
/// else is left: from then on it can hold what lasts no more.
pub(super) fn fit(
    layout: &Layout,
    held: &HeldPages,
    spare: usize,
    divides: bool,
) -> Vec<Vec<Part>> {
    let mut fitting = Fitting::new(layout, spare);
    let left = fitting.place(&held.lasting, true);
    fitting.place(&held.others, false);
    fitting.place(&left, false);
    fitting.finish(divides)
}

struct Fitting<'a> {
    layout: &'a Layout,
    /// How many mappings may still be added.
    spare: usize,
    /// By piece: how often it is mapped, how many of its pages have no memory, and its parts.
    uses: Vec<usize>,
    missing: Vec<u64>,
    parts: Vec<Vec<Part>>,
}

impl<'a> Fitting<'a> {
    fn new(layout: &'a Layout, spare: usize) -> Self {
        let mut uses = vec![0; layout.pieces.len()];
        for (_, piece) in &layout.mappings {
            uses[*piece as usize] += 1;
        }
        let missing = layout.pieces.iter().map(|piece| piece.0).collect();
        Self { layout, spare, uses, missing, parts: vec![Vec::new(); layout.pieces.len()] }
    }

    fn put(&mut self, piece: usize, pages: u64, name: u32) {
        self.parts[piece].push((pages, Some(name)));
        self.missing[piece] -= pages;
    }

    /// Puts held pieces where something lasts, or where nothing does. Returns those left over.
    fn place(&mut self, held: &[(u64, u32)], lasting: bool) -> Vec<(u64, u32)> {
        let mut by_size: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for &(pages, name) in held.iter().rev() {
            by_size.entry(pages).or_default().push(name);
        }
        // What is still without memory: by what is missing, then by what a cut costs.
        let mut open: BTreeSet<(u64, usize, usize)> = BTreeSet::new();
        for (piece, &(_, lasts)) in self.layout.pieces.iter().enumerate() {
            let missing = self.missing[piece];
            if lasts != lasting || missing == 0 {
                continue;
            }
            match by_size.get_mut(&missing).and_then(Vec::pop) {
                Some(name) => self.put(piece, missing, name),
                None => drop(open.insert((missing, self.uses[piece], piece))),
            }
        }
        let mut left = Vec::new();
        for (&pages, names) in by_size.iter().rev() {
            for &name in names.iter().rev() {
                // Where the least is left over; a piece that is filled needs no cut for a rest.
                let mut places = open.range((pages, 0, 0)..);
                let place =
                    places.find(|(left, uses, _)| *left == pages || *uses <= self.spare).copied();
                let Some(place @ (missing, uses, piece)) = place else {
                    left.push((pages, name));
                    continue;
                };
                open.remove(&place);
                self.put(piece, pages, name);
                if missing > pages {
                    self.spare -= uses;
                    open.insert((missing - pages, uses, piece));
                }
            }
        }
        left
    }

    /// What is still missing is new; it may be divided where each cut takes no more mappings than there are pages
    /// that may fit elsewhere for it.
    fn finish(mut self, divides: bool) -> Vec<Vec<Part>> {
        for (piece, parts) in self.parts.iter_mut().enumerate() {
            let (mut rest, uses) = (self.missing[piece], self.uses[piece]);
            let pays = uses as u64 <= rest;
            while divides && pays && rest > 1 && self.spare >= uses {
                let part = rest.div_ceil(if rest > FEW { 4 } else { 3 }).min(MOST);
                parts.push((part, None));
                rest -= part;
                self.spare -= uses;
            }
            if rest > 0 {
                parts.push((rest, None));
            }
        }
        self.parts
    }
}
