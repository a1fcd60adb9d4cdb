"""What the package `torch_memory_saver` offers, by regions and without a library that is loaded before others.

    from regraph.torch.memory_saver import torch_memory_saver

    with torch_memory_saver.region("weights", enable_cpu_backup=True):
        weights = torch.ones(1 << 20, device="cuda")
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

`install()` makes `import torch_memory_saver` find this module, in programs that cannot be changed.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch

from regraph import _native
from regraph.torch import sleeping
from regraph.torch.enabling import enable, is_enabled
from regraph.torch.errors import Error

HookMode = Literal["preload", "torch"]
CpuBackupBackend = Literal["mmap", "pinned"]

_DEFAULT = "default"


class TorchMemorySaver:
    """Memory by tag that is paused and resumed: addresses stay, contents as the region says.

    One tag may have memory with a backup and memory without: these are two regions of regraph's. regraph is
    enabled with the first use, which must come before anything uses CUDA then.
    """

    def __init__(self) -> None:
        # What was named here, each tag with its regions.
        self._regions: dict[str, set[str]] = {}
        self._initialized = False
        self._retains = False
        self._depth = 0

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: CpuBackupBackend | None = None,
    ) -> Iterator[None]:
        """Within it this thread's memory can be paused, under a tag.

        Memory of backups is page-locked always. Disks are not served.
        """
        self._check(enable_cpu_backup, cpu_backup_backend)
        if enable_disk_backup:
            raise Error("regraph keeps contents on no disk; use enable_cpu_backup=True.")
        with self._entered(tag, enable_cpu_backup):
            yield

    @contextlib.contextmanager
    def cuda_graph(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,
        cpu_backup_backend: CpuBackupBackend | None = None,
    ) -> Iterator[None]:
        """As `torch.cuda.graph`, and the graph's pool can be paused, in every `hook_mode`.

        A pool that has graphs already must have got them under the same tag.
        """
        self._check(enable_cpu_backup, cpu_backup_backend)
        if pool is not None:
            self._require_same(pool, _region_of(tag, enable_cpu_backup))
        with self._entered(tag, enable_cpu_backup):
            capture = torch.cuda.graph(
                cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode
            )
            with capture:
                yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Within it this thread's memory is not paused, in the middle of a region."""
        assert dispose_mem_pool_after_use, "the pool of what is allocated here is PyTorch's own"
        assert self._depth > 0, "disable() is for use within a region"
        with sleeping.outside_regions():
            yield

    def pause(self, tag: str | None = None) -> None:
        """Gives the memory of a tag back, or of all tags. Waits for the device."""
        self._start()
        known = self._known(tag)
        if known:
            sleeping.sleep(known)

    def resume(self, tag: str | None = None) -> None:
        """Brings the memory of a tag back, or of all tags, where there was a backup with what it held."""
        self._start()
        known = self._known(tag)
        if known:
            sleeping.wake(known)

    @property
    def enabled(self) -> bool:
        """Always."""
        return True

    @property
    def hook_mode(self) -> HookMode:
        """Can be set only."""
        raise AttributeError("hook_mode")

    @hook_mode.setter
    def hook_mode(self, hook_mode: HookMode) -> None:
        assert not self._initialized, "Cannot configure after initialization"
        if hook_mode not in ("preload", "torch"):
            raise ValueError(f"hook_mode is 'preload' or 'torch', not {hook_mode!r}")
        # regraph has no hooks: both serve the same.

    @property
    def memory_margin_bytes(self) -> int:
        """Can be set only."""
        raise NotImplementedError("Only setter is supported")

    @memory_margin_bytes.setter
    def memory_margin_bytes(self, value: int) -> None:
        self._start()
        if value:
            warnings.warn(
                "regraph leaves no margin of the device's memory free: memory_margin_bytes has no effect. "
                "torch.cuda.set_per_process_memory_fraction limits what the process takes.",
                stacklevel=2,
            )

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether pages of backups stay locked after `resume`, until `regraph.torch.free_host`."""
        self._start()
        return self._retains

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._start()
        # Pages stay in any case; what they held is copied anew by each pause.
        self._retains = value

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> torch.Tensor | None:
        """What a paused tensor held, in memory of the host; `None` where there is no backup, or it is awake.

        It is a copy in any case, which stays as it is when the tensor is resumed. A tensor that has no memory, since
        it is empty, has no backup.
        """
        self._start()
        assert x.is_cuda, f"{x.device=}"
        assert x.is_contiguous(), f"{x.shape=} {x.stride()=} {x.dtype=}"
        copy = torch.empty(x.shape, dtype=x.dtype, device="cpu")
        base = x.untyped_storage().data_ptr()
        if base == 0:
            return None
        kept = _native.read_kept(base, x.data_ptr() - base, copy.nbytes, copy.data_ptr())
        return copy if kept else None

    def set_disk_backup_dir(self, path: str) -> None:
        """Not served."""
        raise Error("regraph keeps contents on no disk; use enable_cpu_backup=True.")

    @contextlib.contextmanager
    def _entered(self, tag: str, with_backup: bool) -> Iterator[None]:
        self._start()
        name = _region_of(tag, with_backup)
        self._regions.setdefault(tag, set()).add(name)
        self._depth += 1
        try:
            with sleeping.region(name, "host" if with_backup else "none"):
                yield
        finally:
            self._depth -= 1

    def _known(self, tag: str | None) -> list[str]:
        wanted = self._regions.values() if tag is None else [self._regions.get(tag, set())]
        return sorted(name for names in wanted for name in names)

    def _require_same(self, pool: Any, name: str) -> None:
        self._start()
        torch.cuda.init()
        pools = _native.pools(torch.cuda.current_device())
        for row in pools:
            if tuple(row["id"]) == tuple(pool) and row["region"] != name:
                raise Error(
                    f"The pool {tuple(pool)} was made {_told(row['region'])}, and cannot be paused as "
                    f"{name!r}; capture each of its graphs under the same tag."
                )

    def _check(self, enable_cpu_backup: bool, backend: CpuBackupBackend | None) -> None:
        if backend is not None and not enable_cpu_backup:
            raise ValueError("cpu_backup_backend requires enable_cpu_backup=True")

    def _start(self) -> None:
        if not self._initialized:
            if not is_enabled():
                enable()
            self._initialized = True


def _region_of(tag: str, with_backup: bool) -> str:
    """The region of a tag's memory with a backup, or of that without."""
    return f"{tag} (backup)" if with_backup else tag


def _told(region: str | None) -> str:
    return "outside of all tags" if region is None else f"as {region!r}"


torch_memory_saver = TorchMemorySaver()


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Does nothing: no library has to be loaded before others."""
    yield


def install() -> None:
    """Makes `import torch_memory_saver` find this module in this process."""
    sys.modules["torch_memory_saver"] = sys.modules[__name__]
