//! How the sizes of requests are rounded.

use std::fmt;

/// Blocks are multiples of this, in bytes: 2 to the power of 9.
const UNIT_LOG: u32 = 9;

/// The first interval begins at 1 MB: 2 to the power of 20.
const FIRST_LOG: u32 = 20;

/// How the sizes of requests are rounded up: `roundup_power2_divisions`. Off by default.
///
/// Sizes fall into 16 intervals between powers of two, from 1 MB; the first one also holds what is smaller, and the
/// last one, from 32 GB, what is larger. Each interval has a number of divisions *D*, a power of two. A size above
/// 512·*D* bytes is rounded up to the next of *D* even steps between the two powers of two around it; any other size,
/// or where *D* is 1, is rounded up to a multiple of 512 bytes.
///
/// In the text this is one *D* for all sizes, or a list such as `[256:1,512:2,1024:4,>:8]`. A key of the list is the
/// begin of an interval in MB; 65536 means the last interval too. The first key also holds for all intervals below it,
/// `>` for all intervals above the key before it. An interval that is not named has no divisions. 0 divisions mean 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rounding {
    /// The binary logarithm of each interval's divisions.
    logs: [u8; Self::INTERVALS],
}

impl Rounding {
    /// The number of intervals.
    pub const INTERVALS: usize = 16;

    /// The same divisions for all sizes; `None` if that is not a power of two.
    pub fn uniform(divisions: u64) -> Option<Self> {
        Self::from_divisions([divisions; Self::INTERVALS])
    }

    /// Divisions by interval, the interval from 1 MB first; `None` if one is not a power of two.
    pub fn from_divisions(divisions: [u64; Self::INTERVALS]) -> Option<Self> {
        let mut logs = [0; Self::INTERVALS];
        for (log, divisions) in logs.iter_mut().zip(divisions) {
            if !divisions.is_power_of_two() {
                return None;
            }
            *log = divisions.trailing_zeros() as u8;
        }
        Some(Self { logs })
    }

    /// As two numbers, half of the intervals in each, so that a mixture of two roundings is one too; and back.
    pub(crate) fn to_halves(self) -> [u64; 2] {
        let bits = u128::from_le_bytes(self.logs);
        [bits as u64, (bits >> 64) as u64]
    }

    pub(crate) fn from_halves([low, high]: [u64; 2]) -> Self {
        Self { logs: (u128::from(high) << 64 | u128::from(low)).to_le_bytes() }
    }

    /// The divisions by interval, the interval from 1 MB first; 1 where rounding is off.
    pub fn divisions(&self) -> [u64; Self::INTERVALS] {
        self.logs.map(|log| 1 << log)
    }

    /// The size of the block for a request of so many bytes: a multiple of 512, at least 512.
    ///
    /// Exact for requests up to 2^60 bytes, and never more than 2^60 for those. Does not panic for larger requests.
    #[inline]
    pub fn round(&self, bytes: u64) -> u64 {
        // One comparison for all intervals: off is the usual case.
        if u128::from_ne_bytes(self.logs) == 0 {
            return up(bytes, UNIT_LOG);
        }
        let log = (bytes | 1).ilog2();
        let interval = log.saturating_sub(FIRST_LOG).min(Self::INTERVALS as u32 - 1);
        let step = match u32::from(self.logs[interval as usize]) {
            0 => UNIT_LOG,
            // Below 512 bytes a step this is a size of at most 512·D.
            divisions => log.saturating_sub(divisions).max(UNIT_LOG),
        };
        up(bytes, step)
    }
}

/// The next multiple of a power of two, from one such multiple on.
#[inline]
fn up(bytes: u64, log: u32) -> u64 {
    let mask = (1 << log) - 1;
    bytes.max(1).saturating_add(mask) & !mask
}

/// In the form of the text.
impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divisions = self.divisions();
        let (first, last) = (divisions[0], divisions[Self::INTERVALS - 1]);
        // How many intervals are as the first one, and where those begin that are as the last one.
        let head = divisions.iter().take_while(|&&each| each == first).count();
        let tail =
            Self::INTERVALS - divisions.iter().rev().take_while(|&&each| each == last).count();
        if head == Self::INTERVALS {
            return write!(f, "{first}");
        }
        write!(f, "[{}:{first}", 1_u64 << (head - 1))?;
        for (interval, &each) in divisions.iter().enumerate().take(tail).skip(head) {
            // `>` speaks of the key before it, which must therefore stand there.
            if each > 1 || (interval == tail - 1 && last > 1) {
                write!(f, ",{}:{each}", 1_u64 << interval)?;
            }
        }
        if last > 1 {
            write!(f, ",>:{last}")?;
        }
        f.write_str("]")
    }
}
