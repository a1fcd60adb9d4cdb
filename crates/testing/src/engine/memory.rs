//! Allocating, using and freeing blocks.

use arbitrary::{Result, Unstructured};

use super::contents::{Content, Freed};
use super::world::{must, Block, LastUse, Launched, Standing, World};
use regraph::driver::{Driver, EdgeData, NodeHandle};
use regraph::engine::WaitReason::OutsideWork;
use regraph::engine::{Attempt, Error, FreeRange, Refusal};
use regraph::settings::{Programmatic, Reuse};
use regraph::snapshot::{Segment, SegmentType};
use regraph_sim::Call;
use regraph_tagged::Program;

const MIB: u64 = 1 << 20;
/// The largest small block, in bytes.
const SMALL: u64 = MIB;

/// What a program asks for.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=9u8)? {
        0 => u.int_in_range(1..=2048)?,
        1 => 512 * u.int_in_range(1..=64)?,
        2 => u.int_in_range(1..=SMALL + 1)?,
        3 => SMALL,
        4..=6 => 2 * MIB * u.int_in_range(1..=4)?,
        7 | 8 => MIB * u.int_in_range(1..=12)?,
        _ => u.int_in_range(1..=24 * MIB)?,
    })
}

/// Whether it is kept for a stream that works outside captures.
fn is_kept(refusal: Option<&Refusal>) -> bool {
    matches!(refusal, Some(Refusal::Waiting(OutsideWork(_)) | Refusal::Ordered { .. }))
}

impl World {
    pub(super) fn allocate(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let pool = u.choose_index(self.pools.len())?;
        let requested = size(u)?;
        let asked_first = u.ratio(1, 4)?;
        let bytes = requested.next_multiple_of(512);
        let standing = self.standing(stream);
        let fits = asked_first
            && self.explain(pool, stream).is_some_and(|ranges| {
                let snapshot = self.engine.snapshot().expect("no call has panicked");
                let small = |it: &&Segment| it.segment_type == SegmentType::Small;
                let extent = |it: &Segment| it.address..it.address + it.total_size;
                // The segments that small blocks are looked for in first.
                let small: Vec<_> = snapshot.segments.iter().filter(small).map(extent).collect();
                ranges.iter().any(|range| {
                    range.refusal.is_none()
                        && range.bytes >= bytes
                        && small.iter().any(|it| it.contains(&range.address)) == (bytes <= SMALL)
                })
            });
        let reserved = self.reserved(pool);
        let seen = self.is_seen(standing, pool);
        let fixed = self.plan.is_some() && u.ratio(1, 8)?;
        let (handle, of) = (self.streams[stream], self.pools[pool]);
        let block = match fixed {
            true => self.engine.allocate_fixed(of, requested, handle),
            false => self.engine.allocate(of, requested, handle),
        };
        let block = match block {
            Ok(block) => block,
            Err(Error::OutOfMemory(_)) => {
                // A planned capture might not be able to bind a block beside all that it has live, or that is held until its
                // end: what its pool holds for others is of no use then. In pages of up to 2 MiB.
                let mine = |it: &&Block| it.home.is_some_and(|it| standing == Standing::Inside(it));
                let live = self.blocks.iter().filter(mine).map(|it| it.bytes).chain([bytes]);
                let all: u64 = live.map(|bytes| bytes.next_multiple_of(2 << 20)).sum();
                let limit = self.engine.memory_limit().expect("no call has panicked");
                let most = limit.unwrap_or(u64::MAX).min(self.capacity);
                let inside = matches!(standing, Standing::Inside(_));
                let refused = fixed || inside && self.plan.is_some() && all > most;
                assert!(
                    !fits || refused,
                    "a free range was large enough, and the request was refused"
                );
                self.note_seen(standing, pool, seen);
                return Ok(());
            }
            Err(Error::CaptureInvalidated { .. }) => {
                self.expect_ruined(standing);
                return Ok(());
            }
            Err(error) => panic!("allocate: {error}"),
        };
        assert!(!matches!(standing, Standing::Ruined(_)), "a ruined capture got memory");
        self.note_seen(standing, pool, seen);
        assert!(
            !fits || self.plan.is_some() || self.learns || self.reserved(pool) <= reserved,
            "grew though a free range was large enough"
        );
        self.tell(format_args!(
            "block {} on {stream} from pool {pool}: {:#x}+{bytes:#x}, {standing:?}",
            self.blocks.len(),
            block.address
        ));
        self.addresses.push(block.address);
        assert_eq!(block.address % 512, 0, "blocks begin at multiples of 512");
        let end = block.address + bytes;
        for address in [block.address, end - 512] {
            assert!(self.driver.read_tags(address, 512).is_ok(), "{address:#x} is not mapped");
        }
        for other in self.live() {
            let other = &self.blocks[other];
            let apart = other.end() <= block.address || end <= other.address;
            assert!(apart, "a block was handed out over a live one");
        }
        let home = match standing {
            Standing::Inside(capture) => Some(capture),
            _ => None,
        };
        self.blocks.push(Block {
            id: block.id,
            pool,
            requested,
            address: block.address,
            bytes,
            born: self.now,
            home,
            terminals: (0..self.streams.len()).map(|it| self.terminal_nodes(it)).collect(),
            uses: vec![(stream, None)],
            late: Vec::new(),
            freed: None,
            tag: self.blocks.len() as u64 + 1,
            writer: None,
            behind: Vec::new(),
            behind_first: match self.plan {
                Some(_) => self.driver.behind(block.address, bytes).unwrap_or_default(),
                None => Vec::new(),
            },
        });
        self.judge_eager_users(self.blocks.len() - 1);
        let displaced = self.contents[pool].put(block.address, end, Content::Live);
        self.displaced.push(displaced);
        Ok(())
    }

