"""What a pool of graphs will need, before there is memory for it."""

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch import capturing
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error
from regraph.torch.staying import stay

if TYPE_CHECKING:
    from torch.types import Device

Size = TypeVar("Size")
Result = TypeVar("Result")

#: What captures have shown is one record for the process.
_estimating = threading.Lock()

#: By device, a stream for captures that has its workspaces, and what these take.
_warm: dict[int, tuple[Any, tuple[int, int]]] = {}


class Estimate(NamedTuple):
    """What graphs that share one pool will need."""

    pool_bytes: int
    """What the pool will hold, with what libraries keep for the captures' stream and allocate in a capture."""
    executable_bytes: int
    """What the driver will take beside it for the executable graphs."""
    workspace_bytes: int = 0
    """What libraries keep for the captures' stream outside the pool, and did not have before the estimate."""

    @property
    def total_bytes(self) -> int:
        """All of it together."""
        return self.pool_bytes + self.executable_bytes + self.workspace_bytes

    @property
    def left_bytes(self) -> int:
        """What of it the estimate leaves behind, and captures in this process use and do not take again.

        The driver gives memory of executables back to nothing but the next ones, and workspaces stay as after a
        run of warming up. `total_bytes - left_bytes` must be free of the device then.
        """
        return self.executable_bytes + self.workspace_bytes

    @property
    def bound(self) -> "Estimate":
        """The same with what each part may come to at most, where captures ask for the same memory.

        The pool has one piece of 2 MiB more, for small blocks that a library asks for once; executables have what
        the driver takes at once, which is 10 MiB at most, or a twentieth where that is more.
        """
        return Estimate(*_native.bound(self.pool_bytes, self.executable_bytes), self.workspace_bytes)


def estimate(
    function: Callable[[Size], Any],
    sizes: Iterable[Size],
    device: "Device" = None,
    stream: torch.cuda.Stream | None = None,
) -> Estimate:
    """Says what graphs of `function(size)` will need, one for each size, in one pool.

        need = regraph.torch.estimate(step, [64, 32, 16, 8, 4, 2, 1])
        if need.total_bytes - need.left_bytes < torch.cuda.mem_get_info()[0]:
            ...  # capture them in this order

    Each size is captured once, as it will be, on addresses that have 170 MiB behind them at most,
    and made executable; its graph is never launched. The same requests are then made of a simulated
    device, in turn, with the settings as they are and with what captures have learned by now (`plan:auto`).
    That comes to the memory that the captures will hold. No memory of the captures is kept, but the driver
    keeps that of the executables, for the next ones (`Estimate.left_bytes`). It takes as long as the captures
    do, and somewhat longer.

    What cuBLAS keeps for a stream (32 MiB on H100) it allocates with the first product there: in the first
    capture, and so in the pool, if the stream had none before. Until something is captured PyTorch's stream of
    captures is such a stream, and the estimate captures on streams of its own, the first of which is as new; the
    other keeps a workspace for later estimates. Where PyTorch has its stream of captures already, or `stream` names
    one, that one is captured on, and what it lacks is made outside the pool, as by a run of warming up there, and
    stays (`Estimate.workspace_bytes`).

    Call it when libraries are ready, as for captures: after a run of warming up. Capture the sizes
    in the same order afterwards. Memory that the function has from before its capture is not
    counted, and what it returns counts as kept as long as its graph lives. A request that the
    device could never serve is refused as in a capture. Where PyTorch does not name executables
    (`CUDAGraph.raw_cuda_graph_exec`), `executable_bytes` is without what their first launch takes.

    Args:
        function: What is captured. It must submit the same work each time.
        sizes: What it is called with, in the order of the captures.
        device: The device; `None` is the current one.
        stream: The stream on which the sizes will be captured, of that device; `None` is PyTorch's for captures.

    Raises:
        Error: regraph is not enabled; another thread estimates; memory may be registered by communication
            libraries, as in captures where `plan:exact` has no effect; the function keeps memory that it had in a
            capture. Also what a capture of the function raises.
        ValueError: The stream is of another device.
    """
    require_enabled("estimate")

    def estimated(executables: int, workspaces: int) -> Estimate:
        return Estimate(_native.estimated(), executables, workspaces)

    return show(function, sizes, device, estimated, stream=stream)


def show(
    function: Callable[[Size], Any],
    sizes: Iterable[Size],
    device: "Device",
    come_to: Callable[[int, int], Result],
    stacks: bool = False,
    stream: torch.cuda.Stream | None = None,
) -> Result:
    """Has captures of a function shown, one for each size, and returns what `come_to` makes of them.

    Its arguments are, in bytes, what the driver took for executable graphs and what libraries allocated outside for
    the captures' stream. With `stacks` the blocks of the captures remember the Python stacks that asked for them.

    Raises:
        Error: As `estimate`.
    """
    torch.cuda.init()
    if stream is not None and not hasattr(stream, "device_index"):
        raise TypeError(f"stream: a stream of PyTorch's is needed, not {type(stream).__name__}")
    if stream is not None and device is None:
        device = stream.device_index
    number = _get_device_index(device, optional=True)
    if stream is not None and stream.device_index != number:
        raise ValueError(f"stream: it is of device {stream.device_index}, and device {number} was asked for")
    calls = capturing.calls()
    if not calls.is_alone():
        raise Error("Memory cannot be estimated while communication libraries may register it.")
    if not _estimating.acquire(blocking=False):
        raise Error(
            "Memory is being estimated already, in this thread or another; call it when that is done."
        )
    try:
        with torch.cuda.device(number):
            # Before what libraries are made to ask for.
            _native.begin_estimate(number)
            try:
                return _Shown(calls, number, stream, stacks).of(function, sizes, come_to)
            finally:
                _native.estimate(False)
    finally:
        _estimating.release()


