//! Which nodes come after a block's allocation and before none of its free markers.

use std::cell::OnceCell;

use fixedbitset::FixedBitSet;

use super::late::{LateUse, Marker};
use super::touches::{stays, Touch, Touches};
use super::MOST;
use crate::reading::{BlockHistory, Graph, History, Marks, Order, NEVER};
use regraph_driver::{Driver, NodeHandle};

/// Blocks that the addresses of one round may have had, all together: what bounds its memory.
const ROUND: usize = 1 << 22;

/// So many of the blocks at an address are asked about one by one.
const NEAR: usize = 32;

/// What decides, by paths of edges of any kind.
pub(super) struct Judge<'a> {
    graph: &'a Graph<'a>,
    history: &'a History,
    order: Order<'a>,
    /// By stream, the entries at which it was seen set back.
    set_backs: OnceCell<Vec<Vec<u32>>>,
}

/// A touch that its own block does not explain.
struct Suspect {
    touch: Touch,
    /// The blocks at its address, the youngest first.
    blocks: Vec<u32>,
    /// The first of `blocks` whose allocation comes before the node is in here; found where the two
    /// are one, and there is none where that is the end.
    low: usize,
    high: usize,
}

/// A touch that comes too late.
#[derive(Clone, Copy)]
pub(super) struct Late {
    pub touch: Touch,
    /// The youngest block at its address whose allocation comes before it.
    pub block: u32,
    /// The one that lay there before.
    pub before: Option<u32>,
}

/// Whether `earlier` comes before `later`, asked for one row of an answer.
struct Question {
    row: u32,
    earlier: u32,
    later: u32,
}

impl<'a> Judge<'a> {
    pub fn new(graph: &'a Graph<'a>, history: &'a History) -> Self {
        let order = Order::new(graph.any());
        Self { graph, history, order, set_backs: OnceCell::new() }
    }

    /// The touches that come too late, each with its block.
    pub fn late(&self, touches: &Touches) -> Vec<Late> {
        let all = || touches.all.iter().copied().filter(|touch| !touch.end);
        let live: Vec<Touch> = all().filter(|touch| touch.live).collect();
        let pairs: Vec<_> = live.iter().map(|touch| (touch.node, touch.block)).collect();
        let mut users = self.come_after(&pairs);
        users.intersect_with(&self.come_before(&pairs));
        let strange = live.into_iter().enumerate().filter(|&(row, _)| !users.contains(row));
        let strange = strange.map(|(_, touch)| touch);
        let strange = strange.filter(|touch| !self.is_unreliable(touch.block));
        let gone = all().filter(|touch| !touch.live);
        let mut open: Vec<Touch> = strange.chain(gone).collect();
        open.sort_by_key(|touch| (touch.node, touch.address));

        let mut late = Vec::new();
        let mut rest = open.into_iter().peekable();
        while rest.peek().is_some() && late.len() < MOST {
            let mut suspects = Vec::new();
            let mut size = 0;
            while let Some(touch) = rest.next_if(|_| size < ROUND) {
                let blocks = touches.history_of(touch, &self.history.blocks);
                size += blocks.len();
                let high = blocks.len();
                suspects.push(Suspect { touch, blocks, low: 0, high });
            }
            late.extend(self.judge(suspects));
        }
        late.truncate(MOST);
        late
    }

    fn judge(&self, mut suspects: Vec<Suspect>) -> Vec<Late> {
        self.try_the_youngest(&mut suspects);
        self.halve(&mut suspects);
        let found = suspects.iter().filter_map(|suspect| {
            let block = *suspect.blocks.get(suspect.low)?;
            let before = suspect.blocks.get(suspect.low + 1).copied();
            (!self.is_unreliable(block)).then_some(Late { touch: suspect.touch, block, before })
        });
        let found: Vec<Late> = found.collect();
        let pairs: Vec<_> = found.iter().map(|late| (late.touch.node, late.block)).collect();
        let before = self.come_before(&pairs);
        let rows = found.into_iter().enumerate();
        rows.filter(|&(row, _)| !before.contains(row)).map(|(_, late)| late).collect()
    }

    /// Finds those whose block is among the youngest.
    fn try_the_youngest(&self, suspects: &mut [Suspect]) {
        let youngest = suspects.iter().flat_map(|suspect| {
            let blocks = suspect.blocks.iter().take(NEAR);
            blocks.map(|&block| (suspect.touch.node, block))
        });
        let after = self.come_after(&youngest.collect::<Vec<_>>());
        let mut row = 0;
        for suspect in suspects {
            let near = suspect.blocks.len().min(NEAR);
            match (0..near).find(|at| after.contains(row + at)) {
                Some(found) => (suspect.low, suspect.high) = (found, found),
                None => suspect.low = near,
            }
            row += near;
        }
    }

    /// Finds the others. Of blocks with users one comes after the other, so halving will do; a block
    /// without any may stand in its way, and then some older one is found, or none.
    fn halve(&self, suspects: &mut [Suspect]) {
        loop {
            let open = |suspect: &&mut Suspect| suspect.low < suspect.high;
            let mut asked: Vec<&mut Suspect> = suspects.iter_mut().filter(open).collect();
            if asked.is_empty() {
                return;
            }
            let middles =
                asked.iter().map(|suspect| (suspect.touch.node, suspect.blocks[suspect.middle()]));
            let after = self.come_after(&middles.collect::<Vec<_>>());
            for (row, suspect) in asked.iter_mut().enumerate() {
                match after.contains(row) {
                    true => suspect.high = suspect.middle(),
                    false => suspect.low = suspect.middle() + 1,
                }
            }
        }
    }

