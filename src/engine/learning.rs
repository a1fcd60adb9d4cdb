//! Learning what captures will ask for: from runs outside captures, and from earlier captures.
//!
//! What was learned is a *lesson*. A capture that begins as a lesson does follows its layout
//! ([`layout`](super::layout)), block by block, as far as it asks for the same.

use std::collections::HashSet;
use std::sync::Arc;

use super::allocate::Request;
use super::capture_state::CaptureState;
use super::layout::Following;
use super::names::PoolId;
use super::state::{Locked, State};
use super::{Engine, Error};
use crate::driver::{CaptureId, Driver};
use crate::heap::CaptureSlot;
use crate::journal::{Entry, Journal};
use crate::layout::{Layout, Outline, Requests};
use crate::logging;
use crate::policy::PlanChoice;
use crate::settings::Settings;

/// So many lessons are kept, the latest.
const LESSONS: usize = 16;

/// What was learned from one run.
#[derive(Debug)]
pub(super) struct Lesson {
    /// The pool that it is for; all, where it was learned outside captures.
    pool: Option<PoolId>,
    /// Shared with whom makes the layout, without the engine's lock.
    outline: Arc<Outline>,
    /// Made when it is first followed.
    layout: Option<Layout>,
}

impl Lesson {
    fn new(pool: Option<PoolId>, outline: Outline) -> Self {
        Self { pool, outline: Arc::new(outline), layout: None }
    }

    fn first(&self) -> u64 {
        self.outline.bytes().next().unwrap_or(0)
    }
}

/// What is learned, and what was.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    /// What is asked for outside captures, while that is learned from.
    requests: Option<Requests>,
    /// The latest last.
    known: Vec<Lesson>,
}

impl Lessons {
    /// Whether requests outside captures are learned from.
    #[inline]
    pub(super) fn is_listening(&self) -> bool {
        self.requests.is_some()
    }

    /// Notes a request outside captures, if they are learned from. Blocks that were not asked for there are
    /// not known.
    #[inline]
    pub(super) fn note(&mut self, note: impl FnOnce(&mut Requests)) {
        if let Some(requests) = &mut self.requests {
            note(requests);
        }
    }

    /// Takes a lesson in; returns one that it replaces.
    pub(super) fn keep(&mut self, lesson: Lesson) -> Option<Lesson> {
        let same = |known: &Lesson| {
            known.pool == lesson.pool && known.outline.bytes().eq(lesson.outline.bytes())
        };
        let replaced = self.known.iter().position(same);
        let replaced = replaced.or_else(|| (self.known.len() == LESSONS).then_some(0));
        let replaced = replaced.map(|row| self.known.remove(row));
        self.known.push(lesson);
        replaced
    }

    /// Takes the layout of a lesson in; returns it where that is known no more, or has one by now.
    pub(super) fn take_layout(&mut self, of: &Arc<Outline>, layout: Layout) -> Option<Layout> {
        let mut known = self.known.iter_mut();
        match known.find(|lesson| Arc::ptr_eq(&lesson.outline, of)) {
            Some(lesson) if lesson.layout.is_none() => {
                lesson.layout = Some(layout);
                None
            }
            _ => Some(layout),
        }
    }

    /// The lesson for a capture into a pool that asks for so many bytes first: the latest that begins so, whether it
    /// has a layout or not; else the least of the pool's that begins with more and whose layout takes no more than
    /// the pool's arena, since a smaller batch asks for less.
    fn choose(&self, pool: PoolId, (bytes, arena): (u64, u64)) -> Option<&Lesson> {
        let of_pool = |lesson: &&Lesson| lesson.pool.is_none_or(|of| of == pool);
        let mut latest = self.known.iter().rev().filter(of_pool);
        let same = latest.find(|lesson| lesson.first() == bytes);
        same.or_else(|| {
            let larger = self.known.iter().filter(of_pool).filter(|lesson| {
                let fits = |layout: &Layout| layout.bytes() <= arena;
                lesson.first() > bytes && lesson.layout.as_ref().is_some_and(fits)
            });
            larger.min_by_key(|lesson| lesson.first())
        })
    }
}

/// A capture that has ended, to be learned from.
#[derive(Debug)]
pub(super) struct EndedCapture {
    pool: Option<PoolId>,
    unread: CaptureRecord,
}

impl EndedCapture {
    pub(super) fn read(&self, settings: &Settings) -> Lesson {
        Lesson::new(self.pool, self.unread.read(settings))
    }
}

/// The record of a capture, and where the blocks lie in it that a layout is for.
#[derive(Debug)]
pub(super) struct CaptureRecord {
    journal: Journal,
    addresses: HashSet<u64>,
}

impl CaptureRecord {
    pub(super) fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(super) fn read(&self, settings: &Settings) -> Outline {
        let Self { journal, addresses } = self;
        Outline::read(journal, settings.programmatic, settings.reuse, |address| {
            addresses.contains(&address)
        })
    }
}

impl State {
    /// What a capture under way has allocated so far in its first pool; `None` where it keeps no journal.
    pub(super) fn outline_of(&self, slot: CaptureSlot) -> Option<CaptureRecord> {
        let capture_state = self.captures.get(slot);
        let journal = capture_state.journal.clone()?;
        let pool = capture_state.pools.first().copied();
        let heaps = pool.map(|pool| self.pools.heaps_of(Some(pool))).unwrap_or_default();
        let planned = pool.and_then(|pool| self.pools.get(pool)?.planned_heap());
        let owns = |address: u64| {
            heaps.iter().any(|&heap| self.pools.heap(heap).owns(address))
                || planned.is_some_and(|heap| heap.is_to_be_bound(capture_state.id, address))
        };
        let addresses = journal.iter().filter_map(|entry| match entry {
            Entry::Allocate { address, .. } if owns(address) => Some(address),
            _ => None,
        });
        let addresses = addresses.collect();
        Some(CaptureRecord { journal, addresses })
    }
}

