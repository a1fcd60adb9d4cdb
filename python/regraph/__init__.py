"""A CUDA memory allocator that proves reuse inside multi-stream CUDA graph captures.

`regraph.torch` puts it to work in PyTorch.
"""

from regraph._native import version

__all__ = ["__version__"]

__version__: str = version()
