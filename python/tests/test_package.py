"""The package as such; needs no PyTorch."""

import ast
import re
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


def test_messages_name_calls_of_python():
    """The library's messages name Rust's calls; the package puts its own in their place."""
    root = Path(__file__).parents[2]
    errors = root / "python/src/errors.rs"
    if not errors.exists():
        pytest.skip("the sources are not here")
    table = errors.read_text().split("NAMES: ")[1].split("];")[0]
    text = r'"((?:[^"\\]|\\.)*)"'
    pairs = re.findall(rf"\(\s*{text},\s*{text},?\s*\)", table)
    # Several engines behind one object, pools with an owner, and calls that lose contents are Rust's alone.
    rust_alone = {
        *("Devices::of_device", "Config::device", "HostCalls::suspend_discarding_all"),
        *("Pool::suspend_discarding_all", "Pool::suspend_discarding_outputs"),
        *("Pool::resume", "Pool::compact"),
    }
    for name in ("error.rs", "engine/oom.rs", "heap/sharing.rs"):
        lines = (root / "src" / name).read_text().splitlines()
        code = "\n".join(line.strip() for line in lines if not line.strip().startswith("//"))
        told = code.replace("\\\n", "")
        assert any(rusts in told for rusts, _ in pairs), name
        for rusts, pythons in pairs:
            told = told.replace(rusts, pythons)
        texts = "\n".join(line for line in told.splitlines() if '"' in line)
        kinds = r"\b(?:Engine|HostCalls|Plans|Sharing|Regions|Pool|PoolConfig|Config)::\w+"
        kinds += r"|\b(?:Backup|Devices)::\w+"
        assert set(re.findall(kinds, texts)) <= rust_alone, name


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
