//! Launches, loans, sleep and compaction as a protocol: a model of it that is explored to its end, and the engine, which
//! answers each call of the model as the model does.

mod model;
mod world;

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

use model::{Action, Answer, Protocol, Rule, State, KEPT, LOST, OVERLAP};
use stateright::{Checker, HasDiscoveries, Model};
use world::World;

/// Which of the two graphs' memory comes at the end of their captures.
const PLANS: [[bool; 2]; 3] = [[false, false], [true, false], [true, true]];

/// The engine is asked in the states that fewer calls lead to.
const DEPTH: usize = 4;

/// After so many calls an engine is exchanged for a new one.
const WALK: usize = 200;

/// Every state of the model, with every call in it.
struct Explored {
    protocol: Protocol,
    states: Vec<State>,
    /// The call that led to it first, and from where.
    from: Vec<Option<(usize, Action)>>,
    calls: Vec<Vec<(Action, Answer, usize)>>,
}

impl Explored {
    /// The states that fewer calls than `depth` lead to, and those that their calls lead to.
    fn new(protocol: Protocol, depth: usize) -> Self {
        let start = protocol.start();
        let mut numbers = HashMap::from([(start.clone(), 0)]);
        let (mut states, mut from, mut calls) = (vec![start], vec![None], Vec::new());
        let mut depths = vec![0];
        while calls.len() < states.len() {
            let at = calls.len();
            let mut all = Vec::new();
            let is_last = depths[at] == depth;
            for action in protocol.calls(&states[at]).into_iter().filter(|_| !is_last) {
                let mut next = states[at].clone();
                let answer = protocol.step(&mut next, action);
                let number = *numbers.entry(next).or_insert_with_key(|next| {
                    states.push(next.clone());
                    from.push(Some((at, action)));
                    depths.push(depths[at] + 1);
                    states.len() - 1
                });
                all.push((action, answer, number));
            }
            calls.push(all);
        }
        Self { protocol, states, from, calls }
    }

    fn path_to(&self, state: usize) -> Vec<Action> {
        let steps = std::iter::successors(self.from[state], |&(from, _)| self.from[from]);
        let mut path: Vec<Action> = steps.map(|(_, action)| action).collect();
        path.reverse();
        path
    }

    /// Walks that make every call in every state that is explored: by a shortest way to a call that none before has made,
    /// on to such calls that are near, and back to the start, where that is possible.
    fn walks(&self) -> Vec<Vec<Action>> {
        let mut made: Vec<usize> = vec![0; self.states.len()];
        let (mut walks, mut walk) = (Vec::new(), Vec::new());
        for first in 0..self.states.len() {
            while made[first] < self.calls[first].len() {
                walk.extend(self.path_to(first));
                let mut at = first;
                while let Some(way) = self.way_to_call(at, &made) {
                    for call in way {
                        let (action, _, next) = self.calls[at][call];
                        walk.push(action);
                        at = next;
                    }
                    let (action, _, next) = self.calls[at][made[at]];
                    made[at] += 1;
                    walk.push(action);
                    at = next;
                }
                match self.way_back(at).filter(|_| walk.len() < WALK) {
                    Some(back) => walk.extend(back),
                    None => walks.push(std::mem::take(&mut walk)),
                }
            }
        }
        walks.push(walk);
        walks
    }

    /// Calls that lead back to the start, if these do: all ends that is under way.
    fn way_back(&self, from: usize) -> Option<Vec<Action>> {
        let mut state = self.states[from].clone();
        let end = [
            Action::GiveBack,
            Action::Wake,
            Action::TakeLoan,
            Action::GiveBackLoan,
            Action::Complete { stream: 0 },
            Action::Complete { stream: 1 },
            Action::Return { stream: 0, reader: 0 },
            Action::Return { stream: 1, reader: 1 },
            Action::Complete { stream: 0 },
            Action::Complete { stream: 1 },
        ];
        let mut back = Vec::new();
        for action in end.into_iter() {
            if self.protocol.may(&state, action) {
                self.protocol.step(&mut state, action);
                back.push(action);
            }
        }
        (state == self.states[0]).then_some(back)
    }

    /// The calls from a state to one that has a call which was not made: itself, or a state that two calls lead to at
    /// most.
    fn way_to_call(&self, from: usize, made: &[usize]) -> Option<Vec<usize>> {
        let is_left = |state: usize| made[state] < self.calls[state].len();
        let to = |state: usize| self.calls[state].iter().map(|it| it.2).enumerate();
        if is_left(from) {
            return Some(Vec::new());
        }
        if let Some((call, _)) = to(from).find(|it| is_left(it.1)) {
            return Some(vec![call]);
        }
        to(from).find_map(|(call, state)| Some(vec![call, to(state).find(|it| is_left(it.1))?.0]))
    }
}

/// Makes the calls in the model and of an engine; says where the two part, if they do.
fn part(protocol: &Protocol, calls: &[Action], seed: u64) -> Option<String> {
    let mut state = protocol.start();
    let mut made = 0;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(protocol, seed);
        for &action in calls {
            made += 1;
            let expected = protocol.step(&mut state, action);
            let answer = world.step(action);
            assert_eq!(answer, expected, "the engine's answer, and the model's");
        }
        world.check();
    }));
    let panic = ran.err()?;
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    Some(format!("call {made}: {message}"))
}

