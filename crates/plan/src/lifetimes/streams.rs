//! The streams of a journal: what each knows, and what it gained when.

use smallvec::SmallVec;

use super::clocks::{unite, Place, Proof};
use super::nodes::{NodeRow, Nodes};
use regraph_record::journal;

/// A point in the journal: how many facts come before.
pub(super) type Moment = usize;

/// Nodes.
pub(super) type Rows = SmallVec<[NodeRow; 4]>;

/// Of a chain, all up to a position lie behind the stream since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    at: Moment,
    pub(super) place: Place,
}

/// A node that a stream's next one would depend on.
#[derive(Clone, Copy, Debug)]
struct Terminal {
    node: NodeRow,
    /// What the edge would prove.
    proof: Proof,
    /// Whether it may turn out to prove a start alone.
    early: bool,
}

/// One stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    looked: bool,
    terminals: SmallVec<[Terminal; 4]>,
    /// By chain: how many first nodes have lain behind it at any look, over edges of any kind.
    seen: Vec<u32>,
    gains: Vec<Gain>,
    /// The last look at which it had been set back, or gone on behind an edge that proves nothing.
    broken: Option<Moment>,
    /// Kept for its capacity.
    done: Vec<u32>,
    behind: Vec<u32>,
}

impl Stream {
    /// Takes in the terminals that a look found.
    pub(super) fn look(
        &mut self,
        nodes: &mut Nodes<'_>,
        stream: usize,
        terminals: journal::Nodes<'_>,
        at: Moment,
    ) {
        self.looked = true;
        let old = std::mem::take(&mut self.terminals);
        for terminal in terminals.iter() {
            let (proof, early) = (nodes.proof(terminal.edge), nodes.starts_early(&terminal));
            let node = nodes.enter(terminal.node, stream);
            self.terminals.push(Terminal { node, proof, early });
        }
        let (clocks, terminals) = (&nodes.clocks, &self.terminals);
        for numbers in [&mut self.done, &mut self.behind] {
            numbers.clear();
            numbers.resize(clocks.chains(), 0);
        }
        terminals.iter().for_each(|it| unite(&mut self.done, clocks.done(it.node)));
        let done = &self.done;
        let behind = if clocks.are_proven() {
            done
        } else {
            terminals.iter().for_each(|it| unite(&mut self.behind, clocks.behind(it.node)));
            &self.behind
        };
        let met = |&Terminal { node, .. }: &Terminal| {
            let holds = |place: Place| done[place.chain as usize] >= place.position;
            clocks.place(node).is_some_and(holds)
        };
        let mut broken = !old.iter().all(met);
        self.seen.resize(clocks.chains(), 0);
        for (chain, (seen, &position)) in self.seen.iter_mut().zip(behind).enumerate() {
            if position > *seen {
                *seen = position;
                let place = Place { chain: chain as u32, position };
                self.gains.push(Gain { at, place });
                broken |= done[chain] < position;
            }
        }
        if broken {
            self.broken = Some(at);
        }
    }

    /// Whether it was ever looked at.
    pub(super) fn was_seen(&self) -> bool {
        self.looked
    }

    /// The terminals.
    pub(super) fn terminals(&self) -> impl Iterator<Item = NodeRow> + '_ {
        self.terminals.iter().map(|terminal| terminal.node)
    }

    /// The terminals whose edge to the next node proves something.
    pub(super) fn proving_terminals(&self) -> impl Iterator<Item = NodeRow> + '_ {
        let proving = self.terminals.iter().filter(|terminal| terminal.proof != Proof::Nothing);
        proving.map(|terminal| terminal.node)
    }

    /// Adds what is completed before the stream's next node starts.
    pub(super) fn know(&self, nodes: &Nodes<'_>, known: &mut [u32]) {
        for &Terminal { node, proof, early } in &self.terminals {
            match proof {
                Proof::Nothing => {}
                _ if early => unite(known, nodes.clocks.before(node)),
                _ => unite(known, nodes.clocks.done(node)),
            }
        }
    }

    /// What it gained after one moment and up to another.
    pub(super) fn gains(&self, after: Moment, to: Moment) -> impl Iterator<Item = &Gain> {
        let first = self.gains.partition_point(|gain| gain.at <= after);
        self.gains[first..].iter().take_while(move |gain| gain.at <= to)
    }

    /// Whether users of blocks in use on it may have escaped their markers since then.
    pub(super) fn broke(&self, after: Moment) -> bool {
        self.broken.is_some_and(|at| at > after)
    }
}
