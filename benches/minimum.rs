//! What the least memory of a capture costs to find: a table.
//!
//! Each row is a random capture's blocks: on how many streams, how often these join, how many blocks live at once.
//! `gap` is how much more than the minimum the cover takes that the search starts from, `start` its time; `total` is
//! the whole time, the least of several runs; `peak` is the process's memory at its highest, the items' own with it.
//!
//! `cargo bench -p regraph-benches --bench minimum -- [BLOCKS] [NAME]`.

use std::time::{Duration, Instant};

use regraph_plan::cover::{Cover, Item, Items};

/// A kind of capture.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    streams: usize,
    /// How often a step lets a stream wait for another.
    join: f64,
    /// How many blocks live at once, about.
    live: usize,
    /// How often a freed block was used on another stream too.
    shared: f64,
    /// How often a stream is set back to where it was before, in all.
    set_back: usize,
    sizes: Sizes,
}

#[derive(Clone, Copy)]
enum Sizes {
    /// 512 B to some MiB, few of them in each capture.
    Layers,
    /// Any number of bytes up to this.
    Any(u64),
    /// All alike.
    One,
}

const USUAL: Kind = Kind {
    name: "usual",
    streams: 8,
    join: 0.1,
    live: 300,
    shared: 0.2,
    set_back: 0,
    sizes: Sizes::Layers,
};

const KINDS: [Kind; 18] = [
    USUAL,
    Kind { name: "1 stream", streams: 1, ..USUAL },
    Kind { name: "2 streams", streams: 2, ..USUAL },
    Kind { name: "16 streams", streams: 16, ..USUAL },
    Kind { name: "many joins", join: 0.5, ..USUAL },
    Kind { name: "few joins", join: 0.005, ..USUAL },
    Kind { name: "hardly a join", join: 0.0005, ..USUAL },
    Kind { name: "few live", live: 30, ..USUAL },
    Kind { name: "many live", live: 10_000, ..USUAL },
    Kind { name: "half live", live: 50_000, ..USUAL },
    Kind { name: "2^50 bytes", sizes: Sizes::Any(1 << 50), ..USUAL },
    Kind { name: "one size", sizes: Sizes::One, ..USUAL },
    Kind { name: "hard", streams: 16, join: 0.02, shared: 0.7, live: 2_000, ..USUAL },
    Kind { name: "all shared", join: 0.0, shared: 1.0, live: 100, sizes: Sizes::One, ..USUAL },
    Kind { name: "64 streams", streams: 64, ..USUAL },
    Kind { name: "100 set-backs", set_back: 100, ..USUAL },
    Kind { name: "500 set-backs", set_back: 500, ..USUAL },
    Kind { name: "200 streams", streams: 200, ..USUAL },
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo passes this to `cargo bench` only; as a test few blocks will do.
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let blocks = arguments.iter().find_map(|argument| argument.parse().ok());
    let blocks = blocks.unwrap_or(if whole { 100_000 } else { 500 });
    let mut others = arguments.iter().filter(|it| !it.starts_with('-'));
    let only = others.find(|it| it.parse::<usize>().is_err());
    println!("{blocks} blocks    rows         gap       start       total        peak");
    for kind in KINDS.iter().filter(|kind| only.is_none_or(|only| kind.name.contains(only))) {
        let items = kind.items(blocks);
        // Sets the peak to the current figure, where the system can.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let (at_once, start) = least(|| Cover::at_once(&items));
        let (cover, total) = least(|| Cover::new(&items));
        let gap = (at_once as f64 / cover.minimum as f64 - 1.0) * 100.0;
        println!(
            "{:<16}{:>5} {gap:>9.3} % {:>8.1} ms {:>8.1} ms {:>7} MiB",
            kind.name,
            cover.rows.len(),
            start.as_secs_f64() * 1e3,
            total.as_secs_f64() * 1e3,
            peak_mib().map_or_else(|| "?".into(), |peak| peak.to_string()),
        );
    }
}

fn least<R>(run: impl Fn() -> R) -> (R, Duration) {
    let timed = || {
        let start = Instant::now();
        let result = run();
        (result, start.elapsed())
    };
    let first = timed();
    let others = (0..2).map(|_| timed());
    others.fold(first, |least, other| if other.1 < least.1 { other } else { least })
}

impl Kind {
    /// Blocks of a random capture. What streams know is kept as in a vector clock.
    fn items(&self, blocks: usize) -> Items {
        let mut random = fastrand::Rng::with_seed(0x5eed);
        let chains = self.streams + self.set_back;
        let mut items = Items::new(chains);
        let mut clocks = vec![vec![0_u32; chains]; self.streams];
        // Which chain a stream's next node goes to: a new one once it was set back.
        let mut own: Vec<usize> = (0..self.streams).collect();
        let mut earlier = clocks.clone();
        let mut next_chain = self.streams;
        let mut made: Vec<(Item, Vec<u32>, Vec<u32>)> = Vec::with_capacity(blocks);
        let mut live: Vec<(usize, usize)> = Vec::new();
        let layers: Vec<u64> = (0..40).map(|_| 512 << random.u64(0..14)).collect();
        let mut since = 0;
        while made.len() < blocks {
            let stream = random.usize(0..self.streams);
            if random.f64() < self.join {
                let on = random.usize(0..self.streams);
                join(&mut clocks, stream, on);
            }
            since += 1;
            if self.set_back > 0 && since * self.set_back >= blocks && next_chain < chains {
                since = 0;
                std::mem::swap(&mut clocks[stream], &mut earlier[stream]);
                own[stream] = next_chain;
                next_chain += 1;
            }
            let weight = match self.sizes {
                Sizes::Layers => layers[random.usize(0..layers.len())] * random.u64(1..4),
                Sizes::Any(most) => random.u64(0..=most),
                Sizes::One => 512,
            };
            live.push((made.len(), stream));
            let known = clocks[stream].clone();
            made.push((Item::new(weight, stream as u32, false), known.clone(), known));
            clocks[stream][own[stream]] += 1;
            // Blocks of a while ago go, so that about so many live.
            while live.len() > self.live || random.f64() < 0.3 && live.len() > self.live / 2 {
                let (block, stream) = live.swap_remove(random.usize(0..live.len()));
                if random.f64() < 0.01 {
                    continue;
                }
                let (item, _, needed) = &mut made[block];
                item.freed = true;
                raise(needed, &clocks[stream]);
                if random.f64() < self.shared {
                    let other = random.usize(0..self.streams);
                    join(&mut clocks, other, stream);
                    clocks[other][own[other]] += 1;
                    raise(needed, &clocks[other]);
                }
            }
        }
        for (item, known, needed) in made {
            items.push(item, &known, &needed);
        }
        items
    }
}

fn join(clocks: &mut [Vec<u32>], stream: usize, on: usize) {
    let on = clocks[on].clone();
    raise(&mut clocks[stream], &on);
}

fn raise(point: &mut [u32], by: &[u32]) {
    point.iter_mut().zip(by).for_each(|(number, &by)| *number = by.max(*number));
}

fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}
