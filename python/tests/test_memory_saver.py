"""What `torch_memory_saver` offers, by regions."""

import ctypes
import importlib
import inspect
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch
from regraph.torch import memory_saver


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
    assert native.calls == [
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


@pytest.mark.parametrize("mode", ["preload", "torch"])
def test_graphs_are_captured_in_their_region(saver, native, mode):
    saver.hook_mode = mode
    with saver.cuda_graph("graph", stream="s", tag="graphs"):
        native.calls.append(("body",))
    assert native.names() == [
        "set_region_backup",
        "enter_region",
        "graph",
        "graph begins",
        "body",
        "graph ends",
        "leave_region",
    ]
    expected = {"pool": None, "stream": "s", "capture_error_mode": "global"}
    assert native.calls[2] == ("graph", "graph", expected)


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
    with memory_saver.configure_subprocess():
        pass


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
    for call in (
        lambda: saver.set_disk_backup_dir("/tmp"),
        lambda: saver.region(enable_disk_backup=True).__enter__(),
    ):
        with pytest.raises(regraph.torch.Error):
            call()
    with pytest.raises(ValueError, match="requires enable_cpu_backup"):
        saver.region(cpu_backup_backend="pinned").__enter__()


def test_the_first_use_enables_regraph(gpu, native):
    saver = memory_saver.TorchMemorySaver()
    assert not regraph.torch.is_enabled()
    with saver.region():
        assert regraph.torch.is_enabled()


def test_it_can_stand_for_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_memory_saver", None)
    memory_saver.install()
    package = importlib.import_module("torch_memory_saver")
    assert package.torch_memory_saver is memory_saver.torch_memory_saver
    assert callable(package.configure_subprocess)