/// The calls without those that are not needed for the two to part.
fn shrunk(protocol: &Protocol, mut calls: Vec<Action>, seed: u64) -> Vec<Action> {
    let allowed = |calls: &[Action]| {
        let mut state = protocol.start();
        calls.iter().all(|&action| {
            let may = protocol.calls(&state).contains(&action);
            may && (protocol.step(&mut state, action), true).1
        })
    };
    let mut chunk = calls.len();
    while chunk > 0 {
        let (before, mut at) = (calls.len(), 0);
        while at < calls.len() {
            let mut fewer = calls.clone();
            fewer.drain(at..calls.len().min(at + chunk));
            match allowed(&fewer) && part(protocol, &fewer, seed).is_some() {
                true => calls = fewer,
                false => at += 1,
            }
        }
        if calls.len() == before {
            chunk /= 2;
        }
    }
    calls
}

fn must_agree(protocol: &Protocol, calls: Vec<Action>, seed: u64) {
    if part(protocol, &calls, seed).is_some() {
        let calls = shrunk(protocol, calls, seed);
        let why = part(protocol, &calls, seed);
        panic!("{protocol:?}, seed {seed}: {calls:?}: {why:?}");
    }
}

#[test]
fn no_state_is_unsafe() {
    for planned in PLANS {
        let checker = Protocol { planned, without: None }.checker().spawn_bfs().join();
        checker.assert_properties();
        println!(
            "{planned:?}: {} states, depth {}",
            checker.unique_state_count(),
            checker.max_depth()
        );
    }
}

/// States with a graph that lives and that no calls lead to a launch of.
fn dead_ends(protocol: Protocol) -> usize {
    let all = Explored::new(protocol, usize::MAX);
    let mut before = vec![Vec::new(); all.states.len()];
    for (state, calls) in all.calls.iter().enumerate() {
        calls.iter().for_each(|call| before[call.2].push(state));
    }
    let mut dead = 0;
    for graph in 0..2 {
        let launched = |&(action, answer, _): &(Action, Answer, usize)| {
            matches!(action, Action::Launch { graph: of, .. } if of == graph)
                && answer == Answer::Done
        };
        let mut leads: Vec<bool> = all.calls.iter().map(|it| it.iter().any(launched)).collect();
        let mut next: Vec<usize> = (0..leads.len()).filter(|&state| leads[state]).collect();
        while let Some(state) = next.pop() {
            for &earlier in &before[state] {
                if !std::mem::replace(&mut leads[earlier], true) {
                    next.push(earlier);
                }
            }
        }
        let is_dead = |&state: &usize| all.states[state].is_of_use(graph) && !leads[state];
        dead += (0..leads.len()).filter(is_dead).count();
    }
    dead
}

#[test]
fn no_state_is_a_dead_end() {
    for planned in PLANS {
        assert_eq!(dead_ends(Protocol { planned, without: None }), 0, "{planned:?}");
    }
    let without = Some(Rule::WakeOpens);
    assert!(dead_ends(Protocol { planned: PLANS[0], without }) > 0);
}

/// Without a rule there is a state that is not safe.
#[test]
fn no_rule_can_be_left_out() {
    let [lends, _, moves] = PLANS;
    for (rule, planned, property) in [
        (Rule::LaunchAfterLaunch, lends, OVERLAP),
        (Rule::LaunchAfterBorrowers, lends, OVERLAP),
        (Rule::LaunchNotWhileLent, lends, OVERLAP),
        (Rule::LaunchAwake, lends, LOST),
        (Rule::BorrowAfterLaunch, lends, OVERLAP),
        (Rule::BorrowOfTemporaries, lends, KEPT),
        (Rule::BorrowInOrder, lends, OVERLAP),
        (Rule::LoanWaits, lends, OVERLAP),
        (Rule::LoanHoldsLaunches, lends, OVERLAP),
        (Rule::LoanDone, lends, OVERLAP),
        (Rule::SleepKeepsGraphs, lends, LOST),
        (Rule::SleepKeepsBlocks, moves, LOST),
        (Rule::SleepWaits, lends, LOST),
        (Rule::TrySleepAsks, lends, LOST),
        (Rule::CompactWaits, moves, LOST),
        (Rule::ResumeNotAsleep, lends, LOST),
        (Rule::ReleaseOfFinished, lends, LOST),
    ] {
        let protocol = Protocol { planned, without: Some(rule) };
        let found = protocol.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
        assert!(found.discovery(property).is_some(), "{rule:?}: {:?}", found.discoveries());
    }
}

/// In every state that fewer than [`DEPTH`] calls lead to each call is made, at least once.
#[test]
fn the_engine_answers_as_the_model_does() {
    for planned in PLANS {
        let all = Explored::new(Protocol { planned, without: None }, DEPTH);
        for (seed, walk) in all.walks().into_iter().enumerate() {
            must_agree(&all.protocol, walk, seed as u64);
        }
    }
}
