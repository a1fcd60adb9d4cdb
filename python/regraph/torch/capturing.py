"""Captures: regraph is told when they begin and end, and judges each graph before it ends."""

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from regraph import _native
from regraph.torch.errors import Error
from regraph.torch.patches import Patches


class Place(NamedTuple):
    """Where a capture runs."""

    device: int
    stream: int

    @classmethod
    def current(cls) -> "Place":
        """The current stream of the current device."""
        stream = torch.cuda.current_stream()
        return cls(stream.device_index, stream.cuda_stream)


def install(patches: Patches) -> None:
    """Replaces methods of `torch.cuda.CUDAGraph`, in place, so that subclasses have them too."""
    graph = torch.cuda.CUDAGraph
    calls = _Calls(graph.capture_begin, graph.capture_end, graph.reset)

    @functools.wraps(calls.begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        calls.capture_begin(self, *args, **kwargs)

    @functools.wraps(calls.end)
    def capture_end(self: Any) -> None:
        calls.capture_end(self)

    patches.replace(graph, "capture_begin", capture_begin)
    patches.replace(graph, "capture_end", capture_end)
    leave = torch.cuda.graph.__exit__

    @functools.wraps(leave)
    def restore_stream(self: Any, *args: Any) -> Any:
        try:
            return leave(self, *args)
        except BaseException:
            # PyTorch 2.11 leaves the capture's stream current where the capture's end fails; later
            # versions do not, and restoring it twice does no harm.
            self.stream_ctx.__exit__(None, None, None)
            raise

    patches.replace(torch.cuda.graph, "__exit__", restore_stream)


class _Calls:
    """PyTorch's own methods, and the captures that are under way."""

    def __init__(
        self,
        begin: Callable[..., None],
        end: Callable[[Any], None],
        reset: Callable[[Any], None],
    ) -> None:
        self.begin = begin
        self.end = end
        self.reset = reset
        self.dropped: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.under_way: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        self.warned = False

    def capture_begin(self, graph: Any, *args: Any, **kwargs: Any) -> None:
        """Begins a capture and tells so."""
        if torch.cuda.is_current_stream_capturing():
            # PyTorch says so too late: the graph's destructor aborts the process then.
            raise Error("The current stream is capturing already; end that capture first.")
        place = Place.current()
        _native.capture_beginning()
        try:
            self.begin(graph, *args, **kwargs)
        except BaseException:
            _tell_failure(place)
            raise
        try:
            _native.capture_begun(*place, self.is_alone())
        except BaseException:
            self.give_up(graph, place)
            raise
        self.under_way[graph] = place
        # Its pool's filter looks at the graph.
        self.dropped[graph] = weakref.finalize(graph, _native.capture_dropped, *place)

    def capture_end(self, graph: Any) -> None:
        """Has the graph judged, ends the capture and tells so."""
        place = self.under_way.get(graph)
        if place is None and torch.cuda.is_current_stream_capturing():
            raise Error(
                "The current stream's capture was not begun by this graph; end it through the "
                "torch.cuda.CUDAGraph that began it."
            )
        if place is None or place != Place.current():
            self.end(graph)  # PyTorch's own error; a capture elsewhere goes on.
            return
        del self.under_way[graph]
        self.dropped.pop(graph).detach()
        try:
            _native.capture_ending(*place)
        except BaseException:
            self.give_up(graph, place)
            raise
        try:
            self.end(graph)
        except BaseException:
            self.drop(graph, place)
            raise
        try:
            _native.capture_ended(*place)
        except BaseException:
            self.reset(graph)
            raise

    def is_alone(self) -> bool:
        """Whether a capture's memory may be moved; warns once where the settings rely on it."""
        if _is_alone():
            return True
        if not self.warned and _native.plans_captures():
            self.warned = True
            warnings.warn(
                "torch.distributed is initialised, and its libraries may register memory of "
                "captures: plan:exact has no effect on captures from now on.",
                stacklevel=4,
            )
        return False

    def give_up(self, graph: Any, place: Place) -> None:
        """Ends the driver's capture and drops what came of it, so that it is never replayed."""
        with contextlib.suppress(Exception):
            self.end(graph)
        self.drop(graph, place)

    def drop(self, graph: Any, place: Place) -> None:
        """Drops what came of a capture that has ended badly, and tells so.

        The reset comes first: whether PyTorch lets go of the pool in it is for the allocator to
        see, which does it otherwise. Versions differ.
        """
        with contextlib.suppress(Exception):
            self.reset(graph)
        _tell_failure(place)


def _is_alone() -> bool:
    """Whether no communication library of PyTorch's may register memory while it is captured."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized())


def _tell_failure(place: Place) -> None:
    """Tells of a failure without hiding the exception that it is told in."""
    try:
        _native.capture_failed(*place)
    except Exception as error:
        warnings.warn(f"A failed capture's memory may be lost: {error}", stacklevel=4)
