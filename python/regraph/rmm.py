"""regraph as a memory resource of RMM, for cuDF and other RAPIDS libraries.

    import regraph.rmm

    regraph.rmm.enable()

Memory comes from the engine that PyTorch and the other doors of the process share. C++ programs use
`regraph_rmm.hpp` of the C interface.
"""

from typing import Any

import rmm

from regraph import _native, starting, streams

__all__ = ["enable", "resource"]


def resource(device: int = 0, *, settings: str | None = None, check: bool | None = None) -> Any:
    """A memory resource of RMM's on regraph. Requests and frees are in the order of their streams.

    Create it while the device is current, as RMM's other resources.

    Args:
        device: Where the memory is.
        settings: As for `regraph.torch.enable`.
        check: As for `regraph.torch.enable`.

    Raises:
        Error: The settings are wrong, or others than those of a door that was enabled before.
    """
    starting.start(settings, check)

    def allocate(size: int, stream: Any) -> int:
        # RMM makes `MemoryError` its own exception.
        return _native.allocate(size, device, streams.handle(stream))

    def deallocate(address: int, size: int, stream: Any) -> None:
        _native.free_on(address, streams.handle(stream))

    return rmm.mr.CallbackMemoryResource(allocate, deallocate)


def enable(device: int = 0, *, settings: str | None = None, check: bool | None = None) -> None:
    """Makes regraph RMM's resource of a device, which must be the current one.

    What was allocated before stays with the resource that it came from.

    Args:
        device: Where the memory is.
        settings: As for `regraph.torch.enable`.
        check: As for `regraph.torch.enable`.

    Raises:
        Error: The settings are wrong, or others than those of a door that was enabled before.
    """
    rmm.mr.set_per_device_resource(device, resource(device, settings=settings, check=check))
