"""The allocators whose memory can sleep with its contents, under one face, and where the others' files come from."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import subprocess
import sys
import tempfile
import types
import zipfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch


class Sleeper(Protocol):
    """An allocator whose memory sleeps. Contents are kept on the host."""

    def weights(self) -> AbstractContextManager[Any]:
        """Within it, what is allocated sleeps."""

    def graphs(self) -> AbstractContextManager[Any]:
        """Within it graphs are captured; gives the pool for them, or `None` for a new one."""

    def capture(self, graph: Any, pool: Any, stream: Any) -> AbstractContextManager[Any]:
        """One capture; its memory sleeps."""

    def sleep(self) -> None:
        """Gives all memory that sleeps back to the driver."""

    def wake(self) -> None:
        """Brings it back at the same addresses, with its contents."""


class Regraph:
    """regraph's regions."""

    def __init__(self, folder: Path) -> None:
        import regraph.torch

        regraph.torch.enable()
        self._regraph = regraph.torch

    def weights(self) -> AbstractContextManager[Any]:
        """A region."""
        return self._regraph.region("weights")

    def graphs(self) -> AbstractContextManager[Any]:
        """A region; the pool is that of the first graph."""
        return self._regraph.region("graphs")

    def capture(self, graph: Any, pool: Any, stream: Any) -> AbstractContextManager[Any]:
        """PyTorch's own."""
        return torch.cuda.graph(graph, pool=pool, stream=stream)

    def sleep(self) -> None:
        """All regions."""
        self._regraph.sleep()

    def wake(self) -> None:
        """All regions."""
        self._regraph.wake()


class MemorySaver:
    """torch_memory_saver, whose library must be preloaded (`Kind.environment`)."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(folder))
        from torch_memory_saver import torch_memory_saver

        self._saver = torch_memory_saver

    def weights(self) -> AbstractContextManager[Any]:
        """A region with a backup."""
        return self._saver.region(tag="weights", enable_cpu_backup=True)

    def graphs(self) -> AbstractContextManager[Any]:
        """Captures say by themselves that they sleep."""
        return contextlib.nullcontext()

    def capture(self, graph: Any, pool: Any, stream: Any) -> AbstractContextManager[Any]:
        """A capture with a backup."""
        return self._saver.cuda_graph(
            graph, pool=pool, stream=stream, tag="graphs", enable_cpu_backup=True
        )

    def sleep(self) -> None:
        """All tags."""
        self._saver.pause()

    def wake(self) -> None:
        """All tags."""
        self._saver.resume()


class Vllm:
    """vLLM's `CuMemAllocator`, without the rest of vLLM."""

    def __init__(self, folder: Path) -> None:
        # The CUDA runtime must be loaded.
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        _stand_in_for_vllm(folder)
        from vllm.device_allocator.cumem import CuMemAllocator

        self._allocator = CuMemAllocator.get_instance()

    def weights(self) -> AbstractContextManager[Any]:
        """A pool with a tag."""
        return self._allocator.use_memory_pool("weights")

    def graphs(self) -> AbstractContextManager[Any]:
        """The pool that `--sleep-mode-offload-cudagraph` captures into."""
        return self._allocator.cudagraph_pool()

    def capture(self, graph: Any, pool: Any, stream: Any) -> AbstractContextManager[Any]:
        """PyTorch's own."""
        return torch.cuda.graph(graph, pool=pool, stream=stream)

    def sleep(self) -> None:
        """Contents of both tags are kept."""
        self._allocator.sleep(("weights", "cudagraph"))

    def wake(self) -> None:
        """All tags."""
        self._allocator.wake_up()


