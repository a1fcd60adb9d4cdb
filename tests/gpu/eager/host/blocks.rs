//! Allocating, using and freeing blocks.

use regraph::engine::{Error, Unknown};

use super::super::{launch, tagged, Device, KIB, MIB};
use super::{Capture, Held, Host};

/// Sizes that come again and again, in bytes; others come now and then.
const SIZES: [u64; 10] = [
    512,
    1536,
    4 * KIB,
    64 * KIB,
    300 * KIB,
    MIB,
    MIB + 512,
    2 * MIB,
    3 * MIB + 512 * KIB,
    8 * MIB,
];

impl<P: Device> Host<P> {
    /// How long a kernel takes, in nanoseconds.
    fn delay(&mut self) -> u32 {
        let delay = match self.random.usize(..10) {
            0..=2 => 0,
            3..=8 => 5_000 + self.random.u32(..55_000),
            _ => 300_000,
        };
        // What is wrong shows only where the host is ahead of the device.
        delay * if self.shape.flaw.is_some() { 4 } else { 1 }
    }

    fn size(&mut self) -> u64 {
        if self.random.u8(..100) < 75 {
            return SIZES[self.random.usize(..SIZES.len())];
        }
        8 * (1 + self.random.u64(..MIB))
    }

    pub(super) fn allocate(&mut self, stream: usize) {
        let bytes = self.size();
        let capturing = self.is_capturing(stream);
        let block = match self.engine.allocate(self.pool, bytes, self.streams[stream]) {
            Ok(block) => block,
            Err(Error::OutOfMemory(_)) => {
                self.failed += 1;
                for _ in 0..self.blocks.len() / 2 {
                    self.free_any();
                }
                return;
            }
            Err(error) => panic!("{error}"),
        };
        self.blocks.push(Held {
            block,
            owner: stream,
            captured: capturing,
            tag: None,
            writer: stream,
            readers: Vec::new(),
            untold: Vec::new(),
        });
        if self.random.u8(..100) < 90 {
            self.write_to(stream, self.blocks.len() - 1);
        }
    }

    /// Whether a stream may use a block, once it has waited for the streams named.
    fn reaches(&self, stream: usize, held: &Held, others: &[usize]) -> bool {
        let side = self.is_capturing(stream);
        held.captured == side && others.iter().all(|&other| self.is_capturing(other) == side)
    }

    /// Launches a kernel that checks some blocks and changes none.
    pub(super) fn read(&mut self, stream: usize) {
        let mut inputs = Vec::new();
        for _ in 0..1 + self.random.usize(..3) {
            let Some(number) = self.any_block() else { break };
            let held = &self.blocks[number];
            let Some(tag) = held.tag else { continue };
            if inputs.contains(&tagged(held.block, tag))
                || !self.reaches(stream, held, &[held.writer])
                // Most work is its own stream's, so that not everything is ordered.
                || (held.owner != stream && self.random.u8(..100) >= 40)
            {
                continue;
            }
            let held = &self.blocks[number];
            inputs.push(tagged(held.block, tag));
            self.wait(stream, held.writer);
            self.note_use(number, stream);
        }
        if let Some(Capture { weights, .. }) =
            self.capture.as_ref().filter(|capture| capture.members.contains(&stream))
        {
            for weight in weights {
                self.engine.record_stream(weight.block.id, self.streams[stream]).unwrap();
                inputs.extend(weight.tag.map(|tag| tagged(weight.block, tag)));
            }
        }
        let delay = self.delay();
        launch(&*self.driver, self.streams[stream], (&inputs, &[]), delay);
    }

    pub(super) fn write(&mut self, stream: usize) {
        let Some(number) = self.any_block() else { return };
        let held = &self.blocks[number];
        let mut others = held.readers.clone();
        others.push(held.writer);
        if !self.reaches(stream, held, &others) {
            return;
        }
        for other in others {
            self.wait(stream, other);
        }
        self.write_to(stream, number);
    }

    /// Launches a kernel that writes a block, and checks before what it held.
    fn write_to(&mut self, stream: usize, number: usize) {
        self.tag += 1;
        let delay = self.delay();
        let held = &self.blocks[number];
        let before = held.tag.map(|tag| tagged(held.block, tag));
        let after = tagged(held.block, self.tag);
        launch(&*self.driver, self.streams[stream], (before.as_slice(), &[after]), delay);
        self.note_use(number, stream);
        let held = &mut self.blocks[number];
        (held.tag, held.writer) = (Some(self.tag), stream);
        held.readers.clear();
    }

    pub(super) fn note_use(&mut self, number: usize, stream: usize) {
        let tell = self.random.u8(..100) < 60;
        let held = &mut self.blocks[number];
        if !held.readers.contains(&stream) {
            held.readers.push(stream);
        }
        if stream == held.owner {
            return;
        }
        if tell {
            self.engine.record_stream(held.block.id, self.streams[stream]).unwrap();
            held.untold.retain(|&other| other != stream);
        } else if !held.untold.contains(&stream) {
            held.untold.push(stream);
        }
    }

    pub(super) fn any_block(&mut self) -> Option<usize> {
        // The young are used and freed more often than the old.
        let count = self.blocks.len();
        let from = if self.random.u8(..100) < 70 { count.saturating_sub(8) } else { 0 };
        (count > 0).then(|| from + self.random.usize(..count - from))
    }

    pub(super) fn free_any(&mut self) {
        let Some(number) = self.any_block() else { return };
        let held = self.blocks.swap_remove(number);
        self.free(held);
    }

    pub(super) fn free(&mut self, held: Held) {
        let Held { block, mut untold, .. } = held;
        let last = untold.pop();
        for stream in untold {
            self.engine.record_stream(block.id, self.streams[stream]).unwrap();
        }
        match last {
            Some(stream) if self.shape.flaw.is_none() => {
                self.engine.record_stream(block.id, self.streams[stream]).unwrap();
                self.engine.free(block.id).unwrap();
            }
            Some(stream) => {
                self.engine.record_stream(block.id, self.streams[stream]).unwrap();
                self.engine.free(block.id).unwrap();
            }
            None => self.engine.free(block.id).unwrap(),
        }
        assert!(matches!(
            self.engine.free(block.id),
            Err(Error::Unknown { what: Unknown::Block(_), .. })
        ));
    }
}
