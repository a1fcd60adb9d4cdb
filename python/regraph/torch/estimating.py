"""What a pool of graphs will need, before there is memory for it."""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch import capturing
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error

if TYPE_CHECKING:
    from torch.types import Device

Size = TypeVar("Size")
Result = TypeVar("Result")

#: What captures have shown is one record for the process.
_estimating = threading.Lock()


class Estimate(NamedTuple):
    """What graphs that share one pool will need."""

    pool_bytes: int
    """What the pool will hold."""
    executable_bytes: int
    """What the driver will take beside it for the executable graphs."""

    @property
    def total_bytes(self) -> int:
        """Both together."""
        return self.pool_bytes + self.executable_bytes


def estimate(
    function: Callable[[Size], Any], sizes: Iterable[Size], device: "Device" = None
) -> Estimate:
    """Says what graphs of `function(size)` will need, one for each size, in one pool.

        need = regraph.torch.estimate(step, [64, 32, 16, 8, 4, 2, 1])
        if need.total_bytes < torch.cuda.mem_get_info()[0]:
            ...  # capture them in this order

    Each size is captured once, as it will be, on addresses that have 170 MiB behind them at most,
    and made executable; its graph is never launched. The same requests are then made of a simulated
    device, in turn and with the settings as they are, which comes to the memory that the captures
    will hold. Nothing is kept: the executables, which the driver takes memory for, go at the end.
    It takes as long as the captures do, and somewhat longer.

    Call it when libraries are ready, as for captures: after a run of warming up. Capture the sizes
    in the same order afterwards. Memory that the function has from before its capture is not
    counted, and what it returns counts as kept as long as its graph lives. A request that the
    device could never serve is refused as in a capture. Where PyTorch does not name executables
    (`CUDAGraph.raw_cuda_graph_exec`), `executable_bytes` is without what their first launch takes.

    Args:
        function: What is captured. It must submit the same work each time.
        sizes: What it is called with, in the order of the captures.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled; another thread estimates; memory may be registered by communication
            libraries, as in captures where `plan:exact` has no effect. Also what a capture of the function raises.
    """
    require_enabled("estimate")

    def estimated(number: int, executables: int) -> Estimate:
        return Estimate(_native.estimated(number), executables)

    return show(function, sizes, device, estimated)


def show(
    function: Callable[[Size], Any],
    sizes: Iterable[Size],
    device: "Device",
    come_to: Callable[[int, int], Result],
    stacks: bool = False,
) -> Result:
    """Has captures of a function shown, one for each size, and returns what `come_to` makes of them.

    Its arguments are the device's number, and what the driver took for executable graphs, in bytes. With
    `stacks` the blocks of the captures remember the Python stacks that asked for them.

    Raises:
        Error: As `estimate`.
    """
    torch.cuda.init()
    number = _get_device_index(device, optional=True)
    calls = capturing.calls()
    if not calls.is_alone():
        raise Error("Memory cannot be estimated while communication libraries may register it.")
    if not _estimating.acquire(blocking=False):
        raise Error(
            "Memory is being estimated already, in this thread or another; call it when that is done."
        )
    try:
        return _shown(calls, function, sizes, number, come_to, stacks)
    finally:
        _estimating.release()


def _shown(
    calls: Any,
    function: Callable[[Size], Any],
    sizes: Iterable[Size],
    number: int,
    come_to: Callable[[int, int], Result],
    stacks: bool,
) -> Result:
    # All of them live until the end: the driver would give the memory of one to the next.
    graphs: list[torch.cuda.CUDAGraph] = []
    executables = 0
    with torch.cuda.device(number):
        pool = torch.cuda.graph_pool_handle()
        _native.estimate(True, stacks)
        try:
            for size in sizes:
                graph = torch.cuda.CUDAGraph()
                context = torch.cuda.graph(graph, pool=pool)
                if not graphs:
                    _make_workspaces(context.capture_stream)
                with calls.showing() as shown:
                    # Alive until the capture has ended, as outputs are.
                    with context:
                        kept = function(size)
                    executables += shown.finish(graph)
                graphs.append(graph)
                del kept
            _reset(graphs)
            _require_nothing_kept(number, pool)
            return come_to(number, executables)
        finally:
            _native.estimate(False)
            _reset(graphs)


def _reset(graphs: list[torch.cuda.CUDAGraph]) -> None:
    while graphs:
        graphs.pop().reset()


def _make_workspaces(stream: Any) -> None:
    """Has cuBLAS allocate what it keeps for a stream: in a capture it would be memory of that."""
    with torch.cuda.stream(stream):
        ones = torch.ones(32, 32, device="cuda")
        torch.addmm(ones[0], ones, torch.mm(ones, ones))


def _require_nothing_kept(device: int, pool: tuple[int, int]) -> None:
    """Raises an error where memory lives that was allocated in the captures.

    It has nothing behind it any more, and must not be used.
    """
    rows = [row for row in _native.pools(device) if tuple(row["id"]) == tuple(pool)]
    kept = sum(row["allocated"] for row in rows)
    if kept:
        # What PyTorch keeps for its libraries.
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        raise Error(
            f"{kept} bytes are kept that were allocated in the captures, by the function or by a "
            "library, and must not be used: they have no memory. Run the function once on its own "
            "streams, and on torch.cuda.graph.default_capture_stream, before it is estimated."
        )
