"""Memory that others get by handles of their own, as SGLang's own classes get it."""

import contextlib
import enum
import importlib.util
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import engine_wheels

import regraph.torch
from fake_native import ADDRESS
from regraph.torch import exporting

VERSION = "0.5.23"
PIECE = 2 << 20


class Driver(types.ModuleType):
    """CUDA's bindings of a device whose mapped memory is pieces of 2 MiB from `ADDRESS` on."""

    class CUresult(enum.IntEnum):
        CUDA_SUCCESS = 0
        CUDA_ERROR_INVALID_VALUE = 1

    class CUmemAllocationGranularity_flags(enum.IntEnum):
        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1

    class CUmemAllocationHandleType(enum.IntEnum):
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1
        CU_MEM_HANDLE_TYPE_FABRIC = 8

    def __init__(self, fabric):
        super().__init__(exporting.BINDINGS)
        done, wrong = self.CUresult.CUDA_SUCCESS, self.CUresult.CUDA_ERROR_INVALID_VALUE
        self.exported, self.retained = [], 0

        def cuMemRetainAllocationHandle(addr):
            if addr < ADDRESS:
                return wrong, None
            self.retained += 1
            return done, (addr - ADDRESS) // PIECE + 500

        def cuMemRelease(handle):
            self.retained -= 1
            return (done,)

        def cuMemGetAddressRange(address):
            return done, address - (address - ADDRESS) % PIECE, PIECE

        def cuMemExportToShareableHandle(handle, handleType, flags):
            if handleType == 8 and not fabric:
                return wrong, None
            self.exported.append((handle, int(handleType)))
            return done, types.SimpleNamespace(data=bytes(64)) if handleType == 8 else 10_000

        for function in (
            cuMemRetainAllocationHandle,
            cuMemRelease,
            cuMemGetAddressRange,
            cuMemExportToShareableHandle,
        ):
            setattr(self, function.__name__, function)


class Collecting(dict):
    """What is retained, where a finalizer runs in the middle of each note of it."""

    finalizer = staticmethod(lambda: None)

    def setdefault(self, handle, default):
        finalizer, self.finalizer = self.finalizer, lambda: None
        finalizer()
        return super().setdefault(handle, default)


@pytest.fixture(params=[True, False], ids=["fabric", "descriptors"])
def driver(request, enabled, monkeypatch):
    """What stands for CUDA's bindings."""
    driver = Driver(request.param)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = driver
    modules = {"cuda": types.ModuleType("cuda"), "cuda.bindings": bindings, exporting.BINDINGS: driver}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(exporting, "_retained", {})
    return driver


@pytest.fixture
def sglang(driver, monkeypatch):
    """SGLang's own module, on these bindings."""
    for name in ("sglang", "sglang.srt", "sglang.srt.utils"):
        module = types.ModuleType(name)
        module.__path__ = []
        module.log_info_on_rank0 = lambda *_: None
        monkeypatch.setitem(sys.modules, name, module)
    path = "sglang/srt/utils/cuda_vmm_utils.py"
    folder = engine_wheels.sources("sglang", VERSION, path)
    spec = importlib.util.spec_from_file_location("sglang.srt.utils.cuda_vmm_utils", folder / path)
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    monkeypatch.setattr(utils, "all_ranks_ok", lambda group, ok: ok)
    monkeypatch.setattr(utils, "exchange_posix_fds", lambda *_: {})
    monkeypatch.setattr(utils.os, "close", lambda _: None)
    monkeypatch.setattr(utils.dist, "all_reduce", lambda *_, **__: None)
    monkeypatch.setattr(utils.dist, "all_gather", lambda all, mine, **__: all[0].copy_(mine))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return types.SimpleNamespace(utils=utils, driver=driver)


def capture():
    """A capture of PyTorch's, in which regraph sees what the program has imported."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()


def kept(native):
    return [call for call in native.calls if call[0] == "keep_exported"]


def test_a_handle_that_was_released_names_nothing(driver, native):
    """CUDA gives its number to other memory, whose export is no matter of regraph's."""
    capture()
    for _ in range(2):
        driver.cuMemRetainAllocationHandle(ADDRESS)
    driver.cuMemRelease(500)
    driver.cuMemExportToShareableHandle(500, 1, 0)
    assert kept(native) == [("keep_exported", ADDRESS, 1)], "retained twice, and released once"
    driver.cuMemRelease(handle=500)
    driver.cuMemExportToShareableHandle(500, 1, 0)
    assert len(kept(native)) == 1
    assert exporting._retained == {}


def test_a_finalizer_may_release_a_handle_while_another_is_noted(driver, monkeypatch):
    capture()
    retained = Collecting()
    monkeypatch.setattr(exporting, "_retained", retained)
    driver.cuMemRetainAllocationHandle(ADDRESS)
    retained.finalizer = lambda: driver.cuMemRelease(500)
    driver.cuMemRetainAllocationHandle(ADDRESS)
    assert retained == {500: [ADDRESS]}


def test_what_an_all_reduce_registers_stays(sglang, native):
    """SGLang's own registration of a graph's inputs: one that lies on two pieces, one on a third."""
    capture()
    inputs = [(ADDRESS + PIECE - 512, 1024), (ADDRESS + 5 * PIECE + 512, 512)]
    assert sglang.utils.is_vmm_pointer(inputs[0][0]) and not sglang.utils.is_vmm_pointer(64)
    assert kept(native) == [], "who only asks has nothing"
    registered = []
    reducer = types.SimpleNamespace(
        get_graph_capture_bases=lambda: sglang.utils.compute_graph_capture_bases(inputs),
        register_peer_mapped_inputs=registered.append,
    )
    sglang.utils.VmmGraphInputManager(reducer, None, 0, 1).register_graph_inputs()
    assert registered == [[[inputs[0][0]], [inputs[1][0]]]]
    # Where a fabric cannot be had each is asked for twice.
    addresses = {address for _, address, _ in kept(native)}
    assert addresses == {ADDRESS, ADDRESS + PIECE, ADDRESS + 5 * PIECE}
    assert {handle for handle, _ in sglang.driver.exported} == {500, 501, 505}
    assert sglang.driver.retained == 0


