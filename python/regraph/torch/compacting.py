"""Pools of graphs that give back what their graphs need no more."""

from typing import TYPE_CHECKING

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch.enabling import require_enabled

if TYPE_CHECKING:
    from torch.types import Device

Pool = tuple[int, int]


def excess_bytes(pool: Pool | None = None, device: "Device" = None) -> int:
    """How many bytes `compact` would give back.

    A graph whose memory comes at its capture's end (`plan:exact`) takes whole pieces of what its pool
    holds. When tensors that graphs left there are gone, pieces remain whose sizes fit no graph.

    Args:
        pool: The pool, as `torch.cuda.CUDAGraph.pool()` names it; `None` is every pool of graphs.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled, or there is no such pool.
    """
    require_enabled("excess_bytes")
    torch.cuda.init()
    return _native.excess_bytes(_get_device_index(device, optional=True), pool)


def compact(pool: Pool | None = None, device: "Device" = None) -> int:
    """Has the graphs of a pool share as much memory as they can by now; returns how many bytes went.

    Waits for the device. Addresses stay, and so does all that tensors hold. **What graphs have left in
    memory whose tensors are gone is lost**, until they are replayed: call this between iterations, not
    between a graph and another one that reads what it has left, such as those of forward and backward. No
    other thread may replay graphs meanwhile.

    Args:
        pool: The pool, as `torch.cuda.CUDAGraph.pool()` names it; `None` is every pool of graphs.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled; there is no such pool; something captures on the device, which no
            wait ruins then; work on freed tensors uses the pool; or the driver failed. Then no graph of the pool
            may be replayed before another call of this has succeeded.
    """
    require_enabled("compact")
    torch.cuda.init()
    return _native.compact(_get_device_index(device, optional=True), pool)
