//! Which addresses lie on which physical memory.

use super::history::{Binding, History, SharedMemory};
use super::numbers::Numbers;
use super::violation::Violation;

/// Addresses that follow each other on one memory.
struct Range {
    start: u64,
    end: u64,
    memory: u32,
    offset: u64,
}

/// A stretch of physical memory.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Which of the memories.
    pub memory: u32,
    /// Where it begins in that, in bytes.
    pub start: u64,
    pub end: u64,
}

/// One physical memory.
pub(super) struct Memory {
    pub number: u64,
    /// Its size in bytes, or [`u64::MAX`] where that is not known.
    bytes: u64,
    /// Whether a graph overwrites it that the host has freed no output of there.
    pub shared: bool,
}

/// All that the journal says of physical memory.
pub(super) struct Bindings {
    /// By start; none overlap.
    ranges: Vec<Range>,
    pub memories: Vec<Memory>,
}

impl Bindings {
    /// Refuses what contradicts itself.
    pub fn read(history: &History) -> Result<Self, Violation> {
        let mut bound = history.bindings.clone();
        bound.retain(|binding| binding.bytes > 0);
        bound.sort_unstable_by_key(|binding| binding.address);
        let mut numbers = Numbers::with_capacity(0);
        let mut bindings = Self { ranges: Vec::with_capacity(bound.len()), memories: Vec::new() };
        for binding in bound {
            let Self { memories, .. } = &mut bindings;
            let known = numbers.get(binding.memory, |it| memories[it as usize].number);
            let memory = known.unwrap_or_else(|| {
                let memory = memories.len() as u32;
                memories.push(Memory { number: binding.memory, bytes: u64::MAX, shared: false });
                numbers.insert(binding.memory, memory, |it| memories[it as usize].number);
                memory
            });
            bindings.add(binding, memory)?;
        }
        let mut freed = history.outputs_freed.clone();
        freed.sort_unstable();
        for &SharedMemory { memory: number, bytes, graph } in &history.shared {
            let known = numbers.get(number, |it| bindings.memories[it as usize].number);
            if let Some(memory) = known {
                let keeps = freed.binary_search(&(number, graph)).is_err();
                let memory = &mut bindings.memories[memory as usize];
                memory.shared |= keeps;
                memory.bytes = memory.bytes.min(bytes);
            }
        }
        // Nothing is bound behind the end of a memory.
        for range in &bindings.ranges {
            let Memory { number: memory, bytes, .. } = bindings.memories[range.memory as usize];
            if range.offset + (range.end - range.start) > bytes {
                return Err(Violation::BoundBeyond { address: range.start, memory });
            }
        }
        Ok(bindings)
    }

    /// Adds what begins no earlier than all others so far.
    fn add(&mut self, binding: Binding, memory: u32) -> Result<(), Violation> {
        let Binding { address, bytes, offset, .. } = binding;
        let (Some(end), Some(_)) = (address.checked_add(bytes), offset.checked_add(bytes)) else {
            return Err(Violation::BoundBeyond { address, memory: binding.memory });
        };
        if let Some(last) = self.ranges.last_mut().filter(|last| address <= last.end) {
            // Told twice, or going on where the last one ends.
            let same = memory == last.memory
                && offset.wrapping_sub(address) == last.offset.wrapping_sub(last.start);
            if same {
                last.end = last.end.max(end);
                return Ok(());
            }
            if address < last.end {
                let memories = [self.memories[last.memory as usize].number, binding.memory];
                return Err(Violation::BoundTwice { address, memories });
            }
        }
        self.ranges.push(Range { start: address, end, memory, offset });
        Ok(())
    }

    /// The memory behind those of the addresses that are bound.
    pub fn parts(&self, start: u64, end: u64) -> impl Iterator<Item = Part> + '_ {
        let first = self.ranges.partition_point(|range| range.end <= start);
        let behind = self.ranges[first..].iter().take_while(move |range| range.start < end);
        behind.map(move |range| {
            let (from, to) = (start.max(range.start), end.min(range.end));
            Part {
                memory: range.memory,
                start: range.offset + (from - range.start),
                end: range.offset + (to - range.start),
            }
        })
    }
}
