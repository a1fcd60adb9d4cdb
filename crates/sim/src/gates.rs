//! The one answer that is given without the lock: that a stream does not capture.
//!
//! Each stream has a gate. An open one says that the stream lives, is in no capture, and that no call is to fail: then
//! the answer is known and only has to be counted. A thread that finds a gate closed asks under the lock. Gates are set
//! under the lock alone, from what stands behind it, before the call that changed that returns.
//!
//! A gate has cache lines of its own, so that threads that ask about different streams share nothing that changes.

// Shuttle need not see the table grow: that happens under the lock, and a gate is closed at first.
use std::sync::OnceLock;

use super::{slots, State};
use regraph::sync::{AtomicBool, AtomicU64, Ordering};

/// Gates in the first chunk; each further chunk has twice as many.
const FIRST: usize = 16;

/// Enough for 2^32 streams.
const CHUNKS: usize = 33 - FIRST.ilog2() as usize;

/// Two cache lines, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Gate {
    open: AtomicBool,
    /// Questions answered here.
    answered: AtomicU64,
}

/// A gate for each stream, by its slot. Chunks come and stay, so that readers need no lock.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Gates {
    chunks: [OnceLock<Box<[Gate]>>; CHUNKS],
}

/// The chunk that a slot's gate is in, and where.
#[inline]
fn place(slot: usize) -> Option<(usize, usize)> {
    let position = slot.checked_add(FIRST)?;
    let chunk = (position / FIRST).ilog2() as usize;
    Some((chunk, position - (FIRST << chunk)))
}

impl Gates {
    /// Whether the stream is known not to capture, which counts as a call if so.
    #[inline]
    pub(super) fn answer(&self, slot: usize) -> bool {
        let Some(gate) = self.gate(slot) else {
            return false;
        };
        let open = gate.open.load(Ordering::Acquire);
        if open {
            gate.answered.fetch_add(1, Ordering::Relaxed);
        }
        open
    }

    /// How many questions were answered here.
    pub(super) fn answered(&self) -> u64 {
        let gates = self.chunks.iter().filter_map(OnceLock::get).flat_map(|chunk| chunk.iter());
        gates.map(|gate| gate.answered.load(Ordering::Relaxed)).sum()
    }

    #[inline]
    fn gate(&self, slot: usize) -> Option<&Gate> {
        let (chunk, offset) = place(slot)?;
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    fn set(&self, slot: usize, open: bool) {
        let (chunk, offset) = place(slot).expect("a stream's slot is far below the last number");
        let gates = self.chunks[chunk]
            .get_or_init(|| (0..FIRST << chunk).map(|_| Gate::default()).collect());
        gates[offset].open.store(open, Ordering::Release);
    }
}

impl State {
    /// Sets a stream's gate. To be called wherever something that it says may have changed.
    pub(super) fn set_gate(&self, slot: usize) {
        let implicit = slot == slots::LEGACY && self.blocking_captures > 0;
        let elsewhere = slot < slots::CREATED && !self.elsewhere.is_empty();
        let open =
            self.streams[slot].is_idle() && !implicit && !elsewhere && !self.faults.are_pending();
        self.gates.set(slot, open);
    }

    /// Sets all gates, for what concerns every stream.
    #[cold]
    pub(super) fn set_all_gates(&self) {
        for slot in 0..self.streams.len() {
            self.set_gate(slot);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use crate::{Call, SimConfig, SimDriver};
    use regraph::driver::{CaptureMode, Driver, ErrorKind, HostApi, StreamHandle};

    /// Asks each stream once, and returns which were answered here.
    fn open<const N: usize>(sim: &SimDriver, streams: [StreamHandle; N]) -> [bool; N] {
        streams.map(|stream| {
            let before = sim.gates.answered();
            let _ = sim.capture_status(stream, &mut Vec::new());
            sim.gates.answered() > before
        })
    }

    #[test]
    fn gates_open_again_once_nothing_speaks_against_it() {
        let sim = SimDriver::new(SimConfig::default());
        let (a, b) = (sim.create_blocking_stream(), sim.create_blocking_stream());
        let all = [StreamHandle::from_bits(0), a, b];
        assert_eq!(open(&sim, all), [true; 3]);

        sim.begin_capture(a, CaptureMode::Global).expect("a stream that is idle");
        assert_eq!(open(&sim, all), [false, false, true]);
        sim.wait(b, a).expect("a sound capture");
        assert_eq!(open(&sim, all), [false; 3]);
        sim.end_capture(a).expect("nothing was left unjoined");
        assert_eq!(open(&sim, all), [true; 3]);

        sim.fail_nth(Call::CreateEvent, 0, ErrorKind::NotSupported);
        assert_eq!(open(&sim, all), [false; 3]);
        let _ = sim.create_event();
        assert_eq!(open(&sim, all), [true; 3]);
    }
}
