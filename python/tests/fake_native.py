"""A stand-in for `regraph._native` that notes every call, so that tests need no GPU."""

import itertools
import json
import types
from typing import Any, ClassVar

POOLS = ("all", "small_pool", "large_pool")
VALUES = ("current", "peak", "allocated", "freed")
# As `torch._C._cuda_memoryStats` nests them: figures by pool, figures, counters.
BY_POOL = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
#: What PyTorch's own figures lack.
OWN = "unjudged_captures"
OVERSIZE = ("oversize_allocations", "oversize_segments")
COUNTERS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "max_split_size",
)
#: Figures of executables.
EXECUTABLES = (
    "graphs graph_nodes graph_bytes executables nodes foreseen_bytes measured_bytes counted_bytes "
    "made updates evicted refused"
).split()
# The ID of every capture.
CAPTURE = 41
# Of all memory.
ADDRESS = 0x7F20_0000_0000
# The name of every pool.
POOL = (1 << 63, 5)
HOOKS = {
    name: 0x1000 + index
    for index, name in enumerate(
        (
            "init",
            "reset",
            "memory_fraction",
            "base_allocation",
            "record_stream",
            "begin_pool",
            "end_pool",
            "release_pool",
        )
    )
}


class Error(RuntimeError):
    """What regraph cannot do."""


class Refused(Error):
    """The checker found an order missing."""


class OutOfMemory(Error, MemoryError):
    """A request for memory failed."""


def statistics() -> dict[str, Any]:
    """Figures that all differ."""
    numbers = itertools.count(1)
    figures: dict[str, Any] = {name: next(numbers) for name in COUNTERS}
    for name in BY_POOL:
        figures[name] = {pool: {value: next(numbers) for value in VALUES} for pool in POOLS}
    for name in OVERSIZE:
        figures[name] = {value: next(numbers) for value in VALUES}
    figures[OWN] = next(numbers)
    return figures


