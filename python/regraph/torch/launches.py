"""Replays of graphs: looked at while a region sleeps, and told to regraph once a pool has lent memory.

Every Python class of graphs calls the native one's method, which is replaced as long as there is anything to
do. Programs without regions and without pools that lend replay as ever.
"""

import contextlib
import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

import torch

from regraph import _native
from regraph.torch.patches import Patches

Pool = tuple[int, int]

#: Methods of PyTorch's native graph class that give away what others can launch.
_HANDLES = ("raw_cuda_graph", "raw_cuda_graph_exec")
_replaced = Patches()
# What replays do is changed by one thread at a time: a patch that is undone tells of nothing.
_changing = threading.Lock()


def install(patches: Patches) -> None:
    """Has regraph told where graphs may be launched without their objects: their pools lend nothing."""
    graph = torch._C._CUDAGraph
    for name in _HANDLES:
        if hasattr(graph, name):
            patches.replace(graph, name, _giving_away(getattr(graph, name)))


def watch() -> None:
    """Has regraph told of each replay from now on, for good."""
    with _changing:
        looks = _looks()
        if looks is not None:
            looks.tells = True


def check(requires: Callable[[Pool], None] | None) -> None:
    """Has each replay ask first whether its graph may be launched, which raises if not; `None` ends that."""
    with _changing:
        if requires is None and _present() is None:
            return
        looks = _looks()
        if looks is None:
            return
        looks.requires = requires
        if requires is None and not looks.tells:
            _replaced.undo()


class _Looks:
    """What a replay does besides."""

    def __init__(self) -> None:
        self.requires: Callable[[Pool], None] | None = None
        #: Never taken back: a pool may lend as long as the process runs.
        self.tells = False


def _present() -> _Looks | None:
    graph = getattr(torch._C, "_CUDAGraph", None)
    return getattr(getattr(graph, "replay", None), "looks", None)


def _looks() -> _Looks | None:
    """What replays do, which is replaced if that was not done; `None` where PyTorch has no graphs."""
    graph = getattr(torch._C, "_CUDAGraph", None)
    if not hasattr(graph, "replay"):
        return None
    looks = _present()
    if looks is None:
        looks = _Looks()
        replay = _looking(graph.replay, looks)
        replay.looks = looks  # type: ignore[attr-defined]
        _replaced.replace(graph, "replay", replay)
    return looks


def _pool_of(graph: Any) -> Pool | None:
    """The pool of a graph that was captured; PyTorch says what is wrong with any other."""
    with contextlib.suppress(RuntimeError):
        first, second = graph.pool()
        return first, second
    return None


def _looking(replay: Callable[[Any], None], looks: _Looks) -> Callable[[Any], None]:
    @functools.wraps(replay)
    def looking_replay(graph: Any) -> None:
        pool = _pool_of(graph)
        if pool is not None and looks.requires is not None:
            looks.requires(pool)
        device = _native.lending_device(pool) if pool is not None and looks.tells else None
        if device is None:
            replay(graph)
            return
        # PyTorch launches it on the current stream of the device that it was captured on.
        stream = torch._C._cuda_getCurrentRawStream(device)
        try:
            _native.launch_begins(device, pool, stream)
        except RuntimeError:
            # Tensors that only the collector of cycles frees may be all that is in the way.
            gc.collect()
            _native.launch_begins(device, pool, stream)
        try:
            replay(graph)
        finally:
            _native.launch_ends(device, pool, stream)

    return looking_replay


def _giving_away(give: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(give)
    def given(graph: Any, *args: Any, **kwargs: Any) -> Any:
        pool = _pool_of(graph)
        if pool is not None:
            _native.launches_elsewhere(pool)
        return give(graph, *args, **kwargs)

    return given
