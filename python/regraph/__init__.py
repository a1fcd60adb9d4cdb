"""A CUDA memory allocator that proves reuse inside multi-stream CUDA graph captures.

`regraph.torch` puts it to work in PyTorch; `regraph.cupy`, `regraph.numba`, `regraph.cuda_core`,
`regraph.rmm` and `regraph.warp` do in other libraries. All doors of a process share one engine, and
none needs another's library.
"""

from regraph._native import empty_cache, metrics, version
from regraph.errors import Error, OutOfMemory, Refused
from regraph.streams import retire_stream

__all__ = [
    "Error",
    "OutOfMemory",
    "Refused",
    "__version__",
    "empty_cache",
    "metrics",
    "retire_stream",
]

__version__: str = version()
