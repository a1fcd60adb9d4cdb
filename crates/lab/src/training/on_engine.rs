//! A workload on this engine.

use std::sync::Arc;

use ahash::AHashMap;
use thiserror::Error;

use super::background::{is_due, Background};
use super::operation::Operation;
use super::row::{Policy, Row};
use regraph::driver::{DriverError, HostApi};
use regraph::engine::{self, BlockId, Config, Engine, PoolConfig, PoolId};
use regraph_sim::{Call, SimDriver};
use regraph_tagged::{Program, Work};
use regraph_trace::{BlockIndex, StreamIndex};

/// Why a workload could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The engine refused an operation.
    #[error("operation {operation}: {source}")]
    Engine {
        /// Which operation, counted from 0.
        operation: usize,
        /// What it said.
        source: engine::Error,
    },
    /// The driver refused an operation.
    #[error("operation {operation}: {source}")]
    Driver {
        /// Which operation, counted from 0.
        operation: usize,
        /// What it said.
        source: DriverError,
    },
    /// An operation names a block that is not live.
    #[error("operation {operation}: block {block} is not live")]
    UnknownBlock {
        /// Which operation, counted from 0.
        operation: usize,
        /// The block.
        block: BlockIndex,
    },
    /// The model of PyTorch's allocator refused a size.
    #[error("operation {operation}: {bytes} bytes are refused")]
    Refused {
        /// Which operation, counted from 0.
        operation: usize,
        /// The size.
        bytes: u64,
    },
}

/// Runs a workload on an engine of its own, on a simulated device that works in the background.
///
/// # Errors
/// The first operation that fails.
pub fn on_engine(
    driver: &Arc<SimDriver>,
    operations: &[Operation],
    config: Config,
) -> Result<Row, TrainingError> {
    let growth = |driver: &SimDriver| driver.calls(Call::Map) + driver.calls(Call::Allocate);
    let before = growth(driver);
    let engine = Engine::new(driver.clone(), config);
    let streams = streams(operations);
    let background = Background::new(driver, streams)
        .map_err(|source| TrainingError::Driver { operation: 0, source })?;
    let pool = engine.create_pool(PoolConfig::default());
    let mut run = Run { driver, engine, pool, background, blocks: AHashMap::new(), peak: 0 };
    for (index, operation) in operations.iter().enumerate() {
        run.step(index, operation)?;
        if is_due(index) {
            let completed = run.background.complete_older(driver);
            completed.map_err(|source| TrainingError::Driver { operation: index, source })?;
        }
    }
    let statistics = run.engine.pool_statistics(pool);
    let statistics =
        statistics.map_err(|e| TrainingError::Engine { operation: operations.len(), source: e })?;
    run.end(operations.len())?;
    let reserved = [run.peak, statistics.reserved];
    Ok(Row::new(Policy::Regraph, statistics.peak_allocated, reserved, growth(driver) - before))
}

/// How many streams the operations name.
pub(super) fn streams(operations: &[Operation]) -> usize {
    let highest = operations.iter().filter_map(|operation| match *operation {
        Operation::Allocate { stream, .. }
        | Operation::Use { stream, .. }
        | Operation::Work { stream } => Some(stream),
        Operation::Wait { stream, on } => Some(stream.max(on)),
        Operation::Free { .. } | Operation::Complete => None,
    });
    highest.max().map_or(0, |highest: StreamIndex| usize::from(highest) + 1)
}

struct Run<'a> {
    driver: &'a Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    background: Background,
    blocks: AHashMap<BlockIndex, BlockId>,
    /// The most that was reserved, in bytes.
    peak: u64,
}

impl Run<'_> {
    /// Frees what the workload leaves, so that nothing is lost with the engine.
    fn end(&mut self, operation: usize) -> Result<(), TrainingError> {
        self.driver.complete_all();
        for (_, block) in self.blocks.drain() {
            let freed = self.engine.free(block);
            freed.map_err(|source| TrainingError::Engine { operation, source })?;
        }
        Ok(())
    }

    fn step(&mut self, index: usize, operation: &Operation) -> Result<(), TrainingError> {
        let engine = |source| TrainingError::Engine { operation: index, source };
        let driver = |source| TrainingError::Driver { operation: index, source };
        let unknown = |block| TrainingError::UnknownBlock { operation: index, block };
        let stream = |stream: StreamIndex| self.background.streams[usize::from(stream)];
        match *operation {
            Operation::Allocate { id, bytes, stream: own } => {
                let block = self.engine.allocate(self.pool, bytes, stream(own)).map_err(engine)?;
                self.blocks.insert(id, block.id);
                // No other operation takes memory from the driver.
                let statistics = self.engine.pool_statistics(self.pool).map_err(engine)?;
                self.peak = self.peak.max(statistics.reserved);
            }
            Operation::Use { id, stream: user } => {
                let block = self.blocks.get(&id).ok_or_else(|| unknown(id))?;
                self.engine.record_stream(*block, stream(user)).map_err(engine)?;
            }
            Operation::Free { id } => {
                let block = self.blocks.remove(&id).ok_or_else(|| unknown(id))?;
                self.engine.free(block).map_err(engine)?;
            }
            Operation::Work { stream: on } => {
                self.driver.launch(stream(on), Work::default(), false).map_err(driver)?;
            }
            Operation::Wait { stream: waits, on } => {
                self.driver.wait(stream(waits), stream(on)).map_err(driver)?;
            }
            Operation::Complete => self.driver.complete_all(),
        }
        Ok(())
    }
}
