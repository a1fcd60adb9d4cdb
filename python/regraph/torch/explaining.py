"""Why a stream may not reuse a free block yet."""

from typing import IO, TYPE_CHECKING, Any

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native, streams
from regraph.torch.enabling import backend, require_enabled

if TYPE_CHECKING:
    from torch.types import Device


def explain(
    device: "Device" = None,
    stream: torch.cuda.Stream | int | None = None,
    file: IO[str] | None = None,
) -> list[dict[str, Any]]:
    """Prints, pool by pool, what each free block waits for before a stream may take it.

    Args:
        device: The device; `None` is the current one.
        stream: The stream that would reuse the block, or its raw handle; `None` is the device's
            current stream.
        file: Where to print; `None` is standard output.

    Returns:
        A dictionary for each block: pool, address, bytes, block, reason (`None` where the stream
        may take it) and stack, the frames where it was allocated if the history has frames.
    """
    require_enabled("explain")
    index = _get_device_index(device, optional=True)
    if stream is None:
        stream = torch.cuda.current_stream(index)
    blocks = _native.explain(index, streams.handle(stream))
    if backend() == "native":
        _add_stacks(blocks, index)
    if all(block["reason"] is None for block in blocks):
        print("No free block waits.", file=file)
    pools: dict[Any, list[dict[str, Any]]] = {}
    for block in blocks:
        pools.setdefault(_hashable(block["pool"]), []).append(block)
    for pool, waiting in pools.items():
        print(f"pool {pool}", file=file)
        for block in waiting:
            reason = block["reason"] or "may be taken"
            print(f"  {block['address']:#x}, {block['bytes']} bytes: {reason}", file=file)
            for frame in block["stack"]:
                print(f"      {frame}", file=file)
    return blocks


def _add_stacks(blocks: list[dict[str, Any]], device: int) -> None:
    """Adds the stacks that PyTorch has gathered, where a history is kept."""
    if all(block["stack"] for block in blocks):
        return
    traces = torch.cuda.memory._snapshot()["device_traces"]
    stacks = {
        entry["addr"]: [
            f"{frame['filename']}:{frame['line']}: {frame['name']}"
            for frame in entry.get("frames", ())
        ]
        for entry in (traces[device] if device < len(traces) else ())
        if entry["action"] == "alloc"
    }
    for block in blocks:
        block["stack"] = block["stack"] or stacks.get(block["address"], [])


def _hashable(pool: Any) -> Any:
    return tuple(pool) if isinstance(pool, list) else pool
