"""Pools of PyTorch's own making, with the native allocator."""

import torch

from regraph import _native
from regraph.torch.patches import Patches


def install(patches: Patches) -> None:
    """Replaces the call by which a thread sends its requests to a pool.

    PyTorch would hand over a filter that compares threads, which every request of every thread would
    have to ask.
    """
    name = "_cuda_beginAllocateCurrentThreadToPool"
    # `use_mem_pool` calls it by the first name, graph trees by the second.
    for module in (torch.cuda.memory, torch._C):
        patches.replace(module, name, _native.begin_thread_pool)
