"""Memory that others have by handles of their own: it stays behind its addresses.

All-reduces of inference engines retain the memory under the buffers of captured graphs
(`cuMemRetainAllocationHandle`) and export it to their peers, which read and write it in every replay. Memory that
came in its place, after a sleep for instance, would be another than the peers have. The driver tells of no such
handle; what is exported by CUDA's Python bindings is seen here.
"""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from regraph import _native

#: CUDA's own bindings for Python, by which engines export memory.
BINDINGS = "cuda.bindings.driver"
_RETAIN, _EXPORT = "cuMemRetainAllocationHandle", "cuMemExportToShareableHandle"
_RELEASE = "cuMemRelease"
_MARK = "_regraph_sees"

# Where the memory of a handle was retained, by the handle: each time that it was and was not released since. CUDA gives
# a handle that is gone to other memory.
_retained: dict[int, list[int]] = {}
# A finalizer may release a handle on a thread that has it.
_changing = threading.RLock()


def keep_exported(tensor: torch.Tensor) -> None:
    """Has the memory that a tensor lies in stay behind its addresses: others have it, or are to have it, by handles.

    For programs that export it in other ways than by `cuda.bindings.driver`, which regraph sees by itself: by C++
    code that calls the driver, for instance. Regions of which anything is kept so do not sleep, until it has gone
    back to the driver, when no tensor and no graph uses it. regraph sees no work of others: the tensor, or a graph
    that uses its memory, must live until that has completed.

    Raises:
        Error: regraph is not enabled; the memory comes at a capture's end (`plan:exact`), and later captures exchange
            it; or it sleeps.
        ValueError: The tensor has no memory of regraph's.
    """
    from regraph.torch.enabling import require_enabled  # It has captures watch.

    require_enabled("keep_exported")
    if not hasattr(tensor, "untyped_storage"):
        raise TypeError(f"keep_exported needs a tensor, not {type(tensor).__name__}")
    storage = tensor.untyped_storage()
    kept = tensor.is_cuda and storage.nbytes() > 0
    if not kept or not _native.keep_exported(storage.data_ptr(), storage.nbytes()):
        raise ValueError("keep_exported: the tensor has no GPU memory that regraph has handed out")


def watch() -> None:
    """Sees what is exported by CUDA's bindings from now on, if the program has imported them."""
    module = sys.modules.get(BINDINGS)
    if module is None:
        return
    names = vars(module)
    seen = {_RETAIN: _see_retained, _RELEASE: _see_released, _EXPORT: _see_exported}
    if not seen.keys() <= names.keys() or hasattr(names[_RETAIN], _MARK):
        return
    for name, see in seen.items():
        setattr(module, name, see(names[name]))


def _see_retained(retain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(retain)
    def retain_handle(*arguments: Any, **named: Any) -> Any:
        result = retain(*arguments, **named)
        if int(result[0]) == 0:
            address = int(_argument("addr", arguments, named))
            with _changing:
                _retained.setdefault(int(result[1]), []).append(address)
        return result

    setattr(retain_handle, _MARK, True)
    return retain_handle


def _see_released(release: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(release)
    def release_handle(*arguments: Any, **named: Any) -> Any:
        result = release(*arguments, **named)
        handle = int(_argument("handle", arguments, named))
        with _changing:
            addresses = _retained.get(handle)
            if addresses and int(result[0]) == 0:
                # Another thread may have got the number for other memory just now.
                addresses.pop(0)
                if not addresses:
                    _retained.pop(handle, None)
        return result

    return release_handle


def _see_exported(export: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(export)
    def export_handle(*arguments: Any, **named: Any) -> Any:
        with _changing:
            addresses = _retained.get(int(_argument("handle", arguments, named)), [])[-1:]
        for address in addresses:
            # First: what cannot stay is not exported, and the caller is told why.
            _native.keep_exported(address, 1)
        return export(*arguments, **named)

    return export_handle


def _argument(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The first argument of a call, which has a name; 0 where there is none, which the call refuses."""
    return arguments[0] if arguments else named.get(name, 0)
