//! Sizes of blocks, segments and pages. All in bytes.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Every block's size is a multiple of this.
const UNIT: u64 = 512;
/// The largest small block.
const SMALL: u64 = MIB;
/// From here on a block has a segment of its own size.
const OWN_SEGMENT: u64 = 10 * MIB;
/// What such a segment is rounded up to.
const SEGMENT_UNIT: u64 = 2 * MIB;
/// A segment of small blocks, and a page of an expandable one.
const SMALL_SEGMENT: u64 = 2 * MIB;
/// A segment of blocks between, and a page of an expandable one.
pub(super) const LARGE_SEGMENT: u64 = 20 * MIB;

/// Nothing larger is ever asked for.
pub(super) const REQUEST_LIMIT: u64 = KIB << 50;

/// Which blocks share segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Small,
    Large,
}

impl Class {
    /// The class of a block of a rounded size.
    pub(super) fn of(bytes: u64) -> Self {
        if bytes <= SMALL {
            Self::Small
        } else {
            Self::Large
        }
    }

    /// The pages of an expandable segment.
    pub(super) fn page(self) -> u64 {
        match self {
            Self::Small => SMALL_SEGMENT,
            Self::Large => LARGE_SEGMENT,
        }
    }

    /// Whether so much is split off rather than handed out too.
    pub(super) fn splits(self, rest: u64, expandable: bool) -> bool {
        match self {
            Self::Large if !expandable => rest > SMALL,
            _ => rest >= UNIT,
        }
    }
}

/// The size of the block for a request.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT)
}

/// The size of a new segment for a block.
pub(super) fn segment(bytes: u64) -> u64 {
    match Class::of(bytes) {
        Class::Small => SMALL_SEGMENT,
        Class::Large if bytes < OWN_SEGMENT => LARGE_SEGMENT,
        Class::Large => bytes.next_multiple_of(SEGMENT_UNIT),
    }
}
