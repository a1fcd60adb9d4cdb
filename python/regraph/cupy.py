"""regraph as the allocator of CuPy's GPU memory.

    import regraph.cupy

    regraph.cupy.enable()

Arrays come from the engine that PyTorch and the other doors of the process share. Arrays that were
made before stay in CuPy's own pool.
"""

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import cupy
from cupy.cuda import stream as _streams
from cupy_backends.cuda import stream as _current

from regraph import _native, starting, streams
from regraph.errors import Error, OutOfMemory, Refused
from regraph.graphs import Capture, Memory

__all__ = ["Error", "Refused", "enable", "is_enabled", "record_stream"]

_lock = threading.Lock()
_enabled = False
#: CuPy's function that gives the current stream's handle to C.
_CURRENT = ("get_current_stream_ptr", b"intptr_t (void)")
#: The per-thread default stream, another one in every thread: its captures are not announced.
_PER_THREAD = 2


def enable(*, settings: str | None = None, check: bool | None = None) -> None:
    """Makes regraph the allocator of CuPy's arrays from now on, in every thread.

    Args:
        settings: As for `regraph.torch.enable`.
        check: As for `regraph.torch.enable`.

    Raises:
        Error: The settings are wrong, or others than those of a door that was enabled before.
    """
    global _enabled
    with _lock:
        starting.start(settings, check)
        if not _enabled:
            # Before memory is on any stream.
            streams.put_off_ends(_streams.Stream, _owned)
            cupy.cuda.set_allocator(_allocator())
            _announce_captures()
            _enabled = True


def is_enabled() -> bool:
    """Whether CuPy's arrays come from regraph in this process."""
    return _enabled


def record_stream(array: Any, stream: Any) -> None:
    """Says that a stream uses an array's memory, until the array is freed.

    CuPy's memory belongs to the stream that was current when it was allocated. A program that uses
    it on others calls this, or has that stream wait for them before it frees the array.

    Args:
        array: An array, or anything with `data.mem.ptr`, whose memory is regraph's.
        stream: A stream of any library, or its raw handle.

    Raises:
        Error: The memory is not regraph's, or the stream is the default stream of another device.
    """
    memory = getattr(getattr(array, "data", None), "mem", None)
    if memory is None:
        raise TypeError(f"record_stream needs an array of CuPy's, not {type(array).__name__}")
    address = memory.ptr
    if address != 0:  # Else no bytes, so no memory.
        device, current = lambda: array.data.device_id, cupy.cuda.runtime.getDevice
        streams.record(address, streams.handle_on(stream, device, current))


def _allocator() -> Callable[[int], Any]:
    current = _current_stream_function()
    if current is None:
        python: Callable[[int], Any] = cupy.cuda.PythonFunctionAllocator(_allocate, _free).malloc
        return python
    allocate, free = _native.cupy_functions()
    # The library is never unloaded, so nothing has to be kept alive.
    malloc = cupy.cuda.CFunctionAllocator(current, allocate, free, None).malloc
    return _native.CupyAllocator(malloc, _failure).malloc


def _current_stream_function() -> int | None:
    """The address of CuPy's function that gives the current stream; `None` where it has none."""
    name, signature = _CURRENT
    capsule = getattr(_current, "__pyx_capi__", {}).get(name)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address: int | None = pointer(capsule, signature)
    except ValueError:  # A function of another type.
        return None
    return address


def _failure(size: int, short: bool, message: str) -> Exception:
    return _out_of_memory(size, message) if short else Error(message)


def _out_of_memory(size: int, message: str) -> Exception:
    # -1: what is allocated stands in the note.
    error: Exception = cupy.cuda.memory.OutOfMemoryError(size, -1)
    if hasattr(error, "add_note"):
        error.add_note(message)
    return error


def _allocate(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream().ptr
    try:
        return _native.allocate(size, device, stream)
    except OutOfMemory as error:
        raise _out_of_memory(size, str(error)) from error


def _free(address: int, device: int) -> None:
    _native.free(address)


def _owned(stream: Any) -> int:
    """The handle of a stream that its object destroys; 0 for others."""
    if getattr(stream, "_foreign_stream_ref", None) is not None:
        return 0
    return int(getattr(stream, "ptr", 0))


class _Token:
    """Lives as long as a graph."""

    __slots__ = ("__weakref__",)


def _announce_captures() -> None:
    """Replaces the methods of CuPy's streams that begin and end captures."""
    begin, end = _streams._BaseStream.begin_capture, _streams._BaseStream.end_capture
    #: By the stream's handle, which is one stream's as long as it captures.
    under_way: dict[int, Capture] = {}

    @functools.wraps(begin)
    def begin_capture(self: Any, mode: Any = None) -> None:
        begin(self, mode)
        if self.ptr == _PER_THREAD:
            return
        # Streams from elsewhere do not know their device.
        device = self.device_id if self.device_id >= 0 else cupy.cuda.runtime.getDevice()
        try:
            under_way[self.ptr] = Capture(device, self.ptr)
        except BaseException:
            end(self)
            raise

    @functools.wraps(end)
    def end_capture(self: Any) -> Any:
        capture = under_way.pop(self.ptr, None)
        if capture is None:
            return end(self)
        # What CuPy's graph keeps alive: its host functions. Older versions have none, and their
        # graphs keep the memory to the end of the process.
        kept = getattr(self, "_graph_host_funcargs", None)
        token = _Token()
        if isinstance(kept, list):
            kept.append(token)
        graph = capture.end(lambda: end(self))
        if isinstance(kept, list):
            _release_with(token, capture.memory())
        return graph

    _streams._BaseStream.begin_capture = begin_capture
    _streams._BaseStream.end_capture = end_capture


def _release_with(token: object, memory: Memory) -> None:
    """Lets go of a graph's memory when the token goes; at the process's end nothing has to."""
    weakref.finalize(token, memory.release).atexit = False
