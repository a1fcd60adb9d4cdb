#!/usr/bin/env python3
"""Builds the C++ program against the PyTorch that this Python has: `build/captures`.

    python benches/torch/cpp/build.py [--regraph-include DIRECTORY]

It needs g++ and CUDA's headers, of a toolkit or of the packages that PyTorch comes with; no nvcc.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_SOURCES = ("main", "program", "gpu", "torch_allocator", "regraph_allocator")


def headers(homes: list[Path]) -> list[Path]:
    """CUDA's headers: of the first of these places that has all of them, or of several together."""
    places = [
        place
        for home in homes
        for place in (home / "include", home / "targets" / "x86_64-linux" / "include")
        if place.is_dir()
    ]
    needed = ("cuda_runtime_api.h", "crt/host_config.h")
    for place in places:
        if all((place / one).exists() for one in needed):
            return [place]
    found = [next((p for p in places if (p / one).exists()), None) for one in needed]
    if None in found:
        raise SystemExit(f"CUDA's headers {' and '.join(needed)} were not found: set CUDA_HOME")
    return found


def runtime(homes: list[Path]) -> Path:
    """CUDA's runtime library."""
    for home in homes:
        for place in ("lib", "lib64", "targets/x86_64-linux/lib"):
            libraries = sorted((home / place).glob("libcudart.so*"))
            if libraries:
                return libraries[-1]
    raise SystemExit("libcudart was not found: set CUDA_HOME")


def main() -> None:
    """See the module's words."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    repository = _HERE.parents[2]
    parser.add_argument("--regraph-include", type=Path, default=repository / "include",
                        help="where regraph.h is")
    parser.add_argument("--output", type=Path, default=_HERE / "build" / "captures")
    options = parser.parse_args()
    if not (options.regraph_include / "regraph.h").exists():
        raise SystemExit(f"there is no regraph.h in {options.regraph_include}")

    import torch

    directory = Path(torch.__file__).resolve().parent
    libraries = directory / "lib"
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    toolkits += [Path("/usr/local/cuda")]
    packages = sorted(directory.parent.glob("nvidia/cu[0-9]*"))
    packages += [directory.parent / "nvidia" / "cuda_runtime"]
    # A toolkit has all headers; but the library must be the one that PyTorch uses.
    places = headers([*toolkits, *packages])
    library = runtime([*packages, *toolkits])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    command = [
        os.environ.get("CXX", "g++"),
        *("-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *("-isystem", str(directory / "include")),
        *(word for place in places for word in ("-isystem", str(place))),
        f"-I{options.regraph_include}",
        *(str(_HERE / f"{source}.cpp") for source in _SOURCES),
        *("-o", str(options.output)),
        *(f"-L{libraries}", "-lc10", "-lc10_cuda", str(library), "-ldl", "-lpthread"),
        *(f"-Wl,-rpath,{libraries}", f"-Wl,-rpath,{library.parent}"),
    ]
    print(shlex.join(command), flush=True)
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
