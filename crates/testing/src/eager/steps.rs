//! What the host does next.

use arbitrary::{Result, Unstructured};

use super::world::{World, MIB};

impl World {
    pub(super) fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.now += 1;
        let kind = u.int_in_range(0..=99u8)?;
        let stream = u.choose_index(self.streams.len())?;
        match kind {
            0..=17 => self.launch(stream),
            18 => {
                let pool = u.choose_index(self.pools.len())?;
                self.suspend(pool);
            }
            19 => {
                let pool = u.choose_index(self.pools.len())?;
                self.resume(pool);
            }
            20..=42 => self.allocate(u, stream)?,
            43..=58 => {
                let from = u.ratio(1, 6)?.then_some(stream);
                if let Some(block) = self.any_block(u)? {
                    // What a capture allocated is used and freed in its own order here.
                    let from = from.filter(|_| self.blocks[block].home.is_none());
                    if let Some(stream) = from {
                        self.share(block, stream, false);
                    }
                    let named =
                        |&it: &usize| self.blocks[block].users.contains(&self.streams[it].row);
                    let from = from.filter(named);
                    self.free(block, from);
                }
            }
            59..=66 => {
                let last = u.ratio(1, 6)?;
                if let Some(block) = self.any_block(u)? {
                    self.share(block, stream, last);
                }
            }
            67..=71 => {
                let on = u.choose_index(self.streams.len())?;
                self.wait(stream, on);
            }
            72..=77 => self.complete(stream),
            78 => self.judge_device(),
            79 => self.trim(None),
            80 => self.learn(u.arbitrary()?),
            81 => {
                let keep = u64::from(u.arbitrary::<u8>()?) * MIB / 2;
                self.trim(Some(keep));
            }
            82 if self.various => self.vary(u)?,
            82 | 83 => self.mark(stream),
            84 if self.various => self.vary(u)?,
            84 | 85 => self.replace_stream(stream),
            86 => self.change_limit(u)?,
            87 => self.reset(u)?,
            88 | 89 => self.begin(u, stream)?,
            90 | 91 => {
                let (abandon, engine_first) = (u.ratio(1, 6)?, u.arbitrary()?);
                self.end(stream, abandon, engine_first);
            }
            92..=94 => {
                let (number, run) = (u.arbitrary::<u8>()?, u.ratio(2, 3)?);
                if !self.captures.is_empty() {
                    let number = usize::from(number) % self.captures.len();
                    if run {
                        self.replay(number, stream);
                    } else {
                        self.release(number);
                    }
                }
            }
            95 => match u.int_in_range(0..=2u8)? {
                0 => self.judge_leaks(),
                1 => self.judge_figures(),
                _ => {
                    let pool = u.choose_index(self.pools.len())?;
                    self.explain(pool, stream);
                }
            },
            96 => self.misuse(u)?,
            _ if self.faulty => self.inject(u)?,
            _ => self.judge_figures(),
        }
        if self.watched && !self.caught {
            self.judge_figures();
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

    fn change_limit(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let step = u.arbitrary::<u8>()?;
        self.limit = (!step.is_multiple_of(3)).then_some(u64::from(step) * MIB);
        self.tell(format_args!("limit {:?}", self.limit));
        self.engine.set_memory_limit(self.limit).expect("the engine is sound");
        Ok(())
    }

    fn reset(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if u.arbitrary()? {
            self.engine.reset_peaks().expect("the engine is sound");
            self.figures.reset_peaks();
        } else {
            self.engine.reset_accumulated().expect("the engine is sound");
            self.figures.reset_accumulated();
        }
        Ok(())
    }
}
