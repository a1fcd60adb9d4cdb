"""Programs with CuPy, Numba, cuda.core, RMM and Warp on the engine that PyTorch has.

One whose library is not installed says so and does nothing.
"""

import gc
import importlib
import os
import subprocess
import sys
import threading
import time

import numpy
import torch
from common import MIB, enable, expect, main

import regraph
import regraph.torch
from regraph import _native


def library(name):
    """A library and its door, the door not opened yet."""
    # Versions of Numba that compile read it, and newer ones of NumPy have dropped it.
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    try:
        return importlib.import_module(name), importlib.import_module(
            "regraph." + name.replace(".", "_").removesuffix("_cuda")
        )
    except ImportError as error:
        print(f"unavailable: {error}")
        sys.exit(0)


def reserved():
    """Bytes that the engine holds."""
    return _native.statistics(0)["reserved_bytes"]["all"]["current"]


def of_doors():
    """The pools of graphs that doors have named."""
    return [pool for pool in _native.pools(0) if pool["id"][0] >= 1 << 63]


def let_go():
    """Has the engine give back what no graph holds."""
    gc.collect()
    torch.cuda.synchronize()
    for _ in range(3):
        regraph.empty_cache()


def arrays_take_turns(folder):
    """What one library frees the next one gets: four caches are one."""
    cupy, cupy_door = library("cupy")
    cuda, numba_door = library("numba.cuda")
    core, core_door = library("cuda.core")
    enable()
    cupy_door.enable()
    numba_door.enable()
    device = core.Device(0)
    device.set_current()
    resource, stream = core_door.MemoryResource(device), device.create_stream()
    count = 64 * MIB
    for turn in range(1, 9):
        tensor = torch.full((count,), turn, dtype=torch.float32, device="cuda")
        assert float(tensor.sum()) == turn * count
        del tensor
        torch.cuda.synchronize()
        array = cupy.full((count,), turn, dtype=cupy.float32)
        assert float(array.sum()) == turn * count
        del array
        torch.cuda.synchronize()
        values = cuda.device_array((count,), dtype="float32")
        values[:] = turn
        assert values[count - 1] == turn
        del values
        torch.cuda.synchronize()
        buffer = resource.allocate(4 * count, stream=stream)
        buffer.fill(turn, stream=stream)
        stream.sync()
        buffer.close(stream)
        torch.cuda.synchronize()
    # Four caches would hold four arrays.
    print(f"{reserved() / MIB:.0f} MiB for arrays of {4 * count / MIB:.0f} MiB")
    assert reserved() < 2.5 * 4 * count, reserved()
    assert _native.statistics(0)["allocated_bytes"]["all"]["current"] < MIB


def doors_before_pytorch(folder):
    """A door may come first; its settings are those of all."""
    cupy, door = library("cupy")
    door.enable(settings="history:100", check=True)
    expect(regraph.Error, lambda: regraph.torch.enable(settings="history:5"), "enabled first")
    array = cupy.arange(1000)
    regraph.torch.enable()
    tensor = torch.arange(1000, device="cuda")
    assert int(array.sum()) == int(tensor.sum()) == 499500
    assert _native.statistics(0)["allocation"]["all"]["current"] >= 2
    assert torch.cuda.memory_allocated() >= 16000


