"""Graphs whose executables are shared and kept within a budget."""

import gc
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch import budgeting, launches
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error
from regraph.torch.requirements import numbers_of

if TYPE_CHECKING:
    from torch.types import Device

Functions = Literal["same", "any"]

# Up to 2.11 a capture can draw from the generators alone that were registered before it.
_KNOWS_GENERATORS = (numbers_of(torch.__version__) or (9, 9)) <= (2, 11)


class Executables(NamedTuple):
    """What the executables of `Graph`s come to. Bytes are the driver's memory, and none of PyTorch's figures."""

    graphs: int
    """Graphs that live."""
    graph_nodes: int
    """Nodes of them."""
    graph_bytes: int
    """What their executables would take if each had its own, as foreseen."""
    executables: int
    """Executables that there are."""
    nodes: int
    """Nodes of them."""
    foreseen_bytes: int
    """What they were foreseen to take before they were made."""
    measured_bytes: int
    """By how much the device's free memory shrank when they were made. Drivers take it in large pieces."""
    counted_bytes: int
    """What counts against the budget: what is foreseen, and more where they were measured to take more."""
    made: int
    """How many were made."""
    updates: int
    """How often one was updated for another graph."""
    evicted: int
    """How many went while their graphs lived."""
    refused: int
    """How many updates the driver refused: those graphs have executables of their own."""


