//! Memory of the host in huge pages of this process, which the driver locks.
//!
//! The driver locks pages that are there more than twice as fast as it gets pages of its own, and several threads
//! together ten times as fast (`design/sleep-and-lend.md`, "Regions").

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::super::HostPlace;
#[cfg(target_os = "linux")]
use super::host_memory;

/// The size to which huge pages are aligned, in bytes.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

/// Memory of this process, every page of it touched. One value for each mapping, which [`Pages::give_back`] ends.
#[derive(Debug)]
pub(super) struct Pages {
    /// The first address, aligned to huge pages.
    place: usize,
    /// What is mapped around it: an address and a size in bytes.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    mapped: (usize, usize),
    /// Whether the driver has locked them.
    locked: bool,
}

impl Pages {
    pub(super) fn place(&self) -> HostPlace {
        HostPlace(self.place)
    }

    pub(super) fn is_locked(&self) -> bool {
        self.locked
    }
}

#[cfg(target_os = "linux")]
impl Pages {
    /// Pages of `bytes` bytes, with zeros; `None` where the system refuses the mapping or has not clearly room for it,
    /// since touching more than it has ends the process.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        /// What the system has to have left beyond what is touched, in bytes, and as a part of what this process may
        /// have: threads of this process and of others, such as one for each device, touch pages meanwhile.
        const MARGIN: u64 = 1 << 30;
        const MARGIN_PART: u64 = 32;
        let margin = MARGIN.max(host_memory::of_process()? / MARGIN_PART);
        Self::with_room(bytes, |left| {
            let needed = left.checked_add(margin);
            needed.zip(host_memory::available()).is_some_and(|(needed, all)| all >= needed)
        })
    }

    /// Pages of `bytes` bytes, as long as the system has room for so many more.
    fn with_room(bytes: u64, has_room: impl Fn(u64) -> bool) -> Option<Self> {
        /// Memory is touched at this distance, in bytes: no page is smaller.
        const PAGE: usize = 4 << 10;
        /// After so many bytes it is asked again whether there is room, of which others may have taken some.
        const STEP: usize = 8 << 20;
        if !has_room(bytes) {
            return None;
        }
        let bytes = usize::try_from(bytes).ok()?;
        let all = bytes.checked_add(HUGE)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: maps new memory, at addresses of the system's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), all, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let place = (start as usize).next_multiple_of(HUGE);
        let pages = Self { place, mapped: (start as usize, all), locked: false };
        // Not given to forked processes: a write by either would have the kernel replace a page that the device copies
        // to.
        // SAFETY: gives advice on the memory that was mapped above.
        if unsafe { libc::madvise(start, all, libc::MADV_DONTFORK) } != 0 {
            pages.give_back();
            return None;
        }
        // Where the system has no huge pages, small ones do.
        // SAFETY: gives advice on the memory that was mapped above.
        let _ = unsafe { libc::madvise(start, all, libc::MADV_HUGEPAGE) };
        for offset in (0..bytes).step_by(PAGE) {
            if offset > 0 && offset % STEP == 0 && !has_room((bytes - offset) as u64) {
                pages.give_back();
                return None;
            }
            // SAFETY: the address lies in the memory that was mapped above, which nothing else knows of.
            unsafe { std::ptr::write_volatile((place + offset) as *mut u8, 0) };
        }
        Some(pages)
    }

    /// Gives them back to the system. The driver must have unlocked them, and nothing may use them.
    pub(super) fn give_back(self) {
        let (start, bytes) = self.mapped;
        // SAFETY: unmaps what `new` mapped, all of it and once, and the caller says that it is in no use. The call fails
        // for no such memory.
        let _ = unsafe { libc::munmap(start as *mut libc::c_void, bytes) };
    }
}

#[cfg(not(target_os = "linux"))]
impl Pages {
    /// None: the driver has pages of its own.
    pub(super) fn new(_: u64) -> Option<Self> {
        None
    }

    /// There are none to give back.
    pub(super) fn give_back(self) {}
}

/// The pages that a driver has handed out, by their first address. Those that are never freed stay mapped, since the
/// device may copy to them.
#[derive(Debug, Default)]
pub(super) struct PageTable(Mutex<BTreeMap<usize, Pages>>);

impl PageTable {
    /// Enters pages that are handed out, and whether the driver has locked them.
    pub(super) fn insert(&self, pages: Pages, locked: bool) {
        // No step under the lock leaves the table half changed.
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.insert(pages.place, Pages { locked, ..pages });
    }

    /// Takes pages out by where they begin, for one caller.
    pub(super) fn take(&self, place: HostPlace) -> Option<Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&place.0)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Pages, HUGE};

    #[test]
    fn pages_are_aligned_and_can_be_written_to_their_end() {
        for bytes in [HUGE, 3 * HUGE, 4096] {
            let Some(pages) = Pages::new(bytes as u64) else { continue };
            assert_eq!(pages.place % HUGE, 0);
            let (start, all) = pages.mapped;
            assert!(start <= pages.place && pages.place + bytes <= start + all);
            // SAFETY: the memory is this test's, of that size.
            let here = unsafe { std::slice::from_raw_parts_mut(pages.place as *mut u8, bytes) };
            assert!(here.iter().all(|byte| *byte == 0));
            here.fill(7);
            pages.give_back();
        }
    }

    #[test]
    fn no_more_is_touched_where_others_have_taken_the_room() {
        let asked = std::cell::Cell::new(0);
        let bytes = 64 << 20;
        let short = Pages::with_room(bytes, |left| {
            asked.set(asked.get() + 1);
            assert!(left <= bytes);
            left > bytes / 2
        });
        assert!(short.is_none());
        assert_eq!(asked.get(), 5, "at the beginning, and each 8 MiB up to the half");
    }

    #[test]
    fn more_than_the_machine_has_is_not_touched() {
        for bytes in [u64::MAX, u64::MAX - 1, 1 << 62] {
            assert!(Pages::new(bytes).is_none());
        }
    }
}
