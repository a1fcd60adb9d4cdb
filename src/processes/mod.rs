//! Memory that goes from process to process.
//!
//! A process sends another one a *handle*, bytes, by any means (`handle`). The sender offers what it names (`offer`), and
//! the receiver fetches it. A loan is given to one process, and called back (`loans`, `connection`).

#[cfg(all(feature = "processes", target_os = "linux"))]
mod connection;
mod handle;
mod loans;
#[cfg(all(feature = "processes", target_os = "linux"))]
mod offer;

use std::sync::Arc;

use crate::error::{Error, SharingRefusal};
use crate::heap::SharedPiece;
#[cfg(all(feature = "processes", target_os = "linux"))]
use crate::sync::{Mutex, Rank};
pub(crate) use connection::TakenEnd;
pub use handle::{Handle, HandleError, SentPieces};
pub use loans::LoanState;
pub(crate) use loans::{Borrowed, LoanTable};

/// There is none without the feature `processes`, and on other systems than Linux.
#[cfg(not(all(feature = "processes", target_os = "linux")))]
mod connection {
    use std::io;
    use std::time::Duration;

    use super::handle::SentPieces;

    pub(super) const NEEDS: &str = "it needs Linux, and the feature `processes` of regraph";
    /// Either end.
    pub(crate) enum Never {}

    pub(crate) type LoanTaker = Never;
    pub(crate) type TakenEnd = Never;

    impl Never {
        pub(super) fn answer(&self, _: bool) {}
        pub(super) fn recall(&self) {}
        pub(crate) fn ask(_: &SentPieces, _: u64) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, NEEDS))
        }
        pub(crate) fn is_recalled(&self, _: Duration) -> bool {
            match *self {}
        }
        pub(crate) fn say_back(&self) {}
    }
}

/// What an engine offers to other processes.
pub(crate) struct OtherProcesses {
    #[cfg(all(feature = "processes", target_os = "linux"))]
    made: Mutex<Option<offer::Offers>>,
    loans: Arc<LoanTable>,
}

impl OtherProcesses {
    /// Nothing, and no socket yet.
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(all(feature = "processes", target_os = "linux"))]
            made: Mutex::new(Rank::Offers, None),
            loans: Arc::new(LoanTable::new()),
        }
    }

    /// The loans to and from other processes.
    pub(crate) fn loans(&self) -> &LoanTable {
        &self.loans
    }

    /// Offers pieces to other processes.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(crate) fn offer(&self, pieces: &[SharedPiece]) -> Result<SentPieces, Error> {
        let refused =
            |why| Error::Sharing { call: "share", why: SharingRefusal::NotOffered { why } };
        let why = |error: std::io::Error| refused(error.to_string());
        // Made whole, or not at all.
        let mut offers = self.made.lock();
        let offers = match &mut *offers {
            Some(offers) => offers,
            none => none.insert(offer::Offers::new(&self.loans).map_err(why)?),
        };
        if !offers.is_own() {
            let why =
                "this process was forked from one that shared memory, and CUDA does not outlive \
                       that; start it with the method spawn or forkserver";
            return Err(refused(why.to_owned()));
        }
        let pieces: Result<_, _> = pieces.iter().map(|piece| offers.offer(piece)).collect();
        Ok(SentPieces::new(offers.sender(), pieces.map_err(why)?))
    }

    #[cfg(not(all(feature = "processes", target_os = "linux")))]
    pub(crate) fn offer(&self, _: &[SharedPiece]) -> Result<SentPieces, Error> {
        let why = "mapped memory is shared on Linux, with regraph's feature `processes`; set caching:False".to_owned();
        Err(Error::Sharing { call: "share", why: SharingRefusal::NotOffered { why } })
    }
}
