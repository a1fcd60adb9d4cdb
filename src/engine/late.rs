//! Says which nodes use a block later than was recorded.

use crate::driver::CaptureId;
use crate::uses::LateUse;

/// So many are written one by one.
const SHOWN: usize = 10;

/// Writes what was found to standard error: whoever does not read reports shall know too.
pub(super) fn warn(capture: CaptureId, uses: &[LateUse]) {
    if uses.is_empty() {
        return;
    }
    let (count, id) = (uses.len(), capture.0);
    eprintln!("regraph: capture {id}: {count} uses of blocks later than was recorded:");
    for late in uses.iter().take(SHOWN) {
        eprintln!("  {late}");
    }
    if count > SHOWN {
        eprintln!("  and {} more", count - SHOWN);
    }
}
