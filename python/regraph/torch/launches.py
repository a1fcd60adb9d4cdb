"""Replays of graphs, told to regraph from the first time on that a pool lends what its graphs do not keep."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from regraph import _native
from regraph.torch.patches import Patches

Pool = tuple[int, int]

#: Methods of PyTorch's native graph class that give away what others can launch.
_HANDLES = ("raw_cuda_graph", "raw_cuda_graph_exec")
_patches: Patches | None = None


def install(patches: Patches) -> None:
    """Has regraph told where graphs may be launched without their objects: their pools lend nothing."""
    global _patches
    _patches = patches
    graph = torch._C._CUDAGraph
    for name in _HANDLES:
        if hasattr(graph, name):
            patches.replace(graph, name, _giving_away(getattr(graph, name)))


def watch() -> None:
    """Has regraph told of each replay from now on, for good.

    Every Python class of graphs calls the native one's method. Programs without a pool that lends never
    come here, and replay as ever.
    """
    graph = torch._C._CUDAGraph
    if _patches is not None and not hasattr(graph.replay, "is_told"):
        replay = _told(graph.replay)
        replay.is_told = True  # type: ignore[attr-defined]
        _patches.replace(graph, "replay", replay)


def _pool_of(graph: Any) -> Pool | None:
    """The pool of a graph that was captured."""
    with contextlib.suppress(RuntimeError):
        first, second = graph.pool()
        return first, second
    return None


def _told(replay: Callable[[Any], None]) -> Callable[[Any], None]:
    current_stream = torch._C._cuda_getCurrentRawStream

    @functools.wraps(replay)
    def told_replay(graph: Any) -> None:
        pool = _pool_of(graph)
        device = None if pool is None else _native.lending_device(pool)
        if device is None:
            replay(graph)
            return
        # PyTorch launches it on the current stream of the device that it was captured on.
        stream = current_stream(device)
        _native.launch_begins(device, pool, stream)
        try:
            replay(graph)
        finally:
            _native.launch_ends(device, pool, stream)

    return told_replay


def _giving_away(give: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(give)
    def given(graph: Any, *args: Any, **kwargs: Any) -> Any:
        pool = _pool_of(graph)
        if pool is not None:
            _native.launches_elsewhere(pool)
        return give(graph, *args, **kwargs)

    return given
