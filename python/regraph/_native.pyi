"""The allocator itself, in Rust. `regraph.torch` and the other doors are its public interface.

Devices are CUDA device numbers, streams are raw handles, sizes are bytes. Everything that can
fail raises an `Error` whose message says what happened.
"""

import os
from collections.abc import Callable
from typing import Any, Literal

class Error(RuntimeError):
    """Something that regraph cannot do; the message says what, and what to do about it."""

class Refused(Error):
    """The checker found an order missing in a finished capture."""

class OutOfMemory(Error, MemoryError):
    """A request for memory failed."""

def version() -> str:
    """The crate's version."""

def library_path() -> str:
    """The file of this library, which exports `regraph_torch_allocate` and `regraph_torch_free`."""

def start(settings: str | None, check: bool | None, pytorch: tuple[str, str]) -> list[str]:
    """Makes the allocator; `None` stands for what the environment says.

    `pytorch` is a variable's name and its text, which is meant for PyTorch; where the other settings have a
    key of it too, theirs counts. REGRAPH_NO_MEMORY_CACHING counts in any case. Returns its keys that have no effect. Raises `ValueError` for settings that are wrong.
    """

def forked() -> None:
    """Tells that this process was forked: it makes no call of the engines that there are, and frees do nothing."""

def change_settings(text: str) -> list[str]:
    """Changes the settings by a text that is meant for PyTorch; returns its keys that have no effect.

    Raises `ValueError` for settings that are wrong.
    """

def memory_sleeps() -> bool:
    """Whether memory that is asked for from now on can sleep, by the settings."""

def throws_out_of_memory() -> bool:
    """Whether running out of memory raises `torch.OutOfMemoryError`, not only `RuntimeError`."""

def set_log_level(level: int) -> None:
    """Has messages told from a level of Python's `logging` on."""

def flush_messages() -> None:
    """Waits until what was said so far is told."""

def end_messages() -> None:
    """Tells what was said; later messages go to standard error."""

def metrics() -> str:
    """The figures of all devices, pools, captures and regions as Prometheus reads them, in its format 0.0.4.

    OPERATING.md has the list. Empty before the first `enable()`.
    """

def hooks() -> dict[str, int]:
    """The addresses of the functions that PyTorch and the native allocator call, by name."""

def is_allocator_class(table: int) -> bool:
    """Whether a C++ class of allocators is of the kind that the loaded PyTorch has.

    `table` is the address of its table of virtual functions.
    """

def allocate(bytes: int, device: int, stream: int) -> int:
    """The address of memory that is ready on a stream; 0 for no bytes. Raises `OutOfMemory`.

    Requests of the per-thread default stream get what `allocate_unordered` gives.
    """

def allocate_unordered(bytes: int, device: int) -> int:
    """The address of memory that no work uses; 0 for no bytes. Raises `OutOfMemory`.

    After its free it is handed out again when all has completed that blocking streams were given before.
    """

def free(address: int) -> None:
    """Takes memory of any device back."""

def free_on(address: int, stream: int) -> None:
    """Takes memory of any device back, after what a stream holds."""

def record_stream(address: int, stream: int) -> None:
    """Says that a stream uses the block at an address, until its free."""

def retire_stream(stream: int) -> bool:
    """Tells that a stream is about to be destroyed; false where it must live on for now."""

def retire_unused(stream: int) -> bool:
    """Tells that a stream may be about to be destroyed, or go on.

    False where memory waits for it, or was allocated on it and is live.
    """

def empty_cache() -> None:
    """Gives free memory of all devices back to the driver, after a wait for the work that held it."""

def memory_info(device: int) -> tuple[int, int]:
    """What is free of a device's memory, and all of it."""

def name_pool() -> tuple[int, int]:
    """A name for a pool of graphs."""

def release_pool(device: int, pool: tuple[int, int]) -> None:
    """Tells that a graph lets go of its pool."""

def capture_started(device: int, stream: int, pool: tuple[int, int]) -> int:
    """Announces the capture that a stream has begun, for graphs of a pool; returns the capture's ID.

    Its end is told by `capture_ending`, and then by `capture_finished`, `capture_failed` or
    `capture_paused`.
    """

def capture_finished(device: int, stream: int, pool: tuple[int, int]) -> None:
    """Tells that such a capture has ended, and its graph is in use from now on; raises `Refused`.

    The graph holds the pool until `release_pool`, unless it is refused.
    """

def capture_paused(device: int, stream: int, pool: tuple[int, int], capture: int) -> None:
    """Tells that such a capture has ended and another adds to its graph: it is not judged.

    The graph holds the pool until `release_pool`.
    """

