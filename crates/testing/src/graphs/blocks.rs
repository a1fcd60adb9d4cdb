//! Work outside captures: what it has, uses and gives back.

use arbitrary::{Result, Unstructured};
use regraph::engine::{Block, BlockId, Lent};
use regraph::graphs::Error;
use regraph_tagged::{Program, Tagged};

use super::executables::Launcher;
use super::launches::Made;
use super::streams::Stream;
use super::{ends, is_short, overlap, Home, World, POOLS};

/// What a block of work outside captures is to graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No graph uses its memory.
    Plain,
    /// It lies where graphs work.
    Lent(Lent),
    /// As an output of graphs, which those that were captured before it may overwrite: a launch comes after what has
    /// used one that was lent and taken over, once that is freed, and not of one that a restoration brought back.
    Output { adopted: bool },
}

/// A block of work outside captures.
#[derive(Clone, Debug)]
pub(super) struct Borrowed {
    pub(super) id: BlockId,
    pub(super) home: usize,
    /// Whether its pool has offered it to the one that was asked.
    pub(super) offered: bool,
    pub(super) place: Tagged,
    /// What it occupies: maybe more than was asked for.
    pub(super) span: (u64, u64),
    pub(super) kind: Kind,
    /// Whether it holds its tag.
    pub(super) written: bool,
    /// Its own stream, and whether that has ended.
    pub(super) stream: Stream,
    pub(super) ended: bool,
    /// Other streams that were recorded for it.
    pub(super) readers: Vec<Stream>,
    /// Those that the engine is told of only when the block is freed, or before the stream captures or ends.
    pub(super) untold: Vec<Stream>,
    /// The number of the next graph when it was borrowed, or of the one whose capture has taken it over: older ones may
    /// overwrite it.
    pub(super) since: u64,
    /// The capture under way, by number, that reads it: it is freed before that ends.
    pub(super) captured: Option<u64>,
}

impl Borrowed {
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.kind, Kind::Lent(_))
    }

    /// Whether it is of a pool that was asked for it.
    pub(super) fn is_own(&self, home: usize) -> bool {
        self.home == home && !self.offered
    }

    /// Those that used it, whether they have ended or not.
    pub(super) fn all_streams(&self) -> impl Iterator<Item = Stream> + '_ {
        self.readers.iter().copied().chain([self.stream])
    }
}

