"""Pools of graphs with a limit for what they hold, and one for the executables of their graphs."""

import contextlib
import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch.errors import Error

if TYPE_CHECKING:
    from torch.types import Device

Pool = tuple[int, int]

#: The unit in which devices map memory, in bytes.
PIECE = 2 << 20
#: The most that the driver takes of a device at once for executables.
DRIVER_PIECE = _native.DRIVER_PIECE
#: So many of the largest blocks are named.
_NAMED = 3


class Budget(NamedTuple):
    """What a pool and the executables of its graphs may take of a device, in bytes."""

    device: int
    pool: Pool
    pool_bytes: int
    #: `None` is as much as the device gives.
    executable_bytes: int | None

    def admit(self, graph: Any) -> None:
        """Raises `Error` for a graph whose executable PyTorch makes, whatever it takes."""
        if not getattr(graph, "is_within_budgets", False):
            raise Error(
                f"capture_begin: the pool {self.pool} has a budget for executables (capture_budget), which graphs of "
                f"{type(graph).__qualname__} do not keep to; capture regraph.torch.Graph into it."
            )

    def require_room(self, foreseen: int) -> None:
        """Raises `Error` where an executable that is foreseen to take so much can never be made."""
        if self.executable_bytes is not None and foreseen > self.executable_bytes - DRIVER_PIECE:
            raise Error(
                f"capture_end: the graph's executable would take {_mib(foreseen)}, and does not fit. {self.report()}. "
                "The graph is gone; give executables a larger share (executable_bytes), or capture less at once."
            )

    def report(self) -> str:
        """What may be taken, and what is."""
        rows = [row for row in _native.pools(self.device) if tuple(row["id"]) == self.pool]
        held = sum(row["reserved"] for row in rows)
        graphs = sum(row["graphs"] for row in rows)
        parts = [
            f"By capture_budget the pool {self.pool} may hold {_mib(self.pool_bytes)} and holds {_mib(held)}, for "
            f"{graphs} graphs"
        ]
        # None are kept once the pool is gone.
        with contextlib.suppress(Error):
            taken = _native.executables(self.device, self.pool)
            most = "as much as the device gives"
            if self.executable_bytes is not None:
                piece = _mib(DRIVER_PIECE)
                most = f"{_mib(self.executable_bytes)}, with room for what the driver takes at once ({piece})"
            parts.append(
                f"executables may take {most}, and {taken['executables']} take {_mib(taken['counted_bytes'])}"
            )
        blocks = self._largest()
        if blocks:
            parts.append(f"the largest blocks in the pool: {', '.join(blocks)}")
        return "; ".join(parts)

    def _largest(self) -> list[str]:
        segments = json.loads(_native.snapshot())["segments"]
        found = [
            (block["size"], block["address"])
            for segment in segments
            if segment["device"] == self.device and tuple(segment["segment_pool_id"]) == self.pool
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        ]
        found.sort(key=lambda block: (-block[0], block[1]))
        return [f"{_mib(size)} at {address:#x}" for size, address in found[:_NAMED]]


#: Of the pools that have one.
budgets: dict[Pool, Budget] = {}


def of(pool: Any, device: int) -> Budget | None:
    """The budget of a pool on a device, if it has one."""
    budget = budgets.get(tuple(pool)) if budgets and pool else None
    return budget if budget is not None and budget.device == device else None


def replace(pool: Pool | None, device: int, room: int | None) -> None:
    """Notes another limit for the executables of a pool, if it has a budget on the device; `None` is none."""
    if pool is not None and (budget := of(pool, device)) is not None:
        limit = None if room is None else room + DRIVER_PIECE
        budgets[budget.pool] = budget._replace(executable_bytes=limit)


def capture_budget(
    budget_bytes: int,
    executable_bytes: int | None = None,
    functions: Literal["same", "any"] | None = "any",
    device: "Device" = None,
) -> Pool:
    """Makes a pool for graphs that holds no more than its part of a budget, as its executables do of theirs.

        pool = regraph.torch.capture_budget(600 << 20, executable_bytes=32 << 20)
        for size in sizes:
            graph = regraph.torch.Graph()
            try:
                with torch.cuda.graph(graph, pool=pool):
                    output = step(inputs[size])
            except (torch.OutOfMemoryError, regraph.torch.Error):
                break  # this size runs without a graph
            graphs[size] = graph, output

    The budget has two parts. What the pool may hold is the rest of what executables may take; a request of a capture
    that does not fit raises `torch.OutOfMemoryError`. A graph whose executable can never fit raises `Error` at
    its capture's end. Both say what may be taken, what is, and which blocks are the largest (the first in a note of the
    exception, from Python 3.11 on). That capture has come to nothing then: delete its graph, and the pool and its
    earlier graphs go on; later captures that fit find its memory. Where executables are too many
    together, the one goes that was asked for longest ago, as by `keep_executables`, and a replay is refused only where
    those that are pinned leave no room, or where an executable took more than the budget by itself. That is by what is
    foreseen for an executable, and by what it took: one of kernels that keep much, such as cuBLAS's, may take up to
    four times what was foreseen, which the driver does not give back but uses for the next ones. A later `keep_executables`
    for the pool replaces the limit.

    `regraph.torch.estimate` says what graphs will need: its `bound.pool_bytes` for the pool, and its
    `bound.executable_bytes` where each graph is to have its own executable at the same time.

    Args:
        budget_bytes: The most that the pool and the executables may take together.
        executable_bytes: The part of it that is for executables; more than 10 MiB, which the driver may take at once
            and which is therefore not given out. `None` is an eighth, and 16 MiB at least.
        functions: Which graphs share an executable, as for `keep_executables`. Graphs of a pool never run at once.
        device: The device; `None` is the current one. On others the pool has no budget.

    Returns:
        The pool, for `torch.cuda.graph(graph, pool=…)` with a `regraph.torch.Graph`. Other graphs are refused.

    Raises:
        Error: regraph is not enabled.
        ValueError: A part is too small, or `functions` is none of these.
    """
    from regraph.torch.enabling import require_enabled  # It installs what asks for budgets.

    require_enabled("capture_budget")
    torch.cuda.init()
    number = _get_device_index(device, optional=True)
    if executable_bytes is None:
        executable_bytes = max(budget_bytes // 8, 16 << 20)
    if executable_bytes <= DRIVER_PIECE:
        raise ValueError(
            f"executable_bytes: {executable_bytes} is not more than what the driver may take at once, {DRIVER_PIECE}"
        )
    pool_bytes = (budget_bytes - executable_bytes) // PIECE * PIECE
    if pool_bytes <= 0:
        raise ValueError(
            f"budget_bytes: {budget_bytes} leaves no {PIECE} bytes for the pool beside executables' {executable_bytes}"
        )
    first, second = torch.cuda.graph_pool_handle()
    pool = first, second
    room = executable_bytes - DRIVER_PIECE
    _native.keep_executables(number, pool, room, functions)
    _native.limit_pool(number, pool, pool_bytes)
    budgets[pool] = Budget(number, pool, pool_bytes, executable_bytes)
    return pool


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
