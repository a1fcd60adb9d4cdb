"""Programs whose captures are left by an exception: it comes out as itself, and the next one works.

Where one fails because a capture is invalid, `tools/driver_calls.cpp` names the call of the driver
that invalidated it.
"""

import contextlib
import ctypes
import gc
import threading

import torch
from common import MIB, enable, main, model

import regraph.torch
from regraph.torch import capturing

MODES = ("global", "thread_local", "relaxed")
VALID, INVALID = 1, 2


def status(stream):
    """What the driver says of a raw stream: 0 if it does not capture, else `VALID` or `INVALID`."""
    told = ctypes.c_int(-1)
    ask = ctypes.CDLL("libcuda.so.1").cuStreamIsCapturing
    code = ask(ctypes.c_void_p(stream), ctypes.byref(told))
    assert code == 0, code
    return told.value


class Watched:
    """The library, with a look at the capture before and after each call about one."""

    def __init__(self, native):
        self.native = native

    def __getattr__(self, name):
        function = getattr(self.native, name)
        if not name.startswith("capture_"):
            return function

        def call(device, stream, *others):
            before = status(stream)
            try:
                return function(device, stream, *others)
            finally:
                after = status(stream)
                assert (before, after) != (VALID, INVALID), f"{name} invalidated the capture"

        return call


def start(**arguments):
    """Enables regraph, and watches what is said to it about captures."""
    enable(**arguments)
    capturing._native = Watched(capturing._native)


def valid():
    """Whether the current stream's capture is valid."""
    return status(torch.cuda.current_stream().cuda_stream) == VALID


class Left(Exception):
    """The program's own exception."""


def leave(graph, body, error, mode="global", ends=True):
    """Leaves a capture by an exception, which must come out as itself.

    `ends` says whether the capture itself can be ended; if so no call may have invalidated it.
    """
    before = torch.cuda.current_stream()
    # A graph that Python's collector finds in a capture is destroyed there, which invalidates it.
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            body()
            assert valid() or not ends, "invalid before the exception"
            raise error
    except type(error) as raised:
        assert raised is error, repr(raised)
        notes = getattr(raised, "__notes__", [])
        assert not (ends and notes), notes
    finally:
        gc.enable()
    assert torch.cuda.current_stream() == before
    torch.cuda.synchronize()


def capture_again(graph, static, mode="global"):
    """The next capture works, and so do replays and eager work."""
    gc.collect()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        output = static * 2 + 1
    for start in (0.0, 3.0):
        static.fill_(start)
        graph.replay()
        assert torch.equal(output, torch.full_like(output, start * 2 + 1))
    assert torch.equal(torch.ones_like(static) * 5, torch.full_like(static, 5.0))


def bodies(static, side):
    """What captures did before they were left, by name."""
    kept = []

    def nothing():
        pass

    def kernels():
        kept.append((static * 2 + 1).relu())

    def temporaries():
        for _ in range(20):
            static.mul(3).add(1)

    def streams():
        current = torch.cuda.current_stream()
        value = static * 2
        side.wait_stream(current)
        with torch.cuda.stream(side):
            result = value + 1
        value.record_stream(side)
        del value
        current.wait_stream(side)
        result.record_stream(current)

    def freed_from_outside():
        # Memory of eager work that another stream uses, freed in the capture.
        before.pop()

    before = []
    for _ in MODES:
        eager = static * 4
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.default_stream())
            eager.add(1)
        eager.record_stream(side)
        before.append(eager)
        del eager
    return [nothing, kernels, temporaries, streams, freed_from_outside]


def _exceptions(**arguments):
    start(**arguments)
    static, side = torch.ones(MIB, device="cuda"), torch.cuda.Stream()
    for body in bodies(static, side):
        for mode in MODES:
            graph = torch.cuda.CUDAGraph()
            leave(graph, body, Left(body.__name__), mode)
            capture_again(torch.cuda.CUDAGraph(), static, mode)
            # PyTorch lets the graph be captured anew once it is reset.
            graph.reset()
            capture_again(graph, static, mode)
    leave(torch.cuda.CUDAGraph(), lambda: static * 2, KeyboardInterrupt())
    capture_again(torch.cuda.CUDAGraph(), static)


def exceptions(folder):
    """An exception in a capture comes out as itself, in every mode, for any captured work."""
    _exceptions()


def exceptions_in_planned_captures(folder):
    """The same where captures get their memory at their end."""
    _exceptions(settings="plan:exact")


