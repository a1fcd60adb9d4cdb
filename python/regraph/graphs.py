"""Captures whose begin and end a door sees: the engine knows them, and the checker judges them.

A capture's memory is its graph's, in a pool, until the graph lets go of it.
"""

import contextlib
from collections.abc import Callable
from typing import TypeVar

from regraph import _native

T = TypeVar("T")


class Pool:
    """Memory that several graphs share, on one device each.

    Only for graphs that never run at the same time. It goes when the last of them has let go of it.
    """

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: tuple[int, int] = _native.name_pool()


class Memory:
    """What a graph holds of its pool."""

    __slots__ = ("__weakref__", "_device", "_keys")

    def __init__(self, device: int, key: tuple[int, int]) -> None:
        self._device = device
        #: The pool's; none when it was let go of.
        self._keys = [key]

    def release(self) -> None:
        """Lets go of the memory; does nothing the second time.

        Call it when nothing made of the capture will be launched again. Work of the graph that
        still runs is waited for before the memory goes.
        """
        # In one step: a finalizer or another thread may do it too, and other graphs need the pool.
        with contextlib.suppress(IndexError):
            _native.release_pool(self._device, self._keys.pop())


class Capture:
    """A capture under way."""

    __slots__ = ("capture", "device", "key", "stream")

    def __init__(self, device: int, stream: int, pool: Pool | None = None) -> None:
        """Announces the capture that the stream has begun.

        Raises:
            RuntimeError: The engine does not know it then.
        """
        self.device, self.stream = device, stream
        self.key = (pool or Pool()).key
        self.capture = _native.capture_started(device, stream, self.key)

    def end(self, end: Callable[[], T], discard: Callable[[T], object] | None = None) -> T:
        """Has the graph judged while `end` ends the capture, and returns what that returns.

        A graph that is refused is given to `discard`, and not returned.

        Raises:
            Refused: The graph must not run. Also what `end` raises.
        """
        try:
            _native.capture_ending(self.device, self.stream)
        except BaseException:
            with contextlib.suppress(Exception):
                ended = end()
                if discard is not None:
                    discard(ended)
            self.failed()
            raise
        try:
            graph = end()
        except BaseException:
            self.failed()
            raise
        try:
            _native.capture_finished(self.device, self.stream, self.key)
        except BaseException:
            if discard is not None:
                discard(graph)
            # The exception keeps this frame, and must not keep the graph.
            del graph
            raise
        return graph

    def failed(self) -> None:
        """Tells that the capture is over and there is no graph."""
        with contextlib.suppress(Exception):
            _native.capture_failed(self.device, self.stream)

    def paused(self) -> None:
        """Tells that the capture is over, unjudged, and that another one adds to its graph."""
        _native.capture_paused(self.device, self.stream, self.key, self.capture)

    def memory(self) -> Memory:
        """What the capture's graph holds, once there is one."""
        return Memory(self.device, self.key)