class Graph(torch.cuda.CUDAGraph):
    """A graph for `torch.cuda.graph` in place of `torch.cuda.CUDAGraph`, which keeps no executable for good.

        regraph.torch.keep_executables(budget_bytes=8 << 20)
        graphs = {size: regraph.torch.Graph() for size in (64, 32, 16, 8)}
        for size, graph in graphs.items():
            with torch.cuda.graph(graph, pool=pool):
                outputs[size] = step(inputs[size])
        graphs[16].replay()

    Its executable is made at the first replay, or when it is prepared. `keep_executables` says which graphs
    share one, and how much memory all may take: a replay that finds the executable with another graph's
    parameters updates it first, which takes about a microsecond a node. What was replayed before runs as it
    was. Random numbers are drawn as by PyTorch's own.

    PyTorch's object has a graph without nodes: `raw_cuda_graph` gives the graph itself, for reading, and
    `raw_cuda_graph_exec` and `debug_dump` raise `Error`.

    Args:
        keep_graph: Has no effect: the graph is kept in any case.

    Raises:
        Error: PyTorch is older than 2.8. At a capture: regraph is not enabled, or the driver cannot copy a node of
            the graph, such as one that allocates memory; the capture has come to nothing then.
    """

    #: Whether its executable is made within the budget of its pool.
    is_within_budgets = True
    _kept: _native.Graph | None
    _device: int
    #: Whether PyTorch has to be told of each replay, as of a graph that draws random numbers.
    _told: bool
    #: States of generators that the capture may draw from.
    _states: list[torch.Generator]

    def __new__(cls, keep_graph: bool = True) -> "Graph":
        """One that has captured nothing yet."""
        if not hasattr(torch._C._CUDAGraph, "raw_cuda_graph"):
            raise Error(
                "regraph.torch.Graph needs graphs that PyTorch keeps (keep_graph=True), which it does from 2.8 on, and "
                f"this is {torch.__version__}; use torch.cuda.CUDAGraph."
            )
        graph = super().__new__(cls, True)
        graph._kept, graph._told, graph._states = None, True, []
        return graph

    def __init__(self, keep_graph: bool = True) -> None:
        super().__init__(True)

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Registers a generator that the capture may draw from, as PyTorch's."""
        super().register_generator_state(generator)
        self._states.append(generator.graphsafe_get_state())

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Begins a capture on the current stream, with the arguments of PyTorch's."""
        require_enabled("Graph")
        device = torch._C._cuda_getDevice()
        default = torch.cuda.default_generators[device].graphsafe_get_state()
        super().capture_begin(*args, **kwargs)
        self._device = device
        self._states.append(default)

    def capture_end(self) -> None:
        """Ends the capture; the graph can be replayed from then on."""
        super().capture_end()
        self._take()

    # Later versions (2.14) end captures by it.
    def capture_end_post(self) -> None:
        """Finalizes a capture, as PyTorch's."""
        super().capture_end_post()
        self._take()

    def _take(self) -> None:
        if self._kept is not None:
            return
        try:
            pool = launches.pool_of(self)
            assert pool is not None, "the capture has ended"
            self._kept = _native.Graph(self._device, pool, launches.raw_graph(self))
        except BaseException as error:
            self.reset()
            if not isinstance(error, RuntimeError):
                raise
            raise Error(
                f"capture_end: regraph cannot launch this graph: {error}; capture it by torch.cuda.CUDAGraph, which "
                "has an executable of its own."
            ) from error
        budget = budgeting.of(pool, self._device)
        if budget is None:
            return
        try:
            budget.require_room(self._kept.foreseen_bytes())
        except BaseException:
            self.reset()
            raise

    def replay(self) -> None:
        """Replays the graph on the current stream of the device that it was captured on.

        Raises:
            Error: Nothing was captured, or the graph was reset; its pool sleeps, or has lent memory that lives; the
                stream captures; the executable does not fit into the budget beside what is pinned. Nothing was
                launched then.
        """
        kept = self._captured("replay")
        drawn = self._tell() if self._told else []
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        try:
            kept.launch(stream)
        except RuntimeError:
            # Tensors that only the collector of cycles frees may be all that is in the way.
            gc.collect()
            try:
                kept.launch(stream)
            except RuntimeError:
                for state, before, after in drawn:
                    # Where another thread has drawn meanwhile, numbers are left out: none comes twice.
                    if state.get_offset() == after:
                        state.set_offset(before)
                raise

    def _tell(self) -> list[tuple[torch.Generator, int, int]]:
        """Has PyTorch replay a graph without nodes: it sets the random numbers of this replay.

        Returns each generator's offset before and after.
        """
        before = [state.get_offset() for state in self._states]
        super().replay()
        drawn = [(it, offset, it.get_offset()) for it, offset in zip(self._states, before, strict=True)]
        # A graph that has drawn none never does.
        self._told = not _KNOWS_GENERATORS or any(before != after for _, before, after in drawn)
        return drawn

    def prepare(self) -> None:
        """Does what the next replay would have to do first, off its path: makes the executable, or updates it.

        It waits where another executable has to go that runs. Other threads' replays of graphs that are kept
        together with this one wait meanwhile.

        Raises:
            Error: As `replay`.
        """
        kept = self._captured("prepare")
        kept.prepare(torch._C._cuda_getCurrentRawStream(self._device))

    def instantiate(self) -> None:
        """The same as `prepare`, for programs that expect PyTorch's."""
        super().instantiate()
        self.prepare()

    def pin(self, pinned: bool = True) -> None:
        """Says whether the executable stays where the budget is short. At first it does not.

        One that graphs share stays if one of those that it was last updated for is pinned.

        Raises:
            Error: Nothing was captured, or the graph was reset.
        """
        self._captured("pin").pin(pinned)

    def foreseen_bytes(self) -> int:
        """What an executable of the graph is foreseen to take of the device; 0 where the driver cannot tell.

        Raises:
            Error: Nothing was captured, or the graph was reset.
        """
        return self._captured("foreseen_bytes").foreseen_bytes()

    def reset(self) -> None:
        """Destroys the graph, its executable if no other graph shares it, and lets go of its memory."""
        self._kept, self._told, self._states = None, True, []
        super().reset()

    def raw_cuda_graph(self) -> int:
        """The graph, for reading: its pool lends nothing from then on."""
        if self._kept is None:
            return super().raw_cuda_graph()
        pool = launches.pool_of(self)
        if pool is not None:
            _native.launches_elsewhere(pool)
        return self._kept.handle()

    def raw_cuda_graph_exec(self) -> int:
        """Raises `Error`."""
        raise _lacks(
            "raw_cuda_graph_exec", "its executable may hold another graph's parameters, or go"
        )

    def debug_dump(self, *args: Any, **kwargs: Any) -> None:
        """Raises `Error`."""
        raise _lacks("debug_dump", "PyTorch's object has a graph without nodes")

    def _captured(self, call: str) -> _native.Graph:
        if self._kept is None:
            raise Error(f"{call}: nothing was captured, or the graph was reset; capture it first.")
        return self._kept


