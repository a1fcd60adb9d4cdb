"""What must hold before PyTorch can use another allocator."""

import warnings
from typing import Any

import torch

from regraph import _native
from regraph.torch.errors import Error

# What PyTorch calls the setter of each hook, by regraph's name of the hook.
SETTERS = {
    "init": "set_init_fn",
    "reset": "set_reset_fn",
    "memory_fraction": "set_memory_fraction_fn",
    "base_allocation": "set_base_alloc_fn",
    "record_stream": "set_record_stream_fn",
    "begin_pool": "set_begin_allocate_to_pool",
    "end_pool": "set_end_allocate_to_pool_fn",
    "release_pool": "set_release_pool",
}


def require_usable_torch() -> None:
    """Raises `Error` unless this PyTorch has a GPU and has not used it yet."""
    if torch.version.hip is not None:
        raise Error("This PyTorch is built for ROCm; regraph needs one built for CUDA.")
    if torch.version.cuda is None:
        raise Error("This PyTorch is built for CPUs only; install one built for CUDA.")
    if torch.cuda._is_in_bad_fork():
        raise Error(
            "This process was forked from one that had used CUDA; start it with "
            "torch.multiprocessing's 'spawn' method and call enable() in it."
        )
    if torch.cuda.is_initialized():
        raise initialized()
    # Counted through NVML where that works: the driver stays untouched, and the process may fork.
    if torch.cuda.device_count() == 0:
        raise Error(
            "PyTorch finds no NVIDIA GPU or no driver; check nvidia-smi and CUDA_VISIBLE_DEVICES."
        )
    backend = torch.cuda.memory.get_allocator_backend()
    if backend != "native":
        raise Error(
            f"PyTorch's memory comes from another allocator already ({backend}); regraph must be "
            "the only one that is set."
        )


def initialized() -> Error:
    """The error for a PyTorch that has used CUDA."""
    return Error(
        "PyTorch has used CUDA already, and its allocator cannot be changed any more; call "
        "regraph.torch.enable() before the first tensor on a GPU, at the start of the program."
    )


def require_hooks(allocator: Any) -> None:
    """Raises `Error` unless the allocator object takes every hook that regraph needs."""
    missing = [setter for setter in SETTERS.values() if not hasattr(allocator, setter)]
    if missing:
        raise Error(
            f"PyTorch {torch.__version__} lacks hooks that an allocator needs for CUDA graphs "
            f"({', '.join(missing)}); install PyTorch 2.7 or newer."
        )


def warn_of_errors() -> None:
    """Warns if running out of memory cannot raise `torch.OutOfMemoryError`."""
    if not _native.throws_out_of_memory():
        warnings.warn(
            f"PyTorch {torch.__version__} has its errors under other names: running out of memory "
            "raises RuntimeError, not torch.OutOfMemoryError.",
            stacklevel=3,
        )
