//! Regions of the pools, which sleep and wake, with their contents kept somewhere or lost.

use arbitrary::{Result, Unstructured};
use regraph::graphs::{Error, PoolRefusal};
use regraph::regions::{Backup, Tags};
use regraph_tagged::Program;

use super::blocks::Borrowed;
use super::{World, POOLS, UNIT};

/// The regions of the pools.
pub(super) const TAGS: [&str; POOLS] = ["first", "second"];

impl<P: Program> World<'_, P> {
    /// Some regions sleep, while work goes on in others and frees blocks of theirs, and wake. All that lives holds what it
    /// did, but where that was not kept.
    pub(super) fn nap(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let chosen = u.int_in_range(1..=3_usize)?;
        let mut lost = [false; POOLS];
        for (home, tag) in TAGS.into_iter().enumerate() {
            let backup = match u.int_in_range(0..=7)? {
                0..=3 => Backup::Host,
                4 | 5 => Backup::File(std::env::temp_dir().into()),
                6 => Backup::None,
                _ => Backup::Device,
            };
            lost[home] = backup == Backup::None;
            self.regions.set_backup(tag, backup);
        }
        if !self.judge_device() {
            return Ok(());
        }
        let sleeps = |home: usize| chosen >> home & 1 == 1;
        let tags: Vec<&str> = (0..POOLS).filter(|&it| sleeps(it)).map(|it| TAGS[it]).collect();
        let (slept, failed) = self.may_fail(u, |world| world.regions.sleep(Some(&tags[..])))?;
        let asleep = self.homes.each_ref().map(|home| home.pool.is_suspended());
        match slept {
            Ok(_) => {
                for region in self.regions.report() {
                    let goes = tags.contains(&&*region.tag) && region.backup != Backup::Device;
                    assert!(!goes || region.awake_bytes == 0, "{region:?}");
                    let in_file = matches!(region.backup, Backup::File(_));
                    assert!(in_file || region.file_bytes == 0, "{region:?}");
                    // What the driver does not take back stays.
                    let on_the_host = region.backup == Backup::Host || failed;
                    assert!(on_the_host || region.host_bytes == 0, "{region:?}");
                }
                self.count("sleeps", 1);
            }
            Err(Error::Pool { why: PoolRefusal::HasBlocks { .. }, .. }) => {
                let hinders = |it: &Borrowed| it.offered && sleeps(it.home);
                assert!(self.blocks.iter().any(hinders), "no block hinders it");
            }
            Err(Error::Pool { why: PoolRefusal::CannotSuspend, .. }) => {}
            Err(error) => assert!(failed, "sleep: {error}"),
        }
        for home in (0..POOLS).filter(|&home| asleep[home]) {
            self.judge_asleep(home);
            let mine = self.loans.iter_mut().filter(|it| it.home == home);
            mine.for_each(|it| it.has_slept = true);
            let row = self.blocks.iter().position(|it| it.home == home && it.captured.is_none());
            if let Some(row) = row.filter(|_| u.ratio(1, 2).unwrap_or_default()) {
                let block = self.blocks.remove(row);
                self.free_block(&block);
            }
        }
        let awake = asleep.iter().position(|asleep| !asleep).filter(|_| self.has_room());
        if let Some(home) = awake {
            let slot = self.free_stream(u)?;
            self.borrow_as(home, slot, None, u)?;
        }
        if !self.has_room() {
            // What another process has borrowed of it is on the device besides.
            let mine = |row: &usize| asleep[self.loans[*row].home];
            let mine: Vec<usize> = (0..self.loans.len()).rev().filter(mine).collect();
            mine.into_iter().for_each(|row| self.end_loan(row));
        }
        if u.ratio(1, 3)? {
            self.regions.wake(Some(&tags[..1])).expect("there is room for it");
        }
        let (woken, failed) = self.may_fail(u, |world| world.regions.wake(Tags::All))?;
        if let Err(error) = woken {
            assert!(failed, "wake: {error}");
            self.regions.wake(Tags::All).expect("there is room for it");
        }
        for home in (0..POOLS).filter(|&home| asleep[home] && lost[home]) {
            self.note_lost(home);
        }
        self.judge_device();
        self.require();
        Ok(())
    }

    /// Whether what sleeps has room to wake after more work.
    fn has_room(&self) -> bool {
        /// More than a block takes, in bytes.
        const MORE: u64 = 64 << 20;
        let all = self.engine.statistics().expect("the engine is sound").all;
        let asleep = all.suspended_bytes.current;
        let limit = self.engine.memory_limit().expect("the engine is sound");
        let most = limit.unwrap_or(u64::MAX).saturating_sub(all.reserved_bytes.current);
        let free = self.driver.memory_info().expect("the device answers").free;
        most.min(free) >= asleep + MORE
    }

    /// Nothing is handed out, lent or launched of a pool that sleeps.
    fn judge_asleep(&mut self, home: usize) {
        let (pool, stream) = (self.homes[home].pool.clone(), self.streams[0]);
        let refused = pool.allocate(UNIT, stream.handle).map(drop).expect_err("it sleeps");
        assert!(refused.to_string().contains(TAGS[home]), "{refused}");
        assert!(pool.lend(stream.handle).is_err(), "a pool that sleeps lends");
        let judged = self.graphs.iter().position(|it| it.homes[home] && it.is_judged());
        if let Some(row) = judged {
            assert!(self.submit(row, stream).is_err(), "a pool that sleeps launches");
        }
    }
}
