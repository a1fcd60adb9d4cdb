"""Programs that change PyTorch for good, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest


def must_be_done(program: str) -> None:
    """Runs a program that prints "done" at its end, or first "unavailable" and why."""
    # The package that the tests found: the sources beside them have no library.
    spec = importlib.util.find_spec("regraph")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent.parent
    paths = [str(Path(__file__).parent), str(package), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    # Without a word of a library that is compiled.
    program = f"import logging\nlogging.getLogger('regraph').setLevel('ERROR')\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    if done.stdout.startswith("unavailable"):
        pytest.skip(done.stdout)
    assert done.stdout.split() == ["done"], done.stdout
