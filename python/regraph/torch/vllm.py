"""vLLM's sleep mode by regions: a backend named "regraph".

vLLM finds `register` by the entry point `vllm.general_plugins`. With `REGRAPH_VLLM=1` in its environment every
process of vLLM's enables regraph at its start; `--enable-sleep-mode --sleep-mode-backend regraph` chooses the
backend. Regions have the names of vLLM's tags, and graphs' memory lies in the region "cudagraph": all of it sleeps,
and graphs replay when it wakes. Only tags that vLLM lets sleep without what they hold, or stay asleep when others
wake, do so. This module imports vLLM where vLLM calls it, and nowhere else.
"""

import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from regraph import _native
from regraph.torch import sleeping
from regraph.torch.enabling import enable, is_enabled
from regraph.torch.errors import Error
from regraph.torch.registering import turned_off

NAME = "regraph"
GRAPHS = "cudagraph"
WEIGHTS = "weights"
KV_CACHE = "kv_cache"
#: What kernels write before they read it: vLLM's own backend drops it at every level, and wakes it with any wake.
SCRATCH = "workspace"
#: The environment variable that has vLLM's processes enable regraph.
VARIABLE = "REGRAPH_VLLM"
#: The folder of the files that keep what sleeps, in place of the host's memory.
FOLDER = "REGRAPH_VLLM_FOLDER"
#: vLLM's own: whether a resume gives the host's memory of backups back.
RELEASE_HOST = "VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY"

_DEFAULT = "default"


class Allocator:
    """vLLM's protocol of an allocator for sleep mode (`vllm.device_allocator.MemAllocator`), with its graphs' pool."""

    def __init__(self) -> None:
        # What vLLM has named, and the graphs.
        self._tags = {GRAPHS}
        self._graph_pool: tuple[int, int] | None = None

    @contextlib.contextmanager
    def use_memory_pool(self, tag: str | None = None) -> Iterator[None]:
        """Within it this thread's memory belongs to the region `tag`."""
        tag = _DEFAULT if tag is None else tag
        self._tags.add(tag)
        with sleeping.region(tag):
            yield

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[tuple[int, int]]:
        """Yields the pool that vLLM captures into; within it this thread is in the region of graphs."""
        if self._graph_pool is None:
            self._graph_pool = torch.cuda.graph_pool_handle()
        with sleeping.region(GRAPHS):
            yield self._graph_pool

    @contextlib.contextmanager
    def use_cudagraph_pool(
        self, pool: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, int]]:
        """As `cudagraph_pool`, for versions of vLLM that call it so; a pool that is named is the one."""
        if pool is not None:
            self._graph_pool = pool
        with self.cudagraph_pool() as graph_pool:
            yield graph_pool

    def release_cudagraph_pool(self, pool: tuple[int, int] | None = None) -> None:
        """Has the next capture begin a pool of its own: this one's memory goes with the last of its graphs."""
        if pool in (None, self._graph_pool):
            self._graph_pool = None

    def sleep(self, offload_tags: tuple[str, ...] | str | None = None) -> None:
        """Puts all regions to sleep. Those of `offload_tags` keep what they hold on the host, or in files.

        So do all others of which vLLM does not say that what they hold can be made again, what graphs leave in their
        outputs included. What was set as a region's backup before does not count.
        """
        kept = {_DEFAULT} if offload_tags is None else _set(offload_tags)
        dropped = (_deferrable() | {SCRATCH}) - kept
        folder = os.environ.get(FOLDER)
        for tag in self._known(self._tags):
            if folder and tag not in dropped:
                _native.set_region_file_backup(tag, folder)
            else:
                _native.set_region_backup(tag, "none" if tag in dropped else "host")
        # What is free goes as well, as vLLM expects of its own allocator.
        gc.collect()
        torch.cuda.empty_cache()
        sleeping.sleep(self._known(self._tags))

    def discard(self, tags: tuple[str, ...] | str) -> None:
        """Puts regions to sleep without what they hold. What sleeps already keeps what the host has of it."""
        known = self._known(_set(tags))
        for tag in known:
            _native.set_region_backup(tag, "none")
        sleeping.sleep(known)

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Wakes regions, and with any of them those that vLLM does not wake by themselves, graphs among them."""
        deferred = set() if tags is None else _deferrable() - _set(tags)
        sleeping.wake(self._known(self._tags - deferred))

    def get_current_usage(self) -> int:
        """How much memory the regions have, asleep or awake, in bytes."""
        if not torch.cuda.is_initialized():
            return 0
        tags = self._tags - {GRAPHS}
        found = (row for row in sleeping.regions() if row.tag in tags)
        return sum(row.awake_bytes + row.asleep_bytes for row in found)

    def require_memory(self) -> None:
        """Raises `Error` where vLLM has asked for no memory here: it would report memory that stayed as gone."""
        if not self._known(self._tags & {WEIGHTS, KV_CACHE}):
            raise Error(
                "Neither weights nor key-value blocks lie in a region of regraph's: vLLM allocates them without "
                "vllm.device_allocator.get_mem_allocator_instance, or without --enable-sleep-mode."
            )

    def _known(self, tags: set[str]) -> list[str]:
        """Those in which there was ever anything: vLLM names regions that it may not have."""
        return sorted(tags.intersection(_native.region_tags()))


def register() -> None:
    """Tells vLLM of the backend, and enables regraph where the environment says so. Can be called again."""
    global _registered
    if _registered:
        return
    said = os.environ.get(VARIABLE, "")
    wanted = said == "1"
    if said not in ("", "0", "1"):
        warnings.warn(f"{VARIABLE}: expected 1, 0 or nothing, found {said!r}: no effect", stacklevel=2)
    try:
        import vllm.device_allocator as device_allocator
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
    except ImportError as error:
        if wanted:
            warnings.warn(f"This vLLM has no backends of sleep mode ({error}).", stacklevel=2)
        return
    if wanted and not is_enabled():
        try:
            # What NCCL registered of a capture could not sleep.
            with turned_off():
                enable()
        except Error as error:
            # Processes of vLLM's that use no GPU are called too.
            warnings.warn(f"{VARIABLE}=1 has no effect in this process: {error}", stacklevel=2)
    SleepModeBackendFactory.register_backend(NAME, __name__, "RegraphBackend")
    theirs = device_allocator.get_mem_allocator_instance

    def get_mem_allocator_instance() -> Any:
        return _allocator if is_enabled() else theirs()

    _rebind("get_mem_allocator_instance", theirs, get_mem_allocator_instance)
    device_allocator.get_mem_allocator_instance = get_mem_allocator_instance
    if is_enabled():
        sleeping.put_graphs_into(GRAPHS)
    _registered = True


def _rebind(name: str, old: Any, new: Any) -> None:
    """Replaces a function in all modules that have imported it by its name, such as vLLM's worker."""
    for module in list(sys.modules.values()):
        # Not by `getattr`: modules that make their names when asked are left alone.
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict) and names.get(name) is old:
            names[name] = new


