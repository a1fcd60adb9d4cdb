"""The native door: regraph as an allocator class of PyTorch's own kind, in C++.

That class differs between minor versions of PyTorch, so there is a small library for each: in the
wheel, or compiled once on the user's machine into a cache.
"""

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from regraph import _native

SOURCES = Path(__file__).parent / "cxx"
BUILT = SOURCES / "built"

# What a tensor's memory is freed through is called until the process ends.
_library: ctypes.CDLL | None = None


class Unavailable(Exception):
    """There is no library for this PyTorch; the text says why."""


def minor_version() -> tuple[int, int]:
    """PyTorch's version, such as (2, 11)."""
    numbers = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if numbers is None:
        raise Unavailable(f"PyTorch's version {torch.__version__} names no numbers")
    return int(numbers[1]), int(numbers[2])


def load() -> ctypes.CDLL:
    """The library for this PyTorch, compiled now if there is none yet.

    Raises:
        Unavailable: There is none, and it cannot be compiled, or PyTorch's class looks different.
    """
    version = ".".join(str(number) for number in minor_version())
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


def file_name() -> str:
    """What the library for this PyTorch is called."""
    major, minor = minor_version()
    return f"regraph_torch_{major}_{minor}.so"


def compile_library(output: Path, torch_headers: Path, cuda_headers: Path) -> None:
    """Compiles the library for the PyTorch that the headers are of.

    Raises:
        Unavailable: There is no C++ compiler, or it fails.
    """
    # The headers use C++20 from PyTorch 2.14 on.
    standard = "c++20" if minor_version() >= (2, 14) else "c++17"
    compiler = os.environ.get("CXX") or next(
        (found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None
    )
    if compiler is None:
        raise Unavailable("there is no C++ compiler: install g++, or name one by CXX")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        # PyTorch's libraries are loaded when this one is: their names do, wherever they lie.
        for needed in ("c10", "c10_cuda"):
            library = Path(scratch) / f"lib{needed}.so"
            name = f"-Wl,-soname,{library.name}"
            _run([compiler, "-shared", "-x", "c++", os.devnull, name, "-o", str(library)])
        built = Path(scratch) / output.name
        _run(
            [
                compiler,
                *(f"-std={standard}", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
                *("-isystem", str(torch_headers), "-isystem", str(cuda_headers)),
                *(str(source) for source in sorted(SOURCES.glob("*.cpp"))),
                *(f"-L{scratch}", "-Wl,--no-as-needed", "-lc10", "-lc10_cuda"),
                *("-s", "-o", str(built)),
            ]
        )
        # In one step: another process may look for it.
        built.replace(output)


def _opened() -> tuple[ctypes.CDLL, Path]:
    built = BUILT / file_name()
    if built.exists():
        # It may need a newer C++ library than the machine has; one that is compiled there does not.
        with contextlib.suppress(OSError):
            return ctypes.CDLL(str(built)), built
    path = _compiled()
    try:
        return ctypes.CDLL(str(path)), path
    except OSError as error:
        raise Unavailable(f"{path} cannot be loaded: {error}") from error


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed:\n{done.stdout.strip()}")


def _compiled() -> Path:
    """The library in the user's cache; compiled now where it is not there."""
    digest = hashlib.sha256(str(torch.__version__).encode())
    for source in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(source.read_bytes())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(cache) / "regraph" / digest.hexdigest()[:16] / file_name()
    if not path.exists():
        headers = Path(torch.__file__).parent / "include"
        if not (headers / "c10").is_dir():
            raise Unavailable(f"PyTorch's headers are not installed ({headers})")
        cuda = next(_cuda_headers(), None)
        if cuda is None:
            raise Unavailable("there are no CUDA headers: set CUDA_HOME, or install triton")
        try:
            compile_library(path, headers, cuda)
        except OSError as error:
            raise Unavailable(f"the cache {path.parent} cannot be written: {error}") from error
    return path


def _cuda_headers() -> Iterator[Path]:
    """Folders with CUDA's headers: of a toolkit, or of PyTorch's own requirements."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(home) / "include" for home in homes if home]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        folders.append(Path(triton.origin).parent / "backends" / "nvidia" / "include")
    for folder in folders:
        if all((folder / name).exists() for name in ("cuda_runtime.h", "crt/host_config.h")):
            yield folder
