"""The doors of other libraries: what they ask of regraph, and in which order.

The libraries are stand-ins, with what these document. Where a library is installed its door is
tried on it too, as far as that needs no GPU.
"""

import contextlib
import ctypes
import gc
import importlib
import itertools
import os
import sys
import types
import weakref
from typing import Any

import pytest

from fake_native import ADDRESS, CAPTURE, POOL, OutOfMemory, Refused
from own_process import must_be_done
from regraph import graphs

STREAM = 0x77
#: What the environment says for PyTorch.
NOTHING = ("PYTORCH_ALLOC_CONF", "")


def module(name: str, **contents: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.fixture
def door(native, monkeypatch):
    """Imports a door with stand-ins for the modules of its library; all is forgotten afterwards."""

    def imported(name: str, *modules: types.ModuleType) -> Any:
        for made in modules:
            monkeypatch.setitem(sys.modules, made.__name__, made)
        monkeypatch.delitem(sys.modules, f"regraph.{name}", raising=False)
        found = importlib.import_module(f"regraph.{name}")
        # Another test's import makes its own.
        monkeypatch.setitem(sys.modules, f"regraph.{name}", found)
        return found

    return imported


class Stream:
    """A stream of the CUDA stream protocol."""

    def __init__(self, handle: int = STREAM) -> None:
        self.ptr = self.cuda_stream = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


# --- Starting ---------------------------------------------------------------------------------


def test_doors_share_one_start(native):
    from regraph import starting

    native.answers["start"] = ["backend"]
    assert starting.start("history:10", True) == ["backend"]
    # The second finds it, with the same settings or none.
    assert starting.start() == ["backend"]
    assert starting.start("history:10") == ["backend"]
    assert native.names() == ["start"]


@pytest.mark.parametrize("given", [("history:20", None), (None, False)])
def test_a_start_with_other_settings_is_an_error(native, given):
    from regraph import Error, starting

    starting.start("history:10", True)
    with pytest.raises(Error, match="must be given to the door that is enabled first"):
        starting.start(*given)
    assert native.names() == ["start"]


def test_a_start_that_fails_can_be_tried_again(native):
    from regraph import Error, starting

    native.failures["start"] = ValueError("no key `histroy`")
    with pytest.raises(Error, match="settings are wrong: no key"):
        starting.start("histroy:10")
    native.failures.clear()
    starting.start("history:10")


def test_the_settings_of_pytorchs_variables_count_for_every_door(native, monkeypatch):
    from regraph import starting

    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    starting.start()
    assert native.calls == [("start", None, None, ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"))]


def test_pytorch_shares_the_engine_of_a_door_before_it(gpu, native):
    import regraph.torch
    from regraph import starting

    starting.start("history:10", True)
    regraph.torch.enable(native=False)
    assert native.names().count("start") == 1


def test_pytorch_cannot_change_the_settings_of_a_door_before_it(gpu, native):
    import regraph.torch
    from regraph import starting

    starting.start("history:10")
    with pytest.raises(regraph.torch.Error, match="enabled first"):
        regraph.torch.enable(settings="history:20", native=False)
    assert not regraph.torch.is_enabled()


# --- Streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (7, 7),
        (Stream(), STREAM),
        (types.SimpleNamespace(__cuda_stream__=(0, 9)), 9),
        (types.SimpleNamespace(cuda_stream=5), 5),
        (types.SimpleNamespace(handle=ctypes.c_void_p(6)), 6),
        (types.SimpleNamespace(handle=ctypes.c_void_p()), 0),
    ],
)
def test_streams_of_every_library_are_understood(native, stream, handle):
    from regraph import streams

    assert streams.handle(stream) == handle


def test_what_is_no_stream_is_told_as_such(native):
    from regraph import streams

    with pytest.raises(TypeError, match="str is no CUDA stream"):
        streams.handle("stream")


def test_a_stream_of_anothers_can_be_retired(native):
    import regraph

    regraph.retire_stream(Stream())
    regraph.retire_stream(0)
    assert native.calls == [("retire_stream", STREAM)]
    native.answers["retire_stream"] = False
    with pytest.raises(regraph.Error, match="0x77 is in use"):
        regraph.retire_stream(Stream())


# --- CuPy -------------------------------------------------------------------------------------


class CuPyOutOfMemory(MemoryError):
    """As `cupy.cuda.memory.OutOfMemoryError`."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes")


class CuPyGraph:
    """As CuPy's: it keeps host functions, has no attributes and takes no weak references."""

    __slots__ = ("kept",)

    def __init__(self, kept: Any) -> None:
        self.kept = kept


@pytest.fixture
def cupy(door, native):
    """CuPy's stand-in: `state.address` is what C gives, `state.allocator` what was set."""
    state = types.SimpleNamespace(address=ADDRESS, allocator=None, made=[], failure=None)

    class BaseStream:
        def __init__(self, ptr: int = STREAM, device_id: int = 0) -> None:
            self.ptr, self.device_id, self._graph_host_funcargs = ptr, device_id, None

        def begin_capture(self, mode=None):
            native.calls.append(("begin", mode))
            self._graph_host_funcargs = []

        def end_capture(self):
            native.calls.append(("end",))
            kept, self._graph_host_funcargs = self._graph_host_funcargs, None
            if state.failure is not None:
                raise state.failure
            return CuPyGraph(kept)

    class Allocator:
        def __init__(self, *arguments):
            state.made.append((type(self).__name__, *arguments))
            self.functions = arguments[:2]

        def malloc(self, size):
            address = state.address if size else 0
            return types.SimpleNamespace(ptr=address, mem=types.SimpleNamespace(ptr=address))

    class CFunctionAllocator(Allocator):
        """Calls C functions."""

    class PythonFunctionAllocator(Allocator):
        """Calls functions of Python's."""

        def malloc(self, size):
            return types.SimpleNamespace(ptr=self.functions[0](size, 0))

    class OwnStream(BaseStream):
        _foreign_stream_ref = None

        def __del__(self):
            native.calls.append(("destroy", self.ptr))

    state.stream_class, state.own_stream = BaseStream, OwnStream
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    state.signature = b"intptr_t (void)"
    current = module("cupy_backends.cuda.stream")
    current.__pyx_capi__ = {"get_current_stream_ptr": new(0x1234, state.signature, None)}
    state.current = current
    streams = module("cupy.cuda.stream", _BaseStream=BaseStream, Stream=OwnStream)
    cuda = module(
        "cupy.cuda",
        stream=streams,
        CFunctionAllocator=CFunctionAllocator,
        PythonFunctionAllocator=PythonFunctionAllocator,
        set_allocator=lambda allocator: setattr(state, "allocator", allocator),
        get_current_stream=lambda: types.SimpleNamespace(ptr=STREAM),
        memory=types.SimpleNamespace(OutOfMemoryError=CuPyOutOfMemory),
        runtime=types.SimpleNamespace(getDevice=lambda: 3),
    )
    backends = module("cupy_backends.cuda", stream=current)
    state.door = door(
        "cupy",
        module("cupy", cuda=cuda),
        cuda,
        streams,
        module("cupy_backends", cuda=backends),
        backends,
        current,
    )
    return state


def test_cupy_gets_c_functions_and_its_own_function_for_the_stream(cupy, native):
    cupy.door.enable(check=True)
    assert cupy.made == [("CFunctionAllocator", 0x1234, 0x10, 0x20, None)]
    assert native.calls == [("start", None, True, NOTHING), ("cupy_functions",)]
    assert cupy.allocator(100).ptr == ADDRESS
    assert cupy.allocator(0).ptr == 0
    assert cupy.door.is_enabled()
    # Nothing happens twice.
    cupy.door.enable()
    assert len(cupy.made) == 1


def test_cupys_users_get_cupys_own_exception(cupy, native):
    cupy.door.enable()
    cupy.address = 0
    native.CupyAllocator.failure = True, "4 GiB of 80 GiB are free"
    with pytest.raises(CuPyOutOfMemory, match="allocating 1,000 bytes") as raised:
        cupy.allocator(1000)
    assert getattr(raised.value, "__notes__", ["4 GiB of 80 GiB are free"])[0].startswith("4 GiB")
    native.CupyAllocator.failure = False, "the driver is gone"
    with pytest.raises(cupy.door.Error, match="the driver is gone"):
        cupy.allocator(1000)


def test_a_cupy_without_the_c_function_is_served_by_python(cupy, native):
    del cupy.current.__pyx_capi__
    cupy.door.enable()
    assert cupy.made[0][0] == "PythonFunctionAllocator"
    native.calls.clear()
    assert cupy.allocator(100).ptr == ADDRESS
    cupy.made[0][2](ADDRESS, 0)
    assert native.calls == [("allocate", 100, 0, STREAM), ("free", ADDRESS)]
    native.failures["allocate"] = OutOfMemory("short")
    with pytest.raises(CuPyOutOfMemory):
        cupy.allocator(100)


def test_a_c_function_of_another_type_is_not_called(cupy):
    new = ctypes.pythonapi.PyCapsule_New
    cupy.signature = b"void *(int)"
    cupy.current.__pyx_capi__ = {"get_current_stream_ptr": new(0x1234, cupy.signature, None)}
    assert cupy.door._current_stream_function() is None


def test_uses_of_cupys_arrays_are_recorded(cupy, native):
    memory = types.SimpleNamespace(ptr=ADDRESS)
    array = types.SimpleNamespace(data=types.SimpleNamespace(mem=memory))
    cupy.door.record_stream(array, Stream())
    assert native.calls == [("record_stream", ADDRESS, STREAM)]
    native.failures["record_stream"] = RuntimeError("no live block begins there")
    with pytest.raises(cupy.door.Error, match="no live block"):
        cupy.door.record_stream(array, Stream())
    # The current device's, which is not the array's.
    array.data.device_id = 1
    with pytest.raises(cupy.door.Error, match="default stream of device 3"):
        cupy.door.record_stream(array, Stream(0))
    memory.ptr = 0
    cupy.door.record_stream(array, Stream())
    # As arrays of NumPy are.
    array.data = memoryview(b"")
    with pytest.raises(TypeError, match="an array of CuPy's, not SimpleNamespace"):
        cupy.door.record_stream(array, Stream())


def test_a_stream_of_cupys_is_destroyed_when_the_engine_has_nothing_of_it(cupy, native):
    cupy.door.enable()
    native.calls.clear()
    stream = cupy.own_stream(0x10)
    del stream
    assert native.calls == [("retire_stream", 0x10), ("destroy", 0x10)]
    native.calls.clear()
    native.answers["retire_stream"] = False
    cupy.own_stream(0x20)
    assert native.calls == [("retire_stream", 0x20)]
    native.calls.clear()
    native.answers["retire_stream"] = True
    # With the next one that ends.
    cupy.own_stream(0x30)
    assert [call for call in native.calls if call[0] == "destroy"] == [
        ("destroy", 0x20),
        ("destroy", 0x30),
    ]
    native.calls.clear()
    # Default streams, and those that others destroy.
    cupy.own_stream(0)
    foreign = cupy.own_stream(0x40)
    foreign._foreign_stream_ref = object()
    del foreign
    assert native.calls == [("destroy", 0), ("destroy", 0x40)]


def test_a_capture_of_cupys_is_announced_judged_and_released_with_its_graph(cupy, native):
    cupy.door.enable()
    native.calls.clear()
    stream = cupy.stream_class()
    stream.begin_capture(2)
    graph = stream.end_capture()
    assert native.calls == [
        ("begin", 2),
        ("name_pool",),
        ("capture_started", 0, STREAM, POOL),
        ("capture_ending", 0, STREAM),
        ("end",),
        ("capture_finished", 0, STREAM, POOL),
    ]
    native.calls.clear()
    gc.collect()
    assert native.calls == []
    del graph
    assert native.calls == [("release_pool", 0, POOL)]


@pytest.mark.parametrize("row", range(4))
def test_memory_that_two_threads_let_go_of_goes_once(native, row):
    """The other one comes before each line of the first."""
    memory, lines = graphs.Memory(0, POOL), itertools.count()

    def trace(frame, event, _):
        if frame.f_code is not graphs.Memory.release.__code__:
            return None
        if event == "line" and next(lines) == row:
            memory.release()
        return trace

    native.calls.clear()
    before = sys.gettrace()
    sys.settrace(trace)
    memory.release()
    sys.settrace(before)
    assert native.calls == [("release_pool", 0, POOL)]


def test_a_graph_that_nothing_watches_keeps_its_memory(cupy, native):
    cupy.door.enable()
    stream = cupy.stream_class()
    stream.begin_capture()
    # As in CuPy before version 14.
    stream._graph_host_funcargs = None
    del stream.end_capture().kept
    assert "release_pool" not in native.names()


def test_a_stream_from_elsewhere_is_on_the_current_device(cupy, native):
    cupy.door.enable()
    cupy.stream_class(device_id=-1).begin_capture()
    assert ("capture_started", 3, STREAM, POOL) in native.calls


def test_the_per_thread_stream_is_not_announced(cupy, native):
    cupy.door.enable()
    native.calls.clear()
    stream = cupy.stream_class(ptr=2)
    stream.begin_capture()
    stream.end_capture()
    assert native.names() == ["begin", "end"]


def test_a_refused_capture_of_cupys_gives_no_graph(cupy, native):
    cupy.door.enable()
    stream = cupy.stream_class()
    stream.begin_capture()
    native.failures["capture_ending"] = Refused("an order is missing")
    native.calls.clear()
    with pytest.raises(cupy.door.Refused):
        stream.end_capture()
    assert native.names() == ["capture_ending", "end", "capture_failed"]
    native.failures.clear()
    stream.begin_capture()
    native.failures["capture_finished"] = Refused("an order is missing")
    native.calls.clear()
    with pytest.raises(cupy.door.Refused):
        stream.end_capture()
    # The library has let go of the pool itself.
    assert native.names() == ["capture_ending", "end", "capture_finished"]


def test_a_capture_of_cupys_that_fails_to_end_is_told(cupy, native):
    cupy.door.enable()
    stream = cupy.stream_class()
    stream.begin_capture()
    cupy.failure = RuntimeError("cudaErrorStreamCaptureUnjoined")
    native.calls.clear()
    with pytest.raises(RuntimeError, match="Unjoined"):
        stream.end_capture()
    assert native.names() == ["capture_ending", "end", "capture_failed"]


def test_a_capture_of_cupys_that_cannot_be_announced_is_ended(cupy, native):
    cupy.door.enable()
    native.failures["capture_started"] = RuntimeError("refused")
    native.calls.clear()
    with pytest.raises(RuntimeError, match="refused"):
        cupy.stream_class().begin_capture()
    assert native.names() == ["begin", "name_pool", "capture_started", "end"]


# --- Numba ------------------------------------------------------------------------------------


class CudaAPIError(RuntimeError):
    """As Numba's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code


class MemoryPointer:
    """As Numba's: a finalizer runs when it goes."""

    def __init__(self, context, pointer, size, owner=None, finalizer=None):
        self.context, self.device_pointer, self.size, self._owner = context, pointer, size, owner
        if finalizer is not None:
            self._finalizer = weakref.finalize(self, finalizer)

    @property
    def owner(self):
        """What keeps the memory."""
        return self if self._owner is None else self._owner


class Context:
    """As Numba's."""

    device = types.SimpleNamespace(id=1)


@pytest.fixture
def numba(door, native):
    class HostOnlyCUDAMemoryManager:
        def __init__(self, *, context):
            self.context, self.was_reset, self.host_deferring = context, False, False

        def reset(self):
            self.was_reset = True

        @contextlib.contextmanager
        def defer_cleanup(self):
            self.host_deferring = True
            yield
            self.host_deferring = False

    class GetIpcHandleMixin:
        def get_ipc_handle(self, memory):
            if memory.size > 100:
                raise CudaAPIError(1, "invalid argument")
            return "handle"

    state = types.SimpleNamespace(manager=None)
    cuda = module(
        "numba.cuda",
        HostOnlyCUDAMemoryManager=HostOnlyCUDAMemoryManager,
        GetIpcHandleMixin=GetIpcHandleMixin,
        MemoryPointer=MemoryPointer,
        MemoryInfo=lambda *, free, total: (free, total),
        set_memory_manager=lambda manager: setattr(state, "manager", manager),
    )
    driver = module("numba.cuda.cudadrv.driver", CudaAPIError=CudaAPIError, _memory_manager=None)
    state.driver = driver
    drivers = module("numba.cuda.cudadrv", driver=driver)
    state.door = door("numba", module("numba", cuda=cuda), cuda, drivers, driver)
    state.context = Context()
    state.new = lambda: state.door.MemoryManager(context=state.context)
    return state


def test_numba_gets_a_manager_of_its_interface(numba, native):
    numba.door.enable(settings="history:1")
    assert numba.manager is numba.door.MemoryManager
    assert native.calls == [("start", "history:1", None, NOTHING)]
    # As Numba asks for it.
    assert numba.manager(context=None).interface_version == 1


def test_numba_that_has_used_cuda_is_told_as_such(numba, native):
    numba.driver._memory_manager = object
    with pytest.raises(numba.door.Error, match="has a memory manager already"):
        numba.door.enable()
    assert native.calls == []


def test_numbas_environment_variable_names_the_door(numba, native):
    assert numba.door._numba_memory_manager is numba.door.MemoryManager
    assert native.names() == ["start"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = numba.door.nothing


def test_numbas_memory_is_in_no_streams_order(numba, native):
    manager = numba.new()
    manager.initialize()
    memory = manager.memalloc(1000)
    assert native.calls == [("allocate_unordered", 1000, 1)]
    assert memory.device_pointer.value == ADDRESS
    assert memory.size == 1000
    native.calls.clear()
    del memory
    assert native.calls == [("free", ADDRESS)]
    manager.memalloc(0)
    assert ("allocate_unordered", 1, 1) in native.calls


def test_numbas_users_get_numbas_own_exception(numba, native):
    native.failures["allocate_unordered"] = OutOfMemory("short")
    with pytest.raises(CudaAPIError, match="short") as raised:
        numba.new().memalloc(1000)
    assert raised.value.code == 2


def test_numbas_frees_are_put_off(numba, native):
    manager = numba.new()
    memory, later = manager.memalloc(10), manager.memalloc(10)
    native.calls.clear()
    with manager.defer_cleanup():
        assert manager.host_deferring
        del memory
        with manager.defer_cleanup():
            del later
        assert native.calls == []
    assert native.calls == [("free", ADDRESS)] * 2


def test_a_free_of_numbas_that_meets_the_last_blocks_end_is_made(numba, native):
    """Another thread leaves the block when the free has asked whether there is one, and before it goes on."""

    class Manager(numba.door.MemoryManager):
        asked = None

        @property
        def _deferring(self):
            deferring, asked = self._count, self.asked
            if asked is not None:
                self.asked = None
                asked()
            return deferring

        @_deferring.setter
        def _deferring(self, count):
            self._count = count

    manager = Manager(context=numba.context)
    memory = manager.memalloc(10)
    native.calls.clear()
    block = manager.defer_cleanup()
    block.__enter__()
    manager.asked = lambda: block.__exit__(None, None, None)
    del memory
    assert native.calls == [("free", ADDRESS)]


def test_numbas_reset_frees_what_is_live_and_nothing_twice(numba, native):
    manager = numba.new()
    memory = manager.memalloc(10)
    native.calls.clear()
    manager.reset()
    assert manager.was_reset
    assert native.calls == [("free", ADDRESS)]
    # The address is another array's by now.
    again = manager.memalloc(10)
    native.calls.clear()
    del memory
    assert native.calls == []
    del again
    assert native.calls == [("free", ADDRESS)]


def test_numbas_memory_outlives_its_manager(numba, native):
    memory = numba.new().memalloc(10)
    gc.collect()
    native.calls.clear()
    del memory
    assert native.calls == []


def test_numba_is_told_of_the_devices_memory(numba, native):
    assert numba.new().get_memory_info() == (3 << 30, 4 << 30)
    assert native.calls == [("memory_info", 1)]


def test_numbas_handles_for_other_processes_are_the_drivers_or_none(numba):
    manager = numba.new()
    assert manager.get_ipc_handle(types.SimpleNamespace(size=100)) == "handle"
    with pytest.raises(numba.door.Error, match="regraph maps its memory"):
        manager.get_ipc_handle(types.SimpleNamespace(size=101))


def test_uses_of_numbas_arrays_are_recorded(numba, native):
    memory = numba.new().memalloc(10)
    view = MemoryPointer(None, None, 4, owner=memory)
    native.calls.clear()
    for data in (memory, view):
        numba.door.record_stream(types.SimpleNamespace(gpu_data=data), Stream())
    assert native.calls == [("record_stream", ADDRESS, STREAM)] * 2
    # The current device's, which is not the memory's.
    there = types.SimpleNamespace(device=types.SimpleNamespace(id=numba.context.device.id + 1))
    numba.door.cuda.current_context = lambda: there
    with pytest.raises(numba.door.Error, match="default stream of device"):
        numba.door.record_stream(types.SimpleNamespace(gpu_data=memory), Stream(0))
    other = types.SimpleNamespace(gpu_data=MemoryPointer(None, None, 4))
    for strange in (other, "no array"):
        with pytest.raises(numba.door.Error, match="not regraph's"):
            numba.door.record_stream(strange, Stream())


# --- cuda.core --------------------------------------------------------------------------------


class Buffer:
    """As `cuda.core.Buffer`."""

    def __init__(self, *arguments, **keywords):
        self.arguments = arguments, keywords

    @staticmethod
    def from_handle(ptr, size, mr=None, *, stream=None):
        """With a stream, as from version 1 on."""
        if size == 13:
            raise RuntimeError("no context is current")
        if size == 14:
            mr.deallocate(ptr, size, stream=Stream(1))
            raise RuntimeError("no context is current")
        return Buffer(ptr, size, mr, stream=stream)


class Builder(Stream):
    """As `cuda.core`'s `GraphBuilder`."""

    def __init__(self, calls):
        super().__init__()
        self.calls, self.failure = calls, None
        self.stream = types.SimpleNamespace(device=types.SimpleNamespace(device_id=2))

    def begin_building(self, mode):
        """Notes the call."""
        self.calls.append(("begin", mode))

    def end_building(self):
        """Notes the call."""
        self.calls.append(("end",))
        if self.failure is not None:
            raise self.failure
        return self

    def close(self):
        """Notes the call."""
        self.calls.append(("close",))


@pytest.fixture
def core(door, native):
    made = module("cuda.core", MemoryResource=object, Buffer=Buffer)
    found = door("cuda_core", module("cuda", core=made), made)
    return found


def test_a_memory_resource_follows_the_streams(core, native):
    resource = core.MemoryResource(types.SimpleNamespace(device_id=2), check=True)
    stream = Stream()
    buffer = resource.allocate(1000, stream=stream)
    assert buffer.arguments == ((ADDRESS, 1000, resource), {"stream": stream})
    resource.deallocate(ADDRESS, 1000, stream=Stream(9))
    resource.deallocate(ADDRESS, 1000)
    assert native.calls == [
        ("start", None, True, NOTHING),
        ("allocate", 1000, 2, STREAM),
        ("free_on", ADDRESS, 9),
        ("free", ADDRESS),
    ]
    assert resource.device_id == 2
    assert resource.is_device_accessible
    assert not resource.is_host_accessible
    assert not resource.is_managed


def test_a_stream_of_cuda_cores_lives_until_the_engine_has_nothing_of_it(core, native):
    resource, stream = core.MemoryResource(0), Stream()
    resource.allocate(1000, stream=stream)
    resource.allocate(1000, stream=stream)
    (keeper,) = core._kept.values()
    # A buffer keeps the stream of its free, also where the stream is closed.
    assert keeper.arguments[1] == {"stream": stream}
    keeper.arguments = keeper.arguments[0], None
    native.calls.clear()
    native.answers["retire_unused"] = False
    del stream
    gc.collect()
    assert native.calls == [("retire_unused", STREAM)]
    assert STREAM in core._kept
    native.answers["retire_unused"] = True
    resource.deallocate(ADDRESS, 1000, stream=Stream(0x99))
    gc.collect()
    core._kept.pop(0x99).arguments = None
    gc.collect()
    assert STREAM not in core._kept
    # Default streams never end.
    resource.allocate(1000, stream=Stream(0))
    assert 0 not in core._kept


def test_a_buffer_that_cannot_be_made_loses_no_memory(core, native):
    with pytest.raises(RuntimeError, match="no context"):
        core.MemoryResource(0).allocate(13, stream=Stream())
    assert native.calls[-1] == ("free", ADDRESS)
    native.calls.clear()
    with pytest.raises(RuntimeError, match="no context"):
        core.MemoryResource(0).allocate(14, stream=Stream(1))
    # The half-made buffer has freed it: the address may be another's by now.
    assert native.names() == ["allocate", "free_on"]


def test_a_request_needs_a_stream(core):
    with pytest.raises(TypeError, match="NoneType is no CUDA stream"):
        core.MemoryResource(0).allocate(10, stream=None)


def test_a_graph_is_built_and_judged_and_holds_its_memory(core, native):
    core.MemoryResource(0)
    native.calls.clear()
    builder = Builder(native.calls)
    with core.building(builder) as memory:
        native.calls.append(("body",))
    assert native.calls == [
        ("begin", "relaxed"),
        ("name_pool",),
        ("capture_started", 2, STREAM, POOL),
        ("body",),
        ("capture_ending", 2, STREAM),
        ("end",),
        ("capture_finished", 2, STREAM, POOL),
    ]
    native.calls.clear()
    memory.release()
    memory.release()
    assert native.calls == [("release_pool", 2, POOL)]


def test_graphs_share_a_pool(core, native):
    native.answers["name_pool"] = (1, 1)
    pool = core.Pool()
    native.answers["name_pool"] = (2, 2)
    for _ in range(2):
        with core.building(Builder(native.calls), pool, mode="global"):
            pass
    started = [call for call in native.calls if call[0] == "capture_started"]
    assert [call[-1] for call in started] == [(1, 1), (1, 1)]
    assert ("begin", "global") in native.calls


def test_a_body_that_raises_builds_nothing(core, native):
    builder = Builder(native.calls)
    with pytest.raises(KeyError), core.building(builder):
        raise KeyError
    assert native.names()[-3:] == ["end", "close", "capture_failed"]


def test_a_refused_graph_is_closed(core, native):
    for call, names in (
        ("capture_ending", ["capture_ending", "end", "close", "capture_failed"]),
        ("capture_finished", ["capture_ending", "end", "capture_finished", "close"]),
    ):
        native.clear()
        native.failures[call] = Refused("an order is missing")
        with pytest.raises(core.Refused), core.building(Builder(native.calls)):
            pass
        assert native.names()[3:] == names


# --- RMM --------------------------------------------------------------------------------------


@pytest.fixture
def rmm(door):
    state = types.SimpleNamespace(resources={})
    mr = types.SimpleNamespace(
        CallbackMemoryResource=lambda *functions: functions,
        set_per_device_resource=lambda device, resource: state.resources.update({device: resource}),
    )
    state.door = door("rmm", module("rmm", mr=mr))
    return state


def test_rmm_gets_functions_in_the_order_of_streams(rmm, native):
    rmm.door.enable(1, settings="history:1")
    allocate, deallocate = rmm.resources[1]
    assert allocate(1000, Stream()) == ADDRESS
    deallocate(ADDRESS, 1000, Stream(9))
    assert native.calls == [
        ("start", "history:1", None, NOTHING),
        ("allocate", 1000, 1, STREAM),
        ("free_on", ADDRESS, 9),
    ]
    native.failures["allocate"] = OutOfMemory("short")
    # What RMM makes its own exception.
    with pytest.raises(MemoryError):
        allocate(1000, Stream())


# --- Warp -------------------------------------------------------------------------------------


class WarpGraph:
    """As Warp's."""


@pytest.fixture
def warp(door, native):
    """Warp's functions come from an inner module, whose own calls find them there."""
    state = types.SimpleNamespace(allocators={}, failure=None)
    cpu = types.SimpleNamespace(is_cuda=False)
    device = types.SimpleNamespace(is_cuda=True, ordinal=1)
    state.stream = types.SimpleNamespace(device=device, cuda_stream=STREAM)
    state.graph = WarpGraph()
    inner = module("warp._src.context")

    class WarpStream:
        def __init__(self, cuda_stream, owner=True):
            self.cuda_stream, self.owner = cuda_stream, owner

        def __del__(self):
            native.calls.append(("destroy", self.cuda_stream))

    state.stream_class = WarpStream

    def capture_begin(device=None, stream=None, force_module_load=None, external=False):
        native.calls.append(("begin",))

    def capture_end(device=None, stream=None):
        native.calls.append(("end",))
        graph, state.graph = state.graph, None
        return graph

    def capture_pause(device=None, stream=None):
        native.calls.append(("pause",))
        return state.graph

    functions = {"capture_begin": capture_begin, "capture_end": capture_end}
    for function in (*functions.values(), capture_pause):
        function.__module__ = inner.__name__
    vars(inner).update(functions, capture_pause=capture_pause)
    made = module(
        "warp",
        **functions,
        __version__="1.19.0",
        Stream=WarpStream,
        MemoryKind=types.SimpleNamespace(CUDA_DEVICE="device"),
        get_cuda_devices=lambda: [device],
        get_device=lambda name=None: cpu if name == "cpu" else device,
        get_stream=lambda device: state.stream,
        set_device_allocator=lambda device, it: state.allocators.update({device.ordinal: it}),
    )
    state.warp, state.inner = made, inner
    state.door = door("warp", made, inner)
    return state


def test_warp_gets_an_allocator_for_each_device(warp, native):
    warp.door.enable(check=True)
    allocator = warp.allocators[1]
    assert allocator.memory_kind == "device"
    assert not allocator.deallocate_requires_context_guard
    native.calls.clear()
    assert allocator.allocate(1000) == ADDRESS
    warp.stream.cuda_stream = None
    allocator.deallocate(ADDRESS, 1000)
    assert native.calls == [("allocate", 1000, 1, STREAM), ("free_on", ADDRESS, 0)]


def test_a_stream_of_warps_is_destroyed_when_the_engine_has_nothing_of_it(warp, native):
    warp.door.enable()
    native.calls.clear()
    warp.stream_class(0x10)
    warp.stream_class(0x20, owner=False)
    warp.stream_class(None)
    assert native.calls == [
        ("retire_stream", 0x10),
        ("destroy", 0x10),
        ("destroy", 0x20),
        ("destroy", None),
    ]


def test_a_warp_that_takes_no_allocator_is_told_as_such(warp, native):
    del warp.warp.set_device_allocator
    with pytest.raises(warp.door.Error, match=r"Warp 1\.19\.0 takes no other"):
        warp.door.enable()
    assert native.calls == []


def test_a_capture_of_warps_is_announced_judged_and_released_with_its_graph(warp, native):
    warp.door.enable()
    warp.door.enable()
    native.calls.clear()
    warp.warp.capture_begin(stream=warp.stream)
    graph = warp.warp.capture_end(stream=warp.stream)
    assert native.calls == [
        ("begin",),
        ("name_pool",),
        ("capture_started", 1, STREAM, POOL),
        ("capture_ending", 1, STREAM),
        ("end",),
        ("capture_finished", 1, STREAM, POOL),
    ]
    del graph
    assert native.calls[-1] == ("release_pool", 1, POOL)


def test_a_capture_of_warps_that_is_paused_is_not_judged(warp, native):
    warp.door.enable()
    native.calls.clear()
    warp.warp.capture_begin()
    # As Warp's own conditional nodes do.
    warp.inner.capture_pause(stream=warp.stream)
    graph = warp.warp.capture_end()
    assert native.names() == [
        "begin",
        "name_pool",
        "capture_started",
        "pause",
        "capture_paused",
        "end",
    ]
    assert native.calls[4] == ("capture_paused", 1, STREAM, POOL, CAPTURE)
    del graph
    assert native.calls[-1] == ("release_pool", 1, POOL)


def test_captures_of_warps_on_cpus_and_of_others_are_left_alone(warp, native):
    warp.door.enable()
    native.calls.clear()
    warp.warp.capture_begin("cpu")
    warp.warp.capture_end("cpu")
    warp.warp.capture_begin(external=True)
    warp.warp.capture_end()
    assert native.names() == ["begin", "end"] * 2


def test_a_capture_of_warps_that_cannot_be_announced_is_ended(warp, native):
    warp.door.enable()
    native.failures["capture_started"] = RuntimeError("refused")
    native.calls.clear()
    with pytest.raises(RuntimeError, match="refused"):
        warp.warp.capture_begin(stream=warp.stream)
    assert native.names() == ["begin", "name_pool", "capture_started", "end"]


# --- The libraries themselves -----------------------------------------------------------------

LIBRARIES = {
    "cupy": """
from cupy.cuda import stream
if not isinstance(stream._BaseStream.begin_capture, type(stream._BaseStream.record)):
    raise AssertionError("captures are no methods any more")
assert door._current_stream_function(), "CuPy's function for the current stream is another"
assert hasattr(stream.Stream.null, "_graph_host_funcargs"), "graphs keep nothing"
assert hasattr(stream.Stream.null, "_foreign_stream_ref"), "streams own what others own"
door.enable()
assert stream._BaseStream.begin_capture.__wrapped__
assert stream.Stream.__del__.__wrapped__
""",
    "numba": """
assert not door.MemoryManager.__abstractmethods__
door.enable()
from numba.cuda.cudadrv import driver
assert driver._memory_manager is door.MemoryManager
""",
    "cuda_core": """
assert not door.MemoryResource(0).is_host_accessible
from cuda.core import Buffer
assert door._TAKES_STREAM or "stream" not in Buffer.from_handle.__doc__
""",
    "rmm": """
assert type(door.resource()).__name__ == "CallbackMemoryResource"
""",
    "warp": """
import inspect, warp
warp._src.context._validate_allocator(door.Allocator(None))
assert "external" in inspect.signature(warp.capture_begin).parameters
for name in ("capture_begin", "capture_end"):
    assert getattr(warp._src.context, name) is getattr(warp, name)
assert warp._src.context.capture_pause
made = warp.Stream.__new__(warp.Stream)
assert made.cuda_stream is None and made.owner is False
""",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_is_as_the_door_expects(name):
    must_be_done(
        "import importlib, sys, fake_native\n"
        "sys.modules['regraph._native'] = fake_native.FakeNative()\n"
        "try:\n"
        f"    door = importlib.import_module('regraph.{name}')\n"
        "except ImportError as error:\n"
        "    print('unavailable:', error)\n"
        "    sys.exit()\n" + LIBRARIES[name] + "print('done')\n"
    )


def test_no_door_needs_pytorch_and_none_is_opened_unasked():
    must_be_done(
        "import sys, fake_native\n"
        "sys.modules['regraph._native'] = fake_native.FakeNative()\n"
        "sys.modules['torch'] = None\n"
        "import regraph\n"
        "from regraph import graphs, starting, streams\n"
        "starting.start()\n"
        "found = {'cupy', 'numba', 'cuda', 'rmm', 'warp'} & set(sys.modules)\n"
        "assert not found, found\n"
        "print('done')\n"
    )


#: What starts the library by a text for a variable of PyTorch's, or ends the program where there is no library.
STARTING = """
import os, sys
sys.modules['torch'] = None
try:
    import regraph._native as native
except ImportError:
    print('unavailable: the library is not built')
    sys.exit()
from regraph import Error, starting
"""


def test_what_is_wrong_in_a_variable_of_pytorchs_is_told_by_its_name():
    must_be_done(
        STARTING + "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:10'\n"
        "try:\n"
        "    starting.start('history:10')\n"
        "except Error as error:\n"
        "    assert 'wrong: PYTORCH_CUDA_ALLOC_CONF: byte 18: `max_split_size_mb`' in str(error), error\n"
        "    print('done')\n"
    )


@pytest.mark.parametrize("settings", [None, "", "history:10", "caching:True"])
@pytest.mark.parametrize(
    ("variable", "flag", "caches"),
    [
        ("REGRAPH_NO_MEMORY_CACHING", "1", False),
        ("REGRAPH_NO_MEMORY_CACHING", "0", True),
        # PyTorch asks whether there is one.
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "0", False),
    ],
)
def test_the_environment_turns_caching_off_whatever_the_settings_say(
    settings, variable, flag, caches
):
    must_be_done(
        STARTING + f"os.environ[{variable!r}] = {flag!r}\n"
        f"starting.start({settings!r})\n"
        f"assert native.memory_sleeps() is {caches}\n"
        "print('done')\n"
    )


def test_the_library_is_told_of_forks(native):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr(native.calls[-1:]).encode())
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert os.read(read, 99) == b"[('forked',)]"
    assert native.calls == []


def test_a_process_that_is_forked_before_there_are_engines_goes_on():
    must_be_done(
        STARTING + "starting.start()\n"
        "child = os.fork()\n"
        "assert native.memory_sleeps()\n"
        "if child != 0:\n"
        "    print('done' if os.waitpid(child, 0) == (child, 0) else 'failed')\n"
    )


@pytest.mark.parametrize("hook", ["reset", "pool_empty"])
def test_what_pytorch_calls_with_the_interpreters_lock_lets_other_threads_run(hook):
    """They wait for work of the device, which may need a thread of Python's."""
    must_be_done(
        STARTING + "import ctypes, threading\n"
        "starting.start()\n"
        # No thread gets the lock from one that does not let go of it.
        "sys.setswitchinterval(1000)\n"
        "wait, ran = threading.Lock(), []\n"
        "wait.acquire()\n"
        "thread = threading.Thread(target=lambda: (wait.acquire(), ran.append(True)))\n"
        "thread.start()\n"
        "wait.release()\n"
        "assert not ran\n"
        f"call = ctypes.PYFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(native.hooks()[{hook!r}])\n"
        "for _ in range(100_000):\n"
        "    if not ran:\n"
        "        call(1, 2)\n"
        "print('done' if ran else 'the lock was held')\n"
        "thread.join()\n"
    )


def test_the_c_functions_for_cupy_give_memory_or_say_why_not():
    must_be_done(
        "import ctypes, sys\n"
        "sys.modules['torch'] = None\n"
        "try:\n"
        "    import regraph._native as native\n"
        "except ImportError:\n"
        "    print('unavailable: the library is not built')\n"
        "    sys.exit()\n"
        "allocate, free = native.cupy_functions()\n"
        "current = ctypes.PYFUNCTYPE(ctypes.c_ssize_t)(lambda: 0)\n"
        "kind = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)\n"
        "malloc = ctypes.PYFUNCTYPE(*kind)(allocate)\n"
        "call = lambda size: malloc(ctypes.cast(current, ctypes.c_void_p), size, device)\n"
        "failed = lambda size, short, message: ValueError(size, short, message)\n"
        "allocator = native.CupyAllocator(call, failed)\n"
        "def told(size):\n"
        "    try:\n"
        "        return allocator.malloc(size), None\n"
        "    except ValueError as error:\n"
        "        return None, error.args\n"
        "device = 0\n"
        "address, (size, short, message) = told(100)\n"
        "assert (size, short) == (100, False)\n"
        "assert message.startswith('regraph was not started')\n"
        "native.start(None, True, ('PYTORCH_ALLOC_CONF', ''))\n"
        "device = 99\n"
        "assert told(100) == (None, (100, False, 'device 99 is out of range'))\n"
        "device = 0\n"
        "address, why = told(100)\n"
        "assert (address is None) == (why is not None)\n"
        "if address is not None:\n"
        "    native.free(address)\n"
        # Why a request failed is told of that one alone.
        "device = 99\n"
        "other = native.CupyAllocator(lambda size: size, failed)\n"
        "def interrupted(size):\n"
        "    call(size)\n"
        "    raise KeyboardInterrupt\n"
        "try:\n"
        "    native.CupyAllocator(interrupted, failed).malloc(100)\n"
        "except KeyboardInterrupt:\n"
        "    assert other.malloc(5) == 5\n"
        "finalized = lambda size: (call(size), other.malloc(5))\n"
        "allocator = native.CupyAllocator(finalized, failed)\n"
        "assert told(100) == (None, (100, False, 'device 99 is out of range'))\n"
        "print('done')\n"
    )


def test_a_request_at_the_interpreters_end_has_no_stack():
    must_be_done(
        STARTING + "import ctypes\n"
        "starting.start('history:10')\n"
        "kind = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)\n"
        "malloc = ctypes.PYFUNCTYPE(*kind)(native.cupy_functions()[0])\n"
        "current = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p)\n"
        "class Late:\n"
        "    def __del__(self, malloc=malloc, current=current):\n"
        # A panic would be written.
        "        malloc(current, 100, 99)\n"
        "late = Late()\n"
        "print('done')\n"
    )


def test_a_request_has_a_stack_where_a_call_of_ours_has_led_to_one_that_lets_the_interpreter_go():
    must_be_done(
        STARTING + "import ctypes\n"
        "starting.start('history:10')\n"
        # The interpreter is let go for the call, as PyTorch does.
        "kind = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)\n"
        "allocate = ctypes.CFUNCTYPE(*kind)(native.hooks()['allocate'])\n"
        "class Stream:\n"
        "    def __cuda_stream__(self):\n"
        "        assert allocate(0, 0, None) is None\n"
        "        return 0, 0\n"
        "assert native.KeptStreams({}, int).allocate(0, 0, Stream()) == 0\n"
        "print('done')\n"
    )
