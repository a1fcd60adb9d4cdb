"""Streams of any library, as CUDA names them, and their end.

The engine asks the driver about streams that memory was on, and tells what is in their order by
their handles, which CUDA gives again. So it must hear of a stream's end before it comes.
"""

import functools
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from regraph import _native
from regraph.errors import Error

#: The default streams, which never end.
DEFAULT = (0, 1, 2)

#: Streams whose end is put off, how the engine is asked for it, and what ends them.
_waiting: deque[tuple[int, Callable[[int], bool], Callable[[], object]]] = deque()


def handle(stream: Any) -> int:
    """The raw handle of a stream: of an integer, or an object with the CUDA stream protocol.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # A pair of the protocol's version and the handle; an attribute in early versions.
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            # Numba's older versions keep a ctypes object, with `None` for the default stream.
            return int(getattr(value, "value", value) or 0)
    raise TypeError(f"{type(stream).__name__} is no CUDA stream")


def retire_stream(stream: Any) -> None:
    """Tells that a stream is about to be destroyed, which memory was allocated or recorded on.

    The doors of CuPy, cuda.core and Warp do it for those libraries' own streams. Others that end
    before the process does, of RMM's or of C++ code, need this call.

    Raises:
        Error: The stream must live on: it captures, or memory waits for it. Call this again later.
    """
    number = handle(stream)
    if number not in DEFAULT and not _native.retire_stream(number):
        raise Error(f"Stream {number:#x} is in use: it captures, or memory that it used is live.")


def record(address: int, stream: Any, device: Callable[[], int], current: Callable[[], int]) -> None:
    """Says that a stream uses an array's memory, until the array is freed.

    Args:
        address: Where the memory begins.
        stream: The stream, or its raw handle. That of a default stream is the same on each device: it is taken for
            the current device's where the stream names none (`device_index`).
        device: The array's device.
        current: The current device.

    Raises:
        Error: The memory is not regraph's, or the stream is the default stream of another device.
    """
    number = handle(stream)
    if number in DEFAULT:
        of = getattr(stream, "device_index", None)
        of = current() if of is None else of
        if of != device():
            raise Error(
                f"The use of this array cannot be recorded: it is on device {device()}, and this is the default stream "
                f"of device {of}. Use the array on another stream of that device."
            )
    try:
        _native.record_stream(address, number)
    except RuntimeError as error:
        raise Error(f"The use of this array cannot be recorded: {error}") from error


def retire(
    number: int, end: Callable[[], object], asks: Callable[[int], bool] | None = None
) -> None:
    """Calls `end` when the engine has nothing of a stream any more: now, or with a later end.

    Args:
        number: The stream's handle.
        end: Ends it.
        asks: Says whether it may end; by default the engine.
    """
    _waiting.append((number, asks or _native.retire_stream, end))
    for _ in range(len(_waiting)):
        try:
            stream = _waiting.popleft()
        except IndexError:  # Another thread, or a finalizer, was faster.
            return
        of, may_end, ends = stream
        if may_end(of):
            ends()
        else:
            _waiting.append(stream)


def put_off_ends(kind: Any, owned: Callable[[Any], int]) -> None:
    """Has a class of streams destroy a stream only when the engine has nothing of it any more.

    Args:
        kind: The class, whose `__del__` destroys the stream.
        owned: The handle of an object's stream; 0 where the object destroys none.
    """
    destroy = kind.__del__

    @functools.wraps(destroy)
    def delete(self: Any, *arguments: Any) -> None:
        number = 0 if sys.is_finalizing() else owned(self)
        if number in DEFAULT:
            destroy(self, *arguments)
        else:
            # It keeps the object, whose finalizer does not run again.
            retire(number, functools.partial(destroy, self, *arguments))

    kind.__del__ = delete
