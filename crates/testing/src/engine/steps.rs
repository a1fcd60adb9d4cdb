//! What the host does next.

use arbitrary::{Result, Unstructured};

use super::world::{Standing, World};
use regraph::driver::HostApi;

/// A frequency for every kind of step; wild ones only in programs that are wild.
const TAME: u8 = 90;

impl World {
    pub(super) fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.now == 0 {
            self.now = 1;
            self.wild = u.arbitrary::<u8>()? % 4;
            self.begin(u, 0)?;
        }
        self.now += 1;
        let most = if self.wild == 0 { 99 } else { TAME - 1 };
        let kind = u.int_in_range(0..=most)?;
        let stream = u.choose_index(self.streams.len())?;
        match kind {
            0..=21 => {
                let early = self.wild == 1 && u.ratio(1, 3)? && !self.ordered;
                self.launch(stream, early);
                self.remember(stream);
            }
            22..=35 => {
                let on = u.choose_index(self.streams.len())?;
                self.wait(stream, on);
                self.note_edges(stream);
            }
            36..=53 => self.allocate(u, stream)?,
            54..=66 => {
                let from = u.ratio(1, 8)?.then_some(stream);
                if let Some(block) = self.any_block(u)? {
                    self.free(block, from);
                }
            }
            67..=71 => {
                if let Some(block) = self.any_block(u)? {
                    self.record_stream(block, stream);
                }
            }
            72..=74 => {
                if let Some(block) = self.any_block(u)? {
                    let named = u.ratio(3, 4)?;
                    let uses = &self.blocks[block].uses;
                    let user = uses[u.choose_index(uses.len())?].0;
                    self.record_use(block, if named { user } else { stream });
                }
            }
            75..=76 => self.record_event(u, stream)?,
            77..=79 => {
                if !self.events.is_empty() {
                    let event = u.choose_index(self.events.len())?;
                    self.wait_event(stream, event, false);
                }
            }
            80 | 81 => {
                let under_way = self.under_way();
                if !under_way.is_empty() {
                    let capture = under_way[u.choose_index(under_way.len())?];
                    self.end(u, capture)?;
                }
            }
            82 | 83 => self.begin(u, stream)?,
            84 => self.begin_body(u, stream)?,
            85 => match u.int_in_range(0..=if self.plan.is_some() { 10 } else { 7 })? {
                0 => self.observe(stream),
                1 => {
                    let pool = u.choose_index(self.pools.len())?;
                    let _ = self.explain(pool, stream);
                }
                2 => self.judge_figures(),
                3 | 4 => self.trim(u64::MAX),
                5 => {
                    let keep = u64::from(u.arbitrary::<u8>()?);
                    self.trim(keep << 19);
                }
                6 => {
                    let marked = self.engine.mark_stream(self.streams[stream]);
                    marked.expect("a stream of its own");
                }
                7 if self.learns => self.learn(u.arbitrary()?),
                8 | 9 => self.plan_capture(stream, u.ratio(3, 4)?),
                10 => self.preview(stream),
                _ => {
                    let limit = u64::from(u.arbitrary::<u8>()?) << 20;
                    let limit = (limit > 0).then_some(limit);
                    self.tell(format_args!("limit {limit:?}"));
                    self.engine.set_memory_limit(limit).expect("the engine is sound");
                }
            },
            86 | 87 => {
                if self.standing(stream) == Standing::Eager {
                    super::world::must(self.driver.complete(self.streams[stream]));
                }
            }
            88 => {
                if !self.captures.is_empty() {
                    let capture = u.choose_index(self.captures.len())?;
                    self.release(capture);
                }
            }
            89 => self.add_node(u, stream)?,
            90..=93 => self.set_back(u, stream)?,
            94..=96 => {
                let under_way = self.under_way();
                if !under_way.is_empty() {
                    let capture = under_way[u.choose_index(under_way.len())?];
                    self.edit_edge(u, capture)?;
                }
            }
            97 => {
                // Where the stream does not capture there is nothing to ruin.
                let _ = self.driver.invalidate(self.streams[stream]);
            }
            98 => {
                if !self.events.is_empty() {
                    let event = u.choose_index(self.events.len())?;
                    self.wait_event(stream, event, true);
                }
            }
            _ => {
                let on = u.choose_index(self.streams.len())?;
                if on != stream {
                    self.wait_badly(stream, on);
                }
            }
        }
        Ok(())
    }

    fn any_block(&self, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
        let live = self.live();
        if live.is_empty() {
            return Ok(None);
        }
        Ok(Some(live[u.choose_index(live.len())?]))
    }

    /// Keeps some of a stream's states for a later set-back.
    fn remember(&mut self, stream: usize) {
        if let Standing::Inside(capture) = self.standing(stream) {
            let terminals = self.terminals(stream);
            self.past.push((capture, terminals));
        }
    }

    /// A wait that CUDA forbids: it ruins the captures it mixes.
    fn wait_badly(&mut self, stream: usize, on: usize) {
        let legal = match (self.standing(stream), self.standing(on)) {
            (Standing::Inside(here), Standing::Inside(there)) => here == there,
            (Standing::Inside(_), _) => false,
            _ => true,
        };
        if !legal {
            let waited = self.driver.wait(self.streams[stream], self.streams[on]);
            assert!(waited.is_err(), "an illegal wait went through");
        }
    }
}
