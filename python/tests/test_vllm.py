"""vLLM's sleep mode: the backend against vLLM's protocol, which is mirrored here."""

import abc
import importlib
import os
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch


def mirror():
    """`vllm.device_allocator` and `vllm.device_allocator.sleep_mode_backend`, as far as plug-ins see them."""
    package, allocators, backends = (
        types.ModuleType(name)
        for name in ("vllm", "vllm.device_allocator", "vllm.device_allocator.sleep_mode_backend")
    )

    class SleepModeBackend(abc.ABC):
        def __init__(self) -> None:
            self._state = "RUNNING"

        @abc.abstractmethod
        def suspend(self, level: int = 1) -> None: ...

        @abc.abstractmethod
        def resume(self, tags: list[str] | None = None) -> None: ...

        def state(self):
            return self._state

        def discard(self, tags: tuple[str, ...]) -> None:
            raise RuntimeError("does not support selective discard")

        @classmethod
        def is_supported(cls) -> bool:
            return True

        @classmethod
        def preserves_communicators(cls) -> bool:
            return False

        @classmethod
        def preserves_compiled_artifacts(cls) -> bool:
            return False

        @classmethod
        def preserves_graphs_with_communicators(cls) -> bool:
            return False

        @classmethod
        def supports_durable_storage(cls) -> bool:
            return False

    class SleepModeBackendFactory:
        registry: dict[str, tuple[str, str]] = {}

        @classmethod
        def register_backend(cls, name: str, module_path: str, class_name: str) -> None:
            if name in cls.registry:
                raise ValueError(f"Sleep-mode backend '{name}' is already registered.")
            cls.registry[name] = (module_path, class_name)

        @classmethod
        def create_backend(cls, name: str):
            module_path, class_name = cls.registry[name]
            backend = getattr(importlib.import_module(module_path), class_name)
            if not backend.is_supported():
                raise ValueError(f"Sleep-mode backend '{name}' is not supported on this platform.")
            return backend()

    backends.SleepModeBackend = SleepModeBackend
    backends.SleepModeBackendFactory = SleepModeBackendFactory
    allocators.get_mem_allocator_instance = lambda: "vLLM's own"
    allocators.sleep_mode_backend = backends
    package.device_allocator = allocators
    return package, allocators, backends


@pytest.fixture
def vllm(monkeypatch):
    """vLLM as far as a plug-in sees it; regraph's part as if it was imported for the first time."""
    modules = mirror()
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "regraph.torch.vllm", raising=False)
    monkeypatch.delenv("REGRAPH_VLLM", raising=False)
    # Set, so that what the plug-in sets goes again.
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "1")
    monkeypatch.delenv("NCCL_GRAPH_REGISTER")
    return types.SimpleNamespace(allocators=modules[1], factory=modules[2].SleepModeBackendFactory)


@pytest.fixture
def worker(vllm, gpu, native, monkeypatch):
    """A worker that has loaded its model: its allocator and its backend."""
    monkeypatch.setenv("REGRAPH_VLLM", "1")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: native.calls.append(("empty_cache",)))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    plugin = importlib.import_module("regraph.torch.vllm")
    plugin.register()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    allocator = vllm.allocators.get_mem_allocator_instance()
    for tag in ("weights", "kv_cache"):
        with allocator.use_memory_pool(tag=tag):
            pass
    native.answers["region_tags"] = ["graphs", "kv_cache", "weights"]
    native.calls.clear()
    backend = vllm.factory.create_backend("regraph")
    return types.SimpleNamespace(allocator=allocator, backend=backend)


def moved(native):
    return [call for call in native.calls if call[0] in ("sleep", "wake", "set_region_backup")]


def test_vllm_finds_it():
    tomllib = pytest.importorskip("tomllib", reason="Python is older than 3.11")
    from pathlib import Path

    path = Path(__file__).parent.parent / "pyproject.toml"
    points = tomllib.loads(path.read_text())["project"]["entry-points"]["vllm.general_plugins"]
    module, name = points["regraph"].split(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_nothing_of_vllm_is_needed_or_imported(gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, "regraph.torch.vllm", raising=False)
    plugin = importlib.import_module("regraph.torch.vllm")
    plugin.register()
    assert not regraph.torch.is_enabled()
    monkeypatch.setenv("REGRAPH_VLLM", "1")
    with pytest.warns(UserWarning, match="no backends of sleep mode"):
        plugin.register()


def test_without_the_variable_vllm_stays_as_it_was(vllm, gpu):
    plugin = importlib.import_module("regraph.torch.vllm")
    plugin.register()
    plugin.register()
    assert not regraph.torch.is_enabled()
    assert vllm.allocators.get_mem_allocator_instance() == "vLLM's own"
    with (
        pytest.warns(UserWarning, match="set REGRAPH_VLLM=1"),
        pytest.raises(ValueError, match="not supported"),
    ):
        vllm.factory.create_backend("regraph")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [("device_count", 0, "no NVIDIA GPU"), ("is_initialized", True, "used CUDA already")],
)
def test_a_process_that_cannot_have_it_goes_on_without(vllm, gpu, monkeypatch, name, value, why):
    monkeypatch.setenv("REGRAPH_VLLM", "1")
    monkeypatch.setattr(torch.cuda, name, lambda: value)
    plugin = importlib.import_module("regraph.torch.vllm")
    with pytest.warns(UserWarning, match=f"REGRAPH_VLLM=1 has no effect in this process: .*{why}"):
        plugin.register()
    assert not regraph.torch.is_enabled()
    assert "NCCL_GRAPH_REGISTER" not in os.environ
    assert vllm.allocators.get_mem_allocator_instance() == "vLLM's own"


