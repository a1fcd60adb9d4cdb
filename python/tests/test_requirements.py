"""Importing the package without PyTorch, or with an old one, says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import regraph

HERE = Path(__file__).parent

# The library only takes notes here, and what stands for PyTorch lies in the first argument.
PROGRAM = """
import sys

import fake_native

sys.modules["regraph._native"] = fake_native.FakeNative()
sys.path[:0] = sys.argv[2:]
if sys.argv[1] == "none":
    sys.modules["torch"] = None
try:
    import regraph.torch
except ImportError as error:
    print(type(error).__name__, error.name, error)
"""


def imported(fake: Path | None) -> str:
    """What `import regraph.torch` says, with the PyTorch of a folder or without any."""
    package = str(Path(regraph.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), package])}
    arguments = ["none"] if fake is None else ["some", str(fake)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def fake_torch(folder: Path, text: str) -> Path:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)
    return folder


def test_without_torch():
    told = imported(None)
    assert told.startswith("ImportError torch regraph.torch needs PyTorch 2.7 or newer"), told
    assert "is not installed" in told and "https://pytorch.org/get-started" in told, told


@pytest.mark.parametrize("version", ["2.6.0+cu124", "1.13.1", "2.6.0a0+git1234"])
def test_with_an_old_torch_that_has_nothing_but_a_version(tmp_path, version):
    told = imported(fake_torch(tmp_path, f"__version__ = {version!r}\n"))
    assert told.startswith("ImportError torch regraph.torch needs PyTorch 2.7 or newer"), told
    assert f"PyTorch {version} is installed" in told, told


def test_with_a_module_that_is_not_pytorch(tmp_path):
    told = imported(fake_torch(tmp_path, ""))
    assert "is not PyTorch" in told and str(tmp_path) in told, told


def test_a_torch_that_lacks_what_it_needs_says_so_itself(tmp_path):
    told = imported(fake_torch(tmp_path, "import a_library_of_torchs\n"))
    assert told.startswith("ModuleNotFoundError a_library_of_torchs"), told


@pytest.mark.parametrize("version", ["2.7.0", "2.10.0+cu130", "3.0.0", "custom"])
def test_newer_versions_pass(version, monkeypatch):
    from types import SimpleNamespace

    pytest.importorskip("torch", reason="PyTorch is not installed")
    from regraph.torch.requirements import require_torch

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version))
    require_torch()