_registered = False
_allocator = Allocator()


def _backend() -> type:
    """vLLM's class of backends, by regions."""
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

    class RegraphBackend(SleepModeBackend):  # type: ignore[misc]
        """Regions that sleep and wake. Communicators, kernels and graphs stay as they are."""

        def suspend(self, level: int = 1) -> None:
            """Level 1 keeps weights on the host, level 2 drops them; what vLLM cannot make again stays at both."""
            _allocator.require_memory()
            _allocator.sleep((WEIGHTS,) if level == 1 else ())
            self._state = "SUSPENDED"

        def resume(self, tags: list[str] | None = None) -> None:
            """Wakes regions, or all."""
            before, self._state = self._state, "RESUMING"
            try:
                _allocator.wake_up(tags)
            except BaseException:
                self._state = before
                raise
            self._state = "RUNNING"
            # What other tags keep comes back with any wake.
            if _releases_host() and (tags is None or WEIGHTS in tags):
                sleeping.free_host()

        def discard(self, tags: tuple[str, ...]) -> None:
            """Puts regions to sleep without what they hold."""
            _allocator.discard(tags)
            self._state = "SUSPENDED"

        @classmethod
        def is_supported(cls) -> bool:
            """Where regraph is enabled; warns, and says what to do, where it is not."""
            if not is_enabled():
                warnings.warn(
                    f"The sleep-mode backend {NAME!r} needs regraph in each process of vLLM: set {VARIABLE}=1 in "
                    "its environment, and see its warnings for processes that cannot enable regraph.",
                    stacklevel=2,
                )
            return is_enabled()

        @classmethod
        def preserves_communicators(cls) -> bool:
            """They are no memory of a region's."""
            return True

        @classmethod
        def preserves_compiled_artifacts(cls) -> bool:
            """They are no memory of a region's."""
            return True

    return RegraphBackend


def __getattr__(name: str) -> Any:
    """`RegraphBackend`, which derives from a class of vLLM's and is made when vLLM asks for it."""
    if name != "RegraphBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _backend()
    return made


def _deferrable() -> set[str]:
    """The tags that may sleep without what they hold, and stay asleep when others wake: vLLM's own set."""
    try:
        from vllm.device_allocator import DEFERRABLE_TAGS
    except ImportError:
        # Versions that do not say it have these, and no others that wake in parts.
        return {WEIGHTS, KV_CACHE}
    return set(DEFERRABLE_TAGS)


def _releases_host() -> bool:
    return os.environ.get(RELEASE_HOST, "").lower() in ("1", "true")


def _set(tags: Iterable[str] | str) -> set[str]:
    return {tags} if isinstance(tags, str) else set(tags)
