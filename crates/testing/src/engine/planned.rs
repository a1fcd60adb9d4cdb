//! Captures that get their memory at their end.

use super::world::{Block, Capture, Fate, Launched, World};
use regraph::engine::{Error, Flaw, Unknown};

impl World {
    /// Has the capture that a stream is in planned, or not.
    pub(super) fn plan_capture(&mut self, stream: usize, on: bool) {
        let Some(capture) = self.capture_of(stream) else { return };
        let options = self.plan.clone().filter(|_| on);
        self.tell(format_args!("capture {capture} is planned: {on}"));
        match self.engine.plans().plan_capture(self.captures[capture].id, options) {
            Ok(())
            | Err(Error::Unknown { what: Unknown::Capture(_), .. } | Error::CannotPlan { .. }) => {}
            Err(error) => panic!("plan_capture: {error}"),
        }
    }

    /// Has the engine learn from what is asked for outside captures from now on, or lets it have learned.
    pub(super) fn learn(&mut self, begins: bool) {
        self.tell(format_args!("learns: {begins}"));
        let done = if begins {
            self.engine.plans().learn()
        } else {
            self.engine.plans().learned().map(drop)
        };
        done.expect("the engine is sound");
    }

    /// Asks for the plan of the capture that a stream is in.
    pub(super) fn preview(&mut self, stream: usize) {
        let Some(capture) = self.capture_of(stream) else { return };
        self.tell(format_args!("preview of {capture}"));
        match self.engine.plans().preview_plan(self.captures[capture].id) {
            Ok(_) | Err(Error::Unknown { what: Unknown::Capture(_), .. }) => {}
            Err(error) => panic!("preview_plan: {error}"),
        }
    }

    /// Notes which physical memory the blocks of a capture that was accepted lie on, and that none of
    /// it holds what must last.
    pub(super) fn note_memory(&mut self, capture: usize) {
        if self.plan.is_none() {
            return;
        }
        let own = |block: &usize| self.blocks[*block].home == Some(capture);
        let own: Vec<usize> = (0..self.blocks.len()).filter(own).collect();
        for &number in &own {
            let users = self.users(number);
            let here = |launch: &usize| matches!(self.launches[*launch].what, Launched::Node { capture: its, .. } if its == capture);
            let used = users.iter().any(here);
            let block = &self.blocks[number];
            let behind = self.driver.behind(block.address, block.bytes);
            let needed = used || block.freed.is_none();
            // Without a marker a block is idle at its free, and its memory may go back to the driver
            // while the capture is under way: no journal tells of that.
            let excused = self.flaw == Some(Flaw::OwnMarker);
            assert!(behind.is_some() || !needed || excused, "block {number} has no memory");
            self.blocks[number].behind = behind.filter(|_| needed).unwrap_or_default();
        }
        for live in self.live().into_iter().filter(|&live| !self.blocks[live].behind.is_empty()) {
            let home = self.blocks[live].home;
            // Within a capture, what comes before it may have had its memory.
            for &number in own.iter().filter(|&&it| home != Some(capture) || live < it) {
                let block = &self.blocks[number];
                let apart = block.behind.is_empty() || !block.meets(&self.blocks[live]);
                assert!(apart, "block {number} lies on block {live}, which is live");
            }
        }
        // What got its memory at once lies where earlier graphs may.
        let planned_output =
            |block: &Block| block.freed.is_none() && block.behind != block.behind_first;
        for &number in own.iter().filter(|it| planned_output(&self.blocks[**it])) {
            for graph in (0..self.captures.len()).filter(|&graph| graph != capture) {
                // The host may have freed an output of a graph after its capture, on the same piece of memory.
                let ended = self.captures[graph].ended;
                let mut lost = self
                    .blocks
                    .iter()
                    .filter(|it| it.home == Some(graph) && it.freed.is_some() && it.freed > ended);
                let here = &self.blocks[number].behind;
                let lost =
                    lost.any(|it| it.behind.iter().any(|it| here.iter().any(|at| at.0 == it.0)));
                let kept = self.is_written(number, graph) && !lost;
                assert!(!kept, "launches of graph {graph} overwrite output {number}");
            }
        }
    }

    /// Whether a graph that may be launched has blocks where another capture's block lies.
    fn is_written(&self, number: usize, graph: usize) -> bool {
        let Capture { fate, released, .. } = self.captures[graph];
        let of_graph = |it: &&Block| it.home == Some(graph) && !it.behind.is_empty();
        let mut blocks = self.blocks.iter().filter(of_graph);
        let launches = fate == Fate::Accepted && released.is_none();
        launches && blocks.any(|it| it.meets(&self.blocks[number]))
    }
}
