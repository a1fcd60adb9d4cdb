"""Whether a communication library may register memory: of a capture while it is captured, or of segments.

Such a library takes the physical memory behind addresses from the driver. Memory that is exchanged
afterwards, by growth ahead or by `plan:exact`, would leave the library on the old one.
"""

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from regraph import _native, starting
from regraph.torch.errors import Error
from regraph.torch.patches import Patches

#: NCCL registers the buffers of collectives that are captured unless this is 0. It reads it once.
GRAPHS = "NCCL_GRAPH_REGISTER"
#: Have PyTorch register every segment with NCCL.
SEGMENTS = (
    "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
)
_keeps_growing = False

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


def install(patches: Patches) -> None:
    """Has PyTorch's groups of NCCL refuse to register segments that grow.

    PyTorch registers a segment when it comes whole, and lets go of it when it goes whole. Of one that grows NCCL would
    keep pieces that have gone, and take what comes to their addresses later for them.
    """
    group = getattr(getattr(torch.distributed, "distributed_c10d", None), "ProcessGroupNCCL", None)
    if group is None:
        return
    begin = group.__init__

    @functools.wraps(begin)
    def begin_group(self: Any, *args: Any, **kwargs: Any) -> None:
        # The variable may have been set since regraph was enabled.
        refuse_segments()
        begin(self, *args, **kwargs)

    patches.replace(group, "__init__", begin_group)
    register = getattr(group, "register_mem_pool", None)
    if register is None:
        return

    @functools.wraps(register)
    def register_mem_pool(self: Any, pool: Any, *args: Any, **kwargs: Any) -> None:
        if _segments_grow() and not _has_allocator(pool):
            raise Error(
                "register_mem_pool: the pool's segments grow, and NCCL would keep what has gone of them. Give the "
                "pool an allocator, such as MemPool(backend.mem_allocator), or set expandable_segments:False."
            )
        register(self, pool, *args, **kwargs)

    patches.replace(group, "register_mem_pool", register_mem_pool)


def refuse_segments() -> None:
    """Raises `Error` where PyTorch would register segments that grow.

    It registers none where its own settings say that they grow; regraph's it does not know.
    """
    name = next(filter(_is_set, SEGMENTS), None)
    if name is None or not _segments_grow():
        return
    # Older versions of PyTorch read the variables in another order.
    texts = [os.environ[variable] for variable in starting.OF_PYTORCH if variable in os.environ]
    if not texts or not all(map(_says_that_segments_grow, texts)):
        raise Error(
            f"{name}={os.environ[name]} has PyTorch register segments with NCCL, which would keep what has gone of "
            "segments that grow. Start the program again with expandable_segments:False (settings=…, or "
            "REGRAPH_ALLOC_CONF), or with the variable unset."
        )


def keep_growing() -> None:
    """Tells that the setting of segments has changed, and pools that were made before keep theirs."""
    global _keeps_growing
    _keeps_growing = True


def _segments_grow() -> bool:
    """Whether any may."""
    return _keeps_growing or _native.memory_sleeps()


def _has_allocator(pool: Any) -> bool:
    # PyTorch's pools tell it up to 2.10; those of 2.7 have told regraph nothing before they are used.
    return getattr(pool, "allocator", None) is not None or _native.has_source(pool.id)


def _says_that_segments_grow(text: str) -> bool:
    # Where a text has a key twice the last one counts.
    return "".join(text.split()).rpartition("expandable_segments:")[2].startswith("True")


class Registering:
    """What is known of it in this process."""

    def __init__(self) -> None:
        # regraph is enabled before CUDA is used, and so before NCCL reads it.
        self._graphs = os.environ.get(GRAPHS) != "0"
        #: The process groups, by themselves: PyTorch changes this table. Empty where it was built without them.
        self.groups: Any = _process_groups() if torch.distributed.is_available() else ()

    def may_happen(self) -> bool:
        """Whether one that runs in this process may do it."""
        if not self.groups:
            return False
        if self._graphs or os.environ.get(GRAPHS) != "0":
            return True
        return any(map(_is_set, SEGMENTS)) or not all(backend in KNOWN for backend in _backends())


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0").lower() not in ("", "0", "false", "f", "no", "n", "off")


def _process_groups() -> Any:
    # Each capture asks: `torch.distributed.is_initialized()` makes three calls of Python.
    return torch.distributed.distributed_c10d._world.pg_map


def _backends() -> set[str]:
    """Those of all process groups. PyTorch has no public function that names them."""
    groups = torch.distributed.distributed_c10d._world.pg_backend_config.values()
    # Each is "cpu:gloo,cuda:nccl" or the like.
    return {part.rpartition(":")[2] for group in groups for part in str(group).split(",")}


class Marks:
    """The regions of which a library may have registered memory in a capture, for good.

    NCCL gives up what it registered for a graph at some call of its own after the graph is gone, which nothing
    tells. Until then it would take new memory at the same addresses for the old.
    """

    def __init__(self) -> None:
        #: A graph in whose capture that was, by the region's tag.
        self._graphs: dict[str, Callable[[], Any]] = {}
        #: Held while such a capture begins, and while regions go to sleep: none begins and ends in between.
        self.lock = threading.RLock()

    def add(self, graph: Any) -> None:
        """Notes a capture before it ends, so that nothing sleeps meanwhile; its graph object may be gone (`None`).

        A collective's buffers may lie outside of the graph's pool: so may all regions that there are.
        """
        found = weakref.ref(graph) if graph is not None else lambda: None
        for tag in _native.region_tags():
            self._graphs.setdefault(tag, found)

    def forget(self, tag: str) -> None:
        """Drops a region whose memory has gone back to the driver: one of that name is another."""
        self._graphs.pop(tag, None)

    def find(self, tags: Collection[str] | None) -> tuple[Any, list[str]] | None:
        """Which regions cannot sleep for that, of all with `None`; and the first one's graph, `None` if it is gone."""
        held = sorted(tag for tag in list(self._graphs) if tags is None or tag in tags)
        return (self._graphs[held[0]](), held) if held else None
