//! Beginning and ending captures.

use arbitrary::{Result, Unstructured};

use super::graph::NodeTable;
use super::world::{must, Capture, Ends, Fate, Standing, Traits, Verdict, World};
use regraph::driver::{CaptureMode, CaptureStatus, Dependency, Driver, GraphHandle, HostApi};
use regraph::engine::{Attempt, Error, Unknown};
use regraph::settings::Programmatic;
use regraph::Violation;
use regraph_tagged::Program;

/// Captures of one program, at most.
const MOST: usize = 8;

impl World {
    /// Begins a capture on an idle stream; sometimes the engine learns of it only later.
    pub(super) fn begin(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        if self.captures.len() == MOST || self.standing(stream) != Standing::Eager {
            return Ok(());
        }
        let told = u.ratio(3, 4)?;
        let expected = if told { u.int_in_range(0..=2)? } else { 0 };
        if expected > 0 {
            let expects = self.engine.host().expect_capture(self.streams[stream]);
            expects.expect("the engine is sound");
        }
        if expected > 1 {
            self.driver.complete_all();
        }
        must(self.driver.begin_capture(self.streams[stream], CaptureMode::Relaxed));
        self.add_capture(stream, None, told);
        if told {
            self.set_attempt(self.captures.len() - 1);
        }
        Ok(())
    }

    /// Adds a capture that has just begun on a stream, of which the engine may be told.
    fn add_capture(&mut self, stream: usize, family: Option<usize>, told: bool) {
        let handle = self.streams[stream];
        let CaptureStatus::Active { capture, graph } =
            must(self.driver.capture_status(handle, &mut Vec::new()))
        else {
            panic!("the capture has just begun");
        };
        self.tell(format_args!(
            "capture {} begins on {stream}, family {family:?}",
            self.captures.len()
        ));
        self.captures.push(Capture {
            id: capture,
            graph,
            origin: stream,
            family: family.unwrap_or(self.captures.len()),
            fate: Fate::UnderWay,
            // The engine may never look at the stream that a capture began on of which it was not told.
            traits: Traits { unseen: !told, ..Traits::default() },
            seen: vec![None; self.pools.len()],
            ended: None,
            nodes: NodeTable::new(stream),
            report: None,
            released: None,
            executable: None,
            attempt: Attempt::default(),
        });
        if told {
            self.introduce(self.captures.len() - 1, stream);
        }
    }

    /// Tells the engine which pools a capture uses: all.
    fn introduce(&mut self, capture: usize, stream: usize) {
        self.now += 1;
        for pool in 0..self.pools.len() {
            let begun = self.engine.begin_capture(self.pools[pool], self.streams[stream]);
            assert_eq!(begun.expect("the stream captures"), self.captures[capture].id);
            let standing = Standing::Inside(capture);
            let seen = self.captures[capture].seen[pool].is_some();
            self.note_seen(standing, pool, seen);
        }
    }

    /// Tells the engine which attempt a capture is, or nothing.
    fn set_attempt(&mut self, capture: usize) {
        let attempt = match (usize::from(self.attempts) + capture) % 4 {
            0 => Attempt::First,
            1 => Attempt::Again,
            2 => Attempt::Last,
            _ => return,
        };
        let set = self.engine.set_attempt(self.captures[capture].id, attempt);
        set.expect("the capture has just begun");
        self.captures[capture].attempt = attempt;
    }

    /// Adds a conditional node behind a stream's work and captures its body on a new stream.
    pub(super) fn begin_body(&mut self, u: &mut Unstructured<'_>, stream: usize) -> Result<()> {
        let Standing::Inside(parent) = self.standing(stream) else {
            return Ok(());
        };
        let told = u.ratio(3, 4)?;
        let terminals = self.terminals(stream);
        if self.captures.len() == MOST || terminals.iter().any(|it| it.edge.kind != 0) {
            return Ok(());
        }
        self.introduce(parent, stream);
        let graph = self.captures[parent].graph;
        let (node, body) = must(self.driver.add_conditional(graph, &terminals));
        self.enter_node(parent, stream, node);
        must(self.driver.set_terminals(self.streams[stream], &[Dependency::full(node)]));
        self.streams.push(must(self.driver.create_stream()));
        let inner = self.streams.len() - 1;
        let handle = self.streams[inner];
        must(self.driver.begin_capture_to_graph(handle, body, CaptureMode::Relaxed));
        self.add_capture(inner, Some(self.captures[parent].family), told);
        Ok(())
    }

