//! Intervals as a capture on one stream.

use super::row::Row;
use regraph_trace::{BlockIndex, Operation, StreamIndex};

const STREAM: StreamIndex = 0;

/// The operations of a capture in which each block lives in its interval, by the times of one thread.
pub(super) fn schedule(rows: &[Row]) -> Vec<Operation> {
    let blocks = || (0..).zip(rows);
    let mut begins: Vec<(i64, BlockIndex)> = blocks().map(|(id, it)| (it.lower[0], id)).collect();
    let mut ends: Vec<(i64, BlockIndex)> = blocks().map(|(id, it)| (it.upper[0], id)).collect();
    begins.sort_unstable();
    ends.sort_unstable();
    let mut times: Vec<i64> = begins.iter().chain(&ends).map(|&(time, _)| time).collect();
    times.sort_unstable();
    times.dedup();

    let mut operations = vec![Operation::Begin { stream: STREAM, pool: 0 }];
    let (mut begins, mut ends) = (begins.as_slice(), ends.as_slice());
    let mut live = 0;
    for (index, &time) in times.iter().enumerate() {
        let freed = take(&mut ends, time);
        operations.extend(freed.iter().map(|&(_, id)| Operation::Free { id }));
        let allocated = take(&mut begins, time);
        operations.extend(allocated.iter().map(|&(_, id)| {
            let bytes = rows[id as usize].bytes;
            Operation::Alloc { id, bytes, stream: STREAM }
        }));
        live = live + allocated.len() - freed.len();
        if live == 0 {
            continue;
        }
        // Something lives, so a time follows at which it is freed.
        let next = times[index + 1];
        let last = &ends[..ends.partition_point(|&(end, _)| end <= next)];
        let mut uses: Vec<_> = allocated.iter().chain(last).map(|&(_, id)| id).collect();
        uses.sort_unstable();
        uses.dedup();
        operations.push(Operation::Kernel { stream: STREAM, uses, programmatic: false });
    }
    operations.push(Operation::End {});
    operations
}

/// Takes the entries of a time, which come first, out of a list.
fn take<'a>(list: &mut &'a [(i64, BlockIndex)], time: i64) -> &'a [(i64, BlockIndex)] {
    let (taken, rest) = list.split_at(list.partition_point(|&(at, _)| at <= time));
    *list = rest;
    taken
}