def snapshot() -> dict[str, Any]:
    """Two segments, one of a pool of graphs, and one event."""
    segment = {
        "device": 0,
        "address": 0x7F00_0000_0000,
        "total_size": 2 << 20,
        "allocated_size": 512,
        "active_size": 512,
        "requested_size": 500,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": [0, 0],
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": 0x7F00_0000_0000,
                "size": 2 << 20,
                "requested_size": 500,
                "state": "active_allocated",
                "frames": [],
            }
        ],
    }
    pooled = {**segment, "address": 0x7F10_0000_0000, "segment_pool_id": [0, 3]}
    event = {
        "action": "alloc",
        "addr": 0x7F00_0000_0000,
        "size": 500,
        "stream": 0,
        "time_us": 1,
        "pool_id": [0, 0],
        "frames": [],
    }
    return {
        "segments": [segment, pooled],
        "device_traces": [[event]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"},
        "external_annotations": [],
    }


class CupyAllocator:
    """As the library's; `failure` is what the latest request failed with."""

    failure: ClassVar[tuple[bool, str] | None] = None

    def __init__(self, malloc: Any, failed: Any) -> None:
        self._malloc, self._failed = malloc, failed

    def malloc(self, size: int) -> Any:
        """What CuPy's function gives, unless there is a failure."""
        memory = self._malloc(size)
        if self.failure is None:
            return memory
        raise self._failed(size, *self.failure)


class KeptStreams:
    """As the library's."""

    native: ClassVar["FakeNative"]

    def __init__(self, kept: dict[int, Any], keep: Any) -> None:
        self._keep = keep

    def allocate(self, size: int, device: int, stream: Any) -> Any:
        """Memory on a stream."""
        return self.native.allocate(size, device, self._keep(stream))

    def free(self, address: int, stream: Any) -> None:
        """The end of it."""
        self.native.free_on(address, self._keep(stream))


class Steps:
    """As the library's classes whose objects begin something and end it; each thing is noted."""

    native: ClassVar["FakeNative"]
    ends: ClassVar[str]

    def __init__(self) -> None:
        self._begun = False

    def _begin(self, call: str, *arguments: Any) -> None:
        getattr(self.native, call)(*arguments)
        self._begun = True

    def _end(self) -> None:
        if self._begun:
            self._begun = False
            getattr(self.native, self.ends)()


class Stay(Steps):
    """As the library's."""

    ends = "leave_region"

    def enter(self, tag: str | None) -> None:
        """A thread is in a region."""
        self._begin("enter_region", tag)

    leave = Steps._end


class Loan(Steps):
    """As the library's."""

    ends = "recall_loan"

    def begin(self, device: int, pool: Any, size: int, stream: int) -> Any:
        """A process is lent memory."""
        self._begin("lend_to_process", device, pool, size, stream)
        return self.native.answers["lend_to_process"]

    def recall(self, seconds: float) -> Any:
        """It is asked for."""
        return self.native.recall_loan(seconds)

    def state(self) -> Any:
        """Where it is."""
        return self.native.answers["loan_state"]


class TakenLoan(Steps):
    """As the library's."""

    ends = "give_back_loan"

    def take(self, device: int, handle: bytes) -> Any:
        """A process takes it."""
        self._begin("take_loan", device, handle)
        return self.native.answers["take_loan"]

    def is_taken(self) -> bool:
        """Whether it was taken and not given back."""
        return self._begun

    def wait_for_recall(self, seconds: float) -> Any:
        """Whether it is asked for."""
        return self.native.wait_for_recall(seconds)

    def give_back(self) -> None:
        """The end of it, where that does not fail."""
        if self._begun:
            self.native.give_back_loan()
            self._begun = False


class Borrowing(Steps):
    """As the library's."""

    ends = "end_borrowing"

    def begin(self, device: int, pool: Any) -> None:
        """A thread borrows."""
        self._begin("begin_borrowing", device, pool)

    end = Steps._end


class Launch(Steps):
    """As the library's; `lending_device` is where its pool lends."""

    ends = "launch_ends"

    def begin(self, pool: Any, stream_of: Any) -> None:
        """A graph is about to be launched."""
        device = self.native.answers["lending_device"]
        stream = () if device is None else (stream_of(device),)
        self._begin("launch_begins", pool, *stream)

    end = Steps._end


class Graph:
    """As the library's; every call is noted."""

    native: ClassVar["FakeNative"]

    def __init__(self, device: int, pool: Any, graph: int) -> None:
        self.native.take_graph(device, pool, graph)

    def launch(self, stream: int) -> None:
        """A launch."""
        self.native.launch_graph(stream)

    def prepare(self, stream: int) -> None:
        """What a launch would do first."""
        self.native.prepare_graph(stream)

    def pin(self, pinned: bool) -> None:
        """Whether the executable stays."""
        self.native.pin_graph(pinned)

    def foreseen_bytes(self) -> int:
        """What an executable takes."""
        return 7

    def handle(self) -> int:
        """The raw graph."""
        return 0x61


class FakeNative(types.ModuleType):
    """Notes (name, arguments) of every call in `calls`; raises what `failures` has for a name."""

    DRIVER_PIECE = 10 << 20
    Borrowing = Borrowing
    CupyAllocator = CupyAllocator
    Error = Error
    Graph = Graph
    KeptStreams = KeptStreams
    Launch = Launch
    Loan = Loan
    OutOfMemory = OutOfMemory
    Refused = Refused
    Stay = Stay
    TakenLoan = TakenLoan

    def __init__(self) -> None:
        super().__init__("regraph._native")
        Graph.native = KeptStreams.native = Steps.native = self
        self.calls: list[tuple[Any, ...]] = []
        self.failures: dict[str, BaseException] = {}
        self.answers: dict[str, Any] = {}
        for name in (
            "begin_thread_pool begin_borrowing end_borrowing launch_begins launch_ends "
            "take_graph launch_graph prepare_graph pin_graph keep_executables limit_pool "
            "launches_elsewhere capture_beginning capture_dropped capture_ending capture_ended "
            "judge_capture notice_ends forked "
            "capture_failing capture_failed reset_peaks "
            "reset_accumulated learn forget_run forget_learned dump_snapshot record_history record_use record_trace "
            "out_of_memory_observer free free_on record_stream empty_cache release_pool "
            "capture_finished capture_paused put_graphs_into leave_region "
            "set_region_backup set_region_file_backup set_region_shared_backup forget_region retain_backups "
            "enter_region begin_estimate estimate capture_shown upload plot"
        ).split():
            setattr(self, name, self._function(name))
        self._answer("start", [])
        self._answer("has_checkpoint", False)
        self._answer("has_source", False)
        self.answers["lending_device"] = None
        self._answer("lent_bytes", 5)
        self._answer("lend_to_process", b"the handle")
        self._answer("loan_state", "taken")
        self._answer("recall_loan", True)
        self._answer("take_loan", (ADDRESS, 64))
        self._answer("wait_for_recall", False)
        self._answer("give_back_loan", None)
        self._answer("change_settings", [])
        self._answer("release_executables", 8)
        self._answer("executables", dict.fromkeys(EXECUTABLES, 1))
        self._answer("memory_sleeps", True)
        self._answer("allocate", ADDRESS)
        self._answer("allocate_unordered", ADDRESS)
        self._answer("memory_info", (3 << 30, 4 << 30))
        self._answer("retire_stream", True)
        self._answer("retire_unused", True)
        self._answer("estimated", 0)
        self._answer("bound", (98 << 20, 420 << 20))
        self._answer("name_pool", POOL)
        self._answer("capture_started", CAPTURE)
        self._answer("cupy_functions", (0x10, 0x20))
        self._answer("version", "0.0.0")
        self._answer("capture_begun", CAPTURE)
        self._answer("throws_out_of_memory", True)
        self._answer("library_path", "/lib/libregraph.so")
        self._answer("hooks", HOOKS)
        self._answer("statistics", statistics())
        self._answer("memory_fraction", 0.5)
        self._answer("learned", 3)
        self._answer("compact", 7)
        self._answer("excess_bytes", 9)
        self._answer("set_pool_name", None)
        self._answer("sleep", 5)
        self._answer("try_sleep", 6)
        self._answer("wake", 4)
        self._answer("is_asleep", False)
        self._answer("read_kept", False)
        self._answer("region_tags", [])
        self._answer("regions", [])
        self._answer("region_host_bytes", 3)
        self._answer("free_region_host", 2)
        self._answer("keep_exported", True)
        self._answer("snapshot", json.dumps(snapshot()))
        self._answer("explain", [])
        self._answer("pools", [])
        self._answer("captures", [])
        self._answer("plans_captures", False)
        self._answer("is_allocator_class", True)
        self._answer("history_setting", (0, False))
        self._answer("metrics", "# TYPE regraph_blocks gauge\n")
        # Not among the calls: each enabling makes them.
        self.levels: list[int] = []
        self.set_log_level = self.levels.append
        self.flush_messages = self.end_messages = lambda: None

    def clear(self) -> None:
        """Forgets the calls and the failures."""
        self.calls.clear()
        self.failures.clear()
        self.answers["explain"] = []
        self.answers["pools"] = []
        self.answers["regions"] = []
        self.answers["region_tags"] = []
        self.answers["is_asleep"] = False
        self.answers["captures"] = []
        self.answers["plans_captures"] = False
        self.answers["has_checkpoint"] = self.answers["has_source"] = False
        self.answers["lending_device"] = None
        self.answers["capture_begun"] = CAPTURE
        self.answers["name_pool"] = POOL
        self.answers["retire_stream"] = True
        self.CupyAllocator.failure = None
        self.answers["start"] = self.answers["change_settings"] = []

    def done(self) -> list[tuple[Any, ...]]:
        """The calls so far that change anything of regions, in order."""
        return [
            call
            for call in self.calls
            if call[0] not in ("memory_sleeps", "regions", "region_tags")
        ]

    def names(self) -> list[str]:
        """The names of the calls so far, in order."""
        return [call[0] for call in self.calls]

    def _answer(self, name: str, answer: Any) -> None:
        self.answers[name] = answer
        setattr(self, name, self._function(name))

    def _function(self, name: str) -> Any:
        def function(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if name in self.failures:
                raise self.failures[name]
            return self.answers.get(name)

        return function
