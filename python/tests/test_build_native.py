"""`python/build-native`, which builds libraries where there may be neither PyTorch nor the package."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from regraph import compiling

SCRIPT = Path(__file__).parents[1] / "build-native"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the sources are not here")

# Notes how it is called, and makes what is asked for.
COMPILER = """#!/bin/sh
echo "$@" >> "$0.log"
for argument; do
    [ "$last" = -o ] && touch "$argument"
    last=$argument
done
"""
PROGRAM = f"""
import runpy
from pathlib import Path
module = runpy.run_path({str(SCRIPT)!r})["compiling"]()
module.compile_library("2.14.1", Path("out.so"), Path("torch/include"), Path("cuda"))
"""


def test_it_compiles_without_pytorch_and_the_package(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    # Without packages that are installed, and with nothing of the folder that it runs in.
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM]
    environment = {**os.environ, "CXX": str(compiler)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "out.so").exists()
    (built,) = [line for line in (tmp_path / "c++.log").read_text().splitlines() if "-O2" in line]
    assert "-std=c++20" in built and "torch/include" in built


def test_the_newest_version_is_the_one_that_is_built():
    versions = runpy.run_path(str(SCRIPT))["VERSIONS"]
    assert max(compiling.minor_version(version) for version in versions) == compiling.NEWEST
