//! Whether all users of a block have completed before any user of the next one may start.

use super::clocks::doubtful;
use super::graph::Graph;
use super::history::{History, NEVER};
use super::marks::Marks;
use super::order::Order;
use super::places::{Pair, Pairs};
use super::users::Users;
use super::violation::{NamedNode, Violation};

/// A possible user of an earlier block against one of a later block.
struct Question {
    pair: u32,
    earlier: u32,
    later: u32,
}

/// The users of a block that none of its others comes before, and those that none comes after.
struct Bounds {
    firsts: Vec<u32>,
    lasts: Vec<u32>,
}

impl Bounds {
    fn new(graph: &Graph<'_>, users: Vec<u32>, is_user: &mut Marks, followed: &mut Marks) -> Self {
        is_user.clear();
        followed.clear();
        for &node in &users {
            is_user.insert(node);
        }
        let mut firsts = Vec::new();
        for &node in &users {
            let mut first = true;
            for edge in graph.proofs().of(node).iter().filter(|edge| is_user.contains(edge.from()))
            {
                followed.insert(edge.from());
                first = false;
            }
            if first {
                firsts.push(node);
            }
        }
        let mut lasts = users;
        lasts.retain(|&node| !followed.contains(node));
        Self { firsts, lasts }
    }
}

/// Answers the first of the pairs with users that are not in order, and says what is wrong with it.
pub(super) fn judge(
    graph: &Graph<'_>,
    history: &History,
    users: &Users<'_>,
    pairs: &Pairs,
) -> Option<(usize, Violation)> {
    let doubtful = doubtful(graph, history, users, &pairs.all);
    if doubtful.is_empty() {
        return None;
    }
    let mut blocks: Vec<u32> = doubtful
        .iter()
        .flat_map(|&pair| [pairs.all[pair].earlier, pairs.all[pair].later])
        .collect();
    blocks.sort_unstable();
    blocks.dedup();
    let mut marks = [Marks::new(graph.len()), Marks::new(graph.len())];
    let [is_user, followed] = &mut marks;
    let bounds = users.of(&blocks).into_iter();
    let bounds: Vec<Bounds> =
        bounds.map(|users| Bounds::new(graph, users, is_user, followed)).collect();
    let bounds = |block: u32| &bounds[blocks.partition_point(|&other| other < block)];
    let mut questions = Vec::new();
    for pair in doubtful {
        let Pair { earlier, later, .. } = pairs.all[pair];
        for &earlier in &bounds(earlier).lasts {
            let later = bounds(later).firsts.iter();
            questions.extend(later.map(|&later| Question { pair: pair as u32, earlier, later }));
        }
    }
    let proofs;
    let order = match graph.is_whole() {
        true => users.order(),
        false => {
            proofs = Order::new(graph.proofs());
            &proofs
        }
    };
    let mut wrong: Option<usize> = None;
    order.ask(
        &questions,
        |question| (question.earlier, question.later),
        |index, question, clocks| {
            if !clocks.completed_before(question.earlier, question.later) {
                wrong = Some(wrong.map_or(index, |other| other.min(index)));
            }
        },
    );
    let Question { pair, earlier, later } = questions[wrong?];
    let pair = pair as usize;
    let it = pairs.all[pair];
    let violation = Violation::NotOrdered {
        earlier: history.place(it.earlier),
        later: history.place(it.later),
        common: pairs.common(it),
        users: Box::new([earlier, later].map(|node| NamedNode::new(graph.handle(node)))),
    };
    Some((pair, violation))
}

/// Refuses nodes that no look saw: they may use every block that was live when they were added. They are refused in three
/// cases. Two blocks share something, or one may lie where another graph's does, and one of these nodes was not added
/// after all that looks saw. Two blocks share something, and these nodes are in no one order: one may use the earlier
/// block and another the later one. A block was freed without users: its memory may be that of work outside the capture.
pub(super) fn refuse_stray(
    graph: &Graph<'_>,
    history: &History,
    users: &Users<'_>,
    pairs: &Pairs,
) -> Result<(), Violation> {
    let blocks = || (0..).zip(&history.blocks);
    let pair = pairs.all.first().or(pairs.unused.as_ref());
    let beside_graphs = || blocks().filter(|_| history.graphs).find(|it| users.any(it.0));
    let meeting = pair.map(|it| it.later).or_else(|| Some(beside_graphs()?.0));
    let stray = meeting.and_then(|block| Some((users.stray()?, pair, block)));
    let unordered = || {
        let mut all = pairs.all.iter().chain(&pairs.unused);
        let pair = all.find(|it| !history.blocks[it.later as usize].outside)?;
        Some((users.unordered()?, Some(pair), pair.later))
    };
    let freed = || {
        let mut freed = blocks().filter(|(_, block)| block.freed != NEVER && !block.outside);
        let (block, _) = freed.find(|it| !users.any(it.0))?;
        Some((users.unseen()?, None, block))
    };
    let Some((node, pair, number)) = stray.or_else(unordered).or_else(freed) else { return Ok(()) };
    let after = users.stream_before(node);
    let node = Box::new(NamedNode { after, ..NamedNode::new(graph.handle(node)) });
    let block = history.place(number);
    Err(match pair {
        Some(&pair) => Violation::Unattributed {
            node,
            earlier: history.place(pair.earlier),
            later: block,
            common: pairs.common(pair),
        },
        None if users.any(number) => Violation::Unseen { node, block },
        None => Violation::OnlyUser { node, block },
    })
}
