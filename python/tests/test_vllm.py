"""vLLM's sleep mode: the backend against vLLM's own classes, and the protocol of earlier versions, mirrored here."""

import abc
import contextlib
import importlib
import os
import random
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import engine_wheels

import regraph.torch
from regraph.torch import snapshots


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
    native.answers["region_tags"] = ["cudagraph", "kv_cache", "weights"]
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


@pytest.mark.parametrize("said", [None, "0", "true"])
def test_without_the_variable_vllm_stays_as_it_was(vllm, gpu, monkeypatch, recwarn, said):
    if said is not None:
        monkeypatch.setenv("REGRAPH_VLLM", said)
    plugin = importlib.import_module("regraph.torch.vllm")
    plugin.register()
    told = [str(warning.message) for warning in recwarn]
    assert told == ["REGRAPH_VLLM: expected 1, 0 or nothing, found 'true': no effect"] * (said == "true")
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
    assert ("put_graphs_into", "cudagraph") in native.calls
    assert regraph.torch.is_enabled()
    # What NCCL registered of a capture could not sleep.
    assert os.environ["NCCL_GRAPH_REGISTER"] == "0"


def test_level_one_keeps_weights(worker, native):
    assert worker.backend.state() == "RUNNING"
    worker.backend.suspend(level=1)
    assert worker.backend.state() == "SUSPENDED"
    assert native.done()[:4] == [
        ("set_region_backup", "cudagraph", "host"),
        ("set_region_backup", "kv_cache", "none"),
        ("set_region_backup", "weights", "host"),
        ("empty_cache",),
    ]
    assert ("sleep", ["cudagraph", "kv_cache", "weights"]) in native.calls
    worker.backend.resume()
    assert worker.backend.state() == "RUNNING"
    assert moved(native)[-1] == ("wake", ["cudagraph", "kv_cache", "weights"])


def test_level_one_keeps_weights_in_the_folder_that_is_named(worker, native, monkeypatch):
    monkeypatch.setenv("REGRAPH_VLLM_FOLDER", "/mnt/disk")
    worker.backend.suspend(level=1)
    assert native.done()[:3] == [
        ("set_region_file_backup", "cudagraph", "/mnt/disk"),
        ("set_region_backup", "kv_cache", "none"),
        ("set_region_file_backup", "weights", "/mnt/disk"),
    ]


def test_level_two_drops_weights(worker, native):
    worker.backend.suspend(level=2)
    assert ("set_region_backup", "weights", "none") in native.calls


def test_a_suspension_of_nothing_is_refused(worker, native):
    native.answers["region_tags"] = ["cudagraph"]
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
    assert moved(native) == [("wake", ["cudagraph", "weights"]), ("wake", ["cudagraph", "kv_cache"])]


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
    native.answers["regions"] = [{"tag": tag, **row} for tag in ("cudagraph", "other", "weights")]
    monkeypatch.setattr("regraph.torch.sleeping._get_device_index", lambda *_, **__: 0)
    assert worker.allocator.get_current_usage() == 3
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert worker.allocator.get_current_usage() == 0


def test_what_it_preserves(worker):
    backend = type(worker.backend)
    assert backend.preserves_communicators() and backend.preserves_compiled_artifacts()
    assert not backend.preserves_graphs_with_communicators()
    assert not backend.supports_durable_storage()


TAGS = ("weights", "kv_cache", "runtime", "workspace", "cudagraph", "adapters")
ANYTHING = b"anything"


class Memory:
    """The regions of the library that takes notes, with what each holds: `None` while it sleeps."""

    def __init__(self, native, monkeypatch):
        self.held, self.kept, self.backups = {}, {}, {}
        for name in ("sleep", "wake", "set_region_backup"):
            monkeypatch.setattr(native, name, getattr(self, name))
        monkeypatch.setattr(native, "region_tags", lambda: sorted(self.held))

    def set_region_backup(self, tag, backup):
        self.backups[tag] = backup

    def sleep(self, tags):
        for tag in tags:
            if self.held[tag] is not None:
                if self.backups.get(tag, "host") == "host":
                    self.kept[tag] = self.held[tag]
                self.held[tag] = None
        return 1

    def wake(self, tags):
        for tag in tags:
            if self.held[tag] is None:
                self.held[tag] = self.kept.pop(tag, ANYTHING)
        return 1


