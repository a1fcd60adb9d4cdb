"""Compiled libraries in the user's cache: which are believed, and which are made again."""

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest

import regraph
from regraph import cache, compiling

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
OTHER = 65534

# Notes each compilation, and makes a library that names its maker. `-E` asks for the macros.
COMPILER = """#!/bin/sh
for argument; do
    case $argument in
    -E) cat - "$0.version"; exit;;
    -soname*|-Wl,-soname*) exit;;
    esac
    [ "$last" = -o ] && output=$argument
    last=$argument
done
echo "$@" >> "$0.log"
cp "$0.so" "$output"
"""


def library(path, maker):
    """A library that says who made it."""
    text = f'const char *maker(void) {{ return "{maker}"; }}\n'
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=text, text=True, check=True)
    return path


def maker(loaded):
    loaded.maker.restype = ctypes.c_char_p
    return loaded.maker().decode()


class Machine:
    """A PyTorch, headers and a compiler, none of them more than a test needs."""

    def __init__(self, folder, monkeypatch):
        self.home = folder / "home"
        self.caches = folder / "caches"
        self.compiler = folder / "c++"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)
        library(folder / "c++.so", "compiler")
        self.version("1")
        headers = folder / "cuda" / "include"
        for name in ("cuda_runtime.h", "crt/host_config.h"):
            (headers / name).parent.mkdir(parents=True, exist_ok=True)
            (headers / name).touch()
        torch = types.ModuleType("torch")
        torch.__version__ = "2.99.0"
        torch.__file__ = str(folder / "torch" / "__init__.py")
        (folder / "torch" / "include" / "c10").mkdir(parents=True)
        monkeypatch.setitem(sys.modules, "torch", torch)
        for name, value in {
            "HOME": self.home,
            "XDG_CACHE_HOME": self.caches,
            "CXX": self.compiler,
            "CUDA_HOME": folder / "cuda",
        }.items():
            monkeypatch.setenv(name, str(value))
        source = Path(regraph.__file__).parent / "torch" / "native.py"
        spec = importlib.util.spec_from_file_location("native_without_torch", source)
        self.door = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.door)
        monkeypatch.setattr(compiling, "BUILT", folder / "built")

    def version(self, text):
        """What the compiler says of itself."""
        Path(f"{self.compiler}.version").write_text(f"#define __VERSION__ {text}\n")

    def open(self):
        """Who made the library that is loaded, and where it lies."""
        loaded, path = self.door._opened()
        return maker(loaded), path

    def compiled(self):
        """How often the compiler has made a library."""
        log = Path(f"{self.compiler}.log")
        return len(log.read_text().splitlines()) if log.exists() else 0

    def plant(self, path):
        """Another library in the place of the one that was made, with a digest that is right."""
        path.unlink()
        library(path, "planted")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
        path.chmod(0o600)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_one_is_compiled_once(machine):
    made, path = machine.open()
    assert made == "compiler" and path.parent == machine.caches / "regraph"
    assert machine.open() == (made, path)
    assert machine.compiled() == 1


def test_no_other_user_can_write_or_read_it(machine):
    before = os.umask(0)
    try:
        _, path = machine.open()
    finally:
        os.umask(before)
    assert mode(machine.caches) == mode(path.parent) == 0o700
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}


def test_a_folder_that_others_could_write_is_closed_to_them(machine):
    folder = machine.caches / "regraph"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    machine.open()
    assert mode(folder) == 0o700


@as_root
@pytest.mark.parametrize("which", ["library", "digest"])
def test_another_users_file_is_not_loaded(machine, which):
    _, path = machine.open()
    machine.plant(path)
    planted = path if which == "library" else path.with_name(f"{path.name}.sha256")
    os.chown(planted, OTHER, OTHER)
    assert machine.open() == ("compiler", path)
    assert planted.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("permissions", [0o777, 0o660, 0o602])
def test_a_file_that_others_can_write_is_not_loaded(machine, permissions):
    _, path = machine.open()
    machine.plant(path)
    path.chmod(permissions)
    assert machine.open() == ("compiler", path)
    assert mode(path) == 0o600


def test_a_link_is_not_followed(machine, tmp_path):
    _, path = machine.open()
    machine.plant(path)
    path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(tmp_path / "elsewhere.so")
    assert machine.open() == ("compiler", path)
    assert not path.is_symlink()


def test_a_pipe_is_not_waited_for(machine):
    _, path = machine.open()
    path.unlink()
    os.mkfifo(path)
    assert machine.open() == ("compiler", path)


@as_root
def test_another_users_folder_is_refused(machine):
    folder = machine.caches / "regraph"
    folder.mkdir(parents=True)
    os.chown(folder, OTHER, OTHER)
    with pytest.raises(machine.door.Unavailable, match="belongs to user 65534.*set XDG_CACHE_HOME"):
        machine.open()
    assert machine.compiled() == 0