impl<D: Driver> Locked<'_, D> {
    /// What was learned for a capture that asks for its first block.
    fn lesson(&self, request: &Request) -> Option<&Lesson> {
        let &Request { pool, bytes, .. } = request;
        let arena = self.state.pools.get(pool).and_then(|pool| pool.arena());
        self.state.lessons.choose(pool, (bytes, arena.map_or(0, |arena| arena.bytes)))
    }

    /// What a request's capture is to follow and what has no layout yet, if that may still be made.
    #[inline]
    pub(super) fn lesson_without_layout(
        &self,
        capture: CaptureId,
        request: &Request,
    ) -> Option<Arc<Outline>> {
        if self.state.lessons.known.is_empty() || !self.errands.may_repeat() {
            return None;
        }
        let pool = request.pool;
        let follows = match self.state.captures.slot(capture) {
            Some(slot) => {
                let CaptureState { following, blocks, pools, .. } = self.state.captures.get(slot);
                let first = pools.first().is_none_or(|first| *first == pool);
                following.is_none() && *blocks == 0 && first && !self.is_planned(slot, pool)
            }
            // Its first request makes it known, and then it is planned as all into the pool.
            None => self.asked_of_all(pool).is_none(),
        };
        let lesson = if follows { self.lesson(request)? } else { return None };
        lesson.layout.is_none().then(|| Arc::clone(&lesson.outline))
    }

    /// Has a capture that asks for its first block follow what was learned, if anything fits.
    pub(super) fn adopt(&mut self, slot: CaptureSlot, request: &Request) {
        let capture_state = self.state.captures.get(slot);
        let begins =
            capture_state.blocks == 0 && capture_state.pools.first() == Some(&request.pool);
        if self.state.lessons.known.is_empty() || !begins || self.is_planned(slot, request.pool) {
            return;
        }
        let Some(lesson) = self.lesson(request) else { return };
        let Some(layout) = lesson.layout.clone() else {
            let id = capture_state.id.0;
            let text = "follows no layout: other runs were learned while one was made for it";
            return logging::warn_list::<&str>(&format!("capture {id} {text}"), &[]);
        };
        let following = Following::new(request.pool, layout);
        self.state.capture(slot).following = Some(Box::new(following));
    }

    /// Learns from a capture that ends, where captures are to be learned from.
    pub(super) fn learn_from(&mut self, slot: CaptureSlot) {
        let capture_state = self.state.captures.get(slot);
        let knows = capture_state.following.as_ref().is_some_and(|it| it.followed().is_whole());
        let pool = capture_state.pools.first().copied();
        let learns = self.config.settings.plan == PlanChoice::Learned && capture_state.blocks > 0;
        if !learns || knows || pool.is_some_and(|pool| self.is_planned(slot, pool)) {
            return;
        }
        if let Some(unread) = self.state.outline_of(slot) {
            self.errands.learn(EndedCapture { pool, unread });
        }
    }
}

impl<D: Driver> Engine<D> {
    /// Notes from now on what is asked for outside captures, in all pools and by all threads: for a run
    /// of the work that is to be captured, from where its capture will begin to where it will end.
    /// [`Engine::learned`] ends that. What was noted since an earlier call is forgotten.
    ///
    /// Requests take the engine's lock meanwhile.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn learn(&self) -> Result<(), Error> {
        self.change(|locked| {
            // From now on no stream cache has a block, and none gets any.
            locked.state.caches.used().for_each(|mut cache| cache.bar(None));
            locked.take_back(None, |_| true);
            locked.state.lessons.requests = Some(Requests::default());
            Ok(())
        })
    }

    /// Ends what [`Engine::learn`] began. From now on each capture whose first request is for as many bytes
    /// as the first one noted follows a layout for the blocks noted, in its first pool
    /// ([`Engine::follow_layout`] says what that is), unless it gets its memory at its end or has a layout
    /// of its own. The latest 16 runs are kept. Returns how many blocks were noted; nothing is kept where
    /// there were none.
    ///
    /// The layout is made at the first such capture's first request, in up to a second where there are
    /// many blocks; other calls go on meanwhile, and another capture that begins so then makes it for itself. Blocks that are live now stay in use to its end; those that were live before
    /// [`Engine::learn`] have no place in it. What streams know of each other outside captures is
    /// guessed from the blocks that are recorded for more than one of them
    /// ([`Engine::record_stream`]); a wrong guess costs memory.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn learned(&self) -> Result<usize, Error> {
        let requests = self.lock()?.lessons.requests.take().unwrap_or_default();
        let blocks = requests.blocks();
        if blocks > 0 {
            let outline = requests.outline(self.config.settings.reuse);
            let lesson = Lesson::new(None, outline);
            let _replaced = self.lock()?.lessons.keep(lesson);
        }
        Ok(blocks)
    }

    /// Ends what [`Engine::learn`] began, and keeps nothing of it: the run was not the work that is to be captured.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn forget_run(&self) -> Result<(), Error> {
        self.lock()?.lessons.requests = None;
        Ok(())
    }

    /// Forgets all that was learned from runs and captures. Captures that follow a layout already go on.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn forget_learned(&self) -> Result<(), Error> {
        // Dropped without the lock.
        let _forgotten = std::mem::take(&mut self.lock()?.lessons);
        Ok(())
    }
}
