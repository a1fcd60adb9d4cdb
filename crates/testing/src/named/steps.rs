//! What the host does next, with blocks and streams.

use arbitrary::{Result, Unstructured};

use super::world::{must, Block, Fate, Stream, World, Writer, EAGER, MIB};
use regraph::driver::HostApi;
use regraph_tagged::{Program, Tagged, Work};

/// What a program asks for.
fn size(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=7u8)? {
        0 | 1 => 512 * u.int_in_range(1..=8)?,
        2 => u.int_in_range(1..=MIB + 1)?,
        3..=5 => 2 * MIB * u.int_in_range(1..=3)?,
        6 => MIB * u.int_in_range(1..=12)?,
        _ => u.int_in_range(1..=24 * MIB)?,
    })
}

impl World {
    pub(super) fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.now += 1;
        let kind = u.int_in_range(0..=99u8)?;
        let stream = u.choose_index(self.streams.len())?;
        let pool = u.choose_index(self.pools.len())?;
        match kind {
            0..=17 => self.launch(stream),
            18..=39 => self.allocate(u, stream)?,
            40..=52 => {
                if let Some(block) = self.any_block(u)? {
                    self.free(block);
                }
            }
            53..=56 => {
                if let Some(block) = self.any_block(u)? {
                    self.use_on(block, stream);
                }
            }
            57..=60 => {
                let on = u.choose_index(self.streams.len())?;
                self.wait(stream, on);
            }
            61..=64 => must(self.driver.complete(self.streams[stream].name)),
            65..=68 => self.make_object(pool, u)?,
            69 | 70 => self.drop_object(pool),
            71..=74 => self.begin_route(pool),
            75..=77 => self.end_route(),
            78 => self.use_on_oom(pool, u.arbitrary()?),
            79 => self.empty_pool(pool),
            80 => self.empty_cache(),
            81 => {
                self.caches = u.arbitrary()?;
                self.plugin.set_caching(self.caches);
            }
            82..=84 => self.begin_graph(pool, stream, u.arbitrary()?),
            85 | 86 => self.end_graph(stream, u.ratio(1, 6)?),
            87 | 88 if !self.graphs.is_empty() => {
                let graph = u.choose_index(self.graphs.len())?;
                self.replay(graph, stream);
            }
            89 if !self.graphs.is_empty() => {
                let graph = u.choose_index(self.graphs.len())?;
                self.release_graph(graph);
            }
            90 | 91 => self.save(pool),
            92..=94 if !self.saved.is_empty() => {
                let saved = u.choose_index(self.saved.len())?;
                self.restore(saved);
            }
            95 => {
                if let Some(block) = self.any_block(u)? {
                    self.open(block);
                }
            }
            96 if !self.opened.is_empty() => {
                let opened = u.choose_index(self.opened.len())?;
                self.close(opened);
            }
            97 => self.inject(u)?,
            98 => self.judge_device(),
            _ => self.nap(),
        }
        self.judge_figures();
        Ok(())
    }

    fn any_block(&self, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
        let live = self.live();
        if live.is_empty() {
            return Ok(None);
        }
        Ok(Some(live[u.choose_index(live.len())?]))
    }

    fn allocate(&mut self, u: &mut Unstructured<'_>, row: usize) -> Result<()> {
        let requested = size(u)?;
        let elsewhere = u.ratio(1, 8)?;
        let in_region = self.sleeps && !elsewhere && u.ratio(1, 6)?;
        let Stream { name, graph } = self.streams[row];
        let ask = || match in_region {
            true => self.in_region(|| self.plugin.allocate(requested, 0, name)),
            false => self.plugin.allocate(requested, 0, name),
        };
        let given = if elsewhere {
            std::thread::scope(|scope| scope.spawn(ask).join().expect("no thread panics"))
        } else {
            ask()
        };
        let address = match given {
            Ok(address) => address,
            Err(error) if error.out_of_memory().is_some() => return Ok(()),
            Err(error) => {
                self.excuse(&error);
                return Ok(());
            }
        };
        let report = self.plugin.live_block(address).expect("the block is live");
        self.tell(format_args!(
            "block {} on {row}: {address:#x}+{:#x}, {:?}, graph {graph:?}, elsewhere {elsewhere}",
            self.blocks.len(),
            report.bytes,
            report.key
        ));
        assert_eq!((report.requested, report.stream), (requested, name));
        assert!(report.bytes >= requested && address.is_multiple_of(512));
        let route = self
            .routes
            .last()
            .filter(|_| !elsewhere && !in_region)
            .map(|&pool| self.pools[pool].key);
        let asked = self.route_of(graph, route);
        let lends = |key| self.pools.iter().any(|pool| pool.key == key && pool.lends());
        let borrowed = asked == EAGER && self.caches && !in_region && lends(report.key);
        assert!(report.key == asked || borrowed, "{asked:?} was asked, {:?} gave", report.key);
        for pool in self.pools.iter_mut().filter(|pool| borrowed && pool.key == report.key) {
            pool.has_lent = true;
        }
        let around = self.plugin.surroundings_of(address).expect("the block is live");
        let whole = |key| self.pools.iter().any(|pool| pool.key == key && pool.no_split);
        let sole = around == (address, report.bytes);
        assert!(!whole(report.key) || sole, "a whole block was split");
        self.judge_place(report.key, (address, address + report.bytes), row);
        self.enter(Block {
            key: report.key,
            address,
            bytes: report.bytes,
            users: vec![row],
            home: graph,
            born: self.now,
            restored: false,
            counts: self.order.counts(),
            live: true,
            tag: self.blocks.len() as u64 + 1,
            writer: Writer::NoWork,
        });
        Ok(())
    }

    pub(super) fn free(&mut self, number: usize) {
        let Block { address, bytes, key, home, restored, .. } = self.blocks[number];
        self.tell(format_args!("free of {number}"));
        self.plugin.free(address, 0).expect("the block is live");
        self.blocks[number].live = false;
        let block = &self.blocks[number];
        let mut uses = Vec::new();
        let mut graphs: Vec<usize> = home.into_iter().collect();
        for &row in &block.users {
            let count = self.order.count(row);
            // What a stream did before the block was there did not use it.
            if block.counts.get(row).is_none_or(|&before| count > before) {
                uses.push((row, count));
            }
        }
        // Without a node in the block's time nothing in the graph can have used it.
        let born = block.born;
        graphs.retain(|&graph| {
            self.graphs[graph].fate != Fate::Gone && self.graphs[graph].latest > born
        });
        if restored {
            graphs.extend(self.graphs_of(key));
        }
        for bytes in self.ranges.between(address, address + bytes) {
            bytes.live = None;
            for &(row, count) in &uses {
                bytes.note_use(row, count);
            }
            bytes.graphs.extend(&graphs);
        }
    }

    /// Names another stream as a user of a block, ordered after its allocation.
    fn use_on(&mut self, number: usize, row: usize) {
        let block = &self.blocks[number];
        let owner = block.users[0];
        let outside = self.streams[row].graph.is_none() && self.streams[owner].graph.is_none();
        if block.home.is_some() || !outside || !(row == owner || self.wait(row, owner)) {
            return;
        }
        let (address, name) = (self.blocks[number].address, self.streams[row].name);
        self.tell(format_args!("use of {number} by {row}"));
        self.plugin.record_stream(address, name).expect("the block is live");
        let users = &mut self.blocks[number].users;
        if !users.contains(&row) {
            users.push(row);
        }
    }

    /// Makes a stream wait for another where that is work outside captures.
    pub(super) fn wait(&mut self, row: usize, on: usize) -> bool {
        let (stream, other) = (self.streams[row], self.streams[on]);
        if stream.graph.is_some() || other.graph.is_some() || row == on {
            return false;
        }
        self.tell(format_args!("wait of {row} on {on}"));
        must(self.driver.wait(stream.name, other.name));
        self.order.wait(row, on);
        true
    }

    /// Launches a kernel that writes what its stream has yet to write and reads what it may read.
    fn launch(&mut self, row: usize) {
        let Stream { name, graph } = self.streams[row];
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for number in self.live() {
            let block = &mut self.blocks[number];
            let own = block.users[0] == row;
            if !block.users.contains(&row) {
                continue;
            }
            let range = Tagged { address: block.address, bytes: block.bytes, tag: block.tag };
            match (block.writer, graph) {
                (Writer::NoWork, None) if own && block.home.is_none() => {
                    block.writer = Writer::Eager(self.order.count(row) + 1);
                    outputs.push(range);
                }
                (Writer::NoWork, Some(graph)) if own && block.home == Some(graph) => {
                    block.writer = Writer::Node(graph);
                    outputs.push(range);
                }
                (Writer::Eager(count), None)
                    if self.order.precedes((block.users[0], count), row) =>
                {
                    inputs.push(range);
                }
                (Writer::Node(home), Some(graph)) if own && home == graph => inputs.push(range),
                _ => {}
            }
        }
        let work = Work { inputs: &inputs, outputs: &outputs, ..Work::default() };
        must(self.driver.launch(name, work, false));
        match graph {
            Some(graph) => self.graphs[graph].latest = self.now,
            None => self.push_operation(row),
        }
    }

    /// Notes that a stream has got one more operation.
    pub(super) fn push_operation(&mut self, row: usize) {
        let event = must(self.driver.record(self.streams[row].name));
        self.order.push(row, event);
        self.tell(format_args!("operation {} of {row}", self.order.count(row)));
    }
}
