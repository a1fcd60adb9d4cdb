"""regraph as the allocator of Numba's GPU memory, by its External Memory Manager interface.

    import regraph.numba

    regraph.numba.enable()  # before Numba's first use of CUDA

Arrays come from the engine that PyTorch and the other doors of the process share. The environment's
`NUMBA_CUDA_MEMORY_MANAGER=regraph.numba` does the same.
"""

import contextlib
import ctypes
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from numba import cuda
from numba.cuda.cudadrv import driver
from numba.cuda.cudadrv.driver import CudaAPIError

from regraph import _native, starting, streams
from regraph.errors import Error, OutOfMemory

__all__ = ["Error", "enable", "record_stream"]

#: `CUDA_ERROR_OUT_OF_MEMORY`, which programs look for.
_OUT_OF_MEMORY = 2


def enable(*, settings: str | None = None, check: bool | None = None) -> None:
    """Makes regraph Numba's allocator of GPU memory. Call it before Numba uses CUDA.

    Numba names no stream where it asks for memory, nor where it frees it. So memory is handed out
    when no work uses it any more, and comes back when all has completed that blocking streams were
    given before the free; Numba's own streams are blocking ones. Tell of others by `record_stream`.

    Args:
        settings: As for `regraph.torch.enable`.
        check: As for `regraph.torch.enable`.

    Raises:
        Error: The settings are wrong, or others than those of a door that was enabled before; or
            Numba has a memory manager already.
    """
    if getattr(driver, "_memory_manager", None) not in (None, MemoryManager):
        raise Error(
            "Numba has a memory manager already: call regraph.numba.enable() before anything of "
            "Numba uses CUDA, and set no other manager."
        )
    starting.start(settings, check)
    cuda.set_memory_manager(MemoryManager)


def record_stream(array: Any, stream: Any) -> None:
    """Says that a stream which does not wait for the default stream uses an array until its free.

    Args:
        array: A device array, or a view of one, whose memory is regraph's.
        stream: A stream of any library, or its raw handle.

    Raises:
        Error: The memory is not regraph's, or the stream is the default stream of another device.
    """
    memory = getattr(array, "gpu_data", None)
    # That of a view names the memory that it views.
    address = getattr(getattr(memory, "owner", memory), "regraph_address", None)
    if address is None:
        raise Error("The use of this array cannot be recorded: its memory is not regraph's.")
    device, current = lambda: memory.context.device.id, lambda: cuda.current_context().device.id
    streams.record(address, streams.handle_on(stream, device, current))


class MemoryManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """The manager of one context. Pinned memory is Numba's own, which the base class sees to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Live memory by the number of its allocation: addresses are given again.
        self._live: dict[int, int] = {}
        self._numbers = itertools.count()
        self._deferring = 0
        self._lock = threading.Lock()
        # Memory that is to be freed. Finalizers run at any point, so no lock is held.
        self._deferred: deque[int] = deque()

    def initialize(self) -> None:
        """Nothing: the engine of a device is made with its first request."""

    def memalloc(self, size: int) -> Any:
        """Memory of at least `size` bytes, which no work uses any more.

        Raises:
            CudaAPIError: There is not enough, with CUDA's code for that.
        """
        try:
            # Numba's own refuses no bytes; a byte does no harm.
            address = _native.allocate_unordered(max(size, 1), self.context.device.id)
        except OutOfMemory as error:
            raise CudaAPIError(_OUT_OF_MEMORY, str(error)) from error
        number = next(self._numbers)
        self._live[number] = address
        manager = weakref.ref(self)

        def finalize() -> None:
            alive = manager()
            if alive is not None:
                alive._free(number)

        pointer = ctypes.c_void_p(address)
        memory = cuda.MemoryPointer(weakref.proxy(self.context), pointer, size, finalizer=finalize)
        memory.regraph_address = address
        return memory

    def _free(self, number: int) -> None:
        # Memory that a reset has freed is not there any more.
        address = self._live.pop(number, None)
        if address is None:
            return
        # First: who leaves the last block meanwhile finds it.
        self._deferred.append(address)
        self._free_deferred()

    def _free_deferred(self) -> None:
        while self._deferred and not self._deferring:
            # Another thread, or a finalizer, may be faster.
            with contextlib.suppress(IndexError):
                _native.free(self._deferred.popleft())

    def get_memory_info(self) -> Any:
        """What is free of the device's memory, and all of it. What regraph keeps is not free."""
        free, total = _native.memory_info(self.context.device.id)
        return cuda.MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """A handle of the driver's, where the memory is an allocation of the driver's own.

        Raises:
            Error: It is mapped memory, as regraph's mostly is, which such handles cannot name.
        """
        try:
            return super().get_ipc_handle(memory)
        except CudaAPIError as error:
            raise Error(
                "Numba's IPC handles name allocations of the driver's own only, and regraph maps "
                "its memory: share a tensor of PyTorch's, or send a copy through the host."
            ) from error

    def reset(self) -> None:
        """Frees all memory of the context; arrays that are live must not be used again."""
        super().reset()
        for number in list(self._live):
            self._free(number)

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        """Puts off frees until the outermost of such blocks is left."""
        with super().defer_cleanup():
            with self._lock:
                self._deferring += 1
            try:
                yield
            finally:
                with self._lock:
                    self._deferring -= 1
                self._free_deferred()

    @property
    def interface_version(self) -> int:
        """That of NBEP 7."""
        return 1


def __getattr__(name: str) -> Any:
    # What Numba looks for where the environment names this module.
    if name == "_numba_memory_manager":
        starting.start()
        return MemoryManager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
