"""Random captures as lists of operations: those of `regraph-lab sweep`, choice for choice.

What is random is drawn before anything is timed. On top of the sweep's operations each step's
kernel is told which live block it may read, so that a block which is handed out too early shows in
the results: one that its stream allocated or has been recorded for, and whose write precedes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .random import Random

#: Bytes of every block.
BLOCK = 4 << 20
#: The seed of `regraph-lab sweep`.
SEED = 1

STEP, WAIT, ALLOCATE, FILL, USE, FREE = range(6)
#: What a step reads when no block will do.
NOTHING = -1


class Operation(NamedTuple):
    """One operation. What `stream` and `other` mean goes with the kind.

    * `STEP`: a kernel on `stream` that reads the block `other`, or `NOTHING`.
    * `WAIT`: `stream` waits for the stream `other`.
    * `ALLOCATE`: the block `other` on `stream`.
    * `FILL`: a kernel on `stream` that writes all of the block `other`.
    * `USE`: `stream` is recorded as a user of the block `other`.
    * `FREE`: the block `other`.
    """

    kind: int
    stream: int
    other: int


@dataclass(frozen=True)
class Workload:
    """What a random capture is drawn from: see `crates/lab/src/sweep/workload.rs`."""

    streams: int
    steps: int
    alloc: float
    free: float
    join: float
    seed: int = SEED

    @property
    def name(self) -> str:
        """As the results call it."""
        return f"sweep-{self.streams}s-{self.steps}-a{self.alloc}-f{self.free}-j{self.join}"


def workloads() -> list[Workload]:
    """The 24 workloads of the sweep."""
    return [
        Workload(streams, steps, alloc, free, join)
        for streams in (2, 4, 8)
        for steps in (1_000, 10_000)
        for alloc, free in ((0.1, 0.1), (0.3, 0.1))
        for join in (0.1, 0.3)
    ]


@dataclass
class Program:
    """The operations, and what the device must hold when they are done."""

    streams: int
    operations: list[Operation] = field(default_factory=list)
    blocks: int = 0
    kernels: int = 0
    #: What each stream's steps have read, summed up.
    sums: list[int] = field(default_factory=list)
    #: Blocks that are never freed.
    kept: list[int] = field(default_factory=list)

    def digest(self) -> str:
        """A digest of the operations."""
        return hashlib.sha256(repr(self.operations).encode()).hexdigest()


def value_of(block: int) -> int:
    """What every word of a block holds."""
    return block + 1


def draw(workload: Workload) -> Program:
    """Draws the capture: stream 0 begins and the others fork from it; random steps; all join."""
    random = Random(workload.seed)
    writer = _Writer(workload.streams)
    writer.kernel(0, None)
    for stream in range(1, workload.streams):
        writer.wait(stream, 0)
    live: list[int] = []
    for _ in range(workload.steps):
        stream = random.below(workload.streams)
        writer.step(stream)
        if random.chance(workload.join) and workload.streams > 1:
            stream = random.below(workload.streams)
            other = (stream + 1 + random.below(workload.streams - 1)) % workload.streams
            writer.wait(stream, other)
        if random.chance(workload.alloc):
            block, own = writer.program.blocks, random.below(workload.streams)
            writer.allocate(block, own)
            live.append(block)
            stream = random.below(workload.streams)
            if stream != own:
                writer.wait(stream, own)
            writer.kernel(stream, block)
            if stream != own:
                writer.use(block, stream)
        if random.chance(workload.free) and live:
            index = random.below(len(live))
            block, last = live[index], live.pop()
            if index < len(live):
                live[index] = last
            writer.free(block)
    for stream in range(1, workload.streams):
        writer.wait(0, stream)
    writer.program.kept = live
    return writer.program


class _Writer:
    """Writes operations down and knows, by vector clocks, what each stream's work comes behind."""

    def __init__(self, streams: int) -> None:
        self.program = Program(streams, sums=[0] * streams)
        self._choices = Random(0x5EED)
        self._clocks = [[0] * streams for _ in range(streams)]
        # The stream and time of each live block's write, and the blocks each stream may read.
        self._written: dict[int, tuple[int, int]] = {}
        self._readable: list[list[int]] = [[] for _ in range(streams)]

    def _push(self, kind: int, stream: int, other: int) -> None:
        self.program.operations.append(Operation(kind, stream, other))

    def kernel(self, stream: int, block: int | None) -> None:
        """A kernel that writes a block, or at the very start the sums."""
        self.program.kernels += 1
        self._clocks[stream][stream] += 1
        if block is not None:
            self._written[block] = (stream, self._clocks[stream][stream])
            self._push(FILL, stream, block)

    def step(self, stream: int) -> None:
        """A kernel that adds a block's value to its stream's sum."""
        self.program.kernels += 1
        self._clocks[stream][stream] += 1
        block = next(self._candidates(stream), NOTHING)
        self.program.sums[stream] += 1 if block == NOTHING else value_of(block)
        self._push(STEP, stream, block)

    def _candidates(self, stream: int) -> Iterator[int]:
        blocks = self._readable[stream]
        for _ in range(6):
            if not blocks:
                return
            index = self._choices.below(len(blocks))
            block = blocks[index]
            if block not in self._written:
                # Freed: the last takes its place.
                blocks[index] = blocks[-1]
                blocks.pop()
                continue
            writer, time = self._written[block]
            if self._clocks[stream][writer] >= time:
                yield block

    def wait(self, stream: int, other: int) -> None:
        """A join."""
        self._clocks[stream] = list(map(max, self._clocks[stream], self._clocks[other]))
        self._push(WAIT, stream, other)

    def allocate(self, block: int, stream: int) -> None:
        """A block; its first writer follows."""
        self.program.blocks += 1
        self._readable[stream].append(block)
        self._push(ALLOCATE, stream, block)

    def use(self, block: int, stream: int) -> None:
        """A use that is recorded."""
        self._readable[stream].append(block)
        self._push(USE, stream, block)

    def free(self, block: int) -> None:
        """A free; nothing reads the block from here on."""
        del self._written[block]
        self._push(FREE, 0, block)
