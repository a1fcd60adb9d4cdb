//! A list for each node, and orders of nodes.

/// One list per node, behind one another.
pub(crate) struct Lists<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Lists<T> {
    /// Lists that follow each other already: list `n` is `items[starts[n]..starts[n + 1]]`.
    pub fn ready(starts: Vec<u32>, items: Vec<T>) -> Self {
        Self { starts, items }
    }

    /// Sorts items into the lists of their keys; a stable counting sort.
    pub fn new(count: usize, items: impl Iterator<Item = (u32, T)> + Clone) -> Self {
        // Each list's start is counted up to its end while the items go in, and so is its
        // successor's start in the end.
        let mut starts = vec![0_u32; count + 2];
        let mut sample = None;
        for (key, item) in items.clone() {
            starts[key as usize + 2] += 1;
            sample = Some(item);
        }
        for index in 2..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut sorted = match sample {
            Some(sample) => vec![sample; starts[count + 1] as usize],
            None => Vec::new(),
        };
        for (key, item) in items {
            let next = &mut starts[key as usize + 1];
            sorted[*next as usize] = item;
            *next += 1;
        }
        starts.truncate(count + 1);
        Self { starts, items: sorted }
    }

    #[inline]
    pub fn of(&self, index: u32) -> &[T] {
        let index = index as usize;
        &self.items[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// What they are made of, for other lists.
    pub fn into_parts(self) -> (Vec<u32>, Vec<T>) {
        (self.starts, self.items)
    }
}

/// A topological order, or a node that none can place.
pub(super) fn sort(
    count: usize,
    edges: impl Iterator<Item = (u32, u32)> + Clone,
) -> Result<Vec<u32>, u32> {
    let successors = Lists::new(count, edges.clone());
    let mut waiting = vec![0_u32; count];
    for (_, to) in edges {
        waiting[to as usize] += 1;
    }
    let mut order: Vec<u32> =
        (0..count as u32).filter(|&node| waiting[node as usize] == 0).collect();
    let mut done = 0;
    while done < order.len() {
        for &to in successors.of(order[done]) {
            waiting[to as usize] -= 1;
            if waiting[to as usize] == 0 {
                order.push(to);
            }
        }
        done += 1;
    }
    match waiting.iter().position(|&left| left > 0) {
        Some(stuck) => Err(stuck as u32),
        None => Ok(order),
    }
}
