"""Runs a case once: capture, figures, replays, results."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from .cases.case import Case
from .devices import Captured, Device
from .digest import digest
from .records import Record, Soak

#: Replays are timed until this is over, within these bounds.
_REPLAY_SECONDS = 0.5
_FEWEST_REPLAYS, _MOST_REPLAYS = 10, 100
#: Sizes of the tensors that other work makes and lets go of between replays.
_NOISE = (1 << 10, 3 << 18, 1 << 20, 5 << 20)


@dataclass(frozen=True)
class Options:
    """How much is done.

    `captures` are timed in a process; `soak` replays are run, until `soak_seconds` are over.
    """

    captures: int = 3
    soak: int = 0
    soak_seconds: float = 10.0
    replays: bool = True
    #: Times that work runs before its capture; `None` as the case says.
    warm_ups: int | None = None
    #: Whether captures are on a new stream each, for which libraries have no workspaces.
    new_streams: bool = False


def measure(case: Case, device: Device, options: Options, record: Record) -> None:
    """Fills the record in as it goes, so that a failure leaves what is known before it."""
    # As `use_deterministic_algorithms`, which loads the compiler too.
    torch.set_deterministic_debug_mode("error" if case.deterministic else "default")
    torch.backends.cudnn.deterministic = case.deterministic
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(1)
    case.prepare(device)
    _warm_up(case, device, case.warm_ups if options.warm_ups is None else options.warm_ups)

    before = device.memory()
    device.reset_peak()
    pool = device.pool()
    graphs = _capture(case, device, pool, record, options)
    device.synchronize()
    after = device.memory()
    record.graphs = len(graphs)
    record.reserved_bytes = after.reserved - before.reserved
    record.peak_allocated_bytes = after.peak_allocated - before.allocated
    record.device_bytes = after.device - before.device
    record.pool_bytes = device.pool_bytes(pool)
    record.settings = device.settings()
    record.versions = device.versions()

    case.clear()
    device.synchronize()
    _replay(graphs)
    device.synchronize()
    record.digest = digest(case.outputs())
    record.correct = case.correct()
    if options.soak:
        record.soak = _soak(case, device, graphs, options)
        if case.steady:
            record.soak.steady = set(record.soak.digests) <= {record.digest}
    if options.replays:
        record.replay_ns = _time_replays(device, graphs)
    del graphs, pool
    for _ in range(options.captures - 1):
        case.settle()
        _drain(device)
        _capture(case, device, device.pool(), record, options)
    record.ok = True


def _warm_up(case: Case, device: Device, times: int) -> None:
    """Runs the bodies as they are captured; what this leaves behind goes back to the driver."""
    main = device.current()
    case.stream.wait_stream(main)
    with device.on(case.stream):
        for _ in range(times):
            for body in case.bodies():
                body()
    main.wait_stream(case.stream)
    case.settle()
    _drain(device)


def _drain(device: Device) -> None:
    device.synchronize()
    gc.collect()
    device.empty_cache()
    device.synchronize()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python collects no garbage within the context."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _capture(
    case: Case, device: Device, pool: object, record: Record, options: Options
) -> list[Captured]:
    stream = device.stream() if options.new_streams else case.stream
    with _no_collection():
        graphs = [device.capture(body, pool, stream) for body in case.bodies()]
    record.capture_ns.append(sum(graph.whole_ns for graph in graphs))
    record.body_ns.append(sum(graph.body_ns for graph in graphs))
    return graphs


def _replay(graphs: list[Captured]) -> None:
    for graph in graphs:
        graph.replay()


def _time_replays(device: Device, graphs: list[Captured]) -> list[int]:
    """Of all graphs in turn, each time between two events on the stream."""
    times: list[Callable[[], int]] = []
    begin = time.monotonic()
    for _ in range(3):
        _replay(graphs)
    while len(times) < _MOST_REPLAYS:
        times.append(device.time(lambda: _replay(graphs)))
        # One at a time: a queue of launches would be timed otherwise.
        device.synchronize()
        if len(times) >= _FEWEST_REPLAYS and time.monotonic() - begin > _REPLAY_SECONDS:
            break
    return [elapsed() for elapsed in times]


def _soak(case: Case, device: Device, graphs: list[Captured], options: Options) -> Soak:
    """Replays many times. Between them other work allocates, writes and frees.

    The first replay is counted: it ran before.
    """
    soak = Soak(replays=len(graphs))
    rounds = -(-options.soak // len(graphs))
    every = max(1, -(-rounds // case.checks))
    begin = time.monotonic()
    correct: bool | None = None
    for number in range(2, rounds + 1):
        last = number == rounds or time.monotonic() - begin > options.soak_seconds
        check = last or number % every == 0
        if check:
            other_work(device)
            case.clear()
        _replay(graphs)
        soak.replays += len(graphs)
        if number % 16 == 0 or check:
            # The clock is to see what has run, not what is queued.
            device.synchronize()
        if check:
            soak.digests.append(digest(case.outputs()))
            soak.after.append(soak.replays)
            known = case.correct()
            correct = known if correct is None else correct and known
        if last:
            break
    soak.correct = correct
    return soak


def other_work(device: Device) -> None:
    """Allocates, writes and frees: none of it must get memory of the graphs."""
    tensors = [
        torch.full((size,), -77, dtype=torch.int8, device=device.device)
        for size in _NOISE
        for _ in range(8)
    ]
    del tensors
    device.synchronize()
    device.empty_cache()
