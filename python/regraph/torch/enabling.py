"""Replaces PyTorch's allocator by regraph."""

import threading
from typing import Any

import torch

from regraph import _native
from regraph.torch import capturing, conditions, figures, snapshots, unserved
from regraph.torch.errors import Error
from regraph.torch.patches import Patches

_lock = threading.Lock()
# PyTorch keeps a bare pointer to it in places: it must never go.
_allocator: Any = None
_patches = Patches()


def enable(*, settings: str | None = None, check: bool | None = None) -> None:
    """Makes regraph PyTorch's allocator of GPU memory until the process ends.

    Call it once, before anything uses CUDA. A process made by 'spawn' starts afresh and calls it
    too; one made by 'fork' inherits it.

    Args:
        settings: Settings in the grammar of `REGRAPH_ALLOC_CONF`; `None` reads that variable.
        check: Whether the checker examines each capture; `None` leaves that to the settings.

    Raises:
        Error: It cannot be done here or now; PyTorch stays as it was.
    """
    global _allocator
    with _lock:
        if _allocator is not None:
            raise Error("regraph is enabled already; call enable() once.")
        conditions.require_usable_torch()
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            _native.library_path(), "regraph_torch_allocate", "regraph_torch_free"
        )
        conditions.require_hooks(allocator._allocator)
        _start(settings, check)
        for hook, address in _native.hooks().items():
            getattr(allocator._allocator, conditions.SETTERS[hook])(address)
        try:
            for part in (capturing, figures, snapshots, unserved):
                part.install(_patches)
            _change(allocator)
        except BaseException:
            _patches.undo()
            raise
        _allocator = allocator
    conditions.warn_of_errors()
    conditions.warn_of_other_settings()
    unserved.turn_off()


def is_enabled() -> bool:
    """Whether PyTorch's GPU memory comes from regraph in this process."""
    return _allocator is not None


def require_enabled(what: str) -> None:
    """Raises `Error` unless regraph is enabled."""
    if not is_enabled():
        raise Error(f"{what} needs regraph; call regraph.torch.enable() at the program's start.")


def _start(settings: str | None, check: bool | None) -> None:
    try:
        _native.start(settings, check)
    except ValueError as error:
        raise Error(f"The settings are wrong: {error}") from error
    except RuntimeError as error:
        raise Error(
            f"An earlier enable() of this process failed half way ({error}); start a new process."
        ) from error


def _change(allocator: torch.cuda.memory.CUDAPluggableAllocator) -> None:
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        if "already initialized" in str(error):
            raise conditions.initialized() from error
        raise Error(f"PyTorch takes no other allocator here: {error}") from error