class _Shown:
    """Captures in one pool that are shown and come to nothing."""

    def __init__(
        self, calls: Any, device: int, stream: torch.cuda.Stream | None, stacks: bool
    ) -> None:
        self.calls, self.device, self.stacks = calls, device, stacks
        self.pool = torch.cuda.graph_pool_handle()
        # All of them live until the end: the driver would give the memory of one to the next.
        self.graphs: list[torch.cuda.CUDAGraph] = []
        #: What libraries allocated outside for the stream.
        self.workspaces = 0
        #: What they may keep of the first capture.
        self.keepable = {0}
        self.first = self.later = stream or torch.cuda.graph.default_capture_stream
        if self.first is None or self.first.device_index != device:
            self.later, sizes = _warm.get(device) or (_new_stream(), (0, 0))
            # None the second time, unless a program has cleared what PyTorch keeps.
            made = _workspaces(device, self.later)
            one, other = max(sizes[0], made[0]), max(sizes[1], made[1])
            _warm[device] = self.later, (one, other)
            self.first, self.keepable = _new_stream(), {0, one, other, one + other}
        else:
            self.workspaces = sum(_workspaces(device, self.first))

    def of(
        self,
        function: Callable[[Size], Any],
        sizes: Iterable[Size],
        come_to: Callable[[int, int], Result],
    ) -> Result:
        executables, stream = 0, self.first
        _native.estimate(True, self.stacks)
        try:
            for size in sizes:
                executables += self._capture(stream, function, size)
                # What libraries keep of the first capture has no memory any more: no later one may use it.
                stream = self.later
            self._reset()
            self._require_nothing_kept()
            return come_to(executables, self.workspaces)
        finally:
            self._reset()

    def _capture(self, stream: Any, function: Callable[[Size], Any], size: Size) -> int:
        """Captures a size; returns what the driver has taken for the executable."""
        graph = torch.cuda.CUDAGraph()
        pool: Any = self.pool
        with self.calls.showing() as shown:
            # Alive until the capture has ended, as outputs are.
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                kept = function(size)
            taken: int = shown.finish(graph)
        self.graphs.append(graph)
        del kept
        return taken

    def _reset(self) -> None:
        while self.graphs:
            self.graphs.pop().reset()

    def _require_nothing_kept(self) -> None:
        """Raises an error where memory lives that was allocated in the captures.

        It has nothing behind it any more, and must not be used. What libraries keep for the first capture's stream is
        used by nothing, as nothing else has that stream.
        """
        rows = [row for row in _native.pools(self.device) if tuple(row["id"]) == tuple(self.pool)]
        kept = sum(row["allocated"] for row in rows)
        if kept not in self.keepable:
            # What PyTorch keeps for its libraries.
            clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
            if clear is not None:
                clear()
                _warm.clear()
            raise Error(
                f"{kept} bytes are kept that were allocated in the captures, by the function or by a "
                "library, and must not be used: they have no memory. Run the function once, on its own "
                "streams, before it is estimated, and have it keep nothing that it allocates in a capture."
            )


def _workspaces(device: int, stream: Any) -> tuple[int, int]:
    """Has libraries allocate what they keep for a stream: how many bytes with a product, and with a sum behind it."""

    def allocated() -> int:
        figures: int = _native.statistics(device)["allocated_bytes"]["all"]["current"]
        return figures

    # Outside regions, with which it would sleep.
    with stay(None), torch.cuda.stream(stream):
        ones = torch.ones(32, 32, device="cuda")
        before = allocated()
        product = torch.mm(ones, ones)
        between = allocated()
        total = torch.addmm(ones[0], ones, product)
        after = allocated()
    # Not what the results take.
    each = (between - before - product.nbytes, after - between - total.nbytes)
    return max(each[0], 0), max(each[1], 0)


def _new_stream() -> Any:
    """A stream for which no library keeps anything.

    PyTorch's are handed out in turn, and this one stays for good: what a library keeps for it may have no memory, and
    no later stream may have its handle.
    """
    # A launch makes the device's context the thread's; a wait would ruin captures of other threads.
    torch.zeros(1, device="cuda")
    handle = ctypes.c_void_p()
    not_blocking = 1
    failed = ctypes.CDLL("libcuda.so.1").cuStreamCreate(ctypes.byref(handle), not_blocking)
    if failed:
        raise Error(f"The driver made no stream to estimate on (cuStreamCreate: {failed}).")
    return torch.cuda.ExternalStream(handle.value)
