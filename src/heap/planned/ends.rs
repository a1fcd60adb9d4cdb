//! Where a block's ends lie beside others: its last bytes at the beginning of a page that is in use, its
//! first at the end of another.

/// Free bytes at the beginning or at the end of a page that is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) page: u64,
    pub(super) bytes: u64,
}

/// The pages on which the ends of a block lie at new addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// The page on which its first bytes lie, and how many.
    pub(super) head: Option<(u64, u64)>,
    /// The page on which its last bytes lie.
    pub(super) tail: Option<u64>,
}

impl Beside {
    /// How many pages there are.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.head.is_some()) + u64::from(self.tail.is_some())
    }
}

/// A way to lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) beside: Beside,
    /// Whole pages that it takes.
    pub(super) pages: u64,
    /// Bytes that are left over beside it.
    pub(super) waste: u64,
}

/// Calls `offer` with the ways for a block of `bytes`, with what is free at the beginnings of pages and at
/// their ends, both by size.
///
/// One end is where the least is left over. With both, the first bytes fill the end of one page and the last
/// ones are where the least is left over, or the other way round.
pub(super) fn ways(
    (bytes, unit): (u64, u64),
    (starts, ends): (&[End], &[End]),
    mut offer: impl FnMut(Way),
) {
    let (whole, rest) = (bytes / unit, bytes % unit);
    let first_of = |of: &[End], bytes: u64| of.partition_point(|end| end.bytes < bytes);
    if rest > 0 && whole > 0 {
        if let Some(end) = starts.get(first_of(starts, rest)) {
            let beside = Beside { head: None, tail: Some(end.page) };
            offer(Way { beside, pages: whole, waste: end.bytes - rest });
        }
        if let Some(end) = ends.get(first_of(ends, rest)) {
            let beside = Beside { head: Some((end.page, rest)), tail: None };
            offer(Way { beside, pages: whole, waste: end.bytes - rest });
        }
    }
    for (pages, both) in [(Some(whole), rest), (whole.checked_sub(1), rest + unit)] {
        let Some(pages) = pages.filter(|_| both > 0) else { continue };
        for head in ends.iter().filter(|head| head.bytes < both) {
            let needed = both - head.bytes;
            let fits = |tail: &&End| tail.page != head.page;
            let Some(tail) = starts[first_of(starts, needed)..].iter().take(2).find(fits) else {
                continue;
            };
            let waste = tail.bytes - needed;
            // All of the end, or all of the beginning if that is enough.
            let head_bytes = [head.bytes, both.saturating_sub(tail.bytes)];
            for bytes in head_bytes.into_iter().filter(|bytes| (1..both).contains(bytes)) {
                let beside = Beside { head: Some((head.page, bytes)), tail: Some(tail.page) };
                offer(Way { beside, pages, waste });
            }
        }
    }
}
