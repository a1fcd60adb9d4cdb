"""Memory that graphs do not keep between their replays, for eager work and for other processes."""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch import launches
from regraph.torch.enabling import backend, require_enabled
from regraph.torch.errors import Error

if TYPE_CHECKING:
    from torch.types import Device

Pool = tuple[int, int]

#: So long is waited at once, in seconds.
_SLICE = 0.25


@contextlib.contextmanager
def borrow(pool: Pool, device: "Device" = None) -> Iterator[None]:
    """Lends eager work of this thread what a pool's graphs do not keep between replays.

    Graphs keep their outputs and inputs; all else is taken to be written anew by each replay. What only the run of a
    capture wrote there, by work that was not captured, as libraries do that initialise a workspace meanwhile, is
    lost, unless a tensor holds it. What has no place there comes from the pool of eager work as ever. Work that
    borrows comes after the last replay, and the next replay comes after it. **While a tensor lives in borrowed memory
    no graph of the pool can be replayed**: `CUDAGraph.replay` raises `RuntimeError` and says which blocks these are.

    Replays must go through `torch.cuda.CUDAGraph.replay`. Where a graph's raw handle was asked for, and
    where C++ code has captured into the pool, nothing is lent, nor where a graph of another pool allocated in
    this one, nor where anything captured on the device as the pool was first used. That first use waits for the
    device. Captures whose memory comes at their end (`plan:exact`) lend nothing.

    Args:
        pool: The pool, as `torch.cuda.CUDAGraph.pool()` names it.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled, or only as a plug-in; there is no such pool; or the device's current
            stream is capturing.
    """
    index = _begin("borrow", device)
    launches.watch()
    # Made before anything begins, so that an interrupt finds what has to end.
    borrowing = _native.Borrowing()
    try:
        borrowing.begin(index, pool)
        yield
    finally:
        borrowing.end()


def _begin(call: str, device: "Device") -> int:
    """The number of a device of which the current stream does not capture.

    Raises:
        Error: As `borrow`.
    """
    require_enabled(call)
    if backend() != "native":
        raise Error(f"{call} needs the native allocator; see regraph.torch.enable(native=True).")
    index: int = _get_device_index(device, optional=True)
    with torch.cuda.device(index):
        capturing = torch.cuda.is_current_stream_capturing()
    if capturing:
        raise Error(
            f"{call}: the current stream of device {index} is capturing; end the capture first."
        )
    return index


class Loan:
    """A loan to another process, which takes it by its `handle` (`take_loan`). One that is dropped is asked for."""

    def __init__(self, native: _native.Loan, handle: bytes, size: int) -> None:
        self._native = native
        #: What names the loan, for one other process.
        self.handle = handle
        #: In bytes.
        self.size = size

    @property
    def state(self) -> Literal["offered", "taken", "back"]:
        """Whether no process has taken it yet, a process has it, or it is back for good."""
        return self._native.state()

    def recall(self, timeout: float | None = None) -> bool:
        """Asks the other process for the loan, and waits until it is back; one that was not taken is back at once.

        It is back when the other process has given it back, or has ended.

        Args:
            timeout: How long to wait at most, in seconds; `None` waits as long as it takes.

        Returns:
            Whether it is back. It can be asked for again.
        """
        return _wait(self._native.recall, timeout)


class TakenLoan:
    """A loan of another process. A `with` block gives it back at its end.

    Without one it is given back once this object and all tensors in its memory are gone.
    """

    def __init__(self, native: _native.TakenLoan, index: int, address: int, size: int) -> None:
        self._native, self._index, self._address = native, index, address
        #: In bytes.
        self.size = size
        self._tensor: torch.Tensor | None = None
        #: What all tensors that lie in the loan keep alive.
        self._memory: weakref.ref[_Memory] | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """The memory, as bytes; what they are is undefined.

        Raises:
            Error: The loan was given back.
        """
        if self._tensor is None:
            if not self._native.is_taken():
                raise Error("tensor: the loan was given back.")
            memory = self._memory() if self._memory is not None else None
            if memory is None:
                memory = _Memory(self._native, self._address, self.size)
                self._memory = weakref.ref(memory)
            self._tensor = memory.tensor(self._index)
        return self._tensor

    def recalled(self, timeout: float | None = 0.0) -> bool:
        """Whether the other process has asked for the loan, or has ended.

        Args:
            timeout: How long to wait for that at most, in seconds; `None` waits as long as it takes.
        """
        return _wait(self._native.wait_for_recall, timeout)

    def give_back(self) -> None:
        """Gives the loan back, after a wait for all work on the devices. Does nothing a second time.

        Graphs that were captured over the memory must not be replayed any more.

        Raises:
            Error: A tensor lies in it still, or something captures. The loan is here still.
        """
        self._tensor = None
        if self._memory is not None and self._memory() is not None:
            raise Error(
                f"give_back: tensors lie in the {self.size} bytes at {self._address:#x} that another process has lent; "
                "delete them first, views included."
            )
        self._native.give_back()

    def __enter__(self) -> "TakenLoan":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.give_back()
            return
        # What the block raised goes on. Its frames keep its tensors: with them the loan goes.
        with contextlib.suppress(Error):
            self.give_back()