    /// The pairs whose node comes after all that its block's stream waited for at the allocation.
    fn come_after(&self, pairs: &[(u32, u32)]) -> FixedBitSet {
        let mut after = FixedBitSet::with_capacity(pairs.len());
        after.insert_range(..);
        let mut questions = Vec::new();
        for (row, &(node, block)) in pairs.iter().enumerate() {
            let block = &self.history.blocks[block as usize];
            for &earlier in self.terminals(block.own.stream, block.allocated) {
                questions.push(Question { row: row as u32, earlier, later: node });
            }
        }
        self.ask(questions, |row, precedes| {
            if !precedes {
                after.remove(row);
            }
        });
        after
    }

    /// The pairs whose node is one of its block's free markers or comes before one, and those whose block has none.
    fn come_before(&self, pairs: &[(u32, u32)]) -> FixedBitSet {
        let mut before = FixedBitSet::with_capacity(pairs.len());
        let mut questions = Vec::new();
        for (row, &(node, block)) in pairs.iter().enumerate() {
            let block = &self.history.blocks[block as usize];
            if stays(block) {
                before.insert(row);
                continue;
            }
            for used in self.history.uses(block) {
                for &later in self.terminals(used.stream, block.until(used)) {
                    if later == node {
                        before.insert(row);
                    }
                    questions.push(Question { row: row as u32, earlier: node, later });
                }
            }
        }
        self.ask(questions, |row, precedes| {
            if precedes {
                before.insert(row);
            }
        });
        before
    }

    /// Answers every question by its row.
    fn ask(&self, mut questions: Vec<Question>, mut answer: impl FnMut(usize, bool)) {
        questions.retain(|question| match self.order.at_once(question.earlier, question.later) {
            Some(precedes) => {
                answer(question.row as usize, precedes);
                false
            }
            None => true,
        });
        self.order.ask(
            &questions,
            |question| (question.earlier, question.later),
            |_, question, clocks| {
                let precedes = clocks.comes_before(question.earlier, question.later);
                answer(question.row as usize, precedes);
            },
        );
    }

    /// A stream's terminals before an entry.
    fn terminals(&self, stream: u32, entry: u32) -> &'a [u32] {
        let stream = &self.history.streams[stream as usize];
        stream.look_before(entry).map_or(&[], |look| stream.terminals(look))
    }

    /// Whether a block's markers need not come after all its users. Such a block is handed out to
    /// no stream of this capture.
    fn is_unreliable(&self, block: u32) -> bool {
        let block = &self.history.blocks[block as usize];
        block.outside || self.is_set_back(block)
    }

    fn is_set_back(&self, block: &BlockHistory) -> bool {
        let set_backs = self.set_backs.get_or_init(|| self.find_set_backs());
        self.history.uses(block).any(|used| {
            let until = block.until(used);
            let set_backs = &set_backs[used.stream as usize];
            let next = set_backs.partition_point(|&entry| entry <= block.allocated);
            set_backs.get(next).is_some_and(|&entry| entry <= until)
        })
    }

    /// The looks at which a former terminal was not behind the new ones.
    fn find_set_backs(&self) -> Vec<Vec<u32>> {
        // One row for each terminal that a stream lost.
        let mut rows: Vec<(u32, u32)> = Vec::new();
        let mut questions = Vec::new();
        let mut kept = Marks::new(self.graph.len());
        for (number, stream) in self.history.streams.iter().enumerate() {
            for look in 1..stream.looks() {
                let new = stream.terminals(look);
                kept.clear();
                new.iter().for_each(|&node| _ = kept.insert(node));
                let before = stream.terminals(look - 1).iter();
                for earlier in before.filter(|&&node| !kept.contains(node)) {
                    let row = rows.len() as u32;
                    rows.push((number as u32, stream.entry(look)));
                    let ask = |&later: &u32| Question { row, earlier: *earlier, later };
                    questions.extend(new.iter().map(ask));
                }
            }
        }
        let mut kept = FixedBitSet::with_capacity(rows.len());
        self.ask(questions, |row, precedes| {
            if precedes {
                kept.insert(row);
            }
        });
        let mut set_backs = vec![Vec::new(); self.history.streams.len()];
        for (_, (stream, entry)) in
            rows.into_iter().enumerate().filter(|(row, _)| !kept.contains(*row))
        {
            set_backs[stream as usize].push(entry);
        }
        set_backs
    }

    /// A finding, for people.
    pub fn tell<D: Driver + ?Sized>(&self, driver: &D, late: Late) -> LateUse {
        let Late { touch, block, before } = late;
        let number = |block: u32| self.history.blocks[block as usize].number;
        let node = self.graph.handle(touch.node);
        let block = &self.history.blocks[block as usize];
        let markers = self.history.uses(block).map(|used| {
            let nodes = self.terminals(used.stream, block.until(used));
            Marker {
                stream: self.history.streams[used.stream as usize].handle,
                last_use: used.last != NEVER,
                nodes: nodes
                    .iter()
                    .map(|&node| self.graph.handle(node))
                    .collect::<Vec<NodeHandle>>(),
            }
        });
        LateUse {
            node,
            kind: driver.node_kind(node).ok(),
            kernel: driver.kernel_name(node),
            block: self.history.place(late.block),
            before: before.map(number),
            address: touch.address,
            offset: touch.address - block.address,
            markers: markers.collect(),
        }
    }
}

impl Suspect {
    fn middle(&self) -> usize {
        self.low + (self.high - self.low) / 2
    }
}
