"""Snapshots and history, under PyTorch's names and in its layout.

The native allocator answers PyTorch's own calls. For the plug-in they are replaced.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.cuda.memory import _record_memory_history, memory_snapshot

from regraph import _native
from regraph.torch.patches import Patches

__all__ = ["_dump_snapshot", "_record_memory_history", "_snapshot", "memory_snapshot"]

# PyTorch asks for the whole memory under this name of a pool.
_EVERY_POOL = (0, 0)

_history_is_on = False


def install(patches: Patches) -> None:
    """Replaces the entry points that `torch.cuda.memory` calls."""
    entries: dict[str, Callable[..., Any]] = {
        "_cuda_memorySnapshot": _memory_snapshot,
        "_cuda_record_memory_history": _record_history,
        "_cuda_record_memory_history_legacy": _record_history_legacy,
        "_cuda_isHistoryEnabled": lambda: _history_is_on,
    }
    for name, function in entries.items():
        patches.replace(torch._C, name, function)


def _dump_snapshot(filename: "str | os.PathLike[str]" = "dump_snapshot.pickle") -> None:
    """Writes memory and history as the pickle that pytorch.org/memory_viz opens."""
    from regraph.torch.enabling import backend  # It installs this file's patches.

    if backend() == "native":
        # Its stacks are PyTorch's, which only PyTorch can read.
        torch.cuda.memory._dump_snapshot(os.fspath(filename))
    else:
        _native.dump_snapshot(os.fspath(filename))


def _snapshot(*arguments: Any, **named: Any) -> Any:
    """`torch.cuda.memory._snapshot`, with the figures of regions, by device, under "regions" if there are any."""
    state = torch.cuda.memory._snapshot(*arguments, **named)
    devices = range(len(state["device_traces"]))
    rows = {device: rows for device in devices if (rows := _native.regions(device))}
    if rows:
        state["regions"] = rows
    return state


def begin_history() -> None:
    """Has PyTorch gather stacks for the history that the settings ask for, once it uses CUDA."""
    entries, native_code = _native.history_setting()
    if entries > 0:
        stacks = "all" if native_code else "python"
        torch.cuda._lazy_call(
            lambda: _record_memory_history(context="alloc", stacks=stacks, max_entries=entries)
        )


def _memory_snapshot(pool: Sequence[Any] | None = None) -> dict[str, Any]:
    """Stands for `torch._C._cuda_memorySnapshot`; `pool`: two numbers, and whether with traces."""
    state: dict[str, Any] = json.loads(_native.snapshot())
    for segment in state["segments"]:
        segment["segment_pool_id"] = tuple(segment.get("segment_pool_id", _EVERY_POOL))
    for trace in state["device_traces"]:
        for entry in trace:
            entry["pool_id"] = tuple(entry.get("pool_id", _EVERY_POOL))
    if pool is None:
        return state
    number = tuple(pool[:2])
    if number != _EVERY_POOL:
        segments = state["segments"]
        state["segments"] = [one for one in segments if one["segment_pool_id"] == number]
    if len(pool) > 2 and not pool[2]:
        state["device_traces"] = [[] for _ in state["device_traces"]]
    return state


def _record_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    clear_history: bool = False,
    *_: object,
) -> None:
    """Stands for `torch._C._cuda_record_memory_history`; stacks are a matter of the settings."""
    if enabled not in (None, "state", "all"):
        raise RuntimeError(f"expected state to be 'state', 'all', or None, not {enabled!r}")
    if clear_history:
        _native.record_history(0)
    # PyTorch keeps one event where only the state is asked for.
    _keep_history({None: 0, "state": 1}.get(enabled, max_entries))


def _record_history_legacy(
    enabled: bool, record_context: bool = True, max_entries: int = 1, *_: object
) -> None:
    _keep_history(max_entries if enabled else 0)


def _keep_history(entries: int) -> None:
    global _history_is_on
    _native.record_history(entries)
    _history_is_on = entries > 0
