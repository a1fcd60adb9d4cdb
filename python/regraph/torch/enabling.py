"""Replaces PyTorch's allocator by regraph."""

import threading
import warnings
from ctypes import CDLL
from typing import Any

import torch

from regraph import _native, compiling, messages, starting
from regraph.torch import capturing, conditions, figures, pools, registering, snapshots, unserved
from regraph.torch import native as door
from regraph.torch import settings as pytorch_settings
from regraph.torch.errors import Error
from regraph.torch.patches import Patches

_lock = threading.Lock()
# "native" or "plugin" once regraph is enabled.
_backend: str | None = None
# What the native allocator calls itself.
_name = "regraph"
# PyTorch keeps a bare pointer to it in places: it must never go.
_allocator: Any = None
_patches = Patches()


def enable(
    *,
    settings: str | None = None,
    check: bool | None = None,
    native: bool | None = None,
    backend_name: str | None = None,
) -> None:
    """Makes regraph PyTorch's allocator of GPU memory until the process ends.

    Call it before anything uses CUDA. A process made by 'spawn' starts afresh and calls it
    too; one made by 'fork' inherits it. A later call with nothing else in it does nothing.

    Args:
        settings: Settings in the grammar of `REGRAPH_ALLOC_CONF`; `None` reads that variable, or
            takes what a door that was enabled before was given. What neither says and PyTorch's
            own variables do (`PYTORCH_CUDA_ALLOC_CONF`, or else `PYTORCH_ALLOC_CONF`) is as they say.
        check: Whether the checker examines each capture; `None` leaves that to the settings.
        native: Whether regraph enters as an allocator class of PyTorch's own kind, which serves
            everything that PyTorch's own allocator serves (`True`), or by PyTorch's door for
            plug-ins, which serves less (`False`); `None` takes the first where there is a library
            for this PyTorch or a C++ compiler, and warns where it cannot.
        backend_name: What `torch.cuda.memory.get_allocator_backend()` says of the native allocator;
            `None` is "regraph". Programs that look for "native" there want that.

    Raises:
        Error: It cannot be done here or now, and PyTorch stays as it was; or it was done before with
            something else.
    """
    global _backend, _name
    for name, given, kind in (("native", native, bool), ("backend_name", backend_name, str)):
        if not isinstance(given, (kind, type(None))):
            raise TypeError(f"{name} is a {kind.__name__} or None, not {type(given).__name__}")
    with _lock:
        if _backend is not None:
            _require_same(native, backend_name)
            starting.start(settings, check)
            return
        conditions.require_usable_torch()
        messages.begin()
        library = None if native is False else _library(required=native is True)
        if library is None:
            unused = _plug_in(settings, check)
            _backend = "plugin"
        else:
            _name = backend_name or "regraph"
            unused = _enter(library, settings, check, _name)
            _backend = "native"
            snapshots.begin_history()
    pytorch_settings.tell_unused(unused, stacklevel=2)
    conditions.warn_of_errors()
    if _backend == "plugin":
        unserved.turn_off()


def backend() -> str | None:
    """By which door regraph has entered PyTorch: "native", "plugin", or `None` if it has not."""
    return _backend


def is_enabled() -> bool:
    """Whether PyTorch's GPU memory comes from regraph in this process."""
    return _backend is not None


def require_enabled(what: str) -> None:
    """Raises `Error` unless regraph is enabled."""
    if not is_enabled():
        raise Error(f"{what} needs regraph; call regraph.torch.enable() at the program's start.")


def _require_same(native: bool | None, name: str | None) -> None:
    """Raises `Error` where a later call asks for another door than was taken, or another name."""
    if native is not None and native is not (_backend == "native"):
        raise Error(f"regraph is enabled already, with backend() == {_backend!r}: native={native}.")
    if name is not None and _backend == "native" and name != _name:
        raise Error(f"regraph is enabled already, with backend_name={_name!r}: not {name!r}.")


def _library(required: bool) -> CDLL | None:
    """The library of the native door for this PyTorch, if there is one."""
    try:
        return door.load()
    except compiling.Unavailable as error:
        if required:
            raise Error(f"The native allocator is not available: {error}.") from error
        warnings.warn(
            f"regraph enters PyTorch as a plug-in, without {unserved.MISSING}, because {error}.",
            stacklevel=4,
        )
        return None


def _enter(library: CDLL, settings: str | None, check: bool | None, name: str) -> list[str]:
    unused = starting.start(settings, check)
    registering.refuse_segments()
    try:
        for part in (capturing, pools, registering, pytorch_settings):
            part.install(_patches)
        door.install(library, name)
    except BaseException as error:
        _patches.undo()
        if isinstance(error, RuntimeError):
            raise _refused(error) from error
        raise
    return unused


def _plug_in(settings: str | None, check: bool | None) -> list[str]:
    global _allocator
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        _native.library_path(), "regraph_torch_allocate", "regraph_torch_free"
    )
    conditions.require_hooks(allocator._allocator)
    unused = starting.start(settings, check)
    hooks = _native.hooks()
    for hook, setter in conditions.SETTERS.items():
        getattr(allocator._allocator, setter)(hooks[hook])
    try:
        for part in (capturing, figures, snapshots, unserved, pytorch_settings):
            part.install(_patches)
        torch.cuda.memory.change_current_allocator(allocator)
    except BaseException as error:
        _patches.undo()
        if isinstance(error, RuntimeError):
            raise _refused(error) from error
        raise
    _allocator = allocator
    return unused


def _refused(error: RuntimeError) -> Error:
    if "already initialized" in str(error):
        return conditions.initialized()
    return Error(f"PyTorch takes no other allocator here: {error}")
