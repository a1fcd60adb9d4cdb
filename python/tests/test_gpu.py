"""The real thing on a real GPU: each program of `programs/` in a process of its own."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

PROGRAMS = Path(__file__).parent / "programs"


def names(path: Path) -> list[str]:
    """The programs of a file, read without running it: it would enable regraph here."""
    tables = [
        item.value
        for item in ast.parse(path.read_text()).body
        if isinstance(item, ast.Assign) and getattr(item.targets[0], "id", "") == "PROGRAMS"
    ]
    functions = [table.generators[0].iter.elts for table in tables]
    return [function.id for table in functions for function in table]


EVERY = [(path.stem, name) for path in sorted(PROGRAMS.glob("*.py")) for name in names(path)]


def test_every_program_is_found():
    assert len(EVERY) == 136
    assert len({name for _, name in EVERY}) == len(EVERY)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() == 0, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("file", "name"), EVERY)
def test_program(file, name, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "REGRAPH_ALLOC_CONF"}
    command = [sys.executable, str(PROGRAMS / f"{file}.py"), name, str(tmp_path)]
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout
