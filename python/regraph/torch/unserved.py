"""What PyTorch lets no other allocator serve: an error that says so where it is asked for.

PyTorch would raise something obscure, or ignore the call.
"""

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from regraph.torch.errors import Error
from regraph.torch.patches import Patches

#: In short, for the warning that the plug-in door is taken.
MISSING = (
    "torch.cuda.MemPool, CUDA graph trees (torch.compile's 'reduce-overhead'), tensors shared "
    "between processes and cudnn.benchmark"
)
_POOLS = (
    "torch.cuda.MemPool works with PyTorch's own allocator only; share memory between graphs by "
    "torch.cuda.graph's pool argument, which regraph serves."
)
_TREES = (
    "torch.compile's CUDA graph trees (mode 'reduce-overhead') work with PyTorch's own allocator "
    "only; set torch._inductor.config.triton.cudagraph_trees = False for graphs whose outputs the "
    "next call overwrites, or capture with torch.cuda.graph."
)
_SHARING = (
    "GPU tensors can be shared between processes with PyTorch's own allocator only; send a copy on "
    "the CPU (tensor.cpu())."
)
_RETAINING = (
    "CUDAGraph.retain_pool works with PyTorch's own allocator only; pass the pool to "
    "torch.cuda.graph and keep a graph of it."
)
_NO_CACHING = (
    "regraph's cache cannot be turned off while it runs; set REGRAPH_NO_MEMORY_CACHING=1 before "
    "the program starts."
)
_BENCHMARK = (
    "torch.backends.cudnn.benchmark stays off: it asks the allocator for a figure that PyTorch "
    "passes on from its own only, and every convolution would fail."
)


def install(patches: Patches) -> None:
    """Replaces the functions of features that cannot be served."""
    memory = torch.cuda.memory
    if hasattr(memory, "MemPool"):
        patches.replace(memory.MemPool, "__init__", _refuse(_POOLS))
    # `use_mem_pool` calls by the first name, graph trees by the second.
    patches.replace(memory, "_cuda_beginAllocateCurrentThreadToPool", _refuse(_POOLS))
    patches.replace(torch._C, "_cuda_beginAllocateCurrentThreadToPool", _refuse(_TREES))
    for name in ("_cuda_beginAllocateToPool", "_cuda_beginAllocateCurrentStreamToPool"):
        patches.replace(memory, name, _refuse(_POOLS))
        patches.replace(torch._C, name, _refuse(_POOLS))
    for name in (
        "_cuda_getCheckpointState",
        "_cuda_setCheckpointPoolState",
        "_cuda_checkPoolLiveAllocations",
    ):
        patches.replace(torch._C, name, _refuse(_TREES))
    for name in ("_share_cuda_", "_new_shared_cuda"):
        patches.replace(torch.UntypedStorage, name, _refuse(_SHARING))
    patches.replace(torch.cuda.CUDAGraph, "retain_pool", _refuse(_RETAINING))
    patches.replace(torch._C, "_cuda_cudaCachingAllocator_enable", _enable_caching)
    _replace_benchmark(patches)


def turn_off() -> None:
    """Turns off what is on and cannot be served."""
    if torch.backends.cudnn.benchmark:
        warnings.warn(_BENCHMARK, stacklevel=3)
        torch.backends.cudnn.benchmark = False


def _refuse(message: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise Error(message)

    return refuse


def _enable_caching(value: bool) -> None:
    if not value:
        raise Error(_NO_CACHING)


def _replace_benchmark(patches: Patches) -> None:
    original = torch._C._set_cudnn_benchmark

    def set_benchmark(value: bool) -> None:
        if value:
            warnings.warn(_BENCHMARK, stacklevel=3)
        original(False)

    # `torch.backends.cudnn.flags` calls the one, `torch.backends.cudnn.benchmark = …` the other.
    patches.replace(torch._C, "_set_cudnn_benchmark", set_benchmark)
    attribute: Any = vars(type(torch.backends.cudnn)).get("benchmark")
    patches.replace(attribute, "setter", set_benchmark)
