"""Regions: memory by tag that sleeps and wakes, at addresses that stay."""

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch import capturing, launches
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error
from regraph.torch.registering import GRAPHS
from regraph.torch.staying import stay

if TYPE_CHECKING:
    from torch.types import Device

Backup = Literal["host", "file", "shared", "none", "device"]
Folder = str | os.PathLike[str]

# One call at a time moves regions and the check of replays.
_moving = threading.Lock()
# One call at a time says what becomes of contents.
_backing = threading.Lock()


class Moved(NamedTuple):
    """How a region went to sleep or woke on a device."""

    bytes: int
    """Device memory that went or came."""
    copied_bytes: int
    """What was copied to the host, or to a file, or from there: what tensors held, and outputs of graphs."""
    dropped_bytes: int
    """What went or came without its contents: free memory, temporary memory of graphs, dropped contents."""
    seconds: float
    """What the call took on the device, for all its regions."""


class Region(NamedTuple):
    """A region's figures on a device, in bytes."""

    tag: str
    """Its name."""
    backup: Backup
    """What becomes of its contents while it sleeps."""
    awake_bytes: int
    """Device memory that it holds."""
    asleep_bytes: int
    """Device memory that it had and gave back; it asks for this again when it wakes."""
    host_bytes: int
    """What is kept of it in page-locked memory of the host."""
    slept: Moved | None = None
    """Its latest sleep; `None` where it did not sleep yet, or slept without memory."""
    woke: Moved | None = None
    """Its latest wake, likewise."""
    file_bytes: int = 0
    """What is kept of it in files."""
    folder: str | None = None
    """The folder of its files, with the backup "file"."""
    file: str | None = None
    """The file that processes share, with the backup "shared"."""


@contextlib.contextmanager
def region(
    tag: str, backup: Backup | None = None, folder: Folder | None = None, file: Folder | None = None
) -> Iterator[None]:
    """Within it this thread's memory, on any device, belongs to the region `tag`.

    That is what it allocates outside captures, and the pools of graphs that it captures and of
    `torch.cuda.MemPool`s that it makes. What exists stays where it is, pools that were made before
    included, and so does what other threads allocate, those of backward passes among them. In a region
    another one can be entered.

    What a library allocates once and keeps is the region's too, such as cuBLAS's workspace of a stream, which
    work outside uses as well: `torch.cuda.current_blas_handle()`, called on the stream before, makes it outside.

    Args:
        tag: The region's name. All memory of one name sleeps and wakes together.
        backup: What becomes of what the region's tensors hold while it sleeps: "host" keeps it in
            page-locked memory of the host, "file" in a file, "shared" in one that other processes may keep theirs in,
            "none" drops it, and with "device" the region does not sleep. `None` leaves that as it is, which is "host"
            at first.
        folder: With "file", and with no other, the folder of the file. Each sleep makes one for each device, without
            a name, which goes when the region wakes or the process ends. In a folder of a tmpfs, such as
            /dev/shm, contents are kept in memory that is not locked.
        file: With "shared", and with no other, the file. Workers that hold the same weights keep them once: the first
            that goes to sleep writes them, and the others compare theirs with it, byte for byte. One that holds
            something else puts its own in the file's place, or has one of its own if another has just written it, or
            if what is there is no backup of this user's, which stays as it is. The file stays until the program
            removes it; nothing else may write to it. For each region, and for each device of a process, another name.

    Raises:
        Error: regraph is not enabled, or the region has memory with another backup: see `set_backup`.
        ValueError: `backup` is none of these, or `folder` or `file` does not go with it.
    """
    require_enabled("region")
    if backup is not None or folder is not None or file is not None:
        _begin_backup(tag, backup, folder, file)
    _warn_where_nothing_sleeps(stacklevel=3)
    with stay(tag):
        yield


def set_backup(
    tag: str, backup: Backup, folder: Folder | None = None, file: Folder | None = None
) -> None:
    """Sets what becomes of what a region's tensors hold from its next sleep on, those that it has included.

    Args:
        tag: The region's name.
        backup: As for `region`.
        folder: As for `region`.
        file: As for `region`.

    Raises:
        Error: regraph is not enabled.
        ValueError: `backup` is none of these, or `folder` or `file` does not go with it.
    """
    require_enabled("set_backup")
    with _backing:
        _set_backup(tag, backup, folder, file)