def _wait(ask: Callable[[float], bool], timeout: float | None) -> bool:
    """Whether something about a loan has come true by then: asked again and again, so that an interrupt ends it."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
        if ask(max(left, 0.0)):
            return True
        if end is not None and time.monotonic() >= end:
            return False


class _Memory:
    """What all tensors that lie in a loan keep alive, and with it the loan."""

    def __init__(self, native: _native.TakenLoan, address: int, size: int) -> None:
        self.native, self.address, self.size = native, address, size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 2}

    def tensor(self, index: int) -> torch.Tensor:
        tensor = torch.as_tensor(self, device=torch.device("cuda", index))
        if tensor.data_ptr() != self.address:
            raise Error(f"take_loan: the loan is not memory of device {index}; name the lender's device.")
        return tensor


def lend(pool: Pool, size: int, device: "Device" = None) -> Loan:
    """Lends another process what a pool's graphs do not keep between replays.

        loan = regraph.torch.lend(pool, 2 << 30)
        connection.send(loan.handle)
        ...
        if not loan.recall(timeout=5):
            ...  # the other process does not answer, and has the memory still
        graph.replay()

    Until the loan is back no graph of the pool can be replayed, as with `borrow`, which says when a pool lends
    nothing. Waits for the device first. The other process maps whole pieces of memory: it is trusted to leave
    alone what lies beside the loan.

    Args:
        pool: The pool, as `torch.cuda.CUDAGraph.pool()` names it.
        size: In bytes, which the graphs must leave in one place.
        device: The device; `None` is the current one.

    Returns:
        The loan. Its handle is sent to the other process by any means.

    Raises:
        Error: As `borrow`; the graphs leave no such place; the pool's memory cannot be shared (`exportable:False`); or
            something captures on the device.
    """
    index = _begin("lend", device)
    launches.watch()
    stream = torch.cuda.current_stream(index).cuda_stream
    # Made before anything begins, so that an interrupt finds what has to end.
    native = _native.Loan()
    return Loan(native, native.begin(index, pool, size, stream), size)


def take_loan(handle: bytes, device: "Device" = None) -> TakenLoan:
    """Takes a loan of another process on the same device, which runs as the same user.

        with regraph.torch.take_loan(handle) as loan:
            scratch = loan.tensor.view(torch.float16)
            while not loan.recalled():
                ...
            del scratch

    A loan is taken once. The lender can ask for it at any time and waits for it then. Where the block raises, the
    loan is given back once the exception's frames have let the block's tensors go. A process that takes loans gives
    them back before it ends under MPS, and where it has forked others that run no other program: its work on the
    device may outlive it there, and the lender would not know.

    Args:
        handle: `Loan.handle` of the other process.
        device: The device; `None` is the current one.

    Raises:
        Error: As `borrow`; the handle names no loan; or the loan was called back, or taken before.
    """
    index = _begin("take_loan", device)
    # Made before anything is taken, so that an interrupt finds what has to end.
    native = _native.TakenLoan()
    with torch.cuda.device(index):
        return TakenLoan(native, index, *native.take(index, handle))


def lent_bytes(pool: Pool, device: "Device" = None) -> int:
    """How many bytes live in memory that a pool's graphs have lent: no graph can be replayed until it is 0.

    Args:
        pool: The pool, as `torch.cuda.CUDAGraph.pool()` names it.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled, or there is no such pool.
    """
    require_enabled("lent_bytes")
    return _native.lent_bytes(_get_device_index(device, optional=True), pool)
