"""The native allocator's library: found, compiled, checked."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from regraph.torch import native as door

COMPILED = (
    torch.version.cuda is not None
    and shutil.which("c++") is not None
    and (Path(torch.__file__).parent / "include" / "c10").is_dir()
)
needs_compiler = pytest.mark.skipif(
    not COMPILED, reason="needs a PyTorch built for CUDA with its headers, and a C++ compiler"
)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache, and a package without built libraries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(door, "BUILT", tmp_path / "built")
    return tmp_path


def library(folder, version):
    """A library that says it was built for a version."""
    folder.mkdir()
    source = folder / "it.cpp"
    source.write_text(
        f'extern "C" const char* regraph_native_version() {{ return "{version}"; }}\n'
        'extern "C" const void* regraph_native_table() { return nullptr; }\n'
    )
    path = folder / door.file_name()
    subprocess.run(["c++", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return path


def test_versions_without_numbers_are_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "main")
    with pytest.raises(door.Unavailable, match="main names no numbers"):
        door.minor_version()


def test_a_build_of_ones_own_has_a_version(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0a0+gitabc")
    assert door.file_name() == "regraph_torch_2_11.so"


def test_without_a_compiler_there_is_none(cache, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(door.Unavailable, match="no C\\+\\+ compiler: install g\\+\\+|CUDA_HOME|headers"):
        door.load()


@needs_compiler
def test_a_compiler_that_fails_is_told_with_its_words(cache, monkeypatch):
    monkeypatch.setenv("CXX", shutil.which("false"))
    with pytest.raises(door.Unavailable, match="false failed"):
        door.load()
    assert not list(cache.rglob("*.so"))


@needs_compiler
def test_one_that_the_machine_cannot_load_is_compiled_anew(cache, monkeypatch):
    (cache / "built").mkdir()
    (cache / "built" / door.file_name()).write_bytes(b"for another machine")
    monkeypatch.setenv("CXX", shutil.which("false"))
    with pytest.raises(door.Unavailable, match="false failed"):
        door.load()


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_a_library_for_another_version_is_refused(cache, monkeypatch):
    library(cache / "built", "1.0")
    with pytest.raises(door.Unavailable, match="is for PyTorch 1.0, and this is"):
        door.load()


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_a_class_that_looks_different_is_refused(cache, native):
    native._answer("is_allocator_class", False)
    version = ".".join(str(number) for number in door.minor_version())
    library(cache / "built", version)
    try:
        with pytest.raises(door.Unavailable, match="class of allocators is not the one"):
            door.load()
    finally:
        native._answer("is_allocator_class", True)


@needs_compiler
def test_graph_objects_begin_as_it_is_said(tmp_path):
    """The library reads a graph object without the headers of its class."""
    source = tmp_path / "layout.cpp"
    members = {"graph": "graph_", "executable": "graph_exec_", "capture": "capture_id_"}
    checks = "".join(
        f"    static_assert(offsetof(Open, {theirs}) == offsetof(regraph::GraphObject, {ours}));\n"
        f"    static_assert(sizeof({theirs}) == sizeof(regraph::GraphObject::{ours}));\n"
        for ours, theirs in members.items()
    )
    source.write_text(
        "#include <ATen/cuda/CUDAGraph.h>\n"
        f'#include "{door.SOURCES / "graphs.h"}"\n'
        "struct Open : at::cuda::CUDAGraph {\n"
        f"  void check() {{\n{checks}  }}\n"
        "};\n"
    )
    headers = Path(torch.__file__).parent / "include"
    cuda = next(door._cuda_headers(), None)
    if not (headers / "ATen").is_dir() or cuda is None:
        pytest.skip("needs all headers of PyTorch and those of CUDA")
    standard = "c++20" if door.minor_version() >= (2, 14) else "c++17"
    command = ["c++", f"-std={standard}", "-fsyntax-only", "-Wno-invalid-offsetof"]
    for folder in (headers, headers / "torch/csrc/api/include", cuda):
        command += ["-isystem", str(folder)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_compiler
def test_it_is_compiled_once_and_installed(cache, tmp_path):
    """In a process of its own, since it stays installed."""
    text = (door.SOURCES / "hooks.h").read_text()
    names = re.findall(r"HOOK\([^,]+, (\w+),", text)
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent)] + sys.path!r}\n"
        "import fake_native\n"
        "native = fake_native.FakeNative()\n"
        "sys.modules['regraph._native'] = native\n"
        "import ctypes\n"
        "nothing = ctypes.CFUNCTYPE(None)(lambda: None)\n"
        "address = ctypes.cast(nothing, ctypes.c_void_p).value\n"
        f"native._answer('hooks', dict.fromkeys({names!r}, address))\n"
        "import torch\n"
        "from regraph.torch import native as door\n"
        f"door.BUILT = type(door.BUILT)({str(cache / 'none')!r})\n"
        "first = door.load()\n"
        "door.install(first, 'regraph')\n"
        "print(torch.cuda.memory.get_allocator_backend())\n"
    )
    environment = {"XDG_CACHE_HOME": str(cache), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.stdout.splitlines()[-1:] == ["regraph"], done.stdout
    (built,) = cache.rglob("regraph_torch_*.so")
    assert ctypes.CDLL(str(built)).regraph_native_version is not None