def forget(tag: str) -> None:
    """Forgets a region in which nothing is: its name, its backup, and whether it sleeps.

    What is free in it goes back to the driver, on every device. Does nothing where there is no such region. A region
    that is named so later is a new one. For programs that go through many names, each of which stays known otherwise.

    Waits for the devices where only work that they were given keeps the region, unless something captures there.

    Args:
        tag: The region's name.

    Raises:
        Error: regraph is not enabled; a thread is in the region, `put_graphs_into` names it, or a pool of it (of
            graphs, or a `MemPool`) or a tensor in it is alive: the error says which. Nothing has changed then, but
            that free memory may have gone. Or a driver failed.
    """
    require_enabled("forget")
    with _moving, _backing, capturing.calls().registered.lock:
        try:
            _native.forget_region(tag)
            capturing.calls().registered.forget(tag)
        finally:
            # A region that slept was one of which replays are asked about.
            _watch_no_more_than_needed()


@contextlib.contextmanager
def outside_regions() -> Iterator[None]:
    """Within it this thread's memory belongs to no region, whichever it has entered."""
    require_enabled("outside_regions")
    with stay(None):
        yield


def put_graphs_into(tag: str | None) -> None:
    """Puts the memory of graphs that are captured outside of all regions into one from now on.

    Graphs that share a pool with earlier ones stay where that is.

    Args:
        tag: The region; `None` is none again.

    Raises:
        Error: regraph is not enabled.
    """
    require_enabled("put_graphs_into")
    if tag is not None:
        _warn_where_nothing_sleeps(stacklevel=2)
    _native.put_graphs_into(tag)


def sleep(tags: str | Iterable[str] | None = None) -> int:
    """Gives the device memory of regions back to the driver; returns how many bytes went.

    Waits for the devices first. Tensors, views and graphs stay valid at their addresses, but until `wake`
    nothing may run that uses the regions' memory. regraph refuses, with an error that names the region, to
    allocate in one that sleeps, to capture into a pool of it and to replay such a graph
    (`torch.cuda.CUDAGraph.replay`); it does not see kernels that touch a tensor, nor graphs of other pools
    that do. Tensors can be freed. Regions that sleep stay as they are.

    Of graphs' memory, what tensors hold is kept, and outputs and inputs that were freed. What a capture both
    allocated and freed is not: each replay is taken to write it anew, so what only the run of the capture
    wrote there, by work that was not captured, is lost.

    Replays that other threads have begun are waited for, and those that they begin meanwhile wait. Memory that
    a communication library has registered in a capture would be another when it wakes: beside
    `torch.distributed` captures need `NCCL_GRAPH_REGISTER=0`, set before regraph is enabled.

    Other threads of Python run and allocate meanwhile. Those that begin a capture or replay a graph wait until the
    devices have done what they were given, and for no copy, except that captures beside `torch.distributed` wait for
    the copies too, unless `NCCL_GRAPH_REGISTER=0` was set.

    Args:
        tags: A region, or some; `None` is all of them.

    Raises:
        Error: regraph is not enabled; there is no such region; something captures on a device; a library may
            have registered memory in a capture; this thread is in the middle of a replay; the host has no page-locked
            memory left, or a file cannot be written; a region has memory that cannot sleep (a `MemPool` with an
            allocator of its own, or of which a part is lent to others); or a driver failed. What was awake is awake
            then, on every device, or the error names what is not: `wake` brings that back.
    """
    return _sleep("sleep", _native.sleep, tags)


def try_sleep(tags: str | Iterable[str] | None = None) -> int:
    """Like `sleep`, but waits for nothing: it is refused where a device has anything to do.

    Needs an NVIDIA driver for CUDA 12.5 or newer.

    Raises:
        Error: As `sleep`, and where a device is not idle or a graph is being replayed.
    """
    return _sleep("try_sleep", _native.try_sleep, tags)


def wake(tags: str | Iterable[str] | None = None) -> int:
    """Brings the device memory of sleeping regions back, with what their tensors held where that was kept.

    Returns how many bytes came. Any stream may use the memory then, and graphs replay without another
    capture. Where memory is short, what is free in other pools goes for it.

    Args:
        tags: A region, or some; `None` is all of them.

    Raises:
        torch.OutOfMemoryError: There is not enough memory. All that was asked for sleeps, with its contents;
            fewer regions may fit.
        Error: regraph is not enabled; there is no such region; or a file could not be read or the driver
            failed, and all that was asked for sleeps.
    """
    require_enabled("wake")
    with _moving:
        try:
            return _native.wake(_names(tags))
        except _native.OutOfMemory as error:
            raise torch.OutOfMemoryError(str(error)) from error
        finally:
            _watch_no_more_than_needed()


