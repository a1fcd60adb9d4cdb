"""The native door: regraph as an allocator class of PyTorch's own kind, in C++.

That class differs between minor versions of PyTorch, so there is a small library for each: in the
wheel, or compiled once on the user's machine into a cache.
"""

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from regraph import _native, cache
from regraph.messages import logger

SOURCES = Path(__file__).parent / "cxx"
#: The newest version of PyTorch that this was compiled for; later ones are tried.
NEWEST = (2, 15)
BUILT = SOURCES / "built"
#: What includes the headers whose versions decide what a library is.
PROBE = """\
#include <cstddef>
#include <cuda_runtime_api.h>
#if __has_include(<c10/macros/cmake_macros.h>)
#include <c10/macros/cmake_macros.h>
#endif
"""

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
    if minor_version() > NEWEST:
        newest = ".".join(str(number) for number in NEWEST)
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


def file_name() -> str:
    """What the library for this PyTorch is called."""
    major, minor = minor_version()
    return f"regraph_torch_{major}_{minor}.so"


def compile_library(output: Path, torch_headers: Path, cuda_headers: Path) -> None:
    """Compiles the library for the PyTorch that the headers are of.

    Raises:
        Unavailable: There is no C++ compiler, or it fails.
    """
    compiler = _compiler()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        # PyTorch's libraries are loaded when this one is: their names do, wherever they lie.
        for needed in ("c10", "c10_cuda"):
            library = Path(scratch) / f"lib{needed}.so"
            name = f"-Wl,-soname,{library.name}"
            _run([*compiler, "-shared", "-x", "c++", os.devnull, name, "-o", str(library)])
        built = Path(scratch) / output.name
        _run(
            [
                *compiler,
                *(_standard(), "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
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
    torch_headers = Path(torch.__file__).parent / "include"
    if not (torch_headers / "c10").is_dir():
        raise Unavailable(f"PyTorch's headers are not installed ({torch_headers})")
    cuda_headers = next(_cuda_headers(), None)
    if cuda_headers is None:
        raise Unavailable("there are no CUDA headers: set CUDA_HOME, or install triton")
    name = f"{Path(file_name()).stem}-{_key(torch_headers, cuda_headers)}.so"
    try:
        with cache.Cache() as files:
            path = files.path / name
            # A library that is not there, is not whole or cannot be loaded is made now.
            with contextlib.suppress(OSError):
                return files.load(name), path
            logger.warning(
                "compiling the allocator for PyTorch %s, once on this machine: that takes up to a minute",
                torch.__version__,
            )
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as scratch:
                compiled = Path(scratch) / name
                compile_library(compiled, torch_headers, cuda_headers)
                files.put(name, compiled.read_bytes())
            logger.info("compiled %s in %.0f s", path, time.monotonic() - began)
            return files.load(name), path
    except cache.Unusable as error:
        raise Unavailable(str(error)) from error
    except OSError as error:
        raise Unavailable(f"the cache of compiled libraries cannot be used: {error}") from error


def _run(command: list[str]) -> None:
    done = _finished(command, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed:\n{done.stdout.strip()}")


def _finished(
    command: list[str], stderr: int, input: str = ""
) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            input=input,
            stdout=subprocess.PIPE,
            stderr=stderr,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise Unavailable(f"{command[0]} cannot be run: {error}") from error


def _compiler() -> list[str]:
    """The command that compiles C++, which may have arguments (`CXX="ccache g++"`)."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise Unavailable(f"CXX cannot be read as a command: {error}") from error
    for name in named[:1] or ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return [found, *named[1:]]
    if named:
        raise Unavailable(f"CXX names {named[0]}, and there is no such program")
    raise Unavailable("there is no C++ compiler: install g++, or name one by CXX")


def _standard() -> str:
    # The headers use C++20 from PyTorch 2.14 on.
    return "-std=c++20" if minor_version() >= (2, 14) else "-std=c++17"


def _key(torch_headers: Path, cuda_headers: Path) -> str:
    """What stands for all that decides a library: machines may share a home folder."""
    compiler = _compiler()
    # A compiler that cannot say it cannot compile either, and says why then.
    macros = _finished(
        [
            *(*compiler, _standard(), "-dM", "-E"),
            *("-isystem", str(torch_headers), "-isystem", str(cuda_headers)),
            *("-x", "c++", "-"),
        ],
        stderr=subprocess.DEVNULL,
        input=PROBE,
    ).stdout
    parts = [
        *(str(torch.__version__), *compiler, platform.machine(), *platform.libc_ver()),
        # The compiler's version and what it compiles for, and the versions of all the headers.
        *sorted(macros.splitlines()),
        *(source.read_text() for source in sorted(SOURCES.glob("*.[ch]*"))),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


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
