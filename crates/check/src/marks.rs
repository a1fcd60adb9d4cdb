//! A set of nodes that is emptied at once.

pub(crate) struct Marks {
    /// Of how many nodes.
    count: usize,
    /// Nothing before the set is used.
    marks: Vec<u32>,
    mark: u32,
}

impl Marks {
    /// [`Marks::clear`] comes before all else.
    pub fn new(count: usize) -> Self {
        Self { count, marks: Vec::new(), mark: 0 }
    }

    pub fn clear(&mut self) {
        if self.mark == u32::MAX {
            self.marks.fill(0);
            self.mark = 0;
        }
        self.marks.resize(self.count, 0);
        self.mark += 1;
    }

    /// Whether it was not in the set.
    pub fn insert(&mut self, node: u32) -> bool {
        std::mem::replace(&mut self.marks[node as usize], self.mark) != self.mark
    }

    pub fn contains(&self, node: u32) -> bool {
        self.marks[node as usize] == self.mark
    }
}