    /// Joins every stream of a capture into its origin.
    fn join(&mut self, capture: usize) {
        let origin = self.captures[capture].origin;
        for stream in self.members(capture) {
            if stream != origin {
                // A node stands for what an early event left unordered.
                if self.terminals(stream).iter().any(|it| it.edge.kind != 0) {
                    self.launch(stream, false);
                }
                self.wait(origin, stream);
            }
        }
        if self.terminals(origin).iter().any(|it| it.edge.kind != 0) {
            self.launch(origin, false);
        }
    }

    /// Ends a capture one way or another: joined or not, the driver first or the engine first, kept or abandoned.
    pub(super) fn end(&mut self, u: &mut Unstructured<'_>, capture: usize) -> Result<()> {
        let join = u.ratio(9, 10)?;
        let abandon = u.ratio(1, 8)?;
        let engine_first = u.arbitrary::<bool>()?;
        // Bodies end before what is around them.
        for inner in self.under_way().into_iter().rev() {
            if inner > capture && self.captures[inner].family == self.captures[capture].family {
                self.end_one(inner, join, abandon, engine_first);
            }
        }
        self.end_one(capture, join, abandon, engine_first);
        Ok(())
    }

    pub(super) fn end_one(
        &mut self,
        capture: usize,
        join: bool,
        abandon: bool,
        engine_first: bool,
    ) {
        self.now += 1;
        let origin = self.captures[capture].origin;
        if join && self.is_sound(capture) {
            self.join(capture);
        }
        // A body that must not run makes the graph around it one that must not run.
        let family = self.captures[capture].family;
        let abandon =
            abandon || self.captures.iter().any(|it| it.family == family && it.fate == Fate::Dead);
        // Once the driver has ended the capture, what streams did since the last look at them is
        // hard to tell from nodes that no launch accounts for.
        if !engine_first && capture.is_multiple_of(2) {
            for stream in self.members(capture) {
                self.observe(stream);
            }
        } else if !engine_first || !join {
            self.captures[capture].traits.unseen = true;
        }
        let handle = self.streams[origin];
        let graph = self.captures[capture].graph;
        if engine_first && !abandon && self.is_sound(capture) {
            self.end_in_engine(capture, graph);
            if must_end(self.driver.end_capture(handle)).is_none() {
                self.kill(capture);
            }
        } else {
            match must_end(self.driver.end_capture(handle)) {
                Some(graph) if !abandon => self.end_in_engine(capture, graph),
                _ => self.abandon(capture),
            }
        }
        self.captures[capture].ended = Some(self.now);
        self.tell(format_args!("capture {capture} ends, {:?}", self.captures[capture].fate));
        self.events.retain(|&(_, home)| home != Some(capture));
        self.past.clear();
        for contents in &mut self.contents {
            contents.forget(capture);
        }
        if self.captures[capture].fate == Fate::Accepted && self.captures[capture].family == capture
        {
            let graph = self.captures[capture].graph;
            self.captures[capture].executable = Some(must(self.driver.instantiate(graph)));
        }
    }