def test_a_folder_that_is_a_link_is_refused(machine, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    machine.caches.mkdir()
    (machine.caches / "regraph").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(machine.door.Unavailable, match="is a link or a file.*set XDG_CACHE_HOME"):
        machine.open()


def test_a_cache_that_cannot_be_made_is_told(machine, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(machine.door.Unavailable, match="compiled libraries cannot be used.*file"):
        machine.open()


def test_a_relative_cache_is_ignored(machine, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    _, path = machine.open()
    assert path.parent == machine.home / ".cache" / "regraph"
    assert not machine.caches.exists()


def test_without_a_home_there_is_no_cache(machine, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", ".")
    with pytest.raises(machine.door.Unavailable, match="no home folder: set XDG_CACHE_HOME"):
        machine.open()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:64],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"\x7fELF" + bytes(60),
    ],
    ids=["empty", "cut off", "one bit", "no library"],
)
@pytest.mark.parametrize("which", ["library", "digest"])
def test_a_damaged_file_is_made_anew(machine, which, damage):
    _, path = machine.open()
    broken = path if which == "library" else path.with_name(f"{path.name}.sha256")
    data = damage(broken.read_bytes())
    # Not in its place: this process has the library mapped.
    broken.unlink()
    broken.write_bytes(data)
    assert machine.open() == ("compiler", path)
    assert machine.open() == ("compiler", path)
    assert machine.compiled() == 2


def test_one_that_this_machine_cannot_load_is_made_anew(machine):
    _, path = machine.open()
    with cache.Cache() as files:
        files.put(path.name, b"for another machine")
    assert machine.open() == ("compiler", path)
    assert machine.compiled() == 2


def test_one_that_no_compiler_can_make_loadable_is_refused(machine):
    Path(f"{machine.compiler}.so").write_bytes(b"for another machine")
    with pytest.raises(machine.door.Unavailable, match="cannot be used.*(invalid ELF|too short)"):
        machine.open()


def test_what_is_loaded_is_what_was_read(machine, monkeypatch):
    """Its path names another file by the time that it is loaded."""
    _, path = machine.open()
    load = ctypes.CDLL

    def late(name):
        machine.plant(path)
        return load(name)

    monkeypatch.setattr(cache.ctypes, "CDLL", late)
    assert machine.open() == ("compiler", path)


def test_another_process_can_read_what_is_loaded_by_its_name(machine, tmp_path):
    """As the one does in which PyTorch finds the names of C++ frames: it fails where it cannot."""

    class Place(ctypes.Structure):
        _fields_ = [("file", ctypes.c_char_p)] + [
            (name, ctypes.c_void_p) for name in ("base", "symbol", "address")
        ]

    written = library(tmp_path / "first", "first").read_bytes()
    with cache.Cache() as files:
        files.put("first", written)
        function = ctypes.cast(files.load("first").maker, ctypes.c_void_p)
    place = Place()
    assert ctypes.CDLL(None).dladdr(function, ctypes.byref(place))
    assert subprocess.run(["cat", place.file], capture_output=True, check=True).stdout == written


def test_two_libraries_are_not_taken_for_each_other(machine, tmp_path):
    with cache.Cache() as files:
        for name in ("first", "second"):
            files.put(name, library(tmp_path / name, name).read_bytes())
        assert [maker(files.load(name)) for name in ("first", "second")] == ["first", "second"]


def test_a_library_under_anothers_name_is_not_loaded(machine, tmp_path):
    with cache.Cache() as files:
        files.put("first", library(tmp_path / "first", "first").read_bytes())
        for end in ("", ".sha256"):
            (files.path / f"first{end}").rename(files.path / f"second{end}")
        with pytest.raises(FileNotFoundError):
            files.load("second")


def test_machines_that_differ_share_no_library(machine, monkeypatch, tmp_path):
    paths = [machine.open()[1]]

    def another():
        paths.append(machine.open()[1])

    machine.version("2")
    another()
    monkeypatch.setattr(platform, "machine", lambda: "another")
    another()
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.0"))
    another()
    sys.modules["torch"].__version__ = "2.99.0+cu999"
    another()
    monkeypatch.setenv("CXX", f"{machine.compiler} -march=native")
    another()
    assert len(set(paths)) == len(paths) == machine.compiled()


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_headers_of_cuda_decide(machine, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "c++")
    cuda = tmp_path / "cuda" / "include"
    keys = set()
    for version in (12080, 13000):
        (cuda / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION {version}\n")
        keys.add(compiling.key("2.99.0", tmp_path / "torch" / "include", cuda))
    assert len(keys) == 2


def test_a_compiler_may_have_arguments(machine, monkeypatch):
    monkeypatch.setenv("CXX", f"/usr/bin/env '{machine.compiler}'")
    assert machine.open()[0] == "compiler"


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("no-such-compiler g++", "CXX names no-such-compiler, and there is no such program"),
        ("'g++", "CXX cannot be read as a command"),
    ],
)
def test_a_compiler_that_is_not_there_is_told(machine, monkeypatch, named, why):
    monkeypatch.setenv("CXX", named)
    with pytest.raises(machine.door.Unavailable, match=why):
        machine.open()


def test_processes_that_compile_at_once_make_one(machine):
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if machine.open()[0] == "compiler" else 2
            finally:
                os._exit(status)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert ends == [0] * 8 and machine.compiled() == 1
    assert len(list((machine.caches / "regraph").iterdir())) == 3


def test_without_locks_it_works_too(machine, monkeypatch):
    def none(descriptor, operation):
        raise OSError("no locks")

    monkeypatch.setattr(cache.fcntl, "flock", none)
    assert machine.open()[0] == "compiler"
    (machine.caches / "regraph" / "lock").unlink()
    (machine.caches / "regraph" / "lock").symlink_to("nothing")
    assert machine.open()[0] == "compiler"
    assert machine.compiled() == 1