def cupy_functions() -> tuple[int, int]:
    """The addresses of C functions for CuPy's `CFunctionAllocator`: to allocate, to free.

    Their parameter is the address of CuPy's function that gives the current stream.
    """

class CupyAllocator:
    """CuPy's allocator over these functions, which looks whether they gave memory."""

    def __init__(
        self, malloc: Callable[[int], Any], failed: Callable[[int, bool, str], Exception]
    ) -> None:
        """`malloc` is `CFunctionAllocator`'s.

        `failed` makes an exception of the size, whether memory is short, and a message.
        """

    def malloc(self, size: int, /) -> Any:
        """What `malloc` gives for a size in bytes."""

def begin_estimate(device: int) -> None:
    """Begins an estimate: its captures are taken to follow what is learned by now."""

def estimate(on: bool, with_stacks: bool = False) -> None:
    """Sets whether captures that this thread begins have addresses without memory of their own.

    With stacks their blocks remember where in the Python program they were asked for.

    They are ended by `capture_shown` and `capture_failed`. Those shown before are forgotten.
    """

def capture_shown(device: int, stream: int) -> None:
    """Notes what a capture has asked for, just before it ends."""

def upload(device: int, executable: int, stream: int) -> None:
    """Has the driver take what an executable graph needs, as its first launch would."""

def estimated() -> int:
    """What one pool of the captures that were shown will hold, in bytes."""

def bound(pool_bytes: int, executable_bytes: int) -> tuple[int, int]:
    """What a pool and executables that are estimated to take so many bytes may come to at most."""

#: The most that the driver takes of a device at once for executables, in bytes.
DRIVER_PIECE: int

class KeptStreams:
    """`allocate` and `free_on` for streams as objects.

    Streams are kept alive while memory is on them.
    """

    def __init__(self, kept: dict[int, Any], keep: Callable[[Any], int]) -> None:
        """`kept` has what keeps streams, by their handles.

        `keep` adds a stream, unless it is a default stream, and returns its handle.
        """

    def allocate(self, bytes: int, device: int, stream: Any) -> int:
        """Hands out memory on a stream; 0 for no bytes."""

    def free(self, address: int, stream: Any) -> None:
        """Takes memory back, after what a stream holds."""

def begin_thread_pool(device: int, pool: tuple[int, int]) -> None:
    """Sends all that this thread asks for to a pool, until the pool's end in this thread."""

class Stay:
    """That a thread is in a region, or in none."""

    def enter(self, tag: str | None) -> None:
        """This thread is in a region from now on, or in none."""

    def leave(self) -> None:
        """Ends that, in any order and on any thread; does nothing where it was not entered."""

def put_graphs_into(tag: str | None) -> None:
    """Puts the pools of graphs that are captured in no region into one from now on, or into none."""

def set_region_backup(tag: str, backup: str) -> None:
    """Sets what becomes of a region's contents while it sleeps: "host", "none" or "device".

    Raises `ValueError` for any other.
    """

def set_region_file_backup(tag: str, folder: str | os.PathLike[str]) -> None:
    """Has a region's contents kept in a file in a folder while it sleeps."""

def set_region_shared_backup(tag: str, file: str | os.PathLike[str]) -> None:
    """Has a region's contents kept in a file that processes share while it sleeps."""

def forget_region(tag: str) -> None:
    """Forgets a region in which nothing is, and gives its free memory back; raises where something is, and says what.

    May wait for the devices.
    """

def sleep(tags: list[str] | None) -> int:
    """Gives the memory of regions back, of all with `None`; how many bytes went. Waits for the devices."""

def try_sleep(tags: list[str] | None) -> int:
    """The same without a wait: raises where a device has anything to do."""

def wake(tags: list[str] | None) -> int:
    """Brings the memory of regions back; how many bytes came. Raises `OutOfMemory`."""

def is_asleep(tag: str) -> bool:
    """Whether a region sleeps, or a part of it."""

def region_tags() -> list[str]:
    """The regions that were named and not forgotten."""

def regions(device: int) -> list[dict[str, Any]]:
    """The regions of a device: tag, backup, folder, awake_bytes, asleep_bytes, host_bytes, file_bytes, slept, woke.

    The last two are of the latest sleep and wake: bytes that went or came, that were copied, that were dropped, and
    seconds; `None` where there was none.
    """

def keep_exported(address: int, bytes: int) -> bool: ...
def read_kept(address: int, offset: int, bytes: int, to: int) -> bool:
    """Copies what is kept of a part of the block at an address while its region sleeps.

    `to` is the address of room for `bytes` bytes. False where not all of it is kept, and where it is awake unless
    backups are retained.
    """

def retain_backups(retains: bool) -> None:
    """Sets whether what is kept of regions stays on the host when they wake, for `read_kept`."""