    fn end_in_engine(&mut self, capture: usize, graph: GraphHandle) {
        let id = self.captures[capture].id;
        let seen = self.captures[capture].seen.iter().any(Option::is_some);
        let ended = match self.ends {
            Ends::AtOnce => self.engine.end_capture(id, graph),
            Ends::InTwoSteps => {
                let closed = self.engine.close_capture(id, graph);
                closed.and_then(|()| self.engine.verdict(id))
            }
        };
        match ended {
            Ok(report) => {
                assert!(seen, "the engine ended a capture that it never saw");
                self.finding.accepted += 1;
                self.note_verdict(capture, true);
                for late in &report.late_uses {
                    assert!(self.flaw.is_some(), "a false alarm: {late}");
                }
                self.captures[capture].fate = Fate::Accepted;
                self.captures[capture].report = Some(report.graph);
                let policy = self.programmatic;
                self.captures[capture].nodes.finish(&*self.driver, graph, policy);
                self.note_memory(capture);
            }
            Err(Error::PlanOutOfMemory { .. }) => self.kill(capture),
            Err(Error::Unknown { what: Unknown::Capture(_), .. }) if !seen => {
                self.captures[capture].fate = Fate::Accepted;
                let policy = self.programmatic;
                self.captures[capture].nodes.finish(&*self.driver, graph, policy);
            }
            Err(error @ (Error::Refused(_) | Error::CaptureAgain(_))) => {
                let (violation, again) = match error {
                    Error::CaptureAgain(violation) => (violation, true),
                    Error::Refused(violation) => (violation, false),
                    _ => unreachable!("matched above"),
                };
                self.foresees |= again;
                assert!(!again || self.programmatic == Programmatic::Auto, "{violation}");
                self.finding.refused += 1;
                self.note_verdict(capture, false);
                self.judge_refusal(capture, &violation);
                self.kill(capture);
            }
            Err(error) => panic!("end_capture: {error}"),
        }
    }

    fn note_verdict(&mut self, capture: usize, accepted: bool) {
        self.verdicts.push(Verdict { capture, accepted, blocks: self.addresses.len() });
    }

    fn abandon(&mut self, capture: usize) {
        let seen = self.captures[capture].seen.iter().any(Option::is_some);
        let buried = self.captures[capture].fate == Fate::Dead;
        let abandoned = self.engine.abandon_capture(self.captures[capture].id);
        // A ruined capture was rolled back at once, unless it was met on a stream of it that the
        // engine had not seen in it.
        assert!(buried || abandoned.is_ok() == seen, "{abandoned:?}");
        self.kill(capture);
    }

    /// A graph that will never run takes its bodies with it.
    fn kill(&mut self, capture: usize) {
        self.captures[capture].fate = Fate::Dead;
        for inner in capture..self.captures.len() {
            if self.captures[capture].family == capture && self.captures[inner].family == capture {
                self.captures[inner].fate = Fate::Dead;
            }
        }
    }

    /// The checker may refuse only a capture that the host has done something unusual to: it left
    /// nodes that no look explains, or made edges that order less than the engine took them for.
    fn judge_refusal(&mut self, capture: usize, violation: &Violation) {
        if self.flaw.is_some() {
            return;
        }
        let traits = self.family_traits(capture);
        let denied = traits.programmatic
            && match self.programmatic {
                Programmatic::Auto => self.captures[capture].attempt != Attempt::Last,
                Programmatic::Deny => true,
                Programmatic::Lag | Programmatic::Trust => false,
            };
        let excused = match violation {
            Violation::Unattributed { .. }
            | Violation::Unseen { .. }
            | Violation::OnlyUser { .. } => traits.stray || self.captures[capture].traits.unseen,
            Violation::NotOrdered { .. } if !self.ordered => {
                denied || traits.launch_order || traits.removed || traits.set_back
            }
            _ => false,
        };
        assert!(excused, "a false alarm: {violation}");
        self.finding.excused += 1;
    }

    /// Releases a graph that has run.
    pub(super) fn release(&mut self, capture: usize) {
        let it = &self.captures[capture];
        if it.ended.is_none() || it.released.is_some() || it.family != capture {
            return;
        }
        self.tell(format_args!("release of {capture}"));
        self.replay(capture);
        for member in capture..self.captures.len() {
            let it = &mut self.captures[member];
            if it.family != capture || it.released.is_some() {
                continue;
            }
            it.released = Some(self.now);
            if let Some(graph) = it.report.take() {
                self.engine.release_graph(graph).expect("the graph was not released before");
            }
            if let Some(executable) = it.executable.take() {
                must(self.driver.destroy_executable(executable));
            }
        }
    }
}

/// Ending a capture that is ruined or was not joined is the host's own fault.
fn must_end(ended: regraph::driver::Result<GraphHandle>) -> Option<GraphHandle> {
    ended.ok()
}
