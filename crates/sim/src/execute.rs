//! The device: pending work, run in a random order that its edges allow and no better.
//!
//! Each piece of work is a step with a start and an end, at which its kernel reads and writes memory. A full edge puts
//! the later start behind the earlier end. A programmatic edge puts start behind start and end behind end: the earlier
//! kernel is taken to trigger at once, even if it says otherwise, and the later one never to wait. Any other edge
//! orders nothing.

use super::contents::Contents;
use super::graph::Graphs;
use super::kernel::{Kernel, KernelMemory};
use super::memory::Memory;
use regraph::driver::{Dependency, EdgeData, NodeKind};

/// A piece of work, by its number since the driver was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(u64);

/// What a step owes to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Full,
    Programmatic,
}

impl Order {
    pub(super) fn of(edge: EdgeData) -> Option<Self> {
        match edge {
            EdgeData::FULL => Some(Self::Full),
            EdgeData::PROGRAMMATIC => Some(Self::Programmatic),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Pending {
    first_edge: usize,
    edges: usize,
    work: Option<u32>,
    done: bool,
}

#[derive(Clone, Copy)]
enum Action {
    Start(usize),
    End(usize),
}

/// What a step still waits for while a run lasts.
#[derive(Clone, Copy, Default)]
struct Unmet {
    start: usize,
    end: usize,
}

#[derive(Debug, Default)]
pub(super) struct Execution {
    /// The number of the first step still kept; all before are done.
    first: u64,
    steps: Vec<Pending>,
    edges: Vec<(Step, Order)>,
    random: u64,
    contents: Contents,
    /// Failed checks of kernels.
    failures: u64,
    illegal: bool,
}

/// One step of an executable graph, and the positions of those before it.
#[derive(Debug)]
pub(super) struct PlanStep {
    work: Option<u32>,
    before: Vec<(usize, Order)>,
    /// `None` for the end of a conditional node.
    bound: Option<Bound>,
}

/// What an update does not change of a node.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    kind: NodeKind,
    attributes: u64,
    edges: Vec<(usize, EdgeData)>,
}

/// An instantiated graph.
#[derive(Debug)]
pub(super) struct Executable {
    plan: Vec<PlanStep>,
    /// The device whose memory it takes, and how much.
    pub(super) memory: (u32, u64),
    /// The end of its last launch: launches of one executable do not overlap.
    last: Option<Step>,
}

impl Executable {
    /// Copies a graph and the bodies in it; later edits of the graph do not matter.
    pub(super) fn new(graphs: &Graphs, graph: usize) -> Self {
        let mut plan = Vec::new();
        flatten(graphs, graph, None, &mut plan);
        Self { plan, memory: (0, 0), last: None }
    }

    /// The end of its last launch.
    pub(super) fn last(&self) -> Option<Step> {
        self.last
    }

    /// Takes over what another executable does, if it has the same nodes with the same attributes and edges.
    pub(super) fn update(&mut self, by: &Self) -> bool {
        let same = |(one, other): (&PlanStep, &PlanStep)| one.bound == other.bound;
        let like = self.plan.len() == by.plan.len() && self.plan.iter().zip(&by.plan).all(same);
        if like {
            self.update_first(by, self.plan.len());
        }
        like
    }

    /// Takes over what the first half of another one's steps do.
    pub(super) fn update_half(&mut self, by: &Self) {
        self.update_first(by, by.plan.len().div_ceil(2));
    }

    fn update_first(&mut self, by: &Self, steps: usize) {
        for (step, by) in self.plan.iter_mut().zip(&by.plan).take(steps) {
            step.work = by.work;
        }
    }
}

/// Adds a graph's steps behind step `entry`, and returns the step that ends each node.
///
/// A conditional node is two steps with its body, run once, between them.
fn flatten(
    graphs: &Graphs,
    graph: usize,
    entry: Option<usize>,
    plan: &mut Vec<PlanStep>,
) -> Vec<usize> {
    let mut spans = std::collections::HashMap::new();
    let mut ends = Vec::new();
    for node in graphs.nodes(graph) {
        let begin = plan.len();
        plan.push(PlanStep {
            work: graphs.work(*node).unwrap_or(None),
            before: entry.map(|entry| (entry, Order::Full)).into_iter().collect(),
            bound: None,
        });
        let mut end = begin;
        if let Ok(Some(body)) = graphs.body(*node) {
            let mut inner = flatten(graphs, body, Some(begin), plan);
            inner.push(begin);
            end = plan.len();
            plan.push(PlanStep {
                work: None,
                before: inner.into_iter().map(|step| (step, Order::Full)).collect(),
                bound: None,
            });
        }
        spans.insert(*node, (begin, end));
        ends.push(end);
    }
    for node in graphs.nodes(graph) {
        let dependencies: &[Dependency] = graphs.dependencies(*node).unwrap_or_default();
        let place = |it: &Dependency| (spans[&it.node].1, it.edge);
        let step = &mut plan[spans[node].0];
        let edges: Vec<_> = dependencies.iter().map(place).collect();
        for &(earlier, edge) in &edges {
            step.before.extend(Order::of(edge).map(|order| (earlier, order)));
        }
        step.bound = graphs.told(*node).ok().map(|(kind, kernel)| Bound {
            kind,
            attributes: kernel.map_or(0, Kernel::attributes),
            edges,
        });
    }
    ends
}

impl Execution {
    pub(super) fn new() -> Self {
        let mut execution = Self::default();
        execution.set_seed(0);
        execution
    }

    pub(super) fn set_seed(&mut self, seed: u64) {
        // Neighbouring seeds shall not give neighbouring orders, and zero would stay zero.
        self.random = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1;
    }

    pub(super) fn push(
        &mut self,
        work: Option<u32>,
        before: impl IntoIterator<Item = (Step, Order)>,
    ) -> Step {
        let first_edge = self.edges.len();
        self.edges.extend(before);
        self.steps.push(Pending {
            first_edge,
            edges: self.edges.len() - first_edge,
            work,
            done: false,
        });
        Step(self.first + self.steps.len() as u64 - 1)
    }

    /// Adds a launch of an executable graph behind `before`; returns its end.
    pub(super) fn replay(&mut self, executable: &mut Executable, before: Option<Step>) -> Step {
        let before = before.into_iter().chain(executable.last);
        let entry = self.push(None, before.map(|step| (step, Order::Full)));
        let base = entry.0 + 1;
        for step in &executable.plan {
            let inner = step.before.iter();
            let inner = inner.map(|(at, order)| (Step(base + *at as u64), *order));
            self.push(step.work, std::iter::once((entry, Order::Full)).chain(inner));
        }
        let all = base..base + executable.plan.len() as u64;
        let end = self.push(
            None,
            std::iter::once(entry).chain(all.map(Step)).map(|step| (step, Order::Full)),
        );
        executable.last = Some(end);
        end
    }

    pub(super) fn is_done(&self, step: Step) -> bool {
        self.pending(step).is_none()
    }

    pub(super) fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// Whether work touched memory that it may not touch, since the last time asked.
    pub(super) fn take_illegal(&mut self) -> bool {
        std::mem::take(&mut self.illegal)
    }

    /// Runs everything.
    pub(super) fn run_all(&mut self, graphs: &Graphs, memory: &Memory) {
        let chosen = self.steps.iter().map(|step| !step.done).collect();
        self.run(chosen, graphs, memory);
    }

    /// Runs what some steps need, and no more.
    pub(super) fn run_until(
        &mut self,
        steps: impl IntoIterator<Item = Step>,
        graphs: &Graphs,
        memory: &Memory,
    ) {
        let mut chosen = vec![false; self.steps.len()];
        let mut found: Vec<usize> =
            steps.into_iter().filter_map(|step| self.pending(step)).collect();
        while let Some(position) = found.pop() {
            if !std::mem::replace(&mut chosen[position], true) {
                found.extend(self.before(position).map(|(earlier, _)| earlier));
            }
        }
        self.run(chosen, graphs, memory);
    }

    /// The number in every 512 bytes of a range.
    pub(super) fn read(&self, device: u32, range: (u64, u64), memory: &Memory) -> Option<Vec<u64>> {
        let mut stretches = Vec::new();
        memory.translate(device, range, &mut stretches)?;
        let mut numbers = Vec::new();
        for stretch in stretches {
            self.contents.read(stretch, |number, granules| {
                numbers.extend((0..granules).map(|_| number));
            });
        }
        Some(numbers)
    }

    /// The position of a step that is not done.
    fn pending(&self, step: Step) -> Option<usize> {
        let position = usize::try_from(step.0.checked_sub(self.first)?).ok()?;
        (!self.steps[position].done).then_some(position)
    }

    /// The steps before one that are not done.
    fn before(&self, position: usize) -> impl Iterator<Item = (usize, Order)> + '_ {
        let step = &self.steps[position];
        self.edges[step.first_edge..step.first_edge + step.edges]
            .iter()
            .filter_map(|(step, order)| Some((self.pending(*step)?, *order)))
    }

    /// Runs the chosen steps, which need no others.
    fn run(&mut self, chosen: Vec<bool>, graphs: &Graphs, memory: &Memory) {
        let chosen: Vec<usize> = (0..chosen.len()).filter(|at| chosen[*at]).collect();
        let mut unmet = vec![Unmet::default(); self.steps.len()];
        let mut later = vec![Vec::new(); self.steps.len()];
        let mut actions = Vec::new();
        for position in &chosen {
            // The step's own start comes before its end.
            unmet[*position].end = 1;
            for (earlier, order) in self.before(*position) {
                later[earlier].push((*position, order));
                unmet[*position].start += 1;
                unmet[*position].end += usize::from(order == Order::Programmatic);
            }
            if unmet[*position].start == 0 {
                actions.push(Action::Start(*position));
            }
        }
        let mut stretches = Vec::new();
        while !actions.is_empty() {
            let pick = self.next_random() % actions.len() as u64;
            let action = actions.swap_remove(pick as usize);
            let (Action::Start(position) | Action::End(position)) = action;
            let ends = matches!(action, Action::End(_));
            if let Some(work) = self.steps[position].work {
                let (device, kernel) = graphs.kernel(work);
                let mut seen = KernelMemory {
                    device,
                    memory,
                    contents: &mut self.contents,
                    stretches: &mut stretches,
                    failures: &mut self.failures,
                    illegal: &mut self.illegal,
                };
                if ends {
                    kernel.end(&mut seen);
                } else {
                    kernel.start(&mut seen);
                }
            }
            if ends {
                self.steps[position].done = true;
            } else {
                meet_end(position, &mut unmet, &mut actions);
            }
            for (next, order) in &later[position] {
                if ends == (*order == Order::Full) {
                    unmet[*next].start -= 1;
                    if unmet[*next].start == 0 {
                        actions.push(Action::Start(*next));
                    }
                } else if ends {
                    meet_end(*next, &mut unmet, &mut actions);
                }
            }
        }
        if self.steps.iter().all(|step| step.done) {
            self.first += self.steps.len() as u64;
            self.steps.clear();
            self.edges.clear();
        }
    }

    fn next_random(&mut self) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}

fn meet_end(position: usize, unmet: &mut [Unmet], actions: &mut Vec<Action>) {
    unmet[position].end -= 1;
    if unmet[position].end == 0 {
        actions.push(Action::End(position));
    }
}
