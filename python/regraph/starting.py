"""Starts the engine: once in a process, for whichever door is enabled first."""

import os
import threading

from regraph import _native, messages
from regraph.errors import Error

#: Variables with PyTorch's settings; the first that is set counts, with nothing in it too, as PyTorch reads them.
OF_PYTORCH = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

# Garbage that a forked process has from its parent may be collected there.
os.register_at_fork(after_in_child=_native.forked)

_lock = threading.Lock()
#: The settings and the check of the first start.
_started: tuple[str | None, bool | None] | None = None
_unused: list[str] = []


def start(settings: str | None = None, check: bool | None = None) -> list[str]:
    """Starts the engine, if that was not done before: all doors of a process share it.

    Args:
        settings: Settings in the grammar of `REGRAPH_ALLOC_CONF`; `None` reads that variable, or
            takes what an earlier start was given. What neither says and PyTorch's own variables do
            (`PYTORCH_CUDA_ALLOC_CONF`, or else `PYTORCH_ALLOC_CONF`) is as they say.
        check: Whether the checker examines each capture; `None` leaves that to the settings, or to
            an earlier start.

    Returns:
        The keys of PyTorch's variables that have no effect.

    Raises:
        Error: The settings are wrong, or others than the engine was started with.
    """
    global _started
    with _lock:
        messages.begin()
        if _started is None:
            try:
                _unused[:] = _native.start(settings, check, of_pytorch())
            except ValueError as error:
                raise Error(f"The settings are wrong: {error}") from error
            except RuntimeError as error:
                raise Error(f"The engine cannot be started: {error}") from error
            _started = settings, check
        names = ("settings", "check")
        for name, given, first in zip(names, (settings, check), _started, strict=True):
            if given is not None and given != first:
                raise Error(
                    f"regraph runs in this process already, with {name}={first!r}, and all doors "
                    f"share it: {name}={given!r} must be given to the door that is enabled first."
                )
        return list(_unused)


def of_pytorch() -> tuple[str, str]:
    """The variable with settings that the environment has for PyTorch, and its text."""
    said = ((name, os.environ[name]) for name in OF_PYTORCH if name in os.environ)
    return next(said, (OF_PYTORCH[-1], ""))
