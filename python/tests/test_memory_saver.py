"""What `torch_memory_saver` offers, by regions."""

import ctypes
import importlib
import inspect
import os
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch
from regraph.torch import memory_saver

#: The folder that the wheel has in place of the one with Python's packages.
PYTHON = Path(regraph.__file__).parent.parent


@pytest.fixture
def saver(enabled, native, monkeypatch):
    """A new one, with `torch.cuda.graph` noted."""
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    class Capture:
        def __init__(self, graph, **arguments):
            native.calls.append(("graph", graph, arguments))

        def __enter__(self):
            native.calls.append(("graph begins",))

        def __exit__(self, *_):
            native.calls.append(("graph ends",))

    monkeypatch.setattr(torch.cuda, "graph", Capture)
    return memory_saver.TorchMemorySaver()


# The package's own calls, with their arguments in order and what they are without.
PROTOCOL = {
    "region": [
        ("tag", "default"),
        ("enable_cpu_backup", False),
        ("enable_disk_backup", False),
        ("cpu_backup_backend", None),
    ],
    "cuda_graph": [
        ("cuda_graph", inspect.Parameter.empty),
        ("pool", None),
        ("stream", None),
        ("capture_error_mode", "global"),
        ("tag", "default"),
        ("enable_cpu_backup", False),
        ("cpu_backup_backend", None),
    ],
    "disable": [("dispose_mem_pool_after_use", True)],
    "pause": [("tag", None)],
    "resume": [("tag", None)],
    "get_cpu_backup": [("x", inspect.Parameter.empty), ("zero_copy", False)],
    "set_disk_backup_dir": [("path", inspect.Parameter.empty)],
}


@pytest.mark.parametrize("name", PROTOCOL)
def test_the_protocol_is_the_packages(name):
    parameters = inspect.signature(getattr(memory_saver.torch_memory_saver, name)).parameters
    assert [(each.name, each.default) for each in parameters.values()] == PROTOCOL[name]


def test_a_region_says_what_becomes_of_its_contents(saver, native):
    with saver.region("kv_cache"), saver.region("weights", enable_cpu_backup=True):
        pass
    assert native.done() == [
        ("set_region_backup", "kv_cache", "none"),
        ("enter_region", "kv_cache"),
        ("set_region_backup", "weights (backup)", "host"),
        ("enter_region", "weights (backup)"),
        ("leave_region",),
        ("leave_region",),
    ]


def test_a_tag_is_paused_with_all_that_has_it(saver, native):
    for tag, backup in [("a", True), ("a", False), ("b", False)]:
        with saver.region(tag, enable_cpu_backup=backup):
            pass
    with regraph.torch.region("not the saver's"):
        pass
    native.calls.clear()
    native.answers["region_tags"] = ["a", "a (backup)", "b", "not the saver's"]
    saver.pause("a")
    saver.pause()
    saver.resume("b")
    saver.resume()
    saver.pause("never used")
    moved = [call for call in native.calls if call[0] in ("sleep", "wake")]
    assert moved == [
        ("sleep", ["a", "a (backup)"]),
        ("sleep", ["a", "a (backup)", "b"]),
        ("wake", ["b"]),
        ("wake", ["a", "a (backup)", "b"]),
    ]


def test_a_tag_that_was_forgotten_is_paused_no_more(saver, native):
    for tag in ("a", "b"):
        with saver.region(tag):
            pass
    native.answers["region_tags"] = ["b"]
    saver.pause("a")
    saver.pause()
    assert [call for call in native.calls if call[0] == "sleep"] == [("sleep", ["b"])]


@pytest.mark.parametrize("mode", ["preload", "torch"])
def test_graphs_are_captured_in_their_region(saver, native, mode):
    saver.hook_mode = mode
    with saver.cuda_graph("graph", stream="s", tag="graphs"):
        native.calls.append(("body",))
    expected = {"pool": None, "stream": "s", "capture_error_mode": "global"}
    assert native.done() == [
        ("set_region_backup", "graphs", "none"),
        ("enter_region", "graphs"),
        ("graph", "graph", expected),
        ("graph begins",),
        ("body",),
        ("graph ends",),
        ("leave_region",),
    ]


def test_a_pool_that_exists_must_be_the_tags(saver, native):
    row = {"id": (0, 3), "region": "graphs", "reserved": 0, "allocated": 0, "graphs": 1}
    native.answers["pools"] = [row]
    for pool in [(0, 3), (0, 4)]:
        with saver.cuda_graph("graph", pool=pool, tag="graphs"):
            pass
    refused = saver.cuda_graph("graph", pool=(0, 3), tag="others")
    with pytest.raises(regraph.torch.Error, match=r"\(0, 3\) was made as 'graphs'"), refused:
        raise AssertionError
    row["region"] = None
    refused = saver.cuda_graph("graph", pool=(0, 3), tag="graphs")
    with pytest.raises(regraph.torch.Error, match="outside of all tags"), refused:
        raise AssertionError