    fn is_seen(&self, standing: Standing, pool: usize) -> bool {
        match standing {
            Standing::Inside(capture) => self.captures[capture].seen[pool].is_some(),
            _ => true,
        }
    }

    pub(super) fn note_seen(&mut self, standing: Standing, pool: usize, seen: bool) {
        if let (Standing::Inside(capture), false) = (standing, seen) {
            self.captures[capture].seen[pool] = Some(self.now);
        }
    }

    pub(super) fn expect_ruined(&mut self, standing: Standing) {
        match standing {
            Standing::Ruined(capture) => self.bury(capture),
            other => panic!("called ruined, and is {other:?}"),
        }
    }

    pub(super) fn reserved(&self, pool: usize) -> u64 {
        let statistics = self.engine.pool_statistics(self.pools[pool]);
        statistics.expect("the pool exists").reserved
    }

    /// Names a stream as a user of a block.
    pub(super) fn record_stream(&mut self, block: usize, stream: usize) {
        let handle = self.streams[stream];
        let recorded = self.engine.record_stream(self.blocks[block].id, handle);
        recorded.expect("the block is live");
        self.tell(format_args!("use of {block} by {stream}"));
        self.name_user(block, stream);
    }

    fn name_user(&mut self, block: usize, stream: usize) {
        let now = self.now;
        let named = self.blocks[block].uses.iter().any(|it| it.0 == stream && it.1.is_none());
        if !named {
            self.blocks[block].late.push((stream, now));
        }
        let uses = &mut self.blocks[block].uses;
        match uses.iter_mut().find(|it| it.0 == stream) {
            Some(used) => used.1 = None,
            None => uses.push((stream, None)),
        }
    }

    /// Declares what a stream holds so far to include its last use of a block.
    pub(super) fn record_use(&mut self, block: usize, stream: usize) {
        let standing = self.standing(stream);
        match self.engine.record_use(self.blocks[block].id, self.streams[stream]) {
            Ok(()) => {}
            Err(Error::CaptureInvalidated { .. }) => return self.expect_ruined(standing),
            Err(error) => panic!("record_use: {error}"),
        }
        self.tell(format_args!("last use of {block} by {stream}"));
        let home = self.blocks[block].home;
        let last = LastUse {
            time: self.now,
            terminals: self.terminal_nodes(stream),
            inside: home.is_some() && standing == Standing::Inside(home.unwrap_or_default()),
        };
        if self.blocks[block].uses.iter().all(|it| it.0 != stream || it.1.is_some()) {
            self.blocks[block].late.push((stream, last.time));
        }
        let uses = &mut self.blocks[block].uses;
        match uses.iter_mut().find(|it| it.0 == stream) {
            Some(used) => used.1 = Some(last),
            None => uses.push((stream, Some(last))),
        }
    }

    /// Frees a block, perhaps in the order of another stream.
    pub(super) fn free(&mut self, block: usize, from: Option<usize>) {
        let id = self.blocks[block].id;
        let ruined = self.ruined_by(block, from);
        self.tell(format_args!("free of {block} from {from:?}, ruined {ruined:?}"));
        let result = match from {
            Some(stream) => {
                let recorded = self.engine.record_stream(id, self.streams[stream]);
                let result = recorded.and_then(|()| self.engine.free(id));
                self.name_user(block, stream);
                result
            }
            None => self.engine.free(id),
        };
        result.expect("the block is live");
        self.blocks[block].freed = Some(self.now);
        let content = self.content_after(block);
        for capture in ruined {
            self.bury(capture);
        }
        let Block { pool, address, .. } = self.blocks[block];
        let end = self.blocks[block].end();
        self.contents[pool].put(address, end, content);
    }