def test_what_cannot_stay_is_not_exported(sglang, native):
    """SGLang's error then has regraph's reason."""
    capture()
    native.failures["keep_exported"] = regraph.torch.Error("keep_exported: its capture gets its memory at its end")

    def bases():
        return sglang.utils.compute_graph_capture_bases([(ADDRESS, 512)])

    reducer = types.SimpleNamespace(get_graph_capture_bases=bases)
    manager = sglang.utils.VmmGraphInputManager(reducer, None, 0, 1)
    with pytest.raises(RuntimeError, match="gets its memory at its end"):
        manager.register_graph_inputs()
    assert sglang.driver.exported == [] and sglang.driver.retained == 0


def test_bindings_are_seen_once(sglang, native):
    assert exporting.BINDINGS in sys.modules
    before = sglang.driver.cuMemExportToShareableHandle
    capture()
    seen = sglang.driver.cuMemExportToShareableHandle
    assert seen is not before and seen.__wrapped__ is before
    capture()
    assert sglang.driver.cuMemExportToShareableHandle is seen
    # A handle of the program's own memory, by keywords.
    sglang.driver.cuMemExportToShareableHandle(handle=7, handleType=8, flags=0)
    assert kept(native) == []
    sglang.driver.cuMemRetainAllocationHandle(addr=ADDRESS)
    sglang.driver.cuMemExportToShareableHandle(handle=500, handleType=1, flags=0)
    assert kept(native) == [("keep_exported", ADDRESS, 1)]
    native.calls.clear()
    sglang.driver.cuMemExportToShareableHandle(flags=0, handleType=1, handle=500)
    assert kept(native) == [("keep_exported", ADDRESS, 1)], "in any order"
    with pytest.raises(TypeError, match="handle"):
        sglang.driver.cuMemExportToShareableHandle(handleType=1, flags=0)


def test_without_cudas_bindings_nothing_is_seen(enabled, monkeypatch):
    monkeypatch.delitem(sys.modules, exporting.BINDINGS, raising=False)
    capture()
    assert exporting.BINDINGS not in sys.modules
    monkeypatch.setitem(sys.modules, exporting.BINDINGS, types.ModuleType(exporting.BINDINGS))
    capture()


def test_a_tensor_is_kept(enabled, native, monkeypatch):
    storage = types.SimpleNamespace(data_ptr=lambda: ADDRESS, nbytes=lambda: 4096)
    tensor = types.SimpleNamespace(is_cuda=True, untyped_storage=lambda: storage)
    regraph.torch.keep_exported(tensor)
    assert kept(native) == [("keep_exported", ADDRESS, 4096)]
    monkeypatch.setitem(native.answers, "keep_exported", False)
    with pytest.raises(ValueError, match="no GPU memory that regraph has handed out"):
        regraph.torch.keep_exported(tensor)
    with pytest.raises(ValueError, match="no GPU memory"):
        regraph.torch.keep_exported(torch.ones(1))
    with pytest.raises(TypeError, match="needs a tensor, not str"):
        regraph.torch.keep_exported("x")


def test_sglangs_memory_saver_backs_graphs_up(enabled, native, monkeypatch):
    """SGLang's own adapter on regraph's `torch_memory_saver`: graphs with a backup, which weights need not have."""
    from regraph.torch import memory_saver

    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    graphs = []

    def capture(graph, **named):
        graphs.append((graph, named))
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", capture)
    saver = memory_saver.TorchMemorySaver()
    package = types.ModuleType("torch_memory_saver")
    package.torch_memory_saver = saver
    monkeypatch.setitem(sys.modules, "torch_memory_saver", package)
    for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.utils.common"):
        module = types.ModuleType(name)
        module.__path__ = []
        module.is_xpu = lambda: False
        monkeypatch.setitem(sys.modules, name, module)
    path = "sglang/srt/utils/torch_memory_saver_adapter.py"
    folder = engine_wheels.sources("sglang", VERSION, path)
    spec = importlib.util.spec_from_file_location("adapter", folder / path)
    adapters = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapters)
    adapter = adapters.TorchMemorySaverAdapter.create(enable=True)
    adapter.check_validity("test")
    assert adapter.enabled
    with adapter.region("weights"):
        pass
    # As `full_cuda_graph_backend` calls it.
    named = {"tag": "cuda_graph", "enable_cpu_backup": True}
    with adapter.cuda_graph(**named, cuda_graph="graph", pool=None, stream="stream"):
        pass
    assert graphs == [("graph", {"pool": None, "stream": "stream", "capture_error_mode": "global"})]
    assert ("set_region_backup", "cuda_graph (backup)", "host") in native.calls
    assert ("set_region_backup", "weights", "none") in native.calls
    native.answers["region_tags"] = ["cuda_graph (backup)"]
    adapter.pause("cuda_graph")
    adapter.resume("cuda_graph")
    assert ("sleep", ["cuda_graph (backup)"]) in native.calls
    assert ("wake", ["cuda_graph (backup)"]) in native.calls
