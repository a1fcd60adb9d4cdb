"""Memory by tag that is paused and resumed, under `torch_memory_saver`'s names."""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch

from regraph import _native
from regraph.torch import registering, sleeping
from regraph.torch.enabling import enable, is_enabled
from regraph.torch.errors import Error
from regraph.torch.memory_saver.hooks.base import HookMode

CpuBackupBackend = Literal["mmap", "pinned"]

_DEFAULT = "default"
#: Variables that have the package take all memory of a process, which no region of regraph's is.
_WHOLE_PROCESS = ("TMS_INIT_ENABLE", "TMS_INIT_ENABLE_CPU_BACKUP", "TMS_INIT_ENABLE_DISK_BACKUP")
#: Whether backups stay readable when their memory is resumed.
_RETAIN = "TMS_RETAIN_CPU_BACKUP"


class _Thread(threading.local):
    """What is one thread's own."""

    #: How many regions it has entered here.
    depth = 0


class TorchMemorySaver:
    """Memory by tag that is paused and resumed: addresses stay, contents as the region says.

    One tag may have memory with a backup on the host, on disk, and without: these are regions of regraph's own.
    regraph is enabled with the first use, which must come before anything uses CUDA then.
    """

    def __init__(self) -> None:
        # Of all below but what is a thread's own.
        self._lock = threading.RLock()
        # What was named here, each tag with its regions.
        self._regions: dict[str, set[str]] = {}
        self._initialized = False
        self._retains = False
        # Of backups on disk.
        self._folder = os.environ.get("TMS_DISK_BACKUP_DIR")
        self._thread = _Thread()

    @contextlib.contextmanager
    def region(
        self,
        tag: str = _DEFAULT,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: CpuBackupBackend | None = None,
    ) -> Iterator[None]:
        """Within it this thread's memory can be paused, under a tag.

        Memory of backups is page-locked always. With a backup on disk, what it holds is written to a file in the
        folder of `set_disk_backup_dir`, or of the variable TMS_DISK_BACKUP_DIR, when it is paused.
        """
        self._check(enable_cpu_backup, cpu_backup_backend)
        assert not (enable_cpu_backup and enable_disk_backup), "a backup is on the host or on disk"
        with self._entered(tag, "file" if enable_disk_backup else _backup(enable_cpu_backup)):
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
            self._require_same(pool, _region_of(tag, _backup(enable_cpu_backup)))
        with self._entered(tag, _backup(enable_cpu_backup)):
            capture = torch.cuda.graph(
                cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode
            )
            with capture:
                yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """Within it this thread's memory is not paused, in the middle of a region."""
        assert dispose_mem_pool_after_use, "the pool of what is allocated here is PyTorch's own"
        assert self._thread.depth > 0, "disable() is for use within a region"
        with sleeping.outside_regions():
            yield

    def pause(self, tag: str | None = None) -> None:
        """Gives the memory of a tag back, or of all tags. Waits for the device."""
        self._start()
        known = self._known(tag)
        if known:
            sleeping.sleep(known)

    def resume(self, tag: str | None = None) -> None:
        """Brings the memory of a tag back, or of all tags, where there was a backup with what it held.

        The host's memory of backups is freed then, unless `retain_cpu_backup` is set.
        """
        self._start()
        known = self._known(tag)
        if known:
            sleeping.wake(known)
            if not self._retains:
                sleeping.free_host()

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
        """Whether backups stay where they are after `resume`, readable by `get_cpu_backup`, until the next `pause`.

        Not set, `resume` frees the host's memory, which the next `pause` has to lock anew. The variable
        TMS_RETAIN_CPU_BACKUP=1 sets it at the start.
        """
        self._start()
        return self._retains

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        self._start()
        with self._lock:
            self._retains = value
            _native.retain_backups(value)

    def get_cpu_backup(self, x: torch.Tensor, zero_copy: bool = False) -> torch.Tensor | None:
        """What a paused tensor held, in memory of the host; `None` where there is no backup.

        With `retain_cpu_backup` also what a tensor held at its latest pause that was resumed since; what was freed and
        allocated anew meanwhile has what lay there before. It is a copy in any case, which stays as it is. A tensor
        that has no memory, since it is empty, has no backup.
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
        """Sets the folder of backups on disk, from the next pause on. TMS_DISK_BACKUP_DIR sets it at the start."""
        self._start()
        with self._lock:
            self._folder = path
            tags = _native.region_tags()
            for tag in self._regions:
                if (name := _region_of(tag, "file")) in tags:
                    sleeping.set_backup(name, "file", path)

    @contextlib.contextmanager
    def _entered(self, tag: str, backup: sleeping.Backup) -> Iterator[None]:
        self._start()
        name = _region_of(tag, backup)
        with self._lock:
            folder = self._folder if backup == "file" else None
            if backup == "file" and not folder:
                raise Error("A backup on disk needs a folder: call set_disk_backup_dir(), or set TMS_DISK_BACKUP_DIR.")
            self._regions.setdefault(tag, set()).add(name)
        self._thread.depth += 1
        try:
            with sleeping.region(name, backup, folder):
                yield
        finally:
            self._thread.depth -= 1

    def _known(self, tag: str | None) -> list[str]:
        """The regions of a tag, or of all, but for those that were forgotten since."""
        with self._lock:
            wanted = self._regions.values() if tag is None else [self._regions.get(tag, set())]
            return sorted(set().union(*wanted).intersection(_native.region_tags()))

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
        with self._lock:
            if self._initialized:
                return
            _require_regions_alone()
            _enable()
            self._retains = _is_set(_RETAIN)
            if self._retains:
                _native.retain_backups(True)
            self._initialized = True


def prepare() -> None:
    """Enables regraph, where the package is imported under its own name; warns where that cannot be done."""
    try:
        _enable()
    except Error as error:
        warnings.warn(f"torch_memory_saver cannot be used: {error}", stacklevel=2)


def _enable() -> None:
    if not is_enabled():
        # What NCCL registered of a capture could not be paused.
        with registering.turned_off():
            enable()


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes")


def _require_regions_alone() -> None:
    """Raises `Error` where the environment asks for all memory of the process."""
    wanted = [name for name in _WHOLE_PROCESS if _is_set(name)]
    # The others say what becomes of memory that the first, or the disk's, takes.
    if wanted and wanted != ["TMS_INIT_ENABLE_CPU_BACKUP"]:
        raise Error(
            f"{', '.join(f'{name}=1' for name in wanted)}: regraph does not pause all memory of a process. Unset it, "
            "and enter torch_memory_saver.region() in the threads that allocate."
        )


def _backup(on_host: bool) -> sleeping.Backup:
    return "host" if on_host else "none"


def _region_of(tag: str, backup: sleeping.Backup) -> str:
    """The region of a tag's memory with a backup on the host or on disk, or of that without."""
    return {"host": f"{tag} (backup)", "file": f"{tag} (disk)"}.get(backup, tag)


def _told(region: str | None) -> str:
    return "outside of all tags" if region is None else f"as {region!r}"