    /// Captures that the engine may learn from this block's streams to be ruined.
    fn ruined_by(&self, block: usize, from: Option<usize>) -> Vec<usize> {
        let uses = self.blocks[block].uses.iter().map(|it| it.0).chain(from);
        uses.filter_map(|stream| match self.standing(stream) {
            Standing::Ruined(capture) => Some(capture),
            _ => None,
        })
        .collect()
    }

    /// What should lie where a block was just freed.
    fn content_after(&self, number: usize) -> Content {
        let block = &self.blocks[number];
        let Some(home) =
            block.home.filter(|&home| self.captures[home].ended.is_none() && self.is_sound(home))
        else {
            return Content::Other;
        };
        let mut freed = Freed {
            capture: home,
            owner: block.owner(),
            markers: Vec::new(),
            held: false,
            vague: false,
        };
        let mut worked = false;
        for (stream, last) in &block.uses {
            let terminals: Vec<NodeHandle> = match last {
                Some(last) if last.inside => last.terminals.clone(),
                _ if self.standing(*stream) == Standing::Inside(home) => {
                    self.terminal_nodes(*stream)
                }
                _ => {
                    freed.held = true;
                    continue;
                }
            };
            let empty = Vec::new();
            let at_birth = block.terminals.get(*stream).unwrap_or(&empty);
            worked |= *at_birth != terminals;
            freed.vague |= *stream != block.owner();
            freed.markers.extend(terminals);
        }
        freed.held |= self.reuse == Reuse::Deferred && block.uses.len() > 1;
        freed.held |= self.nested_under_way(home, block.pool);
        if freed.held || worked {
            freed.vague = false;
        } else {
            freed.markers.clear();
            for (_, _, content) in &self.displaced[number] {
                if let Content::Freed(before) = content {
                    if before.capture == home {
                        freed.markers.extend_from_slice(&before.markers);
                        freed.vague |= before.vague;
                    }
                }
            }
        }
        // A host cannot tell whether the engine knows of a ruin yet, or of a capture's use
        // of a pool that it does not allocate from.
        freed.vague |= self.under_way().into_iter().any(|other| {
            let capture = &self.captures[other];
            other != home
                && (capture.fate == super::world::Fate::Dead || capture.seen[block.pool].is_none())
        });
        // Without markers it is free for every capture, as if it had never been a block.
        if freed.markers.is_empty() && !freed.held {
            return Content::Other;
        }
        Content::Freed(freed)
    }

    /// Whether a capture that is younger than this one uses the pool too.
    fn nested_under_way(&self, home: usize, pool: usize) -> bool {
        let first = |capture: usize| self.captures[capture].seen.iter().flatten().min();
        let older = first(home);
        self.under_way().into_iter().any(|other| {
            other != home
                && self.captures[other].fate == super::world::Fate::UnderWay
                && self.captures[other].seen[pool].is_some()
                && first(other) > older
        })
    }

    /// What the engine says of a pool's free memory, compared with the definition.
    pub(super) fn explain(&mut self, pool: usize, stream: usize) -> Option<Vec<FreeRange>> {
        let standing = self.standing(stream);
        self.tell(format_args!("explain pool {pool} to {stream}"));
        let ranges = match self.engine.explain(self.pools[pool], self.streams[stream]) {
            Ok(ranges) => ranges,
            Err(Error::CaptureInvalidated { .. }) => {
                self.expect_ruined(standing);
                return None;
            }
            Err(error) => panic!("explain: {error}"),
        };
        if let Standing::Inside(capture) = standing {
            let traits = self.family_traits(capture);
            let edited = traits.stray || traits.edited;
            let plain = !(traits.launch_order || traits.set_back || edited) && self.flaw.is_none();
            if let Some(next) = self.next_edge(capture).filter(|_| plain) {
                for range in &ranges {
                    self.judge_free_range(pool, stream, capture, next, range);
                }
            }
        }
        Some(ranges)
    }

    /// What the engine takes the edges to a capture's next nodes for, and what it cannot tell exactly.
    fn next_edge(&self, capture: usize) -> Option<EdgeData> {
        let programmatic = self.family_traits(capture).programmatic;
        match (self.programmatic, self.captures[capture].attempt) {
            (Programmatic::Auto, Attempt::Again) if self.foresees => None,
            (Programmatic::Lag, _) | (Programmatic::Auto, Attempt::Last) => {
                Some(EdgeData::PROGRAMMATIC)
            }
            (Programmatic::Auto, _) => Some(EdgeData::FULL),
            (Programmatic::Deny | Programmatic::Trust, _) => {
                (!programmatic).then_some(EdgeData::FULL)
            }
        }
    }