def doors_without_pytorch(folder):
    """The doors and their native half need nothing of PyTorch's."""
    library("cupy")
    program = """
import sys
sys.modules["torch"] = None
import cupy, regraph.cupy
from regraph import _native
regraph.cupy.enable(check=True)
array = cupy.arange(1 << 20, dtype=cupy.int64)
assert int((array * 2).sum()) == ((1 << 20) - 1) << 20
stream = cupy.cuda.Stream(non_blocking=True)
out = cupy.zeros_like(array)
with stream:
    out[...] = (array + 1) * 2
    stream.synchronize()
    stream.begin_capture()
    out[...] = (array + 1) * 2
    graph = stream.end_capture()
    out.fill(0)
    graph.launch()
    stream.synchronize()
assert int(out[5]) == 12
assert len(_native.captures(0)) == 1
try:
    cupy.empty(1 << 50, dtype=cupy.uint8)
except cupy.cuda.memory.OutOfMemoryError:
    print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["done"], done.stdout + done.stderr


def cupy_captures(folder):
    """Graphs of CuPy's are judged, give right values, and let go of their memory when they go."""
    cupy, door = library("cupy")
    enable()
    door.enable()
    count = 4 * MIB
    given, out = cupy.arange(count, dtype=cupy.float32), cupy.zeros(count, dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)

    def work():
        for _ in range(3):
            # Each has temporaries of its own, which take each other's places.
            out[...] = (given * 2 + 1) * (given - 3)

    with stream:
        work()
        stream.synchronize()
        stream.begin_capture()
        work()
        graph = stream.end_capture()
        report = _native.captures(0)[-1]
        assert report["nodes"] > 3 and report["blocks"] >= 6, report
        for value in (1.0, 5.0, 9.0):
            given.fill(value)
            out.fill(0)
            # Beside the graph, in the same cache: it must not touch the graph's memory.
            others = [cupy.full(count, -1, dtype=cupy.float32) for _ in range(4)]
            graph.launch()
            stream.synchronize()
            expected = (value * 2 + 1) * (value - 3)
            assert float(out.min()) == float(out.max()) == expected
            assert all(float(other.max()) == -1 for other in others)
            del others
    let_go()
    (pool,) = of_doors()
    assert 0 < pool["reserved"] < 5 * 4 * count, pool
    del graph
    let_go()
    assert of_doors() == []


def cupy_capture_that_fails(folder):
    """A capture that cannot be ended raises CuPy's error; the next one works."""
    cupy, door = library("cupy")
    enable()
    door.enable()
    array = cupy.ones(MIB)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        array * 2
        stream.synchronize()
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        array * 2
        # Forbidden in a capture.
        expect(Exception, stream.synchronize)
        expect(Exception, stream.end_capture)
        stream.begin_capture()
        doubled = array * 2
        graph = stream.end_capture()
        graph.launch()
        stream.synchronize()
    assert float(doubled.sum()) == 2 * MIB