@pytest.fixture
def own(gpu, native, monkeypatch):
    """vLLM's own allocator and backend, and beside them a worker's with regraph: each with memory under every tag."""
    package, device = engine_wheels.vllm(monkeypatch, torch)
    monkeypatch.delitem(sys.modules, "regraph.torch.vllm", raising=False)
    monkeypatch.setenv("REGRAPH_VLLM", "1")
    for name in ("init", "empty_cache", "is_initialized"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda device=None: None)
    theirs = package.get_mem_allocator_instance()
    for address, tag in enumerate(TAGS, 1 << 20):
        device.memory[address] = tag.encode()
        theirs.current_tag = tag
        theirs._python_malloc_callback((0, 64, address, 0))
    backends = sys.modules["vllm.device_allocator.sleep_mode_backend"]
    reference = backends.CuMemBackend()
    of_vllm = package.get_mem_allocator_instance
    plugin = importlib.import_module("regraph.torch.vllm")
    plugin.register()
    of_regraph = package.get_mem_allocator_instance
    allocator = of_regraph()
    assert isinstance(allocator, plugin.Allocator)
    memory = Memory(native, monkeypatch)
    for tag in TAGS:
        memory.held[tag] = tag.encode()
        with allocator.use_memory_pool(tag=tag):
            pass

    def ask(name, *arguments):
        """Calls vLLM's own backend on vLLM's own allocator."""
        package.get_mem_allocator_instance = of_vllm
        try:
            getattr(reference, name)(*arguments)
        finally:
            package.get_mem_allocator_instance = of_regraph

    def backend(name):
        config = types.SimpleNamespace(sleep_mode_backend=name)
        return backends.SleepModeBackendFactory.create_backend(config)

    return types.SimpleNamespace(
        ask=ask,
        backend=backend,
        memory=memory,
        device=device,
        reference=reference,
        allocator=allocator,
        package=package,
    )


def compare(own):
    """What is awake is the same, and all that vLLM's own keeps is kept; a tag that vLLM does not know keeps more."""
    theirs = dict(zip(TAGS, own.device.memory.values(), strict=True))
    for tag in TAGS:
        ours = own.memory.held[tag]
        assert (ours is None) == (theirs[tag] is None), tag
        if tag != "adapters" or theirs[tag] != ANYTHING:
            assert ours == theirs[tag], tag


def write(own, tag, contents):
    address = (1 << 20) + TAGS.index(tag)
    if own.memory.held[tag] is not None:
        own.memory.held[tag] = own.device.memory[address] = contents


@pytest.mark.parametrize("backend", ["regraph", "cumem"])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("tags", [None, ["weights"], ["kv_cache"], ["runtime"], []])
def test_what_vllm_keeps_is_kept(own, backend, level, tags):
    """Also by vLLM's own backend on regraph's allocator, as without `--sleep-mode-backend regraph`."""
    ours = own.backend(backend)
    own.ask("suspend", level)
    ours.suspend(level)
    compare(own)
    assert set(own.memory.held.values()) == {None}
    own.ask("resume", tags)
    ours.resume(tags)
    compare(own)
    for tag in ("runtime", "cudagraph", "adapters"):
        assert own.memory.held[tag] == tag.encode(), "whatever is waked"
    assert own.memory.held["workspace"] is not None
    assert ours.state() == own.reference.state() == "RUNNING"


def test_what_was_set_outside_does_not_count(own):
    backend = own.backend("regraph")
    for tag, backup in (("runtime", "none"), ("cudagraph", "device"), ("weights", "none")):
        regraph.torch.set_backup(tag, backup)
    backend.suspend(1)
    # Nor does it for what sleeps.
    regraph.torch.set_backup("runtime", "none")
    backend.resume(["kv_cache"])
    assert [own.memory.held[tag] for tag in ("runtime", "cudagraph", "weights")] == [
        b"runtime",
        b"cudagraph",
        None,
    ]
    backend.resume()
    assert own.memory.held["weights"] == b"weights"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("backend", ["regraph", "cumem"])
def test_random_calls_do_as_vllms_own(own, backend, seed):
    chance = random.Random(seed)
    ours = own.backend(backend)
    for step in range(12):
        call = chance.choice(["suspend", "resume", "resume", "discard", "write", "outside"])
        if call == "write":
            write(own, chance.choice(TAGS), str(step).encode())
            continue
        if call == "outside":
            backup = chance.choice(["host", "none", "device"])
            regraph.torch.set_backup(chance.choice(TAGS), backup)
            continue
        some = [tag for tag in TAGS[:5] if chance.random() < 0.4]
        arguments = {
            "suspend": chance.choice([1, 2]),
            "resume": chance.choice([None, some]),
            "discard": tuple(some),
        }
        own.ask(call, arguments[call])
        getattr(ours, call)(arguments[call])
        compare(own)
        assert ours.state() == own.reference.state()


def test_the_set_is_vllms(own, monkeypatch):
    backend = own.backend("regraph")
    monkeypatch.setattr(own.package, "DEFERRABLE_TAGS", ("weights", "kv_cache", "adapters"))
    backend.suspend(2)
    backend.resume(["weights"])
    assert own.memory.held["adapters"] is None
    backend.resume()
    assert own.memory.held["adapters"] == ANYTHING


