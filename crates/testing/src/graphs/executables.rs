//! Executables: a host's own, and those that pools keep within budgets and graphs share.

use arbitrary::{Result, Unstructured};
use regraph::driver::{ExecutableHandle, Functions, GraphHandle};
use regraph::graphs::{Error, ExecutableOptions, Executables, Graph, Judging, Lease, PoolRefusal};
use regraph_tagged::Program;

use super::{Shared, World, POOLS};

/// By what a graph is launched.
pub(super) enum Launcher<P: Program> {
    /// The host's own executable.
    Host(Lease<Shared<P>>, GraphHandle, ExecutableHandle),
    /// One of those that its first pool keeps.
    Pool(Box<Graph<Shared<P>>>),
    /// Nothing: its capture is closed and has no verdict yet, or is refused.
    Closed(Option<Judging<Shared<P>>>, GraphHandle, ExecutableHandle),
}

/// How a pool keeps executables.
#[derive(Default)]
pub(super) struct Keeps {
    options: ExecutableOptions,
    /// Whether a budget may be exceeded by what is pinned, or was there before it.
    exceeds: bool,
}

impl<P: Program> World<'_, P> {
    /// A graph that is launched by an executable that its pool keeps.
    fn any_kept(&self, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
        let kept = |it: &usize| matches!(self.graphs[*it].launcher, Launcher::Pool(_));
        let rows: Vec<usize> = (0..self.graphs.len()).filter(kept).collect();
        Ok(if rows.is_empty() { None } else { Some(*u.choose(&rows)?) })
    }

    pub(super) fn keep_executables(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let home = u.choose_index(POOLS)?;
        let mut options = ExecutableOptions::default();
        options.budget = match u.int_in_range(0..=9)? {
            0 | 1 => None,
            nodes => Some(nodes * 4 * self.hooks.node_bytes),
        };
        options.sharing = *u.choose(&[None, Some(Functions::Same), Some(Functions::Any)])?;
        self.keep_as(home, options);
        Ok(())
    }

    fn keep_as(&mut self, home: usize, options: ExecutableOptions) {
        self.homes[home].pool.keep_executables(options).expect("the device answers");
        self.homes[home].keeps.options = options;
    }

    /// From now on there is room for each executable.
    pub(super) fn lift_budgets(&mut self) {
        if self.features.executables {
            (0..POOLS).for_each(|home| self.keep_as(home, ExecutableOptions::default()));
        }
    }

    /// Does what the next launch of a graph would have to do first.
    pub(super) fn prepare(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (Some(row), slot) = (self.any_kept(u)?, self.free_stream(u)?) else { return Ok(()) };
        let handle = self.streams[slot].handle;
        let (done, failed) = self.may_fail(u, |world| match &world.graphs[row].launcher {
            Launcher::Pool(graph) => graph.prepare(handle),
            Launcher::Host(..) | Launcher::Closed(..) => Ok(()),
        })?;
        match done {
            Ok(()) => {}
            Err(Error::Pool { why, .. }) => self.judge_no_executable(row, &why),
            Err(error) => assert!(failed, "prepare: {error}"),
        }
        Ok(())
    }

    /// A launch is refused since there is no room for its executable: so it is.
    pub(super) fn judge_no_executable(&mut self, row: usize, why: &PoolRefusal) {
        let PoolRefusal::NoExecutable { bytes, pinned, budget } = *why else {
            panic!("launch: {why}");
        };
        let (made, keeps) = (&self.graphs[row], &self.homes[self.graphs[row].home].keeps);
        assert_eq!(Some(budget), keeps.options.budget);
        let foreseen = made.nodes * self.hooks.node_bytes;
        // Or what it took when it was made.
        let most = if self.features.overcharge > 1 { 8 * foreseen } else { foreseen };
        assert!((foreseen..=most).contains(&bytes), "{bytes} bytes, and {foreseen} are foreseen");
        assert!(bytes + pinned > budget, "it fits");
        assert!(keeps.exceeds || pinned == 0, "nothing is pinned");
        self.count("executables that took more than the budget", u64::from(bytes > foreseen));
        self.count("launches without room for an executable", 1);
    }

    pub(super) fn pin(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(row) = self.any_kept(u)? else { return Ok(()) };
        if let Launcher::Pool(graph) = &self.graphs[row].launcher {
            graph.pin(u.ratio(1, 2)?);
            self.homes[self.graphs[row].home].keeps.exceeds = true;
        }
        Ok(())
    }

    pub(super) fn release_executables(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let released = self.homes[u.choose_index(POOLS)?].pool.release_executables();
        released.expect("the device answers");
        Ok(())
    }

    /// No pool keeps more than its budget.
    pub(super) fn judge_budgets(&self) {
        for home in &self.homes {
            let figures = home.pool.executables();
            if let (Some(budget), false) = (home.keeps.options.budget, home.keeps.exceeds) {
                assert!(figures.bytes <= budget, "{figures:?}");
                // By what they were measured to take too; one alone may have what the driver takes at once.
                let alone = figures.executables <= 1;
                assert!(figures.counted <= budget || alone, "{figures:?}");
                let most = budget + Executables::DRIVER_PIECE;
                assert!(figures.measured <= most || !alone, "{figures:?}");
            }
        }
    }

    /// No executable is left that no graph needs, and figures tell what there is. All work is done.
    pub(super) fn judge_executables(&self) {
        let mut known = self.handles.len();
        for (at, home) in self.homes.iter().enumerate() {
            home.pool.collect();
            let figures = home.pool.executables();
            known += figures.executables;
            let (mut graphs, mut nodes) = (0, 0);
            for made in &self.graphs {
                match made.launcher {
                    Launcher::Pool(_) if made.home == at => {
                        (graphs, nodes) = (graphs + 1, nodes + made.nodes)
                    }
                    Launcher::Host(..) | Launcher::Closed(..) if made.home == at => known += 1,
                    _ => {}
                }
            }
            assert_eq!((figures.graphs, figures.graph_nodes as u64), (graphs, nodes));
        }
        if let Some((_, executables)) = (self.hooks.held)() {
            let sound = executables == known || self.failed && executables > known;
            assert!(sound, "{executables} executables for {known}");
        }
    }

    /// Counts what a pool's executables came to, before the pool goes.
    pub(super) fn note_executables(&mut self, home: usize) {
        let figures = self.homes[home].pool.executables();
        self.count("executables updated", figures.updates);
        self.count("executables that went for others", figures.evicted);
        self.count("updates refused", figures.refused);
    }
}