def cupy_runs_short(folder):
    """A request that cannot be served raises what CuPy's users catch, and the program goes on."""
    cupy, door = library("cupy")
    enable()
    door.enable()
    kind = cupy.cuda.memory.OutOfMemoryError
    error = expect(kind, lambda: cupy.empty(1 << 50, dtype=cupy.uint8), "1,125,899,906,842,624")
    print(getattr(error, "__notes__", None))
    total = torch.cuda.get_device_properties(0).total_memory
    del error
    # What PyTorch has cached goes to CuPy when memory is short.
    tensor = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    del tensor
    array = cupy.empty(total * 6 // 10, dtype=cupy.uint8)
    half = {"size": (total // 2,), "dtype": torch.uint8, "device": "cuda"}
    expect(torch.OutOfMemoryError, lambda: torch.empty(**half))
    del array
    assert float(cupy.ones(1000).sum()) == 1000


def cupy_streams(folder):
    """Arrays on several streams, on threads' default streams, and used beside their own stream."""
    cupy, door = library("cupy")
    enable()
    door.enable()
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    for turn in range(50):
        with first:
            array = cupy.full(MIB, turn, dtype=cupy.float32)
            event = first.record()
        second.wait_event(event)
        door.record_stream(array, second)
        with second:
            total = array.sum()
        del array
        with first:
            other = cupy.full(MIB, -1, dtype=cupy.float32)
        second.synchronize()
        assert float(total) == turn * MIB
        del other
    failures = []

    def on_its_own_stream(value):
        try:
            with cupy.cuda.Stream.ptds:
                for _ in range(50):
                    array = cupy.full(MIB, value, dtype=cupy.float32)
                    assert float((array + 1).sum()) == (value + 1) * MIB
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=on_its_own_stream, args=(value,)) for value in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def streams_end(folder):
    """Streams that end while their arrays live, and while their work runs, leave nothing behind."""
    cupy, door = library("cupy")
    core, core_door = library("cuda.core")
    enable()
    door.enable()
    device = core.Device(0)
    device.set_current()
    resource = core_door.MemoryResource(device)
    kept = []
    for turn in range(200):
        with cupy.cuda.Stream(non_blocking=turn % 2 == 0) as stream:
            given = cupy.full(MIB, turn, dtype=cupy.float32)
            kept.append(given * 2)
            del given
        # CuPy's list of current streams keeps none of them.
        del stream
        gone = device.create_stream()
        buffer = resource.allocate(4 * MIB, stream=gone)
        buffer.fill(turn, stream=gone)
        if turn % 2:
            gone.close()
        del gone
        buffer.close()
        del buffer
        if turn % 10 == 9:
            torch.cuda.synchronize()
            assert [float(array.max()) for array in kept] == [
                2 * value for value in range(turn - 9, turn + 1)
            ]
            kept.clear()
    let_go()
    assert reserved() < 600 * MIB, reserved()


def cupy_in_a_capture_of_pytorchs(folder):
    """What CuPy asks for in a capture of PyTorch's belongs to that graph."""
    cupy, door = library("cupy")
    enable()
    door.enable()
    given = torch.ones(MIB, device="cuda")
    out = torch.zeros(MIB, device="cuda")
    side = torch.cuda.Stream()

    def work():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            result = (cupy.asarray(given) * 3 + 1) * 2
            cupy.asarray(out)[...] = result

    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        work()
    report = regraph.torch.captures()[-1]
    assert report.blocks >= 2, report
    for value in (2, 4):
        given.fill_(value)
        noise = [torch.full((MIB,), -1.0, device="cuda") for _ in range(8)]
        graph.replay()
        torch.cuda.synchronize()
        assert float(out.min()) == float(out.max()) == (value * 3 + 1) * 2
        assert all(float(one.max()) == -1 for one in noise)


def _late(cuda):
    """A kernel of Numba's that waits so many ms and then writes."""

    @cuda.jit
    def late(values, value, milliseconds):
        for _ in range(milliseconds):
            cuda.nanosleep(1000000)
        first, step = cuda.grid(1), cuda.gridsize(1)
        for index in range(first, values.size, step):
            values[index] = value

    return late


def numba_frees_beside_a_running_kernel(folder):
    """Memory that is freed while a kernel uses it goes to no other owner before that has ended."""
    cuda, door = library("numba.cuda")
    enable()
    door.enable()
    late, stream = _late(cuda), cuda.stream()
    count = 8 * MIB
    warm = cuda.device_array(count, dtype="int32")
    late[64, 128, stream](warm, 1, 1)
    cuda.synchronize()
    del warm
    # PyTorch waits for the device where it makes its first streams and loads a kernel.
    other = torch.cuda.Stream()
    assert int(torch.zeros(8, dtype=torch.int32, device="cuda").abs().max()) == 0
    let_go()
    for _ in range(3):
        values = cuda.device_array(count, dtype="int32")
        address = values.__cuda_array_interface__["data"][0]
        late[64, 128, stream](values, 77, 500)
        del values
        with torch.cuda.stream(other):
            tensors = [torch.zeros(count, dtype=torch.int32, device="cuda") for _ in range(2)]
        arrays = [cuda.device_array(count, dtype="int32") for _ in range(2)]
        owners = [one.data_ptr() for one in tensors]
        owners += [one.__cuda_array_interface__["data"][0] for one in arrays]
        # The kernel runs: neither the free nor a request waited for it.
        assert not stream_is_done(stream)
        assert address not in owners
        cuda.synchronize()
        torch.cuda.synchronize()
        assert all(int(one.abs().max()) == 0 for one in tensors)
        del tensors, arrays
    # Then it does come back.
    cuda.synchronize()
    before = reserved()
    again = [cuda.device_array(count, dtype="int32") for _ in range(3)]
    assert reserved() == before
    del again


def stream_is_done(stream):
    """Whether a stream of Numba's has done its work."""
    return torch.cuda.ExternalStream(int(stream.handle)).query()


def numba_frees_in_a_capture(folder):
    """A free of Numba's while a blocking stream captures does the capture no harm."""
    cuda, door = library("numba.cuda")
    enable()
    door.enable()
    values = cuda.device_array(MIB, dtype="float32")
    values[:] = 1
    # Numba's streams are blocking ones, and so is PyTorch's view of one.
    blocking = torch.cuda.ExternalStream(int(cuda.stream().handle))
    given = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    for _ in range(2):
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=blocking):
            doubled = given * 2
            del values
            values = cuda.device_array(MIB, dtype="float32")
            tripled = doubled + given
        assert values.size == MIB
        graph.replay()
        torch.cuda.synchronize()
        assert float(tripled.sum()) == 3 * MIB
        graph = torch.cuda.CUDAGraph()


def numba_runs_short(folder):
    """A request that cannot be served raises Numba's error with CUDA's code."""
    cuda, door = library("numba.cuda")
    from numba.cuda.cudadrv.driver import CudaAPIError

    enable()
    door.enable()
    error = expect(CudaAPIError, lambda: cuda.device_array(1 << 50, dtype="uint8"))
    assert error.code == 2
    values = cuda.to_device([1.0, 2.0, 3.0])
    assert values.copy_to_host().tolist() == [1.0, 2.0, 3.0]
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free < total
    expect(regraph.Error, values.get_ipc_handle, "IPC handles")


def cuda_core_buffers_and_graphs(folder):
    """Buffers follow the order of streams; graphs are judged, share a pool and let go of it."""
    core, door = library("cuda.core")
    from cuda.bindings import driver

    enable()
    device = core.Device(0)
    device.set_current()
    resource = door.MemoryResource(device)
    device.memory_resource = resource
    first, second = device.create_stream(), device.create_stream()
    size = 16 * MIB
    given, out = (resource.allocate(size, stream=first) for _ in range(2))
    freed = device.allocate(size, stream=first)
    address = int(freed.handle)
    freed.close(first)
    again = device.allocate(size, stream=first)
    assert int(again.handle) == address
    # A free on another stream.
    second.wait(first)
    again.close(second)
    first.sync()
    second.sync()

    def value():
        host = torch.empty(1, dtype=torch.uint8)
        first.sync()
        (status,) = driver.cuMemcpyDtoH(host.data_ptr(), int(out.handle) + size - 1, 1)
        assert int(status) == 0
        return int(host[0])

    pool, memories, graphs = door.Pool(), [], []
    for _ in range(2):
        builder = device.create_graph_builder()
        with door.building(builder, pool) as memory:
            for _ in range(3):
                temporary = resource.allocate(size, stream=builder)
                temporary.copy_from(given, stream=builder)
                out.copy_from(temporary, stream=builder)
                temporary.close(builder)
        memories.append(memory)
        graphs.append(builder.complete())
    assert len(_native.captures(0)) == 2
    (held,) = of_doors()
    # Three temporaries in turn, twice: one place.
    assert held["reserved"] <= 2 * size, held
    for expected in (3, 7):
        for graph in graphs:
            given.fill(expected, stream=first)
            out.fill(0, stream=first)
            graph.launch(first)
            assert value() == expected
    del graphs, graph, builder
    for memory in memories:
        assert len(of_doors()) == 1
        memory.release()
        let_go()
    assert of_doors() == []
    expect(MemoryError, lambda: resource.allocate(1 << 50, stream=first))


def rmm_buffers(folder):
    """RMM's buffers come from the engine."""
    rmm, door = library("rmm")
    enable()
    door.enable()
    before = _native.statistics(0)["allocation"]["all"]["current"]
    buffer = rmm.DeviceBuffer.to_device(b"regraph" * 1000)
    assert buffer.tobytes() == b"regraph" * 1000
    assert _native.statistics(0)["allocation"]["all"]["current"] == before + 1
    expect(MemoryError, lambda: rmm.DeviceBuffer(size=1 << 50))
    del buffer
    assert _native.statistics(0)["allocation"]["all"]["current"] == before


def warp_arrays_and_graphs(folder):
    """Warp's arrays come from the engine, and its graphs are judged."""
    warp, door = library("warp")
    enable()
    door.enable()

    @warp.kernel
    def affine(given: warp.array(dtype=float), out: warp.array(dtype=float), by: float):
        index = warp.tid()
        out[index] = given[index] * by + 1.0

    count = 4 * MIB
    given, out = warp.zeros(count, dtype=float, device="cuda:0"), warp.zeros(count, device="cuda:0")

    def work():
        for _ in range(3):
            temporary = warp.empty(count, dtype=float, device="cuda:0")
            warp.launch(affine, count, [given, temporary, 2.0], device="cuda:0")
            warp.launch(affine, count, [temporary, out, 3.0], device="cuda:0")
            del temporary

    work()
    warp.synchronize()
    with warp.ScopedCapture(device="cuda:0") as capture:
        work()
    report = _native.captures(0)[-1]
    assert report["blocks"] >= 3, report
    for value in (1.0, 5.0):
        given.fill_(value)
        out.zero_()
        warp.capture_launch(capture.graph)
        warp.synchronize()
        assert float(out.numpy()[count - 1]) == (value * 2 + 1) * 3 + 1
    assert len(of_doors()) == 1
    del capture
    let_go()
    assert of_doors() == []


def costs(folder):
    """Prints what 1 MiB and its free cost with regraph, beside each library's own pool."""
    rounds = 50000

    def microseconds(call):
        for _ in range(1000):
            call()
        begun = time.perf_counter()
        for _ in range(rounds):
            call()
        return (time.perf_counter() - begun) / rounds * 1e6

    def told(name, own, ours):
        print(f"{name}: {own:.2f} us in its own pool, {ours:.2f} us in regraph")

    cupy, door = library("cupy")
    own = microseconds(lambda: cupy.cuda.alloc(MIB))
    own_array = microseconds(lambda: cupy.empty(MIB // 4, dtype=cupy.float32))
    door.enable(check=True)
    ours = microseconds(lambda: cupy.cuda.alloc(MIB))
    told("cupy.cuda.alloc", own, ours)
    told("cupy.empty", own_array, microseconds(lambda: cupy.empty(MIB // 4, dtype=cupy.float32)))
    core, core_door = library("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    found = []
    for resource in (core.DeviceMemoryResource(device), core_door.MemoryResource(device)):
        allocate = resource.allocate
        found.append(microseconds(lambda it=allocate: it(MIB, stream=stream).close(stream)))
    told("cuda.core", *found)
    program = f"""
import time
from numba import cuda
context = cuda.current_context()
def call():
    context.memalloc({MIB})
for _ in range(500):
    call()
begun = time.perf_counter()
for _ in range(5000):
    call()
print((time.perf_counter() - begun) / 5000 * 1e6)
"""
    found = []
    for manager in ("default", "regraph.numba"):
        environment = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": manager}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"numba: {done.stderr}")
            return
        found.append(float(done.stdout))
    told("numba", *found)


PROGRAMS = {
    program.__name__: program
    for program in (
        arrays_take_turns,
        doors_before_pytorch,
        doors_without_pytorch,
        cupy_captures,
        cupy_capture_that_fails,
        cupy_runs_short,
        cupy_streams,
        streams_end,
        cupy_in_a_capture_of_pytorchs,
        numba_frees_beside_a_running_kernel,
        numba_frees_in_a_capture,
        numba_runs_short,
        cuda_core_buffers_and_graphs,
        rmm_buffers,
        warp_arrays_and_graphs,
        costs,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