def is_asleep(tag: str) -> bool:
    """Whether a region sleeps, or a part of it.

    Raises:
        Error: regraph is not enabled, or there is no such region.
    """
    require_enabled("is_asleep")
    return _native.is_asleep(tag)


def regions(device: "Device" = None) -> list[Region]:
    """The figures of a device's regions, in the order of their names.

    Args:
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled.
    """
    require_enabled("regions")
    torch.cuda.init()
    rows = _native.regions(_get_device_index(device, optional=True))
    return [Region(**{**row, **_ways(row)}) for row in rows]


def _ways(row: dict[str, Any]) -> dict[str, Moved]:
    """What a region's row says of its latest sleep and wake."""
    return {name: Moved(*row[name]) for name in ("slept", "woke") if row.get(name) is not None}


def host_bytes() -> int:
    """Page-locked memory of the host that regions hold, in bytes, files apart: it stays for the next sleep."""
    require_enabled("host_bytes")
    return _native.region_host_bytes()


def free_host() -> int:
    """Gives page-locked memory that keeps nothing at present back; returns how many bytes that was.

    The next sleep has to lock pages anew, which takes more than ten times as long as a copy.
    """
    require_enabled("free_host")
    return _native.free_region_host()


def _begin_backup(
    tag: str, backup: Backup | None, folder: Folder | None, file: Folder | None
) -> None:
    """Sets a region's backup, unless it has memory that was to be kept otherwise."""
    _require_fits(backup, folder, file)
    with _backing:
        for device in range(torch.cuda.device_count()):
            for row in _native.regions(device):
                has_memory = row["awake_bytes"] + row["asleep_bytes"] > 0
                if row["tag"] == tag and row["backup"] != backup and has_memory:
                    raise Error(
                        f"region: {tag!r} has memory whose backup is {row['backup']!r}, not {backup!r}; call "
                        f"set_backup({tag!r}, {backup!r}) for all of it, or take another name."
                    )
        _set_backup(tag, backup, folder, file)


def _require_fits(backup: Backup | None, folder: Folder | None, file: Folder | None) -> None:
    """Raises `ValueError` where a folder or a file does not go with a backup."""
    for name, given, of in (("folder", folder, "file"), ("file", file, "shared")):
        if (backup == of) != (given is not None):
            raise ValueError(f"{name} goes with backup={of!r}, and with no other: {given!r}, {backup!r}")


def _set_backup(
    tag: str, backup: Backup | None, folder: Folder | None, file: Folder | None
) -> None:
    _require_fits(backup, folder, file)
    # It sleeps later: the program may be in another folder then.
    if folder is not None:
        _native.set_region_file_backup(tag, os.path.abspath(folder))
    elif file is not None:
        _native.set_region_shared_backup(tag, os.path.abspath(file))
    elif backup is not None:
        _native.set_region_backup(tag, backup)


def _warn_where_nothing_sleeps(stacklevel: int) -> None:
    if not _native.memory_sleeps():
        warnings.warn(
            "Memory that is allocated now cannot sleep: it needs segments that grow, which expandable_segments:False "
            "and caching:False turn off.",
            stacklevel=stacklevel + 1,
        )


def _names(tags: str | Iterable[str] | None) -> list[str] | None:
    if tags is None:
        return None
    return [tags] if isinstance(tags, str) else list(tags)


def _sleep(
    call: str, move: Callable[[list[str] | None], int], tags: str | Iterable[str] | None
) -> int:
    require_enabled(call)
    names = _names(tags)
    with _moving, capturing.calls().registered.lock:
        _require_unregistered(call, names)
        # First: replays are asked about from then on.
        launches.watch(for_good=False)
        try:
            return move(names)
        finally:
            _watch_no_more_than_needed()


def _require_unregistered(call: str, tags: list[str] | None) -> None:
    """Raises `Error` where a library may have registered memory of regions."""
    calls = capturing.calls()
    if calls.registers():
        raise Error(
            f"{call}: a graph is being captured beside torch.distributed; end that capture first."
        )
    found = calls.registered.find(tags)
    if found is None:
        return
    graph, held = found
    pool = None if graph is None else launches.pool_of(graph)
    told = "a pool that is gone" if pool is None else f"the pool {pool}"
    raise Error(
        f"{call}: torch.distributed was initialised when a graph of {told} was captured, and its libraries may "
        f"have registered memory of {held}, which would be another after waking. With NCCL, set {GRAPHS}=0 "
        f"before regraph is enabled; or capture before there are such regions."
    )


def _watch_no_more_than_needed() -> None:
    with contextlib.suppress(RuntimeError):
        if not any(_native.is_asleep(tag) for tag in _native.region_tags()):
            launches.unwatch()
