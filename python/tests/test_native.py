"""The native allocator's library: found, compiled, checked."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from regraph import compiling
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
    monkeypatch.setattr(compiling, "BUILT", tmp_path / "built")
    return tmp_path


def library(folder, version):
    """A library that says it was built for a version."""
    folder.mkdir()
    source = folder / "it.cpp"
    source.write_text(
        f'extern "C" const char* regraph_native_version() {{ return "{version}"; }}\n'
        'extern "C" const void* regraph_native_table() { return nullptr; }\n'
    )
    path = folder / compiling.file_name(torch.__version__)
    subprocess.run(["c++", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return path


def test_versions_without_numbers_are_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "main")
    with pytest.raises(door.Unavailable, match="main names no numbers"):
        door.load()


def test_a_build_of_ones_own_has_a_version():
    assert compiling.file_name("2.11.0a0+gitabc") == "regraph_torch_2_11.so"


def test_without_a_compiler_there_is_none(cache, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(
        door.Unavailable, match="no C\\+\\+ compiler: install g\\+\\+|CUDA_HOME|headers"
    ):
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
    (cache / "built" / compiling.file_name(torch.__version__)).write_bytes(b"for another machine")
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
    version = ".".join(str(number) for number in compiling.minor_version(torch.__version__))
    library(cache / "built", version)
    try:
        with pytest.raises(door.Unavailable, match="class of allocators is not the one"):
            door.load()
    finally:
        native._answer("is_allocator_class", True)


MEMBERS = "virtual int {}(int); virtual int {}(int); virtual int {}(int);"


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("first", "second", "third"), True),
        # As long, and with the same functions.
        (("second", "first", "third"), False),
        # A function that PyTorch's class lacks stands where one of its own is, and says nothing.
        (("first", "other", "third"), True),
    ],
)
def test_a_class_whose_functions_come_in_another_order_is_refused(tmp_path, names, taken):
    """In a process of its own, with a library that is named as PyTorch's."""

    def compiled(name, text, *more):
        source = tmp_path / f"{name}.cpp"
        source.write_text(text)
        path = tmp_path / f"{name}.so"
        command = ["c++", "-std=c++17", "-shared", "-fPIC", str(source), *more, "-o", str(path)]
        subprocess.run([*command, f"-Wl,-soname,{name}.so"], check=True)
        return path

    def class_of(name, members):
        bodies = (
            f"int {name}::{member}(int x) {{ return x + {row}; }}"
            for row, member in enumerate(members)
        )
        return f"struct {name} {{ {MEMBERS.format(*members)} }}; " + " ".join(bodies)

    kind = "CUDAPluggableAllocator"
    body = class_of(kind, ("first", "second", "third"))
    theirs = compiled("libtorch_cuda", f"namespace torch::cuda::{kind} {{ {body} }}")
    ours = compiled(
        "ours",
        class_of("Ours", names) + ' extern "C" const void* table() '
        "{ Ours object; return *reinterpret_cast<const void* const*>(&object); }",
    )
    shim = compiled(
        "shim",
        "#include <cstdint>\n"
        'extern "C" void regraph_hook_begin_pool(int, std::uint64_t, std::uint64_t, void*, '
        "const void*, void* (*)(const void*, std::uint64_t)) {}\n",
        str(Path(__file__).parent.parent / "src" / "shim.cpp"),
        "-ldl",
    )
    program = (
        "import ctypes\n"
        f"theirs, ours, shim = (ctypes.CDLL(path) for path in {[str(theirs), str(ours), str(shim)]})\n"
        "ours.table.restype = ctypes.c_void_p\n"
        "shim.regraph_shim_is_allocator.restype = ctypes.c_bool\n"
        "print(shim.regraph_shim_is_allocator(ctypes.c_void_p(ours.table())))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(taken)], done.stderr


@needs_compiler
def test_it_is_compiled_once_and_installed(cache, tmp_path):
    """In a process of its own, since it stays installed."""
    text = (compiling.SOURCES / "hooks.h").read_text()
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
        f"door.compiling.BUILT = type(door.compiling.BUILT)({str(cache / 'none')!r})\n"
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
