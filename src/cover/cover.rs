//! Stand-in: a greedy cover closed by a plain max flow.

use std::collections::VecDeque;

use super::{Cover, Entry, Items, Row};

struct Network {
    head: Vec<u32>,
    left: Vec<u64>,
    edges: Vec<Vec<u32>>,
}

impl Network {
    fn connect(&mut self, from: usize, to: usize, capacity: u64) -> u32 {
        let edge = self.head.len() as u32;
        self.head.extend([to as u32, from as u32]);
        self.left.extend([capacity, 0]);
        self.edges[from].push(edge);
        self.edges[to].push(edge + 1);
        edge
    }

    fn push(&mut self, edge: u32, amount: u64) {
        self.left[edge as usize] -= amount;
        self.left[edge as usize ^ 1] += amount;
    }

    fn flow(&self, edge: u32) -> u64 {
        self.left[edge as usize ^ 1]
    }

    fn levels(&self, source: usize) -> Vec<u32> {
        let mut levels = vec![u32::MAX; self.edges.len()];
        levels[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for &edge in &self.edges[at] {
                let to = self.head[edge as usize] as usize;
                if self.left[edge as usize] > 0 && levels[to] == u32::MAX {
                    levels[to] = levels[at] + 1;
                    queue.push_back(to);
                }
            }
        }
        levels
    }

    /// Raises the flow to its maximum; returns the last levels.
    fn maximise(&mut self, source: usize, sink: usize) -> Vec<u32> {
        loop {
            let levels = self.levels(source);
            if levels[sink] == u32::MAX {
                return levels;
            }
            let mut next = vec![0usize; self.edges.len()];
            let mut path: Vec<u32> = Vec::new();
            let mut at = source;
            loop {
                if at == sink {
                    let least = path.iter().map(|edge| self.left[*edge as usize]).min();
                    let least = least.unwrap_or(0);
                    for &edge in &path {
                        self.push(edge, least);
                    }
                    let cut = path.iter().position(|edge| self.left[*edge as usize] == 0);
                    let cut = cut.unwrap_or(0);
                    at = self.head[path[cut] as usize ^ 1] as usize;
                    path.truncate(cut);
                    continue;
                }
                let step = self.edges[at].get(next[at]).copied();
                match step {
                    Some(edge) => {
                        let to = self.head[edge as usize] as usize;
                        if self.left[edge as usize] > 0
                            && levels[to] != u32::MAX
                            && levels[to] == levels[at] + 1
                        {
                            path.push(edge);
                            at = to;
                        } else {
                            next[at] += 1;
                        }
                    }
                    None => match path.pop() {
                        Some(edge) => {
                            at = self.head[edge as usize ^ 1] as usize;
                            next[at] += 1;
                        }
                        None => break,
                    },
                }
            }
        }
    }
}

/// The least memory for these items.
pub fn cover(items: &Items) -> Cover {
    let count = items.items().len();
    let mut rows: Vec<(u32, Vec<u32>)> = Vec::new();
    let mut place = Vec::with_capacity(count);
    for (item, it) in items.items().iter().enumerate() {
        let fits = |row: &(u32, Vec<u32>)| {
            row.0 == it.row
                && row.1.last().is_some_and(|last| {
                    let last = items.known(*last as usize);
                    last.iter().zip(items.known(item)).all(|(last, known)| last <= known)
                })
        };
        let row = rows.iter().position(fits).unwrap_or_else(|| {
            rows.push((it.row, Vec::new()));
            rows.len() - 1
        });
        place.push((row, rows[row].1.len()));
        rows[row].1.push(item as u32);
    }
    let (source, sink) = (2 * count, 2 * count + 1);
    let mut net =
        Network { head: Vec::new(), left: Vec::new(), edges: vec![Vec::new(); 2 * count + 2] };
    let mut given = Vec::with_capacity(count);
    let mut taken = Vec::with_capacity(count);
    for (item, it) in items.items().iter().enumerate() {
        given.push(net.connect(source, item, if it.freed { it.weight } else { 0 }));
        taken.push(net.connect(count + item, sink, it.weight));
    }
    let mut along = vec![u32::MAX; count];
    for (_, row) in &rows {
        for pair in row.windows(2) {
            along[pair[0] as usize] =
                net.connect(count + pair[0] as usize, count + pair[1] as usize, u64::MAX / 4);
        }
    }
    let mut gifts: Vec<Vec<Vec<(u32, u32)>>> =
        rows.iter().map(|row| vec![Vec::new(); row.1.len()]).collect();
    for item in (0..count).filter(|item| items.items()[*item].freed) {
        for (index, (_, row)) in rows.iter().enumerate() {
            let at = row.partition_point(|later| !items.precedes(item, *later as usize));
            if let Some(first) = row.get(at) {
                let edge = net.connect(item, count + *first as usize, u64::MAX / 4);
                gifts[index][at].push((item as u32, edge));
            }
        }
    }
    // The warm start: own row first, the latest first.
    let mut pools: Vec<[Vec<(u32, u32, usize)>; 2]> = vec![Default::default(); rows.len()];
    for item in 0..count {
        let (row, at) = place[item];
        for &(from, edge) in &gifts[row][at] {
            let own = place[from as usize].0 == row;
            pools[row][usize::from(own)].push((from, edge, at));
        }
        let mut need = items.items()[item].weight;
        for own in [1, 0] {
            while need > 0 {
                let Some(&(from, edge, entered)) = pools[row][own].last() else { break };
                let amount = net.left[given[from as usize] as usize].min(need);
                if amount == 0 {
                    pools[row][own].pop();
                    continue;
                }
                net.push(given[from as usize], amount);
                net.push(edge, amount);
                for passed in entered..at {
                    net.push(along[rows[row].1[passed] as usize], amount);
                }
                net.push(taken[item], amount);
                need -= amount;
            }
        }
    }
    let levels = net.maximise(source, sink);
    let flow: u64 = taken.iter().map(|edge| net.flow(*edge)).sum();
    let total: u64 = items.items().iter().map(|item| item.weight).sum();
    let antichain = (0..count as u32).filter(|item| {
        let freed = items.items()[*item as usize].freed;
        let gives = !freed || levels[*item as usize] != u32::MAX;
        gives && levels[count + *item as usize] == u32::MAX
    });
    let antichain = antichain.collect();
    let rows = rows
        .into_iter()
        .zip(gifts)
        .map(|((_, row), gifts)| Row {
            entries: gifts
                .iter()
                .map(|gifts| {
                    gifts
                        .iter()
                        .map(|(from, edge)| Entry { from: *from, amount: net.flow(*edge) })
                        .filter(|entry| entry.amount > 0)
                        .collect()
                })
                .collect(),
            taken: row.iter().map(|item| net.flow(taken[*item as usize])).collect(),
            items: row,
        })
        .collect();
    Cover { minimum: total - flow, antichain, rows }
}