def region_host_bytes() -> int:
    """Page-locked memory of the host that regions hold, in bytes."""

def free_region_host() -> int:
    """Gives what of it keeps nothing back to the host; how many bytes that was."""

def has_source(pool: tuple[int, int]) -> bool:
    """Whether a pool's memory comes from an allocator of the program's."""

def has_checkpoint(device: int, pool: tuple[int, int]) -> bool:
    """Whether a checkpoint was taken of a pool, as for PyTorch's graph trees."""

def begin_borrowing(device: int, pool: tuple[int, int]) -> None:
    """Lends this thread's requests what is free in a pool of graphs, until the pool's end in this thread.

    What has no place there is the pool's as by `begin_thread_pool`.
    """

class Loan:
    """A loan to another process; nothing before it begins. One that is dropped is asked for."""

    def begin(self, device: int, pool: tuple[int, int], size: int, stream: int) -> bytes:
        """Lends what a pool's graphs do not keep between launches, and returns the loan's handle."""

    def recall(self, seconds: float) -> bool:
        """Asks for it, and waits for at most so many seconds until it is back; says whether it is."""

    def state(self) -> Literal["offered", "taken", "back"]:
        """Where it is."""

class TakenLoan:
    """A loan of another process; nothing before it is taken. One that is dropped is given back."""

    def take(self, device: int, handle: bytes) -> tuple[int, int]:
        """Takes the loan that a handle names: its address and its bytes."""

    def is_taken(self) -> bool:
        """Whether it is this process's."""

    def wait_for_recall(self, seconds: float) -> bool:
        """Whether its lender has asked for it, or has ended, after a wait of at most so many seconds."""

    def give_back(self) -> None:
        """Gives it back, after a wait for all devices; raises where something captures there."""

class Borrowing:
    """That a thread's requests are lent what graphs of a pool do not keep between launches."""

    def begin(self, device: int, pool: tuple[int, int]) -> None:
        """This thread borrows from now on; what has no place there is eager work's."""

    def end(self) -> None:
        """Ends that, on any thread; does nothing where it was not begun."""

class Launch:
    """A launch of a graph: until it ends no region goes to sleep, and its pool lends nothing more."""

    def begin(self, pool: tuple[int, int], stream_of: Callable[[int], int]) -> None:
        """A graph of a pool is about to be launched, on the stream that `stream_of` gives of a device.

        Raises if it must not be. Waits for regions that go to sleep just now.
        """

    def end(self) -> None:
        """It was launched, or could not be; does nothing where none has begun."""

class Graph:
    """A graph that regraph launches, and destroys with this object."""

    def __init__(self, device: int, pool: tuple[int, int], graph: int) -> None:
        """Takes all nodes of a raw graph that was captured into a pool; it has none from then on.

        Raises where the driver cannot: the raw graph must not be launched then.
        """

    def launch(self, stream: int) -> None:
        """Launches it by its executable, which is made or updated first where it must be.

        Raises if it must not be launched. Waits for regions that go to sleep just now.
        """

    def prepare(self, stream: int) -> None:
        """Makes or updates the executable that the next launch needs."""

    def pin(self, pinned: bool) -> None:
        """Says whether the executable stays where the budget is short."""

    def foreseen_bytes(self) -> int:
        """What an executable of it is foreseen to take of the device."""

    def handle(self) -> int:
        """The raw graph, for reading."""

def keep_executables(
    device: int, pool: tuple[int, int] | None, budget: int | None, functions: str | None
) -> None:
    """Sets how executables of a pool's graphs are kept, or of all others' together.

    `functions` is "same" or "any" for graphs that share one, and `None` for those that do not; raises
    `ValueError` for others.
    """

def release_executables(device: int, pool: tuple[int, int] | None) -> int:
    """Destroys executables that are not pinned, of a pool's graphs or of all.

    Returns how many bytes were foreseen for them.
    """

def executables(device: int, pool: tuple[int, int] | None) -> dict[str, int]:
    """What executables of a pool's graphs come to, or of all."""

def launches_elsewhere(pool: tuple[int, int]) -> None:
    """Tells that graphs of a pool may be launched by others from now on."""

def lent_bytes(device: int, pool: tuple[int, int]) -> int:
    """The bytes that live in memory which a pool has lent."""

def compact(device: int, pool: tuple[int, int] | None = None) -> int:
    """Has the graphs of a pool, or of all, share what they can by now; how many bytes went.

    Waits for the device; raises where something captures there. No graph is launched meanwhile.
    """

def limit_pool(device: int, pool: tuple[int, int], bytes: int) -> None:
    """Sets the most that a pool will ever hold, in bytes; raises where the pool was used already."""

