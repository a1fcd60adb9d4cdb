"""Captures: regraph learns of their begin and end, and checks a graph before its capture ends."""

import atexit
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
    """The stream that a capture began on."""

    device: int
    stream: int

    @classmethod
    def current(cls) -> "Place":
        """The current stream of the current device.

        `torch.cuda.current_stream()` would make a stream object, which takes longer.
        """
        device = torch._C._cuda_getDevice()
        return cls(device, torch._C._cuda_getCurrentRawStream(device))


class UnderWay(NamedTuple):
    """A capture that a graph object has begun."""

    place: Place
    #: `None` where the stream belongs to no pool of graphs.
    capture: int | None
    #: The graph object, whose end is that of the capture.
    graph: "weakref.ref[Any]"


def install(patches: Patches) -> None:
    """Replaces methods of `torch.cuda.CUDAGraph` and `torch.cuda.graph`, for subclasses too."""
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
    def exit_capture(self: Any, *args: Any) -> Any:
        try:
            return leave(self, *args)
        except BaseException as failure:
            # PyTorch 2.11 leaves the capture's stream current where the capture's end fails; later
            # versions restore it themselves, and restoring it twice does no harm.
            self.stream_ctx.__exit__(None, None, None)
            raised = args[1] if len(args) > 1 else None
            if not isinstance(raised, BaseException) or not isinstance(failure, Exception):
                raise
            # A `with` block that was left early often leaves a capture that cannot be ended: forked
            # streams that were not joined, a call that captures forbid. The block's own exception
            # says why, so it goes on.
            _add_note(raised, f"The CUDA graph capture could not be ended either: {failure}")
            return None

    patches.replace(torch.cuda.graph, "__exit__", exit_capture)


class _Calls:
    """PyTorch's own methods, and the captures under way."""

    def __init__(
        self,
        begin: Callable[..., None],
        end: Callable[[Any], None],
        reset: Callable[[Any], None],
    ) -> None:
        self.begin = begin
        self.end = end
        self.reset = reset
        #: By the graph object's `id`, which is its own as long as it lives.
        self.under_way: dict[int, UnderWay] = {}
        self.warned = False
        atexit.register(self.forget_all)

    def capture_begin(self, graph: Any, *args: Any, **kwargs: Any) -> None:
        """Begins a capture and announces it to regraph."""
        if torch.cuda.is_current_stream_capturing():
            # PyTorch's own error comes too late: the graph's destructor then aborts the process.
            raise Error("The current stream is capturing already; end that capture first.")
        place = Place.current()
        _native.capture_beginning()
        try:
            self.begin(graph, *args, **kwargs)
        except BaseException:
            _report_failure(place)
            raise
        try:
            capture = _native.capture_begun(*place, self.is_alone())
        except BaseException:
            self.give_up(graph, place)
            raise
        key, under_way = id(graph), self.under_way

        def dropped(_: Any) -> None:
            forget(under_way, key)

        # It replaces a capture of the same graph object that PyTorch ended without this class.
        under_way[key] = UnderWay(place, capture, weakref.ref(graph, dropped))

    def capture_end(self, graph: Any) -> None:
        """Has the graph checked, ends the capture and reports the result to regraph."""
        begun = self.under_way.get(id(graph))
        place = None if begun is None else begun.place
        if place is None and torch.cuda.is_current_stream_capturing():
            raise Error(
                "The current stream's capture was not begun by this graph; end it through the "
                "torch.cuda.CUDAGraph that began it."
            )
        if place is None or place != Place.current():
            self.end(graph)  # Raises PyTorch's own error; a capture of another stream goes on.
            return
        del self.under_way[id(graph)]
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

    def forget_all(self) -> None:
        """Forgets the captures under way when the process ends, before their graph objects go."""
        for key in list(self.under_way):
            forget(self.under_way, key)

    def is_alone(self) -> bool:
        """Whether a capture's memory may be remapped; warns once if a plan would need that."""
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
        """Ends the driver's capture and destroys its graph, so that the graph is never replayed."""
        with contextlib.suppress(Exception):
            self.end(graph)
        self.drop(graph, place)

    def drop(self, graph: Any, place: Place) -> None:
        """Destroys the graph of a capture that failed to end, and reports the failure to regraph.

        The reset comes first: some versions of PyTorch release the pool in it, others do not.
        regraph sees which, and releases the pool where PyTorch did not.
        """
        with contextlib.suppress(Exception):
            self.reset(graph)
        _report_failure(place)


def forget(under_way: dict[int, UnderWay], key: int) -> None:
    """Tells regraph that a graph object goes whose capture was not ended.

    The filter of the capture's pool reads the graph object, so the filter must go first.
    """
    begun = under_way.pop(key, None)
    if begun is not None and begun.capture is not None:
        _native.capture_dropped(*begun.place, begun.capture)


def _is_alone() -> bool:
    """Whether no communication library of PyTorch may register memory of a capture."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized())


def _add_note(error: BaseException, note: str) -> None:
    """Adds a line to what Python prints of an exception, from Python 3.11 on."""
    add = getattr(error, "add_note", None)
    if add is not None:
        add(note)


def _report_failure(place: Place) -> None:
    """Reports a failed capture to regraph, without hiding the exception that is being handled."""
    try:
        _native.capture_failed(*place)
    except Exception as error:
        warnings.warn(f"A failed capture's memory may be lost: {error}", stacklevel=4)
