//! Pools by name, their users, and where requests go.

use std::sync::Arc;

use arbitrary::{Result, Unstructured};

use super::world::{Stream, World};
use super::EAGER_POOL;
use regraph::driver::Source;
use regraph::engine;
use regraph_plugin::{Error, PoolKey};

/// Routes of one thread, at most.
pub(super) const MOST_ROUTES: usize = 3;

/// A name, and what the host has made of it.
pub(super) struct Pool {
    pub key: PoolKey,
    /// Objects that stand for it.
    pub objects: usize,
    /// Its graphs and routes.
    pub others: usize,
    pub on_oom: bool,
    /// Whether what is free in it stays with it while it has users.
    pub keeps: bool,
    /// Whether eager work has ever got something in it.
    pub has_lent: bool,
    pub no_split: bool,
    pub given: bool,
    /// Whether it belongs to a region, of which nothing is others'.
    pub sleeps: bool,
}

impl Pool {
    pub(super) fn new(key: PoolKey, sleeps: bool) -> Self {
        let (on_oom, keeps, has_lent, no_split, given) = (false, false, false, false, false);
        Self { key, objects: 0, others: 0, on_oom, keeps, has_lent, no_split, given, sleeps }
    }

    pub(super) fn users(&self) -> usize {
        self.objects + self.others
    }

    /// Whether eager work may get what is free in it.
    pub(super) fn lends(&self) -> bool {
        match self.users() {
            0 => !self.given && !self.sleeps,
            _ => self.on_oom,
        }
    }
}

impl World {
    pub(super) fn judge_users(&self, pool: usize) {
        let Pool { key, .. } = self.host.pools[pool];
        let users = self.host.plugin.pool_use_count(0, key).expect("the device is there");
        assert_eq!(users, self.host.pools[pool].users(), "users of {key:?}");
    }

    /// Whether the plug-in knows of a pool of this name, with users or left behind.
    fn exists(&self, key: PoolKey) -> bool {
        let reports = self.host.plugin.pools(0).expect("the device is there");
        reports.iter().any(|report| report.key == key)
    }

    /// A new object that stands for a pool, whose first decides what it is like.
    pub(super) fn make_object(&mut self, pool: usize, u: &mut Unstructured<'_>) -> Result<()> {
        let key = self.host.pools[pool].key;
        let (given, whole) = (u.ratio(1, 4)?, u.ratio(1, 4)?);
        let existed = self.exists(key);
        let source = given.then(|| Arc::clone(&self.given) as Arc<dyn Source>);
        self.tell(format_args!("pool {key:?}: an object, source {given}, whole {whole}"));
        match self.in_its_region(key, || self.host.plugin.create_or_incref_pool(0, key, source)) {
            Ok(()) => {}
            Err(Error::PoolExists { .. }) => {
                assert!(given && existed, "there was no such pool");
                return Ok(());
            }
            Err(error) => {
                self.excuse(&error);
                return Ok(());
            }
        }
        if given {
            // What there was under the name is gone.
            self.host.pools[pool] = Pool { given, ..self.new_pool(key) };
        } else if !existed {
            self.host.pools[pool] = self.new_pool(key);
        }
        self.host.pools[pool].objects += 1;
        self.host.pools[pool].keeps |= !existed;
        if whole {
            match self.host.plugin.set_no_split(0, key) {
                Ok(()) => self.host.pools[pool].no_split = true,
                Err(Error::PoolBegun { .. }) => assert!(self.host.pools[pool].others > 0),
                Err(Error::Engine(engine::Error::Pool {
                    why: engine::PoolRefusal::InUse { .. },
                    ..
                })) => assert!(existed),
                Err(error) => self.excuse(&error),
            }
        }
        self.judge_users(pool);
        Ok(())
    }

    pub(super) fn drop_object(&mut self, pool: usize) {
        // It waits for the device.
        if self.host.pools[pool].objects == 0 || self.captures_untold() {
            return;
        }
        let key = self.host.pools[pool].key;
        self.tell(format_args!("pool {key:?}: an object goes"));
        self.host.plugin.release_pool(0, key).expect("the device is there");
        self.host.pools[pool].objects -= 1;
        self.judge_users(pool);
        if let Err(error) = self.host.plugin.empty_pool(key) {
            self.excuse(&error);
        }
    }

    pub(super) fn begin_route(&mut self, pool: usize) {
        let key = self.host.pools[pool].key;
        if self.host.routes.len() == MOST_ROUTES {
            return;
        }
        if !self.exists(key) {
            self.host.pools[pool] = self.new_pool(key);
        }
        self.tell(format_args!("route to {key:?}"));
        self.in_its_region(key, || self.host.plugin.begin_thread_pool(0, key))
            .expect("the device is there");
        self.host.pools[pool].others += 1;
        self.host.routes.push(pool);
        self.judge_users(pool);
    }

    /// Ends the thread's latest route.
    pub(super) fn end_route(&mut self) {
        // In the order in which routes of filters began too.
        let inside = |stream: &Stream| {
            stream.capture.is_some_and(|graph| self.captures[graph].route == self.host.routes.len())
        };
        if self.streams.iter().any(inside) {
            return;
        }
        let Some(pool) = self.host.routes.pop() else { return };
        let key = self.host.pools[pool].key;
        self.tell(format_args!("the route to {key:?} ends"));
        if let Err(error) = self.host.plugin.end_pool(0, key) {
            // A capture that was sent there and of which nothing was told is judged by now, when its stream has gone on.
            let refused = matches!(error, Error::Engine(engine::Error::SetBack { .. }));
            assert!(self.host.strays && refused, "{error}");
        }
        self.host.plugin.release_pool(0, key).expect("the device is there");
        self.host.pools[pool].others -= 1;
        self.judge_users(pool);
    }

    /// The pool that a request belongs to, of a stream that captures a graph or none, on a thread whose
    /// latest route is to `route`.
    pub(super) fn route_of(&self, graph: Option<usize>, route: Option<PoolKey>) -> PoolKey {
        let captured = graph.map(|graph| &self.captures[graph]).filter(|it| it.pool.is_some());
        // The later one, where there are both.
        let own =
            route.filter(|_| captured.is_none_or(|graph| self.host.routes.len() > graph.route));
        own.or(captured.and_then(|it| it.pool).map(|it| it.0)).unwrap_or(EAGER_POOL)
    }

    pub(super) fn use_on_oom(&mut self, pool: usize, on: bool) {
        let key = self.host.pools[pool].key;
        if !self.exists(key) {
            return;
        }
        self.tell(format_args!("pool {key:?}: on_oom {on}"));
        self.host.plugin.set_use_on_oom(0, key, on).expect("the device is there");
        self.host.pools[pool].on_oom = on;
        self.host.pools[pool].keeps = true;
    }

    pub(super) fn empty_pool(&mut self, pool: usize) {
        if self.captures_untold() {
            // It waits for the device.
            return;
        }
        let key = self.host.pools[pool].key;
        self.tell(format_args!("pool {key:?} is emptied"));
        if let Err(error) = self.host.plugin.empty_pool(key) {
            self.excuse(&error);
        }
    }

    pub(super) fn empty_cache(&mut self) {
        if self.captures_untold() {
            return;
        }
        self.tell(format_args!("the cache is emptied"));
        match self.host.plugin.empty_cache() {
            Ok(()) => self.host.lingers &= self.captures_now() || self.host.strays,
            Err(error) => self.excuse(&error),
        }
    }
}
