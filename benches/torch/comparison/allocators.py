"""The allocators that are compared, and how a process is given one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: What every ratio is taken to.
BASE = "default"

_CONFIGURATIONS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_REUSE = "graph_capture_record_stream_reuse:True"


@dataclass(frozen=True)
class Allocator:
    """An allocator with its settings: `settings` are PyTorch's, `of_regraph` regraph's.

    One that is not `usual` is compared only if it is asked for.
    """

    name: str
    title: str
    settings: str = ""
    regraph: bool = False
    of_regraph: str = ""
    usual: bool = True

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process that is to run under this allocator.

        It is read when the allocator is first used, so it is set before the process starts.
        """
        environment = {name: value for name, value in base.items() if name not in _CONFIGURATIONS}
        if self.settings:
            environment["PYTORCH_ALLOC_CONF"] = self.settings
        # Each stream's matrix products get a workspace of their own and do the same at every run.
        environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        # Ranks of one host exchange without multicast, on every machine alike.
        environment["NCCL_NVLS_ENABLE"] = "0"
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        # To ask whether there is a GPU must not begin to use it before a fork.
        environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        return environment

    def enable(self) -> None:
        """Makes it this process's allocator. Call it before anything uses the device."""
        if self.regraph:
            import regraph.torch

            regraph.torch.enable(settings=self.of_regraph or None)


ALLOCATORS = {
    allocator.name: allocator
    for allocator in (
        Allocator("default", "PyTorch"),
        Allocator("reuse", "PyTorch, reuse", _REUSE),
        Allocator(
            "reuse+expandable",
            "PyTorch, reuse, expandable",
            f"{_REUSE},expandable_segments:True",
        ),
        Allocator("regraph", "regraph", regraph=True),
        Allocator(
            "unmapped",
            "regraph, nothing mapped ahead",
            regraph=True,
            of_regraph="growth_step_mb:0",
            usual=False,
        ),
        Allocator(
            "unplanned",
            "regraph, without a plan",
            regraph=True,
            of_regraph="plan:none",
            usual=False,
        ),
        Allocator("exact", "regraph, exact plan", regraph=True, of_regraph="plan:exact"),
    )
}