    /// In a plain program the engine knows exactly what is free for whom.
    fn judge_free_range(
        &self,
        pool: usize,
        stream: usize,
        capture: usize,
        next: EdgeData,
        range: &FreeRange,
    ) {
        if range.refusal == Some(Refusal::Ahead) {
            return;
        }
        let mut expected = true;
        // What lies beside memory that a stream gave back outside captures is kept for that stream
        // until its work has completed, though no kernel ever used it.
        let contents = self.contents[pool].within(range.address, range.address + range.bytes);
        if contents.is_empty() && is_kept(range.refusal.as_ref()) {
            return;
        }
        for (_, _, content) in contents {
            match content {
                Content::Freed(freed) if freed.capture == capture && !freed.vague => {
                    let own = self.reuse == Reuse::CrossStream || freed.owner == stream;
                    let mut terminals = self.terminals(stream);
                    if terminals.iter().any(|terminal| terminal.edge != EdgeData::FULL) {
                        return;
                    }
                    terminals.iter_mut().for_each(|terminal| terminal.edge = next);
                    let completed = self.captures[capture].nodes.completed(&terminals);
                    let proven = freed.markers.iter().all(|marker| completed.contains(marker));
                    expected &= own && !freed.held && proven;
                }
                Content::Live => panic!("{range:?} is in a block"),
                Content::Freed(_) | Content::Other => return,
            }
        }
        assert_eq!(
            range.refusal.is_none(),
            expected,
            "{range:?} for stream {stream}: the definition says otherwise"
        );
    }

    /// Work outside captures that may use memory must be over before the memory is given away, or
    /// come before the next work of the stream that gets it: its own.
    fn judge_eager_users(&self, later: usize) {
        if self.flaw.is_some() {
            return;
        }
        let Block { address, home, .. } = self.blocks[later];
        let end = self.blocks[later].end();
        let owner = self.blocks[later].owner();
        for (number, block) in self.blocks[..later].iter().enumerate() {
            if block.end() <= address || end <= block.address {
                continue;
            }
            for user in self.users(number) {
                let follows = home.is_none() && self.launches[user].stream == owner;
                if let (Launched::Eager(event), false) = (self.launches[user].what, follows) {
                    let done = must(self.driver.query_event(event.handle()));
                    assert!(done, "block {number} is handed out while work may still use it");
                }
            }
        }
    }

    /// Gives memory back until `keep` bytes are held, or all of it for [`u64::MAX`].
    pub(super) fn trim(&mut self, keep: u64) {
        self.tell(format_args!("trim to {keep}"));
        let waits = self.driver.calls(Call::SynchronizeEvent);
        let emptied = match keep {
            u64::MAX => self.engine.empty_cache(),
            keep => self.engine.trim(keep),
        };
        let emptied = emptied.expect("the engine is sound");
        assert_eq!(self.driver.calls(Call::SynchronizeEvent), waits, "nothing is waited for");
        let reserved: u64 = (0..self.pools.len()).map(|pool| self.reserved(pool)).sum();
        assert_eq!((emptied.reserved, self.driver.used_bytes()), (reserved, reserved));
        for block in self.live() {
            let block = &self.blocks[block];
            // Without memory since its capture's end.
            let dead = |home: usize| self.captures[home].fate == super::world::Fate::Dead;
            if self.plan.is_some() && block.home.is_some_and(dead) {
                continue;
            }
            for address in [block.address, block.end() - 512] {
                let mapped = self.driver.read_tags(address, 512).is_ok();
                assert!(mapped, "{address:#x} of a live block was given back");
            }
        }
    }

    /// Figures add up to the byte.
    pub(super) fn judge_figures(&self) {
        for (number, &pool) in self.pools.iter().enumerate() {
            let statistics = self.engine.pool_statistics(pool).expect("the pool exists");
            let live = self.blocks.iter().filter(|it| it.pool == number && it.freed.is_none());
            let (mut allocated, mut requested, mut blocks) = (0, 0, 0);
            for block in live {
                allocated += block.bytes;
                requested += block.requested;
                blocks += 1;
            }
            let free = self.engine.explain(pool, self.observer).expect("the observer is idle");
            let free: u64 = free.iter().map(|range| range.bytes).sum();
            assert_eq!(statistics.allocated, allocated, "allocated");
            assert_eq!(statistics.requested, requested, "requested");
            assert_eq!(statistics.blocks, blocks, "blocks");
            if self.plan.is_none() {
                let all = allocated + free;
                assert_eq!(statistics.reserved, all, "reserved = allocated + free");
            }
        }
    }
}
