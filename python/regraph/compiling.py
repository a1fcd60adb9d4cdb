"""Compiles the native allocator for a version of PyTorch. `python/build-native` loads this file alone: it imports
neither PyTorch nor anything of the package."""

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent / "torch" / "cxx"
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


class Unavailable(Exception):
    """There is no library for this PyTorch; the text says why."""


def minor_version(version: str) -> tuple[int, int]:
    """A version of PyTorch in numbers, such as (2, 11)."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise Unavailable(f"PyTorch's version {version} names no numbers")
    return int(numbers[1]), int(numbers[2])


def file_name(version: str) -> str:
    """What the library for a version of PyTorch is called."""
    major, minor = minor_version(version)
    return f"regraph_torch_{major}_{minor}.so"


def compile_library(
    version: str, output: Path, torch_headers: Path, cuda_headers: Path
) -> None:
    """Compiles the library for the version of PyTorch that the headers are of.

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
                *(_standard(version), "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
                *("-isystem", str(torch_headers), "-isystem", str(cuda_headers)),
                *(str(source) for source in sorted(SOURCES.glob("*.cpp"))),
                *(f"-L{scratch}", "-Wl,--no-as-needed", "-lc10", "-lc10_cuda"),
                *("-s", "-o", str(built)),
            ]
        )
        # In one step: another process may look for it.
        built.replace(output)


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


def _standard(version: str) -> str:
    # The headers use C++20 from PyTorch 2.14 on.
    return "-std=c++20" if minor_version(version) >= (2, 14) else "-std=c++17"


def key(version: str, torch_headers: Path, cuda_headers: Path) -> str:
    """What stands for all that decides a library: machines may share a home folder."""
    compiler = _compiler()
    # A compiler that cannot say it cannot compile either, and says why then.
    macros = _finished(
        [
            *(*compiler, _standard(version), "-dM", "-E"),
            *("-isystem", str(torch_headers), "-isystem", str(cuda_headers)),
            *("-x", "c++", "-"),
        ],
        stderr=subprocess.DEVNULL,
        input=PROBE,
    ).stdout
    parts = [
        *(version, *compiler, platform.machine(), *platform.libc_ver()),
        # The compiler's version and what it compiles for, and the versions of all the headers.
        *sorted(macros.splitlines()),
        *(source.read_text() for source in sorted(SOURCES.glob("*.[ch]*"))),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def cuda_headers() -> Iterator[Path]:
    """Folders with CUDA's headers: of a toolkit, or of PyTorch's own requirements."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [Path(home) / "include" for home in homes if home]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin is not None:
        folders.append(Path(triton.origin).parent / "backends" / "nvidia" / "include")
    for folder in folders:
        if all((folder / name).exists() for name in ("cuda_runtime.h", "crt/host_config.h")):
            yield folder