def _lacks(call: str, why: str) -> Error:
    return Error(
        f"regraph.torch.Graph has no {call}: {why}. Capture by torch.cuda.CUDAGraph for that."
    )


def keep_executables(
    budget_bytes: int | None = None,
    functions: Functions | None = "any",
    pool: launches.Pool | None = None,
    device: "Device" = None,
) -> None:
    """Sets how the executables of `Graph`s are kept from now on.

    Without this call each graph has its own from its first replay on. Where the budget is short the executable
    goes that was asked for longest ago and is not pinned; it comes back when its graph is replayed. Where one has
    to go that runs, the host waits for it, in the replay that needs the room. A device gets nothing back for
    an executable that goes: the next one uses that memory.

    Whether two graphs are of one shape is proven by comparing their nodes and edges, and the driver has the last
    word: graphs whose update it refuses have executables of their own. **Graphs that share an executable never
    run at once**: one waits for the other. Graphs of one pool must not run at once anyway; pools whose graphs
    run side by side are each named here.

    Args:
        budget_bytes: The most that the executables may take together; `None` is as much as the device gives. A
            replay is refused only if its executable alone does not fit, beside those that are pinned.
        functions: Which graphs of one shape share one: those whose nodes run the "same" kernels, or "any", since
            libraries choose kernels by sizes: graphs of one model for many sizes have few shapes with "any". `None`
            shares none.
        pool: A pool, before its first capture, whose graphs are kept by themselves; `None` is all graphs of the
            device whose pools were not named.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled; `Graph`s of the pool were captured before it was named; or the driver failed.
        ValueError: `functions` is none of these, or `budget_bytes` is negative.
    """
    if budget_bytes is not None and budget_bytes < 0:
        raise ValueError(f"budget_bytes: {budget_bytes} is negative; None is no limit")
    number = _device("keep_executables", device)
    _native.keep_executables(number, pool, budget_bytes, functions)
    budgeting.replace(pool, number, budget_bytes)


def executables(pool: launches.Pool | None = None, device: "Device" = None) -> Executables:
    """What the executables of `Graph`s come to.

    Args:
        pool: A pool that `keep_executables` has named; `None` is all graphs of the device.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled, or the pool was not named.
    """
    return Executables(**_native.executables(_device("executables", device), pool))


def release_executables(pool: launches.Pool | None = None, device: "Device" = None) -> int:
    """Destroys the executables that are not pinned; returns how many bytes were foreseen for them.

    Waits for their replays. Each comes back when its graph is replayed: while graphs sleep or are idle, other
    executables can have the memory. The driver gives it to nothing else.

    Args:
        pool: A pool that `keep_executables` has named; `None` is all graphs of the device.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled; the pool was not named; or the driver failed.
    """
    return _native.release_executables(_device("release_executables", device), pool)


def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
    """PyTorch's `torch.cuda.make_graphed_callables`, whose graphs are `Graph`s.

    Args and what it raises are PyTorch's, and `Error` as for `Graph`.
    """
    require_enabled("make_graphed_callables")
    theirs = torch.cuda.make_graphed_callables
    # The function as it is, where `torch.cuda.CUDAGraph` is another class.
    cuda = _Seen(torch.cuda, CUDAGraph=Graph)
    names = {**theirs.__globals__, "torch": _Seen(torch, cuda=cuda), "CUDAGraph": Graph}
    make: Callable[..., Any] = types.FunctionType(
        theirs.__code__, names, theirs.__name__, theirs.__defaults__, theirs.__closure__
    )
    make.__kwdefaults__ = theirs.__kwdefaults__
    return make(*args, **kwargs)


class _Seen:
    """A module, some of whose names stand for something else."""

    def __init__(self, module: types.ModuleType, **others: Any) -> None:
        self.__dict__.update(others, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _device(call: str, device: "Device") -> int:
    require_enabled(call)
    torch.cuda.init()
    return _get_device_index(device, optional=True)
