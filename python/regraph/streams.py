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

#: Streams whose end is put off, and what ends them if they may end.
_waiting: deque[tuple[int, Callable[[int], bool]]] = deque()


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


def handle_on(stream: Any, device: Callable[[], int], current: Callable[[], int]) -> int:
    """The raw handle of a stream that uses memory of a device.

    Args:
        stream: The stream, or its raw handle. That of a default stream is the same on each device: it is taken for
            the current device's where the stream names none (`device_index`).
        device: Says where the memory is; called for default streams alone, as `current` is.
        current: Says which device is current.

    Raises:
        Error: It is the default stream of another device.
    """
    number = handle(stream)
    if number in DEFAULT:
        named: int | None = getattr(stream, "device_index", None)
        of = current() if named is None else named
        if of != device():
            raise Error(
                f"This is the default stream of device {of}, which regraph cannot tell from that of device {device()}, "
                "where the memory is; use the memory on another stream of that device."
            )
    return number


def record(address: int, stream: int) -> None:
    """Says that a stream uses an array's memory, until the array is freed.

    Raises:
        Error: The memory is not regraph's.
    """
    try:
        _native.record_stream(address, stream)
    except RuntimeError as error:
        raise Error(f"The use of this array cannot be recorded: {error}") from error


def retire(number: int, end: Callable[[int], bool]) -> None:
    """Ends a stream when the engine has nothing of it any more: now, or with a later end.

    Args:
        number: The stream's handle.
        end: Ends the stream if it may end, and says whether.
    """
    _waiting.append((number, end))
    for _ in range(len(_waiting)):
        try:
            waiting = _waiting.popleft()
        except IndexError:  # Another thread, or a finalizer, was faster.
            return
        stream, ends = waiting
        if not ends(stream):
            _waiting.append(waiting)


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
            return

        def end(number: int) -> bool:
            # It keeps the object, whose finalizer does not run again.
            may_end = _native.retire_stream(number)
            if may_end:
                destroy(self, *arguments)
            return may_end

        retire(number, end)

    kind.__del__ = delete
