"""Reports of finished captures: memory held, and the least memory that they need."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native

if TYPE_CHECKING:
    from torch.types import Device


class Capture(NamedTuple):
    """The report of a finished capture."""

    pool: tuple[int, int]
    """The pool that its graph's memory is in, as `CUDAGraph.pool()` has it."""
    nodes: int
    """Nodes of its graph."""
    blocks: int
    """Blocks that it allocated."""
    reserved_bytes: int
    """What its pool held when it ended, for earlier graphs too."""
    minimum_bytes: int | None
    """The least that its own blocks need in any placement, unless edges are added to the graph;
    `None` where too little was recorded."""
    mappings: int | None
    """How often memory was mapped for it at its end; `None` where it had its memory before."""
    plan_share_percent: int | None = None
    """How much longer it took for its plan, in percent of its time until then, to plan and to map; `None`
    without `plan:exact`."""
    mappings_within_share: int | None = None
    """With how many mappings that would be 15 percent: a value for the setting `plan_max_mappings` with which the
    same capture may take more memory. `None` where it is no more; 0 where planning alone takes longer."""

    verified: bool = False
    """Whether the checker has examined its graph. It has not with `check=False`, and where the program began the
    capture without PyTorch and did not call `judge_capture`."""

    @property
    def ratio(self) -> float | None:
        """How many times the least memory its pool held; `None` where that is not known."""
        return self.reserved_bytes / self.minimum_bytes if self.minimum_bytes else None

    @property
    def planned(self) -> bool:
        """Whether it got its memory at its end (`plan:exact`)."""
        return self.mappings is not None


def captures(device: "Device" = None) -> list[Capture]:
    """Returns the reports of a device's latest captures, 32 at most, oldest first.

    The least memory of each is computed when it is first asked for.

    Args:
        device: The device; `None` is the current one.
    """
    from regraph.torch.enabling import require_enabled  # It installs what asks this file.

    require_enabled("captures")
    torch.cuda.init()
    return of_device(_get_device_index(device, optional=True))


def of_device(index: int) -> list[Capture]:
    """The reports of the latest captures on a device."""
    return [_capture(**row) for row in _native.captures(index)]


def _capture(*, pool: Any, **others: Any) -> Capture:
    return Capture(pool=tuple(pool), **others)