impl<P: Program> World<'_, P> {
    pub(super) fn borrow(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (home, slot) = (u.choose_index(POOLS)?, self.free_stream(u)?);
        let lent = match u.int_in_range(0..=15u8)?.checked_sub(self.features.plain) {
            None => None,
            Some(0 | 1) => Some(Lent::AllFree),
            _ => Some(Lent::Temporary),
        };
        self.borrow_as(home, slot, lent, u)
    }

    /// Gets a block outside captures and writes it.
    pub(super) fn borrow_as(
        &mut self,
        home: usize,
        slot: usize,
        lent: Option<Lent>,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        let (bytes, stream) = (self.size(u)?, self.streams[slot]);
        if self.blocks.len() >= self.features.most {
            return Ok(());
        }
        if lent == Some(Lent::AllFree) {
            // What graphs kept there is lost: the next to be launched is one that reads nothing of others. Those of
            // other pools that read it are its host's to wait for.
            if self.crossed && !self.follow_launches(stream) {
                return Ok(());
            }
            self.restart();
            self.lent_all = true;
        }
        let (block, failed) = self.may_fail(u, |world| world.request(home, slot, lent, bytes))?;
        let block = match block {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(()),
            Err(error) => {
                assert!(failed || is_short(&error), "borrow: {error}");
                self.count("requests that calls of the driver failed", u64::from(failed));
                self.count("requests without memory", u64::from(!failed));
                return Ok(());
            }
        };
        let place = Tagged { address: block.address, bytes, tag: self.next_tag() };
        let report = self.engine.host().block_report(block.id).expect("the block lives");
        assert_eq!((report.requested, report.stream), (bytes, stream.handle));
        let is_of = |home: &Home<P>| home.pool.id() == report.pool;
        let (asked, home) = (home, self.homes.iter().position(is_of).expect("one of these"));
        assert!(home == asked || self.features.varied, "no pool offers anything");
        self.count("blocks that a pool has offered", u64::from(home != asked));
        let span = self.span(block.id);
        let mut lies = self.homes[home].used.iter().any(|&used| overlap(used, span));
        // Planned captures have addresses of their own, which go with their graphs and may have come again: the engine
        // says then that none is lent.
        let inputs = self.graphs.iter().flat_map(|it| &it.inputs).map(|it| ends(&it.1));
        let mut places = self.graphs.iter().flat_map(|it| &it.places).copied().chain(inputs);
        let gone = self.plan.is_some() && home == 0 && !places.any(|it| overlap(it, span));
        let unlent =
            || self.homes[home].pool.statistics().is_ok_and(|it| it.lent == self.lent(home));
        if lies && gone && unlent() {
            self.homes[home].used.retain(|&used| !overlap(used, span));
            lies = false;
        }
        assert!(lent.is_some() || !lies, "graphs' memory was handed out and not lent");
        assert!(
            !(lies && self.is_captured(home)),
            "memory is lent while its pool is captured into"
        );
        let kind = lent.filter(|_| lies).map_or(Kind::Plain, Kind::Lent);
        self.count("loans", u64::from(kind != Kind::Plain));
        self.count("plain blocks", u64::from(lent.is_none()));
        self.work(stream, &[], &[place]);
        self.blocks.push(Borrowed {
            id: block.id,
            home,
            offered: home != asked,
            place,
            span,
            kind,
            written: true,
            stream,
            ended: false,
            readers: Vec::new(),
            untold: Vec::new(),
            since: self.made,
            captured: None,
        });
        Ok(())
    }

    fn request(
        &mut self,
        home: usize,
        slot: usize,
        lent: Option<Lent>,
        bytes: u64,
    ) -> std::result::Result<Option<Block>, Error> {
        let handle = self.streams[slot].handle;
        let home = &mut self.homes[home];
        let memory = match lent {
            None => home.pool.allocate(bytes, handle)?,
            Some(Lent::AllFree) => {
                home.pool.follow(handle)?;
                return self.engine.host().lend(home.pool.id(), bytes, handle, Lent::AllFree);
            }
            Some(_) => {
                if home.lending[slot].is_none() {
                    home.lending[slot] = Some(home.pool.lend(handle)?);
                }
                match &home.lending[slot] {
                    Some(lending) => lending.allocate(bytes)?,
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(memory.into_block()))
    }

    /// Reads a block on its own stream, or on another one that is recorded for it.
    pub(super) fn share(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let stream = self.streams[self.free_stream(u)?];
        if self.blocks.is_empty() {
            return Ok(());
        }
        let adopted = |it: &Borrowed| it.kind == Kind::Output { adopted: true };
        let row = match self.blocks.iter().position(adopted) {
            Some(row) if u.ratio(1, 2)? => row,
            _ => u.choose_index(self.blocks.len())?,
        };
        let Borrowed { kind, written, captured, .. } = self.blocks[row];
        if kind == (Kind::Output { adopted: true }) && (!written || u.ratio(1, 2)?) {
            return self.use_taken(row, stream, u);
        }
        let late = self.features.varied && kind == Kind::Plain && u.ratio(1, 3)?;
        if captured.is_some() || !written || !self.join_users(row, stream, late) {
            return Ok(());
        }
        self.work(stream, &[self.blocks[row].place], &[]);
        if matches!(kind, Kind::Output { .. }) {
            // As of every output, the host orders its uses before the launches of older graphs.
            self.all_follow(stream);
        }
        Ok(())
    }

    /// A stream becomes one of those that use a block, after its own, of which the engine hears now or late. False where
    /// that cannot be now.
    fn join_users(&mut self, row: usize, stream: Stream, late: bool) -> bool {
        let block = &self.blocks[row];
        let (id, own) = (block.id, block.stream);
        if block.all_streams().any(|it| self.is_capturing(it)) {
            return false;
        }
        self.wait(stream, own);
        if own != stream {
            let block = &mut self.blocks[row];
            block.readers.push(stream);
            match late {
                true => block.untold.push(stream),
                false => self.engine.record_stream(id, stream.handle).expect("the block lives"),
            }
        }
        true
    }

    /// Tells the engine of all that a stream has used.
    pub(super) fn tell_uses(&mut self, stream: Stream) {
        for block in &mut self.blocks {
            if block.untold.extract_if(.., |it| *it == stream).count() > 0 {
                self.engine.record_stream(block.id, stream.handle).expect("the block lives");
            }
        }
    }

    /// Between runs a block that a capture has taken over is still its holder's to use, who gives it back before the
    /// next launch of a graph that overwrites it.
    pub(super) fn use_taken(
        &mut self,
        row: usize,
        stream: Stream,
        u: &mut Unstructured<'_>,
    ) -> Result<()> {
        // Graphs of other pools that read what lay there are their host's to wait for.
        if (self.crossed && !self.follow_launches(stream)) || !self.join_users(row, stream, false) {
            return Ok(());
        }
        self.restart();
        self.blocks[row].readers.clone().into_iter().for_each(|it| self.wait(stream, it));
        let followed = self.homes[self.blocks[row].home].pool.follow(stream.handle);
        assert!(followed.is_ok(), "the pool is awake");
        self.blocks[row].place.tag = self.next_tag();
        let block = self.blocks.remove(row);
        self.work(stream, &[], &[block.place]);
        self.work(stream, &[block.place], &[]);
        let newer = |it: &Made<P>| {
            let host = matches!(it.launcher, Launcher::Host(..));
            let alone = host && it.sources.is_empty() && it.inputs.is_empty();
            alone && it.number >= block.since && it.homes[block.home]
        };
        let other = self.streams[self.free_stream(u)?];
        let on_loan = self.have_lent_to_process([true; POOLS]);
        let lives = on_loan || self.blocks.iter().any(Borrowed::is_lent);
        match self.graphs.iter().position(newer) {
            // In the launch of a graph that has no part in it: the next one comes after its uses.
            Some(graph)
                if !lives
                    && self.may_launch()
                    && (!self.crossed || self.follow_launches(other)) =>
            {
                let id = block.id;
                self.launch_freeing(graph, other, block);
                if self.blocks.iter().any(|it| it.id == id) {
                    // Refused, so it lives on: who uses it next comes after.
                    self.all_follow(stream);
                }
            }
            _ => self.free_block(&block),
        }
        Ok(())
    }

    pub(super) fn give_back(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let row = u.choose_index(self.blocks.len())?;
        if self.blocks[row].captured.is_some() {
            return Ok(());
        }
        let block = self.blocks.remove(row);
        if block.written && !block.ended && !self.is_capturing(block.stream) {
            self.work(block.stream, &[block.place], &[]);
        }
        self.may_fail(u, |world| world.free_block(&block))?;
        Ok(())
    }

    /// What a block occupies.
    pub(super) fn span(&self, block: BlockId) -> (u64, u64) {
        let report = self.engine.host().block_report(block).expect("the block lives");
        (report.address, report.address + report.bytes)
    }

    /// Frees a block, which is in no table any more.
    pub(super) fn free_block(&mut self, block: &Borrowed) {
        self.note_free_of(block);
        for stream in &block.untold {
            self.engine.record_stream(block.id, stream.handle).expect("the block lives");
        }
        self.engine.free(block.id).expect("the block lives");
        let again = self.engine.free(block.id);
        assert!(matches!(again, Err(Error::Unknown { .. })), "{again:?}");
    }

    /// A block is freed, whose memory is graphs' if it was as an output of theirs.
    pub(super) fn note_free_of(&mut self, block: &Borrowed) {
        self.note_free(block.home, block.span, block.all_streams());
        let belongs = self.has_graphs(block.home) || self.is_captured(block.home);
        if matches!(block.kind, Kind::Output { .. }) && belongs {
            self.homes[block.home].used.push(block.span);
        }
    }

    /// A block is freed that some streams use: a capture that one of them is in may use its memory.
    pub(super) fn note_free(
        &mut self,
        home: usize,
        span: (u64, u64),
        streams: impl Iterator<Item = Stream>,
    ) {
        let streams: Vec<Stream> = streams.collect();
        for open in &mut self.open {
            if streams.iter().any(|it| open.streams.contains(it)) {
                open.homes[home] = true;
                open.freed.push((home, span));
            }
        }
    }
}
