//! The least memory, by a flow over all pairs.

use super::{Cover, Entry, Items, Row};

/// The least memory for items, who passes it on, and an antichain that needs as much.
pub fn cover(items: &Items) -> Cover {
    let count = items.items().len();
    let later: Vec<Vec<usize>> =
        (0..count).map(|i| (i + 1..count).filter(|&j| items.precedes(i, j)).collect()).collect();
    let weight = |i: usize| items.items()[i].weight;
    let mut give: Vec<u64> = (0..count).map(weight).collect();
    let mut lack = give.clone();
    // By who takes: from whom, how much.
    let mut taken: Vec<Vec<(usize, u64)>> = vec![Vec::new(); count];
    for i in 0..count {
        for &j in &later[i] {
            let amount = give[i].min(lack[j]);
            if amount > 0 {
                give[i] -= amount;
                lack[j] -= amount;
                taken[j].push((i, amount));
            }
        }
    }
    let (givers, takers) = loop {
        let mut givers: Vec<Option<usize>> = vec![None; count];
        let mut takers: Vec<Option<usize>> = vec![None; count];
        let mut queue: Vec<usize> = (0..count).filter(|&i| give[i] > 0).collect();
        queue.iter().for_each(|&i| givers[i] = Some(usize::MAX));
        let mut next = 0;
        let mut end = None;
        'search: while let Some(&i) = queue.get(next) {
            next += 1;
            for &j in &later[i] {
                if takers[j].is_some() {
                    continue;
                }
                takers[j] = Some(i);
                if lack[j] > 0 {
                    end = Some(j);
                    break 'search;
                }
                for &(from, _) in &taken[j] {
                    if givers[from].is_none() {
                        givers[from] = Some(j);
                        queue.push(from);
                    }
                }
            }
        }
        let Some(end) = end else { break (givers, takers) };
        let mut path = Vec::new();
        let mut j = end;
        let mut amount = lack[end];
        loop {
            let i = takers[j].expect("it was reached");
            path.push((i, j));
            match givers[i] {
                Some(usize::MAX) => {
                    amount = amount.min(give[i]);
                    give[i] -= amount;
                    break;
                }
                Some(before) => {
                    let flow = taken[before].iter().find(|flow| flow.0 == i);
                    amount = amount.min(flow.expect("there is some").1);
                    j = before;
                }
                None => unreachable!("it was reached"),
            }
        }
        lack[end] -= amount;
        for (position, &(i, j)) in path.iter().enumerate() {
            match taken[j].iter_mut().find(|flow| flow.0 == i) {
                Some(flow) => flow.1 += amount,
                None => taken[j].push((i, amount)),
            }
            if let Some(&(_, before)) = path.get(position + 1) {
                let flow = taken[before].iter_mut().find(|flow| flow.0 == i);
                flow.expect("there is some").1 -= amount;
                taken[before].retain(|flow| flow.1 > 0);
            }
        }
    };
    let chosen = |i: &usize| givers[*i].is_some() && takers[*i].is_none();
    let rows = taken.iter().enumerate().map(|(j, flows)| Row {
        items: vec![j as u32],
        entries: vec![flows.iter().map(|&(i, amount)| Entry { from: i as u32, amount }).collect()],
        taken: vec![flows.iter().map(|flow| flow.1).sum()],
    });
    Cover {
        minimum: lack.iter().sum(),
        antichain: (0..count).filter(chosen).map(|i| i as u32).collect(),
        rows: rows.collect(),
    }
}
