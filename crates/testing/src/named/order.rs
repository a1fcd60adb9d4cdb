//! The model: a set of byte ranges, and each stream a sequence of operations.
//!
//! A byte may be given to a stream only if every operation that may have used it is complete, or
//! comes before all that the stream does next: because it is the stream's own, or because the
//! program made the stream wait for it.

use regraph_sim::{SimDriver, SimEvent};

/// How far a stream has come, in operations.
pub(crate) type Count = usize;

/// What a stream has done.
#[derive(Default)]
struct Stream {
    operations: Vec<SimEvent>,
    complete: Count,
    /// By stream: how many of its operations come before the next one here.
    before: Vec<Count>,
}

/// All streams that ever were.
#[derive(Default)]
pub(crate) struct Streams(Vec<Stream>);

impl Streams {
    pub(crate) fn add(&mut self) -> usize {
        self.0.push(Stream::default());
        self.0.len() - 1
    }

    /// The stream has got one more operation, behind which the event stands.
    pub(crate) fn push(&mut self, stream: usize, event: SimEvent) {
        let row = &mut self.0[stream];
        row.operations.push(event);
        let count = row.operations.len();
        self.learn(stream, stream, count);
    }

    pub(crate) fn count(&self, stream: usize) -> Count {
        self.0[stream].operations.len()
    }

    /// How far each stream has come.
    pub(crate) fn counts(&self) -> Vec<Count> {
        self.0.iter().map(|row| row.operations.len()).collect()
    }

    /// Makes a stream's next operation come after all that another stream's next one would.
    pub(crate) fn wait(&mut self, stream: usize, on: usize) {
        for (other, count) in self.0[on].before.clone().into_iter().enumerate() {
            self.learn(stream, other, count);
        }
    }

    fn learn(&mut self, stream: usize, other: usize, count: Count) {
        let before = &mut self.0[stream].before;
        if before.len() <= other {
            before.resize(other + 1, 0);
        }
        before[other] = before[other].max(count);
    }

    /// Takes in what has completed on the device.
    pub(crate) fn refresh(&mut self, driver: &SimDriver) {
        for row in &mut self.0 {
            let done = |event: &&SimEvent| driver.is_complete(**event).unwrap_or(false);
            row.complete += row.operations[row.complete..].iter().take_while(done).count();
        }
    }

    pub(crate) fn is_complete(&self, (stream, count): (usize, Count)) -> bool {
        self.0[stream].complete >= count
    }

    /// Whether an operation is complete or comes before the next of a stream.
    pub(crate) fn precedes(&self, used: (usize, Count), stream: usize) -> bool {
        let ordered = self.0[stream].before.get(used.0).is_some_and(|&count| count >= used.1);
        ordered || self.is_complete(used)
    }
}

/// What is known of some bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    /// The block that they lie in.
    pub live: Option<usize>,
    /// By stream: up to which of its operations it may have used them.
    pub uses: Vec<(usize, Count)>,
    /// Those of them that every later capture into their pool comes after, by the host's word.
    pub by_word: Vec<(usize, Count)>,
    /// Captures whose graphs may use them.
    pub graphs: Vec<usize>,
}

/// Everything that ever was in a block: disjoint ranges in no order.
#[derive(Default)]
pub(crate) struct Ranges(Vec<(u64, u64, Bytes)>);

impl Ranges {
    /// Splits so that ranges begin and end here, and fills gaps: then everything between is whole.
    pub(crate) fn between(&mut self, start: u64, end: u64) -> Vec<&mut Bytes> {
        for cut in [start, end] {
            let inside = |&&(from, to, _): &&(u64, u64, Bytes)| from < cut && cut < to;
            if let Some(row) = self.0.iter().position(|range| inside(&range)) {
                let (_, to, bytes) = self.0[row].clone();
                self.0[row].1 = cut;
                self.0.push((cut, to, bytes));
            }
        }
        let mut covered: Vec<(u64, u64)> = (self.0.iter())
            .filter(|range| start <= range.0 && range.1 <= end)
            .map(|range| (range.0, range.1))
            .collect();
        covered.sort_unstable();
        let mut at = start;
        for (from, to) in covered.into_iter().chain([(end, end)]) {
            if at < from {
                self.0.push((at, from, Bytes::default()));
            }
            at = to;
        }
        let inside = self.0.iter_mut().filter(|range| start <= range.0 && range.1 <= end);
        inside.map(|range| &mut range.2).collect()
    }
}

impl Bytes {
    pub(crate) fn note_use(&mut self, stream: usize, count: Count) {
        match self.uses.iter_mut().find(|used| used.0 == stream) {
            Some(used) => used.1 = used.1.max(count),
            None => self.uses.push((stream, count)),
        }
    }
}