def test_graphs_are_captured_into_one_pool(own, native, monkeypatch):
    """As vLLM's own code asks for it under `--sleep-mode-offload-cudagraph`."""
    handles = iter([(0, 3), (0, 4)])
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    routing = importlib.import_module("vllm.compilation.cudagraph_pool")
    monkeypatch.setitem(sys.modules, routing.__name__, routing)
    config = types.SimpleNamespace(use_cumem_cudagraph_pool=True)
    native.calls.clear()
    with own.allocator.use_memory_pool("runtime"), routing.capture_pool((0, 9), config) as pool:
        assert pool == own.device.graph_pool == (0, 3)
        # Whatever region the thread was in, the graph's memory sleeps with that of all graphs.
        assert native.calls[-1] == ("enter_region", "cudagraph")
    with routing.capture_pool(None, config) as pool:
        assert pool == (0, 3)
    with routing.capture_outside_cumem_pool(), routing.capture_pool((0, 9), config) as pool:
        assert pool == (0, 9)
    # Other versions' names.
    with own.allocator.use_cudagraph_pool() as pool:
        assert pool == (0, 3)
    own.allocator.release_cudagraph_pool((0, 5))
    with own.allocator.use_cudagraph_pool() as pool:
        assert pool == (0, 3)
    own.allocator.release_cudagraph_pool()
    with own.allocator.use_cudagraph_pool() as pool:
        assert pool == (0, 4)
    with own.allocator.use_cudagraph_pool((0, 8)) as pool:
        assert pool == (0, 8)


def worker_of(own, *names):
    """Methods of vLLM's own worker."""
    path = engine_wheels.sources("vllm", "0.33.0", "vllm/v1/worker/gpu_worker.py")
    scope = {
        "contextmanager": contextlib.contextmanager,
        "current_platform": sys.modules["vllm.platforms"].current_platform,
        "get_mem_allocator_instance": lambda: own.allocator,
        "nullcontext": contextlib.nullcontext,
        "torch": torch,
    }
    return engine_wheels.functions(path / "vllm/v1/worker/gpu_worker.py", names, scope)


def test_a_worker_loads_weights_first(own, native, monkeypatch):
    """vLLM's worker asserts that nothing lies in its regions before them: what lies elsewhere does not count."""
    row = {"backup": "host", "asleep_bytes": 0, "host_bytes": 0}
    native.answers["regions"] = [
        {"tag": tag, "awake_bytes": bytes, **row} for tag, bytes in (("mine", 5), ("cudagraph", 7), ("weights", 0))
    ]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr("regraph.torch.sleeping._get_device_index", lambda *_, **__: 0)
    assert own.allocator.get_current_usage() == 0
    model = types.SimpleNamespace(enable_cumem_allocator=True)
    worker = types.SimpleNamespace(vllm_config=types.SimpleNamespace(model_config=model))
    enter = worker_of(own, "_maybe_get_memory_pool_context")._maybe_get_memory_pool_context
    native.calls.clear()
    with enter(worker, tag="weights"):
        assert ("enter_region", "weights") in native.calls
    native.answers["regions"][2]["awake_bytes"] = 1
    with pytest.raises(AssertionError, match="one instance per process"):
        enter(worker, tag="weights")


def answer_snapshots(monkeypatch):
    """As the plug-in does."""
    monkeypatch.setattr(torch._C, "_cuda_memorySnapshot", snapshots._memory_snapshot, raising=False)


@pytest.mark.parametrize("getter", [True, False])
def test_a_worker_changes_one_setting_and_puts_the_text_back(own, native, monkeypatch, getter):
    """It gives whole texts, and reads what there was: from PyTorch's function, before 2.14 from a snapshot."""
    told = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")
    name = "_accelerator_getAllocatorSettings"
    monkeypatch.setattr(torch._C, name, lambda: "max_split_size_mb:512", raising=False)
    if not getter:
        monkeypatch.delattr(torch._C, name)
        answer_snapshots(monkeypatch)
    scoped = worker_of(own, "_scoped_allocator_max_split")._scoped_allocator_max_split
    with scoped(None, max_split_size_mb=20):
        assert told == ["max_split_size_mb:512,max_split_size_mb:20"]
    assert told[1:] == ["max_split_size_mb:512"]


def test_vllms_editor_of_settings_reads_them(own, native, monkeypatch):
    answer_snapshots(monkeypatch)
    conf = importlib.import_module("vllm.device_allocator.alloc_conf")
    told = "512,expandable_segments:True"
    monkeypatch.setitem(native.answers, "snapshot", native.answers["snapshot"].replace("512\"", told + '"'))
    assert conf.live_alloc_conf() == "max_split_size_mb:512,expandable_segments:True"