def test_a_part_of_a_region_can_be_left_out(saver, native):
    with saver.region("a"), saver.disable():
        pass
    entered = [call for call in native.calls if call[0] == "enter_region"]
    assert entered == [("enter_region", "a"), ("enter_region", None)]
    with pytest.raises(AssertionError), saver.disable():
        raise KeyError


def test_what_is_configured(saver):
    assert saver.enabled
    with pytest.raises(AttributeError):
        _ = saver.hook_mode
    with pytest.raises(ValueError, match="hook_mode"):
        saver.hook_mode = "other"
    saver.retain_cpu_backup = True
    assert saver.retain_cpu_backup
    with pytest.raises(AssertionError, match="after initialization"):
        saver.hook_mode = "torch"
    with pytest.warns(UserWarning, match="no margin"):
        saver.memory_margin_bytes = 1 << 30
    with pytest.raises(NotImplementedError):
        _ = saver.memory_margin_bytes


def test_a_backup_can_be_read(saver, native, monkeypatch):
    class OnDevice(torch.Tensor):
        is_cuda = True

    whole = torch.arange(10, dtype=torch.int64).as_subclass(OnDevice)
    part = whole[2:6]
    assert saver.get_cpu_backup(part) is None

    def read(address, offset, size, to):
        assert address == whole.data_ptr()
        ctypes.memmove(to, address + offset, size)
        return True

    monkeypatch.setattr(native, "read_kept", read)
    backup = saver.get_cpu_backup(part, zero_copy=True)
    assert type(backup) is torch.Tensor and backup.tolist() == [2, 3, 4, 5]
    assert saver.get_cpu_backup(torch.empty(0).as_subclass(OnDevice)) is None, "it has no memory"
    with pytest.raises(AssertionError):
        saver.get_cpu_backup(whole[::2])
    with pytest.raises(AssertionError, match="cpu"):
        saver.get_cpu_backup(torch.ones(1))


def test_what_is_not_served_says_so(saver):
    with pytest.raises(regraph.torch.Error, match="TMS_DISK_BACKUP_DIR"):
        saver.region(enable_disk_backup=True).__enter__()
    with pytest.raises(AssertionError, match="on the host or on disk"):
        saver.region(enable_cpu_backup=True, enable_disk_backup=True).__enter__()
    with pytest.raises(ValueError, match="requires enable_cpu_backup"):
        saver.region(cpu_backup_backend="pinned").__enter__()


def test_backups_on_disk_go_to_the_folder_that_is_set(saver, native, monkeypatch):
    monkeypatch.setenv("TMS_DISK_BACKUP_DIR", "/mnt/disk")
    saver = memory_saver.TorchMemorySaver()
    with saver.region("a", enable_disk_backup=True):
        pass
    native.answers["region_tags"] = ["a (disk)"]
    saver.set_disk_backup_dir("/mnt/other")
    saver.pause("a")
    done = [call for call in native.calls if call[0] in ("set_region_file_backup", "enter_region", "sleep")]
    assert done == [
        ("set_region_file_backup", "a (disk)", "/mnt/disk"),
        ("enter_region", "a (disk)"),
        ("set_region_file_backup", "a (disk)", "/mnt/other"),
        ("sleep", ["a (disk)"]),
    ]


def test_the_first_use_enables_regraph(gpu, native):
    saver = memory_saver.TorchMemorySaver()
    assert not regraph.torch.is_enabled()
    with saver.region():
        assert regraph.torch.is_enabled()


def test_depths_are_threads_own(saver):
    refused = []

    def other_thread():
        try:
            saver.disable().__enter__()
        except AssertionError:
            refused.append(True)

    with saver.region("a"):
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join(10)
    assert refused


@pytest.mark.parametrize("retains", [False, True])
def test_pages_of_backups_go_unless_they_are_retained(saver, native, retains):
    with saver.region("a", enable_cpu_backup=True):
        pass
    assert saver.retain_cpu_backup is False
    saver.retain_cpu_backup = retains
    native.calls.clear()
    native.answers["region_tags"] = ["a (backup)"]
    saver.pause()
    saver.resume()
    assert ("free_region_host" in native.names()) is not retains
    assert "retain_backups" not in native.names()


def test_the_environment_can_have_backups_retained(saver, native, monkeypatch):
    monkeypatch.setenv("TMS_RETAIN_CPU_BACKUP", "1")
    assert saver.retain_cpu_backup
    assert ("retain_backups", True) in native.calls
    saver.retain_cpu_backup = False
    assert native.calls[-1] == ("retain_backups", False)


