"""PyTorch with a GPU that is not there, and regraph with a library that only takes notes."""

import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fake_native

if importlib.util.find_spec("regraph") is None:
    sys.path.insert(0, str(Path(__file__).parent.parent))
_native = fake_native.FakeNative()
# Tests that need the real one run in processes of their own.
sys.modules["regraph._native"] = _native


class FakeAllocator:
    """What `CUDAPluggableAllocator` holds: takes hooks and notes them."""

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        for name in (
            "set_init_fn set_reset_fn set_memory_fraction_fn set_base_alloc_fn "
            "set_record_stream_fn set_begin_allocate_to_pool set_end_allocate_to_pool_fn "
            "set_release_pool"
        ).split():
            setattr(self, name, lambda address, name=name: calls.append((name, address)))


class FakeGraph:
    """Stands for `torch._C._CUDAGraph`; its calls land among the library's."""

    def __init__(self) -> None:
        self.arguments: tuple[Any, ...] = ()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Notes the call and its arguments."""
        self.arguments = (pool, capture_error_mode)
        self._note("torch.capture_begin")

    def capture_end(self) -> None:
        """Notes the call."""
        self._note("torch.capture_end")

    def reset(self) -> None:
        """Notes the call."""
        self._note("torch.reset")

    def register_generator_state(self, generator: Any) -> None:
        """Notes the call."""
        self._note("torch.register_generator_state")

    def _note(self, name: str) -> None:
        _native.calls.append((name,))
        if name in _native.failures:
            raise _native.failures[name]


def _python_graph(native_graph: type[FakeGraph]) -> type[FakeGraph]:
    """A class as PyTorch's Python class of graphs: each method calls the native one."""

    class CUDAGraph(native_graph):  # type: ignore[misc, valid-type]
        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
            super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)

        def capture_end(self) -> None:
            super().capture_end()

        def reset(self) -> None:
            super().reset()

    return CUDAGraph


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> fake_native.FakeNative:
    """The library that takes notes, of an engine that was not started."""
    from regraph import starting, streams

    _native.clear()
    streams._waiting.clear()
    monkeypatch.setattr(starting, "_started", None)
    return _native


@pytest.fixture
def gpu(
    native: fake_native.FakeNative, monkeypatch: pytest.MonkeyPatch
) -> Iterator[types.SimpleNamespace]:
    """A GPU as far as `enable` can see; what it replaced is put back afterwards.

    Its `stream` and `capturing` say what PyTorch answers for the current stream.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from regraph.torch import enabling, tracing
    from regraph.torch import native as door

    state = types.SimpleNamespace(stream=7, capturing=False, allocator=FakeAllocator(native.calls))

    def pluggable(*arguments: Any) -> types.SimpleNamespace:
        native.calls.append(("allocator", *arguments))
        return types.SimpleNamespace(_allocator=state.allocator)

    def change(allocator: Any) -> None:
        native.calls.append(("change", allocator._allocator))
        if "change" in native.failures:
            raise native.failures["change"]

    def install(library: str, name: str) -> None:
        native.calls.append(("install", library, name))
        if "install" in native.failures:
            raise native.failures["install"]

    def load() -> str:
        if "load" in native.failures:
            raise native.failures["load"]
        return "library"

    monkeypatch.setattr(door, "load", load)
    monkeypatch.setattr(door, "install", install)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda.memory, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda.memory, "CUDAPluggableAllocator", pluggable)
    monkeypatch.setattr(torch.cuda.memory, "change_current_allocator", change)
    native_graph = type("_CUDAGraph", (FakeGraph,), dict(vars(FakeGraph)))
    monkeypatch.setattr(torch._C, "_CUDAGraph", native_graph, raising=False)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", _python_graph(native_graph))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(
        torch.cuda,
        "current_stream",
        lambda device=None: types.SimpleNamespace(device_index=0, cuda_stream=state.stream),
    )
    # PyTorch without CUDA lacks these.
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_isCurrentStreamCapturing", lambda: state.capturing, raising=False
    )
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda device: state.stream, raising=False
    )
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    # Set first, so that what a program of a test sets goes again.
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "1")
    monkeypatch.delenv("NCCL_GRAPH_REGISTER")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    yield state
    enabling._patches.undo()
    enabling._allocator = None
    enabling._backend = None
    tracing._current = None


@pytest.fixture
def enabled(gpu: types.SimpleNamespace, native: fake_native.FakeNative) -> types.SimpleNamespace:
    """The same with regraph enabled as a plug-in, and the notes of that gone."""
    import regraph.torch

    regraph.torch.enable(native=False)
    native.calls.clear()
    return gpu