def set_pool_name(device: int, pool: tuple[int, int], name: str | None) -> None:
    """Calls a pool by a text in messages and reports; `None` takes it away."""

def excess_bytes(device: int, pool: tuple[int, int] | None = None) -> int:
    """How many bytes `compact` would give back."""

def capture_beginning(device: int, stream: int) -> None:
    """Tells that a capture is about to begin on a stream, in this thread; raises where it captures already.

    Until it has begun, the stream is given no work that uses memory of the capture's pool.
    """

def capture_dropped(device: int, stream: int, capture: int) -> None:
    """Reports that the graph object of a capture is destroyed, and the capture was not ended."""

def capture_begun(device: int, stream: int, alone: bool) -> int | None:
    """Announces that a capture has begun on a stream, and returns the capture's ID.

    `alone` says that nothing registers the capture's memory before `capture_ending` is called; then
    it may be mapped in larger pieces, some of which are exchanged at the end, or all at the end.
    `None` is returned where the thread has begun no pool since `capture_beginning`.
    """

def plans_captures() -> bool:
    """Whether captures that are alone get their memory at their end (`plan:exact`)."""

def learn(device: int) -> None:
    """Notes from now on what is asked for outside captures."""

def learned(device: int) -> int:
    """Ends what `learn` began, and returns how many blocks were noted.

    A later capture that begins with as many bytes lies close together as it foresees.
    """

def forget_run(device: int) -> None:
    """Ends what `learn` began, and keeps nothing of it."""

def forget_learned(device: int) -> None:
    """Forgets all that was learned on a device."""

def capture_ending(device: int, stream: int) -> None:
    """Judges the graph of a capture that is about to end; raises `Refused`."""

def judge_capture(device: int, stream: int) -> None:
    """Judges the graph of a capture that the program has begun by itself, just before it ends.

    Raises `Refused`. Nothing happens where the capture's end is told by `capture_ending`.
    """

def notice_ends() -> None:
    """Says of captures that are over, and whose end was not told, that they were not judged."""

def capture_ended(device: int, stream: int) -> None:
    """Tells that a capture has ended and its graph is in use from now on."""

def capture_failing(device: int, stream: int) -> None:
    """Tells that the graph object of a capture that failed is about to be reset."""

def capture_failed(device: int, stream: int) -> None:
    """Tells that there is no graph: the capture did not begin, failed to end or was refused.

    The pool of the capture may have been begun or not, and ended or not.
    """

def captures(device: int) -> list[dict[str, Any]]:
    """Reports of the latest captures, oldest first.

    Keys: pool (two numbers), verified, nodes, blocks, reserved_bytes, minimum_bytes (`None` where it is not
    known; computed when first asked for), mappings and plan_share_percent (`None` without `plan:exact`),
    mappings_within_share (`None` where the share is at most 15 too).
    """

def statistics(device: int) -> dict[str, Any]:
    """The figures, nested as `torch._C._cuda_memoryStats` nests them."""

def reset_peaks(device: int) -> None:
    """Sets each peak to the current figure."""

def reset_accumulated(device: int) -> None:
    """Sets the sums of what was allocated and freed to zero."""

def memory_fraction(device: int) -> float:
    """The share of the device's memory that may be held."""

def pools(device: int) -> list[dict[str, Any]]:
    """The pools: id (two numbers; zeros for eager work's), name, region, reserved, allocated, graphs."""

def snapshot() -> str:
    """Memory and history as JSON, laid out as `torch.cuda.memory._snapshot()` is."""

def dump_snapshot(path: str) -> None:
    """Writes memory and history as the pickle that pytorch.org/memory_viz opens."""

def record_history(entries: int) -> None:
    """Keeps the latest events, at most so many; 0 forgets them and keeps none."""

def history_setting() -> tuple[int, bool]:
    """How many events the settings have histories keep, and whether with stacks of native code."""

def record_use(address: int, stream: int) -> None:
    """Marks the stream's current position as its last use of the block at an address."""

def explain(device: int, stream: int) -> list[dict[str, Any]]:
    """What each free block waits for before a stream may take it.

    Keys: pool, address, bytes, block, reason (`None` where it may be taken), stack.
    """

def plot(trace: str | None, title: str, page: str) -> None:
    """Draws a trace, or the capture that was shown last, into a page, or a drawing for `.svg`."""

def record_trace(path: str | None, with_stacks: bool = False) -> None:
    """Writes each capture that ends from now on to a file, if wanted with stacks; `None` stops.

    A second capture goes to the same path with a number before the suffix.
    """

def out_of_memory_observer(observer: Callable[[int, int, int, int], object]) -> None:
    """Has `observer` called when a request fails: device, bytes requested, what may be held, what is free."""
