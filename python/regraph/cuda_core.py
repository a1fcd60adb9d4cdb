"""regraph as a memory resource of `cuda.core`.

    import regraph.cuda_core
    from cuda.core import Device

    device = Device()
    device.set_current()
    device.memory_resource = regraph.cuda_core.MemoryResource(device)

Buffers come from the engine that PyTorch and the other doors of the process share.
"""

import contextlib
import inspect
import weakref
from collections.abc import Iterator
from typing import Any

from cuda import core

from regraph import _native, starting, streams
from regraph.errors import Error, Refused
from regraph.graphs import Capture, Memory, Pool

__all__ = ["Error", "Memory", "MemoryResource", "Pool", "Refused", "building"]


def _takes_stream() -> bool:
    """Whether a buffer is told on which stream it is freed; early versions of it are not."""
    try:
        return "stream" in inspect.signature(core.Buffer.from_handle).parameters
    except (TypeError, ValueError):
        return "stream" in (core.Buffer.from_handle.__doc__ or "")


_TAKES_STREAM = _takes_stream()
_from_handle = core.Buffer.from_handle

#: What keeps the streams alive that memory is on, by their handles.
_kept: dict[int, Any] = {}


class _Keeper(core.MemoryResource):  # type: ignore[misc]
    """The resource of buffers that own nothing but their stream."""

    is_device_accessible = True
    is_host_accessible = False
    is_managed = False
    device_id = 0

    def allocate(self, size: int, *, stream: Any) -> Any:
        """Never called."""
        raise NotImplementedError

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
        """Nothing: the address is none."""


_KEEPER = _Keeper()


def _let_go(number: int) -> bool:
    """Lets a stream go, unless memory was allocated on it or waits for it; says whether it went.

    The object may stand for a stream that another one has, or that another library destroys.
    """
    # First: another object of the stream that comes meanwhile keeps it anew.
    kept = _kept.pop(number, None)
    if kept is None or _native.retire_unused(number):
        return True
    _kept.setdefault(number, kept)
    return False


def _used(stream: Any) -> int:
    """The handle of a stream, which is not destroyed before the engine has nothing of it any more.

    Neither when its object goes nor when it is closed: buffers keep the stream of their free.
    """
    number = streams.handle(stream)
    if number not in streams.DEFAULT and number not in _kept and not isinstance(stream, int):
        if _TAKES_STREAM:
            _kept[number] = _from_handle(512, 1, mr=_KEEPER, stream=stream)

            weakref.finalize(stream, streams.retire, number, _let_go).atexit = False
        else:
            _kept[number] = stream
    return number


_memory = _native.KeptStreams(_kept, _used)


class MemoryResource(core.MemoryResource):  # type: ignore[misc]
    """Memory of one device, in the order of streams.

    A buffer is ready on the stream that it was asked for on. Its free on another stream is a use
    there: the next owner waits for both.
    """

    # No properties: each buffer that is made asks.
    is_device_accessible = True
    is_host_accessible = False
    is_managed = False

    def __init__(
        self, device: Any = 0, *, settings: str | None = None, check: bool | None = None
    ) -> None:
        """`device`: a device of `cuda.core`, or its number.

        Args:
            device: Where the memory is.
            settings: As for `regraph.torch.enable`.
            check: As for `regraph.torch.enable`.

        Raises:
            Error: The settings are wrong, or others than those of a door that was enabled before.
        """
        starting.start(settings, check)
        self._device: int = device if isinstance(device, int) else device.device_id
        #: Another object after each free.
        self._freed = object()

    def allocate(self, size: int, *, stream: Any) -> Any:
        """A buffer of `size` bytes, ready for what `stream` is given from now on.

        In a capture of that stream the memory belongs to the capture's graph.

        Raises:
            MemoryError: There is not enough.
        """
        address = _memory.allocate(size, self._device, stream)
        freed = self._freed
        try:
            if _TAKES_STREAM:
                return _from_handle(address, size, mr=self, stream=stream)
            return _from_handle(address, size, mr=self)
        except BaseException:
            # Where a part of the buffer was there already, that has freed the memory, or another
            # buffer went meanwhile: better to lose this one's than to free another's.
            if self._freed is freed:
                _native.free(address)
            raise

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
        """Takes a buffer's memory back, in the order of `stream`."""
        self._freed = object()
        if stream is None:
            _native.free(int(ptr))
        else:
            _memory.free(int(ptr), stream)

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self._device


@contextlib.contextmanager
def building(builder: Any, pool: Pool | None = None, mode: str = "relaxed") -> Iterator[Memory]:
    """Begins and ends the building of a graph by capture, which the checker judges.

    The builder's class cannot be changed, so a graph that is built without this is not judged, and
    keeps its memory to the end of the process.

    Args:
        builder: A `GraphBuilder` that has not begun.
        pool: Shared with other graphs that never run at the same time; `None` is a pool of the
            graph's own.
        mode: As for `GraphBuilder.begin_building`.

    Yields:
        What the graph holds. It keeps the memory until `release()` is called, which is right when
        neither the builder nor any graph that was completed from it, or embeds it, runs again.

    Raises:
        Refused: The graph must not run; the builder is closed.
    """
    stream = _used(builder)
    device = builder.stream.device.device_id
    builder.begin_building(mode)
    try:
        capture = Capture(device, stream, pool)
    except BaseException:
        _discard(builder)
        raise
    try:
        yield capture.memory()
    except BaseException:
        # Its own exception says more than what the end of such a capture raises.
        _discard(builder)
        capture.failed()
        raise
    capture.end(builder.end_building, lambda _: builder.close())


def _discard(builder: Any) -> None:
    with contextlib.suppress(Exception):
        builder.end_building()
    with contextlib.suppress(Exception):
        builder.close()