def _stand_in_for_vllm(folder: Path) -> None:
    """Modules for all that `vllm.device_allocator` imports of vLLM, which would import much else."""

    def stand_in(name: str, **contents: Any) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        sys.modules[name] = module
        return module

    stand_in("vllm").__path__ = [str(folder / "vllm")]
    stand_in("vllm.logger", init_logger=logging.getLogger)
    platform = types.SimpleNamespace(
        is_cuda_alike=lambda: True, is_rocm=lambda: False, is_xpu=lambda: False
    )
    stand_in("vllm.platforms", current_platform=platform)
    stand_in("vllm.utils")
    stand_in("vllm.utils.system_utils", find_loaded_library=_loaded)
    stand_in("vllm.utils.torch_utils", PIN_MEMORY=True)
    stand_in("vllm.distributed")
    stand_in("vllm.distributed.device_communicators")
    stand_in("vllm.distributed.device_communicators.cuda_wrapper", CudaRTLibrary=_CudaRuntime)


def _loaded(name: str) -> str | None:
    """The file of a library that this process has loaded."""
    with open("/proc/self/maps") as maps:
        return next((line.split()[-1] for line in maps if name in line), None)


class _CudaRuntime:
    """The copies of vLLM's `CudaRTLibrary`."""

    def __init__(self) -> None:
        self._copy = ctypes.CDLL(_loaded("libcudart")).cudaMemcpy
        self._copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def cudaMemcpy(self, to: int, source: int, size: int) -> None:
        """Copies in whichever direction the addresses say."""
        by_addresses = 4
        failed = self._copy(to, source, size, by_addresses)
        if failed:
            raise RuntimeError(f"cudaMemcpy failed: {failed}")


@dataclass(frozen=True)
class Kind:
    """An allocator that is compared, and what it needs of its package."""

    name: str
    title: str
    make: type[Any]
    #: The package and the version that is fetched; none for regraph, which is installed.
    requirement: str = ""
    #: What is taken out of the package's wheel.
    files: tuple[str, ...] = ()

    def folder(self, peers: Path) -> Path:
        """Where its files are, below the folder of all."""
        return peers / self.requirement.replace("==", "-")

    def fetch(self, peers: Path) -> str:
        """Has its files in their folder, by pip where they are not there; says why they could not be had."""
        folder = self.folder(peers)
        if not self.requirement or folder.is_dir():
            return ""
        name, _, version = self.requirement.partition("==")
        peers.mkdir(parents=True, exist_ok=True)
        found = sorted(peers.glob(f"{name}-{version}-*.whl"))
        with tempfile.TemporaryDirectory(dir=peers) as downloads:
            if not found:
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
                only = ["--only-binary", ":all:", "--retries", "0", "--timeout", "20"]
                done = subprocess.run(
                    [*command, *only, "--dest", downloads, self.requirement],
                    capture_output=True,
                    text=True,
                )
                found = sorted(Path(downloads).glob("*.whl"))
                if done.returncode or not found:
                    return (
                        f"pip could not fetch it; download the wheel of {self.requirement} elsewhere "
                        f"(pip download --no-deps {self.requirement}) and put it into {peers}"
                    )
            # Under its name only when it is complete.
            unpacked = Path(downloads) / "unpacked"
            with zipfile.ZipFile(found[0]) as wheel:
                for member in wheel.namelist():
                    if member.startswith(self.files):
                        wheel.extract(member, unpacked)
            unpacked.rename(folder)
        return ""

    def environment(self, peers: Path) -> dict[str, str]:
        """What its process needs in the environment."""
        environment = dict(os.environ)
        if self.make is MemorySaver:
            cuda = (torch.version.cuda or "").split(".")[0]
            stem = f"torch_memory_saver_hook_mode_preload_cu{cuda}"
            libraries = sorted(self.folder(peers).glob(f"{stem}.*so"))
            if not libraries:
                raise FileNotFoundError(f"{self.folder(peers)} has no {stem}")
            environment["LD_PRELOAD"] = str(libraries[0].resolve())
        return environment


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "vllm",
            "vLLM 0.33.0, CuMemAllocator",
            Vllm,
            "vllm==0.33.0",
            ("vllm/device_allocator/", "vllm/cumem_allocator"),
        ),
        Kind(
            "saver",
            "torch_memory_saver 0.0.10",
            MemorySaver,
            "torch_memory_saver==0.0.10",
            ("torch_memory_saver/", "torch_memory_saver_hook_mode_preload"),
        ),
        Kind("regraph", "regraph", Regraph),
    )
}
