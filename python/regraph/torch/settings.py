"""Settings that a program gives to PyTorch's allocator: those that mean the same here count."""

import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterable

import torch

from regraph import _native, starting
from regraph.torch import registering
from regraph.torch.patches import Patches

#: PyTorch's own allocator of pinned memory goes on, and reads these.
_PINNED = ("pinned_", "pin_memory_")

_told: set[str] = set()
# One text at a time, so that PyTorch's part and regraph's are of the same.
_changing = threading.Lock()


def install(patches: Patches) -> None:
    """Replaces the functions that set PyTorch's settings, before PyTorch's allocator is."""
    # PyTorch reads the environment when it needs a setting of it, for pinned memory say, and then compares the backend
    # that it names with the allocator of that time.
    names_backend = any("backend" in os.environ.get(name, "") for name in starting.OF_PYTORCH)
    # PyTorch 2.7 has the second, 2.11 the first.
    for name in (
        "_accelerator_setAllocatorSettings",
        "_cuda_cudaCachingAllocator_set_allocator_settings",
    ):
        original = getattr(torch._C, name, None)
        if original is not None:
            if names_backend:
                original(starting.of_pytorch()[1])
            patches.replace(torch._C, name, _setter(original))


def tell_unused(keys: Iterable[str], stacklevel: int) -> None:
    """Warns of keys that have no effect, of each once."""
    unused = [key for key in keys if not key.startswith(_PINNED) and key not in _told]
    if unused:
        _told.update(unused)
        warnings.warn(
            f"{', '.join(unused)}: no effect on regraph, or none on pools that are in use. Its own "
            "settings are those of REGRAPH_ALLOC_CONF and regraph.torch.enable(settings=…).",
            stacklevel=stacklevel + 1,
        )


def _setter(original: Callable[[str], None]) -> Callable[[str], None]:
    @functools.wraps(original)
    def set_settings(text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"allocator settings are a str, not {type(text).__name__}")
        # PyTorch's own errors, and what its allocator of pinned memory reads. It would compare the
        # backend's name with regraph's.
        parts = text.split(",")
        with _changing:
            original(",".join(it for it in parts if "".join(it.split()) != "backend:native"))
            unused = _native.change_settings(text)
            if "expandable_segments" in unused:
                registering.keep_growing()
        tell_unused(unused, stacklevel=2)

    return set_settings
