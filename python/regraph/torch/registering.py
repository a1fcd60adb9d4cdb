"""Whether a communication library may register a capture's memory while it is captured.

Such a library takes the physical memory behind addresses from the driver. Memory that is exchanged
afterwards, by growth ahead or by a plan, would leave the library on the old one.
"""

import os

import torch

#: NCCL registers the buffers of collectives that are captured unless this is 0. It reads it once.
GRAPHS = "NCCL_GRAPH_REGISTER"
#: Has PyTorch register every segment with NCCL.
SEGMENTS = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
#: Those of PyTorch that register nothing without these variables.
KNOWN = ("gloo", "nccl")


class Registering:
    """What is known of it in this process."""

    def __init__(self) -> None:
        # regraph is enabled before CUDA is used, and so before NCCL reads it.
        self._graphs = os.environ.get(GRAPHS) != "0"

    def may_happen(self) -> bool:
        """Whether one that runs in this process may do it."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return False
        if self._graphs or os.environ.get(GRAPHS) != "0":
            return True
        return _is_set(SEGMENTS) or not all(backend in KNOWN for backend in _backends())


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0").lower() not in ("", "0", "false", "no", "n", "off")


def _backends() -> set[str]:
    """Those of all process groups. PyTorch has no public function that names them."""
    groups = torch.distributed.distributed_c10d._world.pg_backend_config.values()
    # Each is "cpu:gloo,cuda:nccl" or the like.
    return {part.rpartition(":")[2] for group in groups for part in str(group).split(",")}
