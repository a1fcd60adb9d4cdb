"""Whether a communication library may register a capture's memory while it is captured.

Such a library takes the physical memory behind addresses from the driver. Memory that is exchanged
afterwards, by growth ahead or by a plan, would leave the library on the old one.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch

from regraph import _native

#: NCCL registers the buffers of collectives that are captured unless this is 0. It reads it once.
GRAPHS = "NCCL_GRAPH_REGISTER"
#: Has PyTorch register every segment with NCCL.
SEGMENTS = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
#: Those of PyTorch that register nothing without these variables.
KNOWN = ("gloo", "nccl")


@contextlib.contextmanager
def turned_off() -> Iterator[None]:
    """Has NCCL register nothing of captures, unless the environment says otherwise or NCCL may have read that.

    For the enabling of regraph by programs whose graphs' memory is to sleep; where that fails NCCL is as it was.
    """
    distributed = torch.distributed
    reads_later = not (distributed.is_available() and distributed.is_initialized())
    sets = reads_later and GRAPHS not in os.environ
    if sets:
        os.environ[GRAPHS] = "0"
    try:
        yield
    except BaseException:
        if sets:
            os.environ.pop(GRAPHS, None)
        raise


class Registering:
    """What is known of it in this process."""

    def __init__(self) -> None:
        # regraph is enabled before CUDA is used, and so before NCCL reads it.
        self._graphs = os.environ.get(GRAPHS) != "0"

    def may_happen(self) -> bool:
        """Whether one that runs in this process may do it."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return False
        if self._graphs or os.environ.get(GRAPHS) != "0":
            return True
        return _is_set(SEGMENTS) or not all(backend in KNOWN for backend in _backends())


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0").lower() not in ("", "0", "false", "no", "n", "off")


def _backends() -> set[str]:
    """Those of all process groups. PyTorch has no public function that names them."""
    groups = torch.distributed.distributed_c10d._world.pg_backend_config.values()
    # Each is "cpu:gloo,cuda:nccl" or the like.
    return {part.rpartition(":")[2] for group in groups for part in str(group).split(",")}


class Mark(NamedTuple):
    """A graph in whose capture a library may have registered memory."""

    graph: "weakref.ref[Any]"
    #: Any region that there was then: a collective's buffers may lie outside of the graph's pool.
    regions: frozenset[str]


class Marks:
    """The graphs that live of captures in which a library may have registered memory."""

    def __init__(self) -> None:
        # By the graph object's `id`, which is its own as long as it lives.
        self._marks: dict[int, Mark] = {}
        #: Held while such a capture begins, and while regions go to sleep: none begins and ends in between.
        self.lock = threading.RLock()

    def add(self, graph: Any) -> None:
        """Notes a capture that is about to end, so that nothing sleeps before it is noted."""
        key = id(graph)
        gone = weakref.ref(graph, lambda _: self._marks.pop(key, None))
        self._marks[key] = Mark(gone, frozenset(_native.region_tags()))

    def drop(self, graph: Any) -> None:
        """Forgets a graph that is no more: what was registered for it is not used again."""
        self._marks.pop(id(graph), None)

    def find(self, tags: Collection[str] | None) -> tuple[Any, list[str]] | None:
        """A graph that keeps regions from sleeping, of all with `None`, and which these are."""
        for mark in list(self._marks.values()):
            graph = mark.graph()
            held = mark.regions if tags is None else mark.regions.intersection(tags)
            if graph is not None and held:
                return graph, sorted(held)
        return None
