"""regraph as the allocator of Warp's GPU memory.

    import regraph.warp

    regraph.warp.enable()

Arrays come from the engine that PyTorch and the other doors of the process share. Arrays that were
made before stay where they are.
"""

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import warp

from regraph import _native, starting, streams
from regraph.errors import Error, Refused
from regraph.graphs import Capture

__all__ = ["Allocator", "Error", "Refused", "enable"]

_lock = threading.Lock()
_enabled = False


class Allocator:
    """What Warp calls for the arrays of one device."""

    #: Frees need no current context.
    deallocate_requires_context_guard = False

    def __init__(self, device: Any) -> None:
        self._device = device
        kind = getattr(warp, "MemoryKind", None)
        if kind is not None:
            self.memory_kind = kind.CUDA_DEVICE

    def allocate(self, size: int) -> int:
        """The address of at least `size` bytes, ready on the device's current stream of Warp's.

        Raises:
            MemoryError: There is not enough.
        """
        return _native.allocate(size, self._device.ordinal, self._stream())

    def deallocate(self, address: int, size: int) -> None:
        """Takes memory back, in the order of the stream that is current now, as Warp's own does."""
        # At the process's end Warp's streams are gone before its arrays.
        if not sys.is_finalizing():
            _native.free_on(address, self._stream())

    def _stream(self) -> int:
        return streams.handle(warp.get_stream(self._device).cuda_stream or 0)


def enable(*, settings: str | None = None, check: bool | None = None) -> None:
    """Makes regraph the allocator of Warp's arrays on every GPU.

    Args:
        settings: As for `regraph.torch.enable`.
        check: As for `regraph.torch.enable`.

    Raises:
        Error: The settings are wrong, others than those of a door that was enabled before, or this
            version of Warp takes no allocator.
    """
    global _enabled
    if not hasattr(warp, "set_device_allocator"):
        raise Error(f"Warp {warp.__version__} takes no other allocator; regraph needs a newer one.")
    with _lock:
        starting.start(settings, check)
        if not _enabled:
            # Before memory is on any stream.
            streams.put_off_ends(warp.Stream, lambda it: it.cuda_stream or 0 if it.owner else 0)
            _announce_captures()
            _enabled = True
        for device in warp.get_cuda_devices():
            warp.set_device_allocator(device, Allocator(device))


def _announce_captures() -> None:
    """Replaces Warp's functions that begin, pause and end captures."""
    begin, end = warp.capture_begin, warp.capture_end
    #: By the stream's handle.
    under_way: dict[int, Capture] = {}

    def stream_of(call: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, int] | None:
        """The stream that a call is about, and its handle; `None` on a CPU."""
        given = inspect.signature(call).bind(*args, **kwargs).arguments
        stream = given.get("stream")
        if stream is None:
            device = warp.get_device(given.get("device"))
            if not device.is_cuda:
                return None
            stream = warp.get_stream(device)
        return stream, streams.handle(stream.cuda_stream or 0)

    @functools.wraps(begin)
    def capture_begin(*args: Any, **kwargs: Any) -> None:
        begin(*args, **kwargs)
        found = stream_of(begin, args, kwargs)
        # One that is external was begun by another library, which announces it or does not.
        external = inspect.signature(begin).bind(*args, **kwargs).arguments.get("external", False)
        if found is None or external:
            return
        given, stream = found
        try:
            under_way[stream] = Capture(given.device.ordinal, stream)
        except BaseException:
            end(stream=given)
            raise

    @functools.wraps(end)
    def capture_end(*args: Any, **kwargs: Any) -> Any:
        found = stream_of(end, args, kwargs)
        capture = under_way.pop(found[1], None) if found is not None else None
        if capture is None:
            return end(*args, **kwargs)
        graph = capture.end(lambda: end(*args, **kwargs))
        weakref.finalize(graph, capture.memory().release).atexit = False
        return graph

    _replace("capture_begin", begin, capture_begin)
    _replace("capture_end", end, capture_end)
    inner = sys.modules.get(begin.__module__)
    pause = getattr(inner, "capture_pause", None)
    if pause is None:
        return

    @functools.wraps(pause)
    def capture_pause(*args: Any, **kwargs: Any) -> Any:
        found = stream_of(pause, args, kwargs)
        graph = pause(*args, **kwargs)
        capture = under_way.pop(found[1], None) if found is not None else None
        if capture is not None:
            # Conditional nodes: the graph is made by several captures. Those that follow are known
            # from their first request on, and their memory stays theirs.
            capture.paused()
            weakref.finalize(graph, capture.memory().release).atexit = False
        return graph

    _replace("capture_pause", pause, capture_pause)


def _replace(name: str, old: Any, new: Any) -> None:
    """Replaces a function in Warp's module, and in the one that it comes from for calls there."""
    for module in (warp, sys.modules.get(old.__module__)):
        if getattr(module, name, None) is old:
            setattr(module, name, new)
