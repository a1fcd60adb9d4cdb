//! Which streams a capture of a trace has, and how each gets in.

use std::collections::{BTreeSet, HashMap};

use super::{Operation, StreamIndex};

/// How a stream gets into a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    /// At the first line that names it, with no terminals.
    AtOnce,
    /// At a `wait` of its own, with the terminals of the stream that it waits for.
    ByWait,
}

/// The streams of a capture and those of them that have entered it.
pub struct Members {
    entrances: HashMap<StreamIndex, Entrance>,
    entered: BTreeSet<StreamIndex>,
}

impl Members {
    /// The streams of the capture with these operations behind its `begin`; the origin is inside.
    pub fn new(origin: StreamIndex, operations: &[Operation]) -> Self {
        Self { entrances: entrances(origin, operations), entered: BTreeSet::from([origin]) }
    }

    /// Whether a stream that a line names must enter now, without terminals. It then has.
    pub fn enters_at_once(&mut self, stream: StreamIndex) -> bool {
        self.entrances.get(&stream) == Some(&Entrance::AtOnce) && self.entered.insert(stream)
    }

    /// Whether a wait means anything to the capture. Its first stream has then entered.
    pub fn waits(&mut self, stream: StreamIndex, on: StreamIndex) -> bool {
        let means = self.entrances.contains_key(&stream) && self.is_inside(on);
        if means {
            self.entered.insert(stream);
        }
        means
    }

    /// Whether a stream has entered.
    pub fn is_inside(&self, stream: StreamIndex) -> bool {
        self.entered.contains(&stream)
    }

    /// The streams that have entered.
    pub fn inside(&self) -> impl Iterator<Item = StreamIndex> + '_ {
        self.entered.iter().copied()
    }
}

fn entrances(origin: StreamIndex, operations: &[Operation]) -> HashMap<StreamIndex, Entrance> {
    let mut entrances = HashMap::from([(origin, Entrance::AtOnce)]);
    for operation in operations {
        match *operation {
            Operation::Kernel { stream, .. } | Operation::Terminals { stream, .. } => {
                entrances.entry(stream).or_insert(Entrance::AtOnce);
            }
            Operation::Wait { stream, on } if entrances.contains_key(&on) => {
                entrances.entry(stream).or_insert(Entrance::ByWait);
            }
            Operation::End {} => break,
            _ => {}
        }
    }
    entrances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_streams_that_hold_work_enter() {
        let operations = [
            Operation::Alloc { id: 0, bytes: 1, stream: 4 },
            Operation::Wait { stream: 0, on: 5 },
            Operation::Wait { stream: 1, on: 0 },
            Operation::Kernel { stream: 1, uses: vec![], programmatic: false },
            Operation::Terminals { stream: 2, nodes: vec![] },
            Operation::Use { id: 0, stream: 3 },
            Operation::End {},
            Operation::Kernel { stream: 9, uses: vec![], programmatic: false },
        ];
        let expected =
            HashMap::from([(0, Entrance::AtOnce), (1, Entrance::ByWait), (2, Entrance::AtOnce)]);
        assert_eq!(entrances(0, &operations), expected);
    }
}
