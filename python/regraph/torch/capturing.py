"""Captures: regraph learns of their begin and end, and checks a graph before its capture ends."""

import atexit
import contextlib
import functools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from regraph import _native, streams
from regraph.torch import budgeting, exporting
from regraph.torch.errors import Error, OutOfMemory
from regraph.torch.patches import Patches
from regraph.torch.registering import GRAPHS, Marks, Registering
from regraph.torch.staying import stay


class UnderWay(NamedTuple):
    """A graph object that has begun a capture, on a stream of a device, and has not ended it."""

    graph: weakref.ref[Any]
    device: int
    stream: int
    #: The capture's ID; `None` where the stream belongs to no pool of graphs.
    capture: int | None
    #: Whether no library may register memory of it.
    alone: bool


class Showing:
    """A capture of this thread that is shown when it ends, and comes to nothing."""

    __slots__ = ("free", "of", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        #: The device and stream of the capture, while it has not failed.
        self.of: tuple[int, int] | None = None
        #: What was free of the device before its graph was made executable, in bytes.
        self.free = 0

    def finish(self, graph: Any) -> int:
        """Ends it, and returns how many bytes the driver has taken for the executable graph."""
        if self.of is None:
            return 0
        device, stream = self.of
        executable = getattr(graph, "raw_cuda_graph_exec", None)
        if executable is not None:
            _native.upload(device, executable(), stream)
        taken = self.free - _native.memory_info(device)[0]
        self.give_up()
        return max(taken, 0)

    def give_up(self) -> None:
        """Tells that there is no graph, unless that was told."""
        if self.of is not None:
            device, stream = self.of
            self.of = None
            _native.capture_failed(device, stream)


#: What PyTorch's calls have become.
_calls: "_Calls | None" = None


def calls() -> "_Calls":
    """What PyTorch's calls have become.

    Raises:
        Error: regraph is not enabled.
    """
    if _calls is None:
        raise Error("regraph is not enabled.")
    return _calls


def install(patches: Patches) -> None:
    """Replaces methods of PyTorch's native graph class, which every Python class of graphs calls.

    And those of `torch.cuda.graph` which begin and end a capture.
    """
    global _calls
    graph = torch._C._CUDAGraph
    _calls = calls = _Calls(graph.capture_end, graph.reset)
    patches.replace(graph, "capture_begin", calls.beginning(graph.capture_begin))
    patches.replace(
        graph, "register_generator_state", _outside_regions(graph.register_generator_state)
    )
    # Later versions' Python class (2.15) ends captures by the second.
    for name in ("capture_end", "capture_end_pre"):
        if hasattr(graph, name):
            patches.replace(graph, name, calls.ending(getattr(graph, name)))
    enter, leave = torch.cuda.graph.__enter__, torch.cuda.graph.__exit__

    @functools.wraps(enter)
    def enter_capture(self: Any) -> Any:
        try:
            return enter(self)
        except BaseException:
            # PyTorch leaves the capture's stream current where the capture does not begin.
            if self.stream_ctx.src_prev_stream is not None:
                self.stream_ctx.__exit__(None, None, None)
            raise

    @functools.wraps(leave)
    def exit_capture(self: Any, *args: Any) -> Any:
        if len(args) > 1 and isinstance(args[1], torch.OutOfMemoryError):
            # Before its capture ends: what did not fit is there still.
            _tell_budget(args[1], self.pool)
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

    patches.replace(torch.cuda.graph, "__enter__", enter_capture)
    patches.replace(torch.cuda.graph, "__exit__", exit_capture)


def _tell_budget(failure: BaseException, pools: Any) -> None:
    """Notes what the budget of a capture's pool is, where it has one, with a request that failed."""
    device = torch._C._cuda_getDevice()
    for budget in filter(None, (budgeting.of(pool, device) for pool in pools)):
        with contextlib.suppress(Exception):
            _add_note(failure, budget.report() + ".")


def judge_capture(stream: torch.cuda.Stream | int | None = None) -> None:
    """Has the checker examine a capture that the program began without PyTorch (`cudaStreamBeginCapture`).

    Call it just before the capture ends: it gets no more memory afterwards. Without this call such a capture is not
    examined, which a message says when it is noticed that the capture is over. Captures of
    `torch.cuda.graph` and of `torch.cuda.CUDAGraph` are examined in any case; here nothing happens for them.

    Args:
        stream: A stream of the capture, or its raw handle on the current device; `None` is the current stream.

    Raises:
        Refused: The graph must never run: end the capture, and destroy its graph.
        Error: The stream is in no capture.
        TypeError: `stream` is no stream.
    """
    from regraph.torch.enabling import require_enabled  # It installs this file's patches.

    require_enabled("judge_capture")
    if stream is None:
        stream = torch.cuda.current_stream()
    handle = streams.handle(stream)
    device = getattr(stream, "device_index", None)
    if device is None:
        device = torch._C._cuda_getDevice()
    now = calls()
    if not now.is_alone():
        # First: what was registered stays so where the capture is refused.
        now.registered.add(None)
    _native.judge_capture(device, handle)


def _outside_regions(register: Callable[..., None]) -> Callable[..., None]:
    """A generator's state is written before each replay of any graph: it sleeps with no region."""

    @functools.wraps(register)
    def register_generator_state(*args: Any, **kwargs: Any) -> None:
        with stay(None):
            register(*args, **kwargs)

    return register_generator_state


class _Calls:
    """What PyTorch's calls become, and the captures under way.

    Captures of small graphs take some ten microseconds: no call makes more objects than it must.
    """

    def __init__(self, end: Callable[[Any], None], reset: Callable[[Any], None]) -> None:
        self.end = end
        self.reset = reset
        #: By the graph object's `id`, which is its own as long as it lives.
        self.under_way: dict[int, UnderWay] = {}
        self.registering = Registering()
        self.warned = False
        #: What communication libraries may have registered.
        self.registered = Marks()
        self.shown: Showing | None = None
        self.process = os.getpid()
        atexit.register(self.forget_all)

    def beginning(self, begin: Callable[..., None]) -> Callable[..., None]:
        """A method that begins a capture and announces it to regraph."""
        current_device = torch._C._cuda_getDevice
        # `torch.cuda.current_stream()` would make a stream object.
        current_stream = torch._C._cuda_getCurrentRawStream
        under_way, gone, modules, ref = self.under_way, self.gone, sys.modules, weakref.ref
        budgets, registering, lock = budgeting.budgets, self.registering, self.registered.lock

        @functools.wraps(begin)
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            device = current_device()
            if budgets:
                budget = budgeting.of(kwargs.get("pool") or (args[0] if args else None), device)
                if budget is not None:
                    budget.admit(graph)
            if exporting.BINDINGS in modules:
                # Before what is captured can be exported.
                exporting.watch()
            stream = current_stream(device)
            alone = not registering.groups or self.is_alone()
            if not alone:
                lock.acquire()
            try:
                _native.capture_beginning(device, stream)
                try:
                    begin(graph, *args, **kwargs)
                except BaseException:
                    _report_failure(device, stream)
                    raise
                try:
                    capture = _native.capture_begun(device, stream, alone)
                except BaseException:
                    self.give_up(graph, device, stream)
                    raise
                # It replaces a capture of the same graph object that PyTorch ended without this class.
                under_way[id(graph)] = UnderWay(ref(graph, gone), device, stream, capture, alone)
            finally:
                if not alone:
                    lock.release()

        return capture_begin

    def ending(self, end: Callable[[Any], None]) -> Callable[[Any], None]:
        """A method that has the graph checked, ends the capture and reports the result."""
        is_capturing = torch._C._cuda_isCurrentStreamCapturing
        current_device = torch._C._cuda_getDevice
        current_stream = torch._C._cuda_getCurrentRawStream
        under_way = self.under_way

        @functools.wraps(end)
        def capture_end(graph: Any) -> None:
            begun = under_way.get(id(graph))
            if begun is None:
                if is_capturing():
                    raise Error(
                        "The current stream's capture was not begun by this graph; end it through "
                        "the graph object that began it."
                    )
                end(graph)  # Raises PyTorch's own error.
                return
            _, device, stream, _, alone = begun
            if current_device() != device or current_stream(device) != stream:
                end(graph)  # Raises PyTorch's own error; a capture of another stream goes on.
                return
            shown = self.shown
            if shown is not None and shown.thread == threading.get_ident():
                del under_way[id(graph)]
                self.show(shown, graph, device, stream, end)
                return
            if not alone:
                # First: what was registered stays so where the capture fails, and no region sleeps in between.
                self.registered.add(graph)
            del under_way[id(graph)]
            try:
                _native.capture_ending(device, stream)
            except BaseException as error:
                self.give_up(graph, device, stream)
                if isinstance(error, OutOfMemory):
                    raise torch.OutOfMemoryError(str(error)) from error
                raise
            try:
                end(graph)
            except BaseException:
                self.drop(graph, device, stream)
                raise
            try:
                _native.capture_ended(device, stream)
            except BaseException:
                self.reset(graph)
                raise

        return capture_end

    @contextlib.contextmanager
    def showing(self) -> Iterator[Showing]:
        """Has the capture of this thread that ends in the `with` block shown; one at a time."""
        if self.shown is not None:
            raise Error("Memory is being estimated already.")
        self.shown = shown = Showing()
        try:
            yield shown
        finally:
            self.shown = None
            shown.give_up()

    def show(
        self, shown: Showing, graph: Any, device: int, stream: int, end: Callable[[Any], None]
    ) -> None:
        """Ends a capture whose graph is never launched."""
        try:
            _native.capture_shown(device, stream)
            shown.free = _native.memory_info(device)[0]
        except BaseException:
            self.give_up(graph, device, stream)
            raise
        try:
            end(graph)
        except BaseException:
            self.drop(graph, device, stream)
            raise
        shown.of = device, stream

    def gone(self, graph: weakref.ref[Any]) -> None:
        """Forgets the capture of a graph object that is no more."""
        under_way = list(self.under_way.items())
        key = next((key for key, begun in under_way if begun.graph is graph), None)
        if key is not None:
            self.dropped(self.under_way.pop(key))

    def dropped(self, begun: UnderWay) -> None:
        """Tells regraph that a graph object has gone whose capture was not ended: its route goes, too.

        PyTorch's part of the object went before: nothing of the route reads it since the capture was announced.
        """
        _, device, stream, capture, alone = begun
        if capture is not None and not alone:
            # First: no region sleeps in between.
            self.registered.add(None)
        if capture is not None:
            _native.capture_dropped(device, stream, capture)

    def forget_all(self) -> None:
        """Forgets the captures under way when the process ends, before their graph objects go."""
        if os.getpid() != self.process:
            # One that was forked has no device, and locks that threads of its parent held are held for ever.
            return
        while self.under_way:
            self.dropped(self.under_way.popitem()[1])
        # The last ones that the program began without PyTorch: no request follows.
        _native.notice_ends()

    def registers(self) -> bool:
        """Whether a capture is under way in which a library may register memory."""
        return not all(begun.alone for begun in list(self.under_way.values()))

    def is_alone(self) -> bool:
        """Whether a capture's memory may be remapped; warns once if `plan:exact` would need that."""
        if not self.registering.may_happen():
            return True
        if not self.warned and _native.plans_captures():
            self.warned = True
            warnings.warn(
                "torch.distributed is initialised, and its libraries may register memory of "
                "captures: plan:exact has no effect on captures from now on. With NCCL, set "
                f"{GRAPHS}=0 before regraph is enabled.",
                stacklevel=4,
            )
        return False

    def give_up(self, graph: Any, device: int, stream: int) -> None:
        """Ends the driver's capture and destroys its graph, so that the graph is never replayed."""
        with contextlib.suppress(Exception):
            self.end(graph)
        self.drop(graph, device, stream)

    def drop(self, graph: Any, device: int, stream: int) -> None:
        """Destroys the graph of a capture that failed to end, and reports the failure to regraph.

        The reset comes first: some versions of PyTorch release the pool in it, others do not.
        regraph sees which, and releases the pool where PyTorch did not.
        """
        with contextlib.suppress(Exception):
            _native.capture_failing(device, stream)
            self.reset(graph)
        _report_failure(device, stream)


def _add_note(error: BaseException, note: str) -> None:
    """Adds a line to what Python prints of an exception, from Python 3.11 on."""
    add = getattr(error, "add_note", None)
    if add is not None:
        add(note)


def _report_failure(device: int, stream: int) -> None:
    """Reports a failed capture to regraph, without hiding the exception that is being handled."""
    try:
        _native.capture_failed(device, stream)
    except Exception as error:
        warnings.warn(f"A failed capture's memory may be lost: {error}", stacklevel=4)
