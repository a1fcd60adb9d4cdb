"""Replays of graphs: told to regraph while a region sleeps, and once a pool has lent memory.

Every Python class of graphs calls the native one's method, which is replaced as long as there is anything to
tell. Programs without regions and without pools that lend replay as ever.
"""

import contextlib
import functools
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from regraph import _native
from regraph.torch.patches import Patches

Pool = tuple[int, int]

#: Methods of PyTorch's native graph class that give away what others can launch.
_HANDLES = ("raw_cuda_graph", "raw_cuda_graph_exec")
_replaced = Patches()
# What replays do is changed by one thread at a time.
_changing = threading.Lock()


def install(patches: Patches) -> None:
    """Has regraph told where graphs may be launched without their objects: their pools lend nothing."""
    graph = torch._C._CUDAGraph
    for name in _HANDLES:
        if hasattr(graph, name):
            patches.replace(graph, name, _giving_away(getattr(graph, name)))


def watch(for_good: bool = True) -> None:
    """Has regraph told of each replay from now on: until `unwatch`, or for good."""
    graph: Any = getattr(torch._C, "_CUDAGraph", None)
    if not hasattr(graph, "replay"):
        return
    with _changing:
        if not hasattr(graph.replay, "for_good"):
            told = _told(graph.replay)
            told.for_good = False  # type: ignore[attr-defined]
            _replaced.replace(graph, "replay", told)
            _wait_for_earlier()
        # Never taken back: a pool may lend as long as the process runs.
        graph.replay.for_good |= for_good


def unwatch() -> None:
    """Replays are as ever again, unless they are told of for good."""
    with _changing:
        graph = getattr(torch._C, "_CUDAGraph", None)
        if not getattr(getattr(graph, "replay", None), "for_good", True):
            _replaced.undo()


def _wait_for_earlier() -> None:
    """Waits until no thread is in a replay that began before these were told of.

    What is replaced goes on where it was called before. PyTorch's Python class of graphs does nothing else there.
    """
    code = getattr(getattr(torch.cuda.CUDAGraph, "replay", None), "__code__", None)
    inside = {
        thread: frame for thread, frame in sys._current_frames().items() if frame.f_code is code
    }
    while any(sys._current_frames().get(thread) is frame for thread, frame in inside.items()):
        time.sleep(1e-4)


def pool_of(graph: Any) -> Pool | None:
    """The pool of a graph that was captured; PyTorch says what is wrong with any other."""
    with contextlib.suppress(RuntimeError):
        first, second = graph.pool()
        return first, second
    return None


def raw_graph(graph: Any) -> int:
    """The raw graph of a graph that is kept, for one that launches it and tells."""
    give = torch._C._CUDAGraph.raw_cuda_graph
    raw: int = getattr(give, "__wrapped__", give)(graph)
    return raw


def _told(replay: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(replay)
    def told_replay(graph: Any) -> None:
        pool = pool_of(graph)
        if pool is None:
            replay(graph)
            return
        # Made before anything begins, so that an interrupt finds what has to end.
        launch = _native.Launch()
        try:
            _begin(launch, pool)
            replay(graph)
        finally:
            launch.end()

    return told_replay


def _begin(launch: _native.Launch, pool: Pool) -> None:
    # PyTorch launches it on the current stream of the device that it was captured on.
    stream_of = torch._C._cuda_getCurrentRawStream
    try:
        launch.begin(pool, stream_of)
    except RuntimeError:
        # Tensors that only the collector of cycles frees may be all that is in the way.
        gc.collect()
        launch.begin(pool, stream_of)


def _giving_away(give: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(give)
    def given(graph: Any, *args: Any, **kwargs: Any) -> Any:
        pool = pool_of(graph)
        if pool is not None:
            _native.launches_elsewhere(pool)
        return give(graph, *args, **kwargs)

    return given