def exceptions_of_captures_that_cannot_end(folder):
    """The program's exception comes out where ending the capture fails too."""
    start()
    static, side = torch.ones(MIB, device="cuda"), torch.cuda.Stream()

    def unjoined():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            static.add(1)

    def forbidden():
        static.mul(2)
        with contextlib.suppress(RuntimeError):
            torch.cuda.synchronize()

    # PyTorch may look at the graph object of a failed capture again, so that must live.
    graphs = []
    for body in (unjoined, forbidden):
        for mode in MODES:
            graphs.append(torch.cuda.CUDAGraph())
            leave(graphs[-1], body, Left(body.__name__), mode, ends=False)
            capture_again(torch.cuda.CUDAGraph(), static, mode)
    # Without an exception of its own the capture's error comes out.
    for body in (unjoined, forbidden):
        graphs.append(torch.cuda.CUDAGraph())
        try:
            with torch.cuda.graph(graphs[-1]):
                body()
        except RuntimeError as error:
            assert not getattr(error, "__notes__", []), error
        else:
            raise AssertionError("no error")
        torch.cuda.synchronize()
        capture_again(torch.cuda.CUDAGraph(), static)


OPTIMIZERS = ("Adam", "AdamW", "ASGD", "Adamax", "NAdam", "RAdam", "Adadelta", "RMSprop", "Rprop")


def _step(optimizer, parameters, gradients):
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def _refusing(name, mode, kernels):
    """An optimizer of two groups, the second of which cannot be captured, after one that can."""
    static = torch.ones(MIB, device="cuda")
    for capturable in (True, False):
        parameters = [torch.nn.Parameter(torch.ones(1, device="cuda")) for _ in range(2)]
        gradients = [[torch.randn_like(one) for one in parameters] for _ in range(5)]
        optimizer = getattr(torch.optim, name)(
            [
                {"params": [parameters[0]], "capturable": True},
                {"params": [parameters[1]], "capturable": capturable},
            ]
        )
        for row in gradients[:3]:
            _step(optimizer, parameters, row)
        graph = torch.cuda.CUDAGraph()
        if capturable:
            with torch.cuda.graph(graph, capture_error_mode=mode):
                optimizer.step()
            graph.replay()
            continue
        try:
            with torch.cuda.graph(graph, capture_error_mode=mode):
                for _ in range(kernels):
                    static.mul(3).add(1)
                assert valid()
                optimizer.step()
        except RuntimeError as error:
            assert "Attempting CUDA graph" in str(error), repr(error)
            assert not getattr(error, "__notes__", []), error.__notes__
        else:
            raise AssertionError("the optimizer was captured")
        capture_again(torch.cuda.CUDAGraph(), static, mode)


def refusing_optimizers(folder):
    """An optimizer that refuses to be captured says so, in every mode, with kernels or without."""
    start()
    # As PyTorch's own tests run, on a stream that is not the default one; and on the default one.
    for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):
        with torch.cuda.stream(stream):
            for mode in MODES:
                for kernels in (0, 10):
                    for name in OPTIMIZERS:
                        _refusing(name, mode, kernels)


def exceptions_beside_another_thread(folder):
    """Another thread allocates, frees and empties the cache beside captures that are left."""
    start()
    static = torch.ones(MIB, device="cuda")
    stop, ready, failed = threading.Event(), threading.Event(), []

    def work():
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        while not stop.is_set():
            try:
                # Nothing that waits for the device: PyTorch's own allocator lets none pass either.
                with torch.cuda.stream(first):
                    value = torch.full((MIB,), 3.0, device="cuda")
                    second.wait_stream(first)
                    with torch.cuda.stream(second):
                        value.add(1)
                    value.record_stream(second)
                    del value
                torch.cuda.empty_cache()
                torch.cuda.memory_stats()
            except BaseException as error:
                failed.append(error)
                return
            finally:
                ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        ready.wait()
        stream = torch.cuda.Stream()
        for _ in range(30):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                graph.capture_begin()
                for _ in range(20):
                    static.mul(3).add(1)
                assert valid()
                graph.capture_end()
                graph.replay()
                graph.reset()
    finally:
        stop.set()
        thread.join()
    assert not failed, failed
    torch.cuda.synchronize()


def dropped_graphs(folder):
    """A graph object that goes while it captures leaves the next capture of its stream alone."""
    start()
    network, static = model(), torch.zeros(16, 64, device="cuda")
    with torch.no_grad():
        network(static)
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        first = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            first.capture_begin()
            network(static)
            # PyTorch's own method: regraph is not told of the end.
            torch._C._CUDAGraph.capture_end(first)
            second = torch.cuda.CUDAGraph()
            # Relaxed, for PyTorch destroys the first executable below, as a strict capture forbids.
            second.capture_begin(capture_error_mode="relaxed")
            output = network(static)
            del first
            output = output + 1
            second.capture_end()
        static.fill_(2.0)
        second.replay()
        torch.testing.assert_close(output, network(static) + 1)
    assert "Pool of graphs" in regraph.torch.memory_summary()


PROGRAMS = {
    function.__name__: function
    for function in (
        exceptions,
        exceptions_in_planned_captures,
        exceptions_of_captures_that_cannot_end,
        refusing_optimizers,
        exceptions_beside_another_thread,
        dropped_graphs,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