@pytest.mark.parametrize("name", ["TMS_INIT_ENABLE", "TMS_INIT_ENABLE_DISK_BACKUP"])
def test_memory_of_a_whole_process_is_refused(saver, monkeypatch, name):
    monkeypatch.setenv("TMS_INIT_ENABLE_CPU_BACKUP", "1")
    # As with the package it says nothing alone: regions say it.
    memory_saver.TorchMemorySaver().pause()
    monkeypatch.setenv(name, "1")
    with pytest.raises(regraph.torch.Error, match=rf"{name}=1.*region\(\)"), saver.region():
        raise AssertionError


def test_what_it_enables_can_sleep(gpu, native, monkeypatch):
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "1")
    monkeypatch.delenv("NCCL_GRAPH_REGISTER")
    memory_saver.TorchMemorySaver().pause()
    assert os.environ["NCCL_GRAPH_REGISTER"] == "0"


def test_libraries_that_are_loaded_before_others_are_refused():
    with pytest.raises(regraph.torch.Error, match="REGRAPH_TORCH_MEMORY_SAVER=1"):
        memory_saver.utils.get_binary_path_from_package("torch_memory_saver_hook_mode_preload")


def test_a_variable_is_put_back(monkeypatch):
    monkeypatch.delenv("THAT", raising=False)
    with memory_saver.utils.change_env("THAT", "1"):
        with memory_saver.utils.change_env("THAT", "2"):
            assert os.environ["THAT"] == "2"
        assert os.environ["THAT"] == "1"
    assert "THAT" not in os.environ


def run(program, folder, **environment):
    """Runs a program of a file, with a library that takes notes, where Python's start is as with the wheel."""
    (folder / "sitecustomize.py").write_text(
        "import site, sys\n"
        f"sys.path.append({os.path.dirname(__file__)!r})\n"
        "import fake_native\n"
        "sys.modules['regraph._native'] = fake_native.FakeNative()\n"
        f"site.addsitedir({str(PYTHON)!r})\n"
    )
    (folder / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "program.py")],
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.split()


def test_processes_that_are_spawned_find_it(tmp_path):
    program = """
        import multiprocessing

        def child(answers):
            import torch_memory_saver
            from torch_memory_saver.hooks.mode_preload import configure_subprocess
            answers.put(type(torch_memory_saver.torch_memory_saver).__module__)
            answers.put(torch_memory_saver.configure_subprocess is configure_subprocess)

        if __name__ == "__main__":
            import regraph.torch
            regraph.torch.memory_saver.install()
            import torch_memory_saver
            context = multiprocessing.get_context("spawn")
            answers = context.SimpleQueue()
            with torch_memory_saver.configure_subprocess():
                process = context.Process(target=child, args=(answers,))
                process.start()
            print(answers.get(), answers.get())
            process.join()
    """
    assert run(program, tmp_path) == ["regraph.torch.memory_saver.saver", "True"]


def test_a_process_finds_it_by_its_environment(tmp_path):
    program = """
        import importlib.util, sys
        found = importlib.util.find_spec("torch_memory_saver") is not None
        print(found, "torch" in sys.modules, "regraph" in sys.modules)
        if found:
            from torch_memory_saver.utils import change_env
            import regraph.torch, torch_memory_saver
            print(torch_memory_saver is regraph.torch.memory_saver)
            print(change_env is regraph.torch.memory_saver.utils.change_env)
            print(importlib.util.find_spec("torch_memory_saver.nothing"))
    """
    set_so = run(program, tmp_path, REGRAPH_TORCH_MEMORY_SAVER="1")
    assert set_so == ["True", "False", "True", "True", "True", "None"]
    # Without, Python's start imports nothing.
    assert run(program, tmp_path, REGRAPH_TORCH_MEMORY_SAVER="") == ["False", "False", "False"]


def test_who_started_without_the_wheel_is_told(monkeypatch):
    monkeypatch.setattr("site.getsitepackages", lambda: ["/nowhere"])
    monkeypatch.setattr("site.getusersitepackages", lambda: "/nowhere")
    monkeypatch.setenv("REGRAPH_TORCH_MEMORY_SAVER", "")
    with pytest.warns(UserWarning, match="will not find"), memory_saver.configure_subprocess():
        assert os.environ["REGRAPH_TORCH_MEMORY_SAVER"] == "1"


def test_importing_it_by_its_own_name_enables_regraph(gpu, native, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(sys.modules, "torch_memory_saver", types.ModuleType("torch_memory_saver"))
    monkeypatch.setitem(sys.modules, "torch_memory_saver.utils", types.ModuleType("utils"))
    memory_saver.install()
    assert not regraph.torch.is_enabled()
    package = importlib.import_module("torch_memory_saver")
    assert package is memory_saver and package.utils is memory_saver.utils
    assert regraph.torch.is_enabled()


def test_importing_it_too_late_warns(gpu, native, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="used CUDA already"):
        memory_saver.prepare()
    assert not regraph.torch.is_enabled()
