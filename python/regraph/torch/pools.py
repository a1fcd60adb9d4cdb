"""Pools of PyTorch's own making, with the native allocator."""

import torch

from regraph import _native
from regraph.torch import launches
from regraph.torch.patches import Patches


def install(patches: Patches) -> None:
    """Replaces the call by which a thread sends its requests to a pool.

    PyTorch would hand over a filter that compares threads, which every request of every thread would
    have to ask.
    """
    launches.install(patches)
    name = "_cuda_beginAllocateCurrentThreadToPool"
    # `use_mem_pool` calls it by the first name, graph trees by the second.
    for module in (torch.cuda.memory, torch._C):
        patches.replace(module, name, _begin)


def _begin(device: int, pool: launches.Pool) -> None:
    """Sends all that this thread asks for to a pool.

    A pool with a checkpoint is one of PyTorch's graph trees, which run eager work in it between
    generations: "all cudagraph tensors in use should be reflected in the allocator or they will be
    overwritten". So what is free there is lent, and replays wait for that.
    """
    if not _native.has_checkpoint(device, pool):
        _native.begin_thread_pool(device, pool)
        return
    launches.watch()
    _native.begin_borrowing(device, pool)
