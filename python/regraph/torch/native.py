"""The native door: regraph as an allocator class of PyTorch's own kind, in C++.

That class differs between minor versions of PyTorch, so there is a small library for each: in the
wheel, or compiled once on the user's machine into a cache.
"""

import contextlib
import ctypes
import tempfile
import time
from pathlib import Path

import torch

from regraph import _native, cache, compiling
from regraph.compiling import Unavailable
from regraph.messages import logger

# What a tensor's memory is freed through is called until the process ends.
_library: ctypes.CDLL | None = None


def load() -> ctypes.CDLL:
    """The library for this PyTorch, compiled now if there is none yet.

    Raises:
        Unavailable: There is none, and it cannot be compiled, or PyTorch's class looks different.
    """
    minor = compiling.minor_version(str(torch.__version__))
    version = ".".join(str(number) for number in minor)
    if minor > compiling.NEWEST:
        newest = ".".join(str(number) for number in compiling.NEWEST)
        logger.warning(
            "PyTorch %s is newer than %s, the newest that regraph was built for", version, newest
        )
    library, path = _opened()
    library.regraph_native_version.restype = ctypes.c_char_p
    built_for = library.regraph_native_version().decode()
    if built_for != version:
        raise Unavailable(f"{path} is for PyTorch {built_for}, and this is {torch.__version__}")
    library.regraph_native_table.restype = ctypes.c_void_p
    if not _native.is_allocator_class(library.regraph_native_table()):
        raise Unavailable(
            f"PyTorch {torch.__version__}'s class of allocators is not the one that {path} was "
            "built for"
        )
    return library


def install(library: ctypes.CDLL, name: str) -> None:
    """Makes regraph PyTorch's allocator, which calls itself `name`.

    Raises:
        RuntimeError: PyTorch has used CUDA already.
    """
    global _library
    hooks = _native.hooks()
    names = (ctypes.c_char_p * len(hooks))(*(hook.encode() for hook in hooks))
    addresses = (ctypes.c_void_p * len(hooks))(*hooks.values())
    call = library.regraph_native_install
    call.restype = ctypes.c_char_p
    call.argtypes = (
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_size_t,
        ctypes.c_char_p,
    )
    failure = call(names, addresses, len(hooks), name.encode())
    if failure is not None:
        raise RuntimeError(failure.decode())
    _library = library


def _opened() -> tuple[ctypes.CDLL, Path]:
    version = str(torch.__version__)
    built = compiling.BUILT / compiling.file_name(version)
    if built.exists():
        # It may need a newer C++ library than the machine has; one that is compiled there does not.
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(built)), built
    torch_headers = Path(torch.__file__).parent / "include"
    if not (torch_headers / "c10").is_dir():
        raise Unavailable(f"PyTorch's headers are not installed ({torch_headers})")
    cuda_headers = next(compiling.cuda_headers(), None)
    if cuda_headers is None:
        raise Unavailable("there are no CUDA headers: set CUDA_HOME, or install triton")
    key = compiling.key(version, torch_headers, cuda_headers)
    name = f"{built.stem}-{key}.so"
    try:
        with cache.Cache() as files:
            path = files.path / name
            # A library that is not there, is not whole or cannot be loaded is made now.
            with contextlib.suppress(OSError):
                return files.load(name), path
            logger.warning(
                "compiling the allocator for PyTorch %s, once on this machine: some 15 seconds",
                version,
            )
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as scratch:
                compiled = Path(scratch) / name
                compiling.compile_library(version, compiled, torch_headers, cuda_headers)
                files.put(name, compiled.read_bytes())
            logger.info("compiled %s in %.0f s", path, time.monotonic() - began)
            return files.load(name), path
    except cache.Unusable as error:
        raise Unavailable(str(error)) from error
    except OSError as error:
        raise Unavailable(f"the cache of compiled libraries cannot be used: {error}") from error
