"""Figures: PyTorch's own functions, which answer from regraph once it is enabled.

The native allocator answers PyTorch's own calls. For the plug-in the entry points under
`torch.cuda.memory` are replaced, and nothing else: PyTorch's code for names, sums and tables runs
unchanged, also for callers that imported it before.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda._utils import _get_device_index
from torch.cuda.memory import (
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    memory_allocated,
    memory_cached,
    memory_reserved,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
)

from regraph import _native
from regraph.torch import reports
from regraph.torch.patches import Patches

if TYPE_CHECKING:
    from torch.types import Device

__all__ = [
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
]

NOT_KNOWN = f"{'-':>7}   "


def install(patches: Patches) -> None:
    """Replaces the entry points that `torch.cuda.memory` and `torch.accelerator` call."""
    entries: dict[str, Callable[..., Any]] = {
        "_cuda_memoryStats": _native.statistics,
        "_cuda_resetPeakMemoryStats": _native.reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": _native.reset_accumulated,
        "_cuda_getMemoryFraction": _native.memory_fraction,
        "_cuda_attach_out_of_memory_observer": _native.out_of_memory_observer,
        "_accelerator_getDeviceStats": _native.statistics,
        "_accelerator_resetPeakStats": _native.reset_peaks,
        "_accelerator_resetAccumulatedStats": _native.reset_accumulated,
        # PyTorch would ask its own allocator, which never starts.
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_emptyCache": torch._C._cuda_emptyCache,
    }
    for name, function in entries.items():
        patches.replace(torch._C, name, function)


def memory_stats_as_nested_dict(device: "Device" = None) -> dict[str, Any]:
    """`torch.cuda.memory_stats_as_nested_dict`, with a device's regions under "regions" if there are any:
    by each one's tag `awake_bytes`, `asleep_bytes`, `host_bytes` and `file_bytes`. "unjudged_captures" is the number
    of captures that ended whose graphs the checker has not examined.
    """
    figures: dict[str, Any] = torch.cuda.memory_stats_as_nested_dict(device)
    return {**figures, **_own(device)} if figures else figures


def memory_stats(device: "Device" = None) -> dict[str, Any]:
    """`torch.cuda.memory_stats`, with "unjudged_captures", and figures of a device's regions, such as
    "regions.weights.asleep_bytes".
    """
    figures: dict[str, Any] = torch.cuda.memory_stats(device)
    own = _own(device) if figures else {}
    for tag, row in own.pop("regions", {}).items():
        for name, size in row.items():
            figures[f"regions.{tag}.{name}"] = size
    return {**figures, **own}


def _own(device: "Device") -> dict[str, Any]:
    """The figures that PyTorch's own lack: the plug-in's have them."""
    from regraph.torch.enabling import backend  # It installs this file's patches.

    if backend() != "native":
        return {}
    index = _get_device_index(device, optional=True)
    own: dict[str, Any] = {"unjudged_captures": _native.statistics(index)["unjudged_captures"]}
    names = ("awake_bytes", "asleep_bytes", "host_bytes", "file_bytes")
    regions = {row["tag"]: {name: row[name] for name in names} for row in _native.regions(index)}
    return {**own, "regions": regions} if regions else own


def get_per_process_memory_fraction(device: "Device" = None) -> float:
    """The share of a device's memory that may be held; the current device's by default."""
    _require_enabled("get_per_process_memory_fraction")
    torch.cuda.init()
    return _native.memory_fraction(_get_device_index(device, optional=True))


def set_pool_name(pool: tuple[int, int], name: str | None, device: "Device" = None) -> None:
    """Calls a pool of graphs by a name, in messages and in `memory_summary`.

    Args:
        pool: The pool, as `torch.cuda.CUDAGraph.pool()` or `torch.cuda.MemPool.id` names it, once
            something has used it.
        name: The name; `None` takes it away, so that the pool is called by its numbers again.
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled, or there is no such pool.
    """
    _require_enabled("set_pool_name")
    torch.cuda.init()
    _native.set_pool_name(_get_device_index(device, optional=True), pool, name)


def memory_summary(device: "Device" = None, abbreviated: bool = False) -> str:
    """PyTorch's table of a device's figures, with the calls to the driver, the graphs' pools, and
    what the latest captures hold against the least that they need.
    """
    _require_enabled("memory_summary")
    if not torch.cuda.memory_stats(device):
        torch.cuda.init()  # PyTorch's table needs figures.
    table = torch.cuda.memory_summary(device, abbreviated)
    index = _get_device_index(device, optional=True)
    rows = [
        "     Driver calls      | Allocate   | Free       | Wait       |            ",
        "-" * 75,
        _row("", *(_count(number) for number in _driver_calls(_native.statistics(index)))),
        "=" * 75,
        "    Pool of graphs     | Allocated  | Reserved   | Graphs     | Region     ",
        "-" * 75,
    ]
    for pool in _native.pools(index):
        numbers = ", ".join(str(part) for part in pool["id"])
        sizes = (_size(pool["allocated"]), _size(pool["reserved"]))
        name = pool["name"] or f"({numbers})"
        rows.append(_row(name, *sizes, _count(pool["graphs"]), pool["region"] or ""))
    rows.append("=" * 75)
    rows.extend(_region_rows(index))
    rows.extend(_captures(index))
    return table + "".join(f"|{row}|\n" for row in rows)


def _require_enabled(what: str) -> None:
    from regraph.torch.enabling import require_enabled  # It installs this file's patches.

    require_enabled(what)


def _region_rows(index: int) -> list[str]:
    regions = _native.regions(index)
    if not regions:
        return []
    rows = [
        "    Region             | Awake      | Asleep     | Kept       | Backup     ",
        "-" * 75,
    ]
    for row in regions:
        awake, asleep = row["awake_bytes"], row["asleep_bytes"]
        kept = row["host_bytes"] + row["file_bytes"]
        rows.append(_row(row["tag"], _size(awake), _size(asleep), _size(kept), row["backup"]))
    return [*rows, "=" * 75]


def _captures(index: int) -> list[str]:
    captures = reports.of_device(index)
    if not captures:
        return []
    rows = [
        "    Capture in pool    | Reserved   | Minimum    | Ratio      | Mapped at  ",
        "                       |            |            |            | its end    ",
        "-" * 75,
    ]
    for capture in captures:
        name = ", ".join(str(part) for part in capture.pool)
        least, ratio, mappings = capture.minimum_bytes, capture.ratio, capture.mappings
        rows.append(
            _row(
                f"({name})",
                _size(capture.reserved_bytes),
                NOT_KNOWN if least is None else _size(least),
                NOT_KNOWN if ratio is None else f"{ratio:7.2f}   ",
                NOT_KNOWN if mappings is None else _count(mappings),
            )
        )
    return [*rows, "=" * 75]


def _driver_calls(statistics: dict[str, Any]) -> tuple[int, int, int]:
    names = ("num_device_alloc", "num_device_free", "num_sync_all_streams")
    first, second, third = (statistics.get(name, 0) for name in names)
    return first, second, third


def _row(name: str, first: str, second: str, third: str, fourth: str = "") -> str:
    return f" {name:<21.21} | {first} | {second} | {third} | {fourth:10.10} "


def _count(number: int) -> str:
    return f"{number:7d}   "


def _size(size: int) -> str:
    units = ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]
    unit = 0
    # As in PyTorch's table, which goes on to the next unit late.
    while size >= 768 * 1024 and unit + 1 < len(units):
        size //= 1024
        unit += 1
    return f"{size:6d} {units[unit]}"