def test_modules_that_were_imported_before_get_it_too(vllm, gpu, monkeypatch):
    monkeypatch.setenv("REGRAPH_VLLM", "1")
    worker = types.ModuleType("vllm.v1.worker.gpu_worker")
    worker.get_mem_allocator_instance = vllm.allocators.get_mem_allocator_instance
    monkeypatch.setitem(sys.modules, worker.__name__, worker)
    plugin = importlib.import_module("regraph.torch.vllm")
    plugin.register()
    assert isinstance(worker.get_mem_allocator_instance(), plugin.Allocator)


def test_graphs_have_a_region(vllm, gpu, native, monkeypatch):
    monkeypatch.setenv("REGRAPH_VLLM", "1")
    importlib.import_module("regraph.torch.vllm").register()
    assert ("put_graphs_into", "graphs") in native.calls
    assert regraph.torch.is_enabled()
    # What NCCL registered of a capture could not sleep.
    assert os.environ["NCCL_GRAPH_REGISTER"] == "0"


def test_level_one_keeps_weights(worker, native):
    assert worker.backend.state() == "RUNNING"
    worker.backend.suspend(level=1)
    assert worker.backend.state() == "SUSPENDED"
    assert native.done()[:4] == [
        ("set_region_backup", "graphs", "host"),
        ("set_region_backup", "kv_cache", "none"),
        ("set_region_backup", "weights", "host"),
        ("empty_cache",),
    ]
    assert ("sleep", ["graphs", "kv_cache", "weights"]) in native.calls
    worker.backend.resume()
    assert worker.backend.state() == "RUNNING"
    assert moved(native)[-1] == ("wake", ["graphs", "kv_cache", "weights"])


def test_level_two_keeps_nothing(worker, native):
    worker.backend.suspend(level=2)
    assert ("set_region_backup", "weights", "none") in native.calls


def test_a_suspension_of_nothing_is_refused(worker, native):
    native.answers["region_tags"] = ["graphs"]
    with pytest.raises(regraph.torch.Error, match="Neither weights nor key-value blocks"):
        worker.backend.suspend()
    assert worker.backend.state() == "RUNNING"
    assert moved(native) == []


@pytest.mark.parametrize("tags", [None, ["weights"], ["kv_cache"]])
@pytest.mark.parametrize("releases", ["0", "1"])
def test_host_memory_goes_where_vllm_says_so(worker, native, monkeypatch, releases, tags):
    monkeypatch.setenv("VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY", releases)
    worker.backend.suspend()
    worker.backend.resume(tags)
    assert ("free_region_host" in native.names()) is (releases == "1" and tags != ["kv_cache"])


def test_waking_in_parts(worker, native):
    worker.backend.suspend()
    native.calls.clear()
    worker.backend.resume(tags=["weights"])
    worker.backend.resume(tags=["kv_cache"])
    assert moved(native) == [("wake", ["weights"]), ("wake", ["graphs", "kv_cache"])]


def test_one_region_is_dropped(worker, native):
    worker.backend.discard(("kv_cache", "unknown"))
    assert moved(native) == [("set_region_backup", "kv_cache", "none"), ("sleep", ["kv_cache"])]


def test_a_resume_that_fails_leaves_it_suspended(worker, native):
    worker.backend.suspend()
    native.failures["wake"] = native.OutOfMemory("2 GiB are missing")
    with pytest.raises(torch.OutOfMemoryError):
        worker.backend.resume()
    assert worker.backend.state() == "SUSPENDED"


def test_how_much_there_is(worker, native, monkeypatch):
    row = {"backup": "host", "awake_bytes": 1, "asleep_bytes": 2, "host_bytes": 0}
    native.answers["regions"] = [{"tag": tag, **row} for tag in ("graphs", "other", "weights")]
    monkeypatch.setattr("regraph.torch.sleeping._get_device_index", lambda *_, **__: 0)
    assert worker.allocator.get_current_usage() == 3
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert worker.allocator.get_current_usage() == 0


def test_what_it_preserves(worker):
    backend = type(worker.backend)
    assert backend.preserves_communicators() and backend.preserves_compiled_artifacts()
    assert not backend.preserves_graphs_with_communicators()
    assert not backend.supports_durable_storage()
