//! The pairs of blocks that share something, and whether all users of the earlier have completed
//! before any of the later may start.

use ahash::AHashSet;

use super::graph::Graph;
use super::history::History;
use super::shadow::Pair;
use super::users::{Attribution, User};
use super::violation::{Common, NamedNode, Violation};

/// A possible user of an earlier block against one of a later block.
struct Question {
    pair: u32,
    earlier: u32,
    later: u32,
}

/// The last users of every block, behind one another.
struct LastUsers {
    ends: Vec<u32>,
    nodes: Vec<u32>,
}

impl LastUsers {
    fn new(attribution: &Attribution<'_>) -> Self {
        let count = attribution.users.len();
        let mut last = Self { ends: Vec::with_capacity(count), nodes: Vec::with_capacity(count) };
        for block in 0..count as u32 {
            attribution.last_users(block, |node| last.nodes.push(node));
            last.ends.push(last.nodes.len() as u32);
        }
        last
    }

    fn of(&self, block: u32) -> &[u32] {
        let start = block.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.nodes[start as usize..self.ends[block as usize] as usize]
    }
}

/// The pairs so far.
pub(super) struct Pairs<'a> {
    graph: &'a Graph,
    history: &'a History,
    attribution: &'a Attribution<'a>,
    last_users: LastUsers,
    /// Of the later block of the last pair.
    first_users: Vec<User>,
    pairs: Vec<Pair>,
    /// What looks and nearby edges did not answer.
    questions: Vec<Question>,
    /// The pairs that share an address, once others are to come.
    known: AHashSet<(u32, u32)>,
    /// What the last of the pairs share, which share no address.
    memory: Vec<Common>,
}

impl<'a> Pairs<'a> {
    pub fn new(graph: &'a Graph, history: &'a History, attribution: &'a Attribution<'a>) -> Self {
        Self {
            graph,
            history,
            attribution,
            last_users: LastUsers::new(attribution),
            first_users: Vec::new(),
            pairs: Vec::new(),
            questions: Vec::new(),
            known: AHashSet::new(),
            memory: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// From here on come pairs that share physical memory, some of which were judged.
    pub fn expect_memory(&mut self) {
        self.known = self.pairs.iter().map(|pair| (pair.earlier, pair.later)).collect();
    }

    /// Judges a pair that shares physical memory, unless it was judged before.
    pub fn judge_memory(&mut self, pair: Pair, common: Common) -> Result<(), Violation> {
        if self.known.contains(&(pair.earlier, pair.later)) {
            return Ok(());
        }
        self.memory.push(common);
        self.judge(pair)
    }

    /// Judges a pair, as far as that needs no clocks.
    pub fn judge(&mut self, pair: Pair) -> Result<(), Violation> {
        let number = self.pairs.len();
        if self.pairs.last().is_none_or(|last| last.later != pair.later) {
            self.first_users.clear();
            self.attribution.first_users(pair.later, |user| self.first_users.push(user));
        }
        self.pairs.push(pair);
        for &earlier in self.last_users.of(pair.earlier) {
            for &user in &self.first_users {
                let later = user.node;
                match self.attribution.completed_before(earlier, user) {
                    Some(true) => {}
                    Some(false) => return Err(self.not_ordered(number, earlier, later)),
                    None => self.questions.push(Question { pair: number as u32, earlier, later }),
                }
            }
        }
        Ok(())
    }

    /// Asks what is left, and answers the first that is not so.
    pub fn answer(&self) -> Result<(), Violation> {
        let mut wrong: Option<usize> = None;
        self.attribution.order.ask(
            &self.questions,
            |question| (question.earlier, question.later),
            |index, question, clocks| {
                if !clocks.completed_before(question.earlier, question.later) {
                    wrong = Some(wrong.map_or(index, |other| other.min(index)));
                }
            },
        );
        let Some(index) = wrong else { return Ok(()) };
        let Question { pair, earlier, later } = self.questions[index];
        Err(self.not_ordered(pair as usize, earlier, later))
    }

    /// Refuses a node that may use every block, if any two share anything.
    pub fn refuse_stray(&self, node: u32) -> Result<(), Violation> {
        let Some(pair) = self.pairs.first() else { return Ok(()) };
        Err(Violation::Unattributed {
            node: Box::new(NamedNode {
                after: self.attribution.stream_before(node, self.history),
                ..NamedNode::new(self.graph.handle(node))
            }),
            earlier: self.history.blocks[pair.earlier as usize].place,
            later: self.history.blocks[pair.later as usize].place,
            common: self.common(0),
        })
    }

    fn common(&self, pair: usize) -> Common {
        let first = self.pairs.len() - self.memory.len();
        pair.checked_sub(first).map_or(Common::Address, |at| self.memory[at])
    }

    fn not_ordered(&self, number: usize, earlier: u32, later: u32) -> Violation {
        let pair = self.pairs[number];
        Violation::NotOrdered {
            earlier: self.history.blocks[pair.earlier as usize].place,
            later: self.history.blocks[pair.later as usize].place,
            common: self.common(number),
            users: Box::new([earlier, later].map(|node| NamedNode::new(self.graph.handle(node)))),
        }
    }
}
