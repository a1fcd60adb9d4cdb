"""Eager work in memory that graphs do not keep between their replays."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch import launches
from regraph.torch.enabling import backend, require_enabled
from regraph.torch.errors import Error

if TYPE_CHECKING:
    from torch.types import Device

Pool = tuple[int, int]


@contextlib.contextmanager
def borrow(pool: Pool, device: "Device" = None) -> Iterator[None]:
    """Lends eager work of this thread what a pool's graphs do not keep between replays.

    Graphs keep their outputs and inputs; all else is taken to be written anew by each replay. What only the
    run of a capture wrote there, by work that was not captured, as libraries do that initialise a workspace
    meanwhile, is lost, unless a tensor holds it. What has no place there comes from the pool of eager work as ever. Work that borrows comes after the last replay, and the next
    replay comes after it. **While a tensor lives in borrowed memory no graph of the pool can be
    replayed**: `CUDAGraph.replay` raises `RuntimeError` and says which blocks these are.

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
    require_enabled("borrow")
    if backend() != "native":
        raise Error("borrow needs the native allocator; see regraph.torch.enable(native=True).")
    index = _get_device_index(device, optional=True)
    with torch.cuda.device(index):
        capturing = torch.cuda.is_current_stream_capturing()
    if capturing:
        raise Error(
            f"borrow: the current stream of device {index} is capturing; end the capture first."
        )
    launches.watch()
    # Made before anything begins, so that an interrupt finds what has to end.
    borrowing = _native.Borrowing()
    try:
        borrowing.begin(index, pool)
        yield
    finally:
        borrowing.end()


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
