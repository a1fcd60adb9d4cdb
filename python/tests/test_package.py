"""The package as such; needs no PyTorch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import regraph

PACKAGE = Path(regraph.__file__).parent


def stub_names() -> list[str]:
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    return [item.name for item in tree.body if isinstance(item, ast.FunctionDef | ast.ClassDef)]


def test_the_version_is_the_librarys():
    assert regraph.__version__ == "0.0.0"


def test_all_that_is_raised_derives_from_one_class():
    assert issubclass(regraph.Error, RuntimeError)
    assert issubclass(regraph.Refused, regraph.Error)
    assert issubclass(regraph.OutOfMemory, regraph.Error)
    assert issubclass(regraph.OutOfMemory, MemoryError)


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


def test_the_stand_in_has_every_name_of_the_stub(native):
    assert [name for name in stub_names() if not hasattr(native, name)] == []


def test_the_library_has_every_name_of_the_stub():
    if not list(PACKAGE.glob("_native*.so")):
        pytest.skip("the library is not built")
    program = (
        "import sys, regraph._native as native\n"
        "missing = [name for name in sys.argv[1:] if not hasattr(native, name)]\n"
        "assert not missing, missing\n"
        "error, short = native.Error, native.OutOfMemory\n"
        "assert issubclass(error, RuntimeError) and issubclass(native.Refused, error)\n"
        "assert issubclass(short, error) and issubclass(short, MemoryError)\n"
        "try:\n"
        "    native.learn(0)\n"
        "except error as raised:\n"
        "    assert 'was not started' in str(raised)\n"
        "assert native.version() and native.library_path().endswith('.so')\n"
    )
    path = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
    subprocess.run([sys.executable, "-c", path + program, *stub_names()], check=True, timeout=60)
