"""Programs that capture graphs."""

import ctypes
import os
import threading
from pathlib import Path

import torch
from common import MIB, enable, expect, main, model

import regraph.torch


def warm_up(function, *arguments):
    """Runs a function on a side stream, as PyTorch asks for before captures."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(*arguments)
    torch.cuda.current_stream().wait_stream(stream)


def capture_and_replay(folder):
    """A graph gives what eager code gives, on every replay."""
    enable()
    network, static = model(), torch.zeros(16, 64, device="cuda")
    with torch.no_grad():
        warm_up(network, static)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = network(static)
        for seed in range(4):
            torch.manual_seed(seed)
            given = torch.randn(16, 64, device="cuda")
            static.copy_(given)
            graph.replay()
            torch.testing.assert_close(output, network(given))
    pools = regraph.torch.memory_summary()
    assert "Pool of graphs" in pools
    graph.reset()


def graphed_callables(folder):
    """A training step over graphed callables gives the gradients of eager code."""
    enable()
    eager, network = model(), model()
    sample = torch.randn(16, 64, device="cuda")
    graphed = torch.cuda.make_graphed_callables(network, (sample.clone(),))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (eager, network)]
    for seed in range(4):
        torch.manual_seed(seed)
        given = torch.randn(16, 64, device="cuda")
        for one, optimizer in zip((eager, graphed), optimizers, strict=True):
            # Gradients are the graph's own tensors: to add to them would double them.
            optimizer.zero_grad(set_to_none=True)
            one(given).square().mean().backward()
            optimizer.step()
    for expected, found in zip(eager.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


def several_streams(folder):
    """Blocks used on other streams, by record_stream and record_use, keep their contents."""
    enable()
    side = torch.cuda.Stream()
    static = torch.zeros(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main_stream = torch.cuda.current_stream()
        results = []
        for step in range(8):
            value = static + step
            side.wait_stream(main_stream)
            with torch.cuda.stream(side):
                results.append(value * 2)
            if step % 2:
                value.record_stream(side)
            else:
                regraph.torch.record_use(value, side)
            del value
        main_stream.wait_stream(side)
        for result in results:
            result.record_stream(main_stream)
        total = torch.stack(results).sum(0)
    for start in (0.0, 3.0):
        static.fill_(start)
        graph.replay()
        expected = sum((start + step) * 2 for step in range(8))
        assert torch.equal(total, torch.full_like(total, expected))
    del results


def shared_pool(folder):
    """Graphs of one pool, replayed in order, lie on the same memory."""
    enable()
    pool = torch.cuda.graph_pool_handle()
    static = torch.ones(8 * MIB, device="cuda")
    outputs, graphs, reserved = [], [], []
    for _ in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            temporary = static * 3
            outputs.append((temporary + 1).sum())
            del temporary
        assert graph.pool() == pool
        graphs.append(graph)
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[2] - reserved[0] < 32 * MIB, reserved
    for graph, output in zip(graphs, outputs, strict=True):
        graph.replay()
        assert output.item() == 4 * 8 * MIB
    assert "Pool of graphs" in regraph.torch.memory_summary()


def failed_capture(folder):
    """A capture that fails takes nothing with it: the next one is good."""
    enable()
    static = torch.ones(MIB, device="cuda")
    before = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()

    def capture(breaking):
        with torch.cuda.graph(graph):
            output = static * 2
            if breaking:
                torch.cuda.synchronize()
        return output

    expect(RuntimeError, lambda: capture(True))
    assert torch.cuda.current_stream() == before
    torch.cuda.synchronize()
    again = torch.cuda.CUDAGraph()
    with torch.cuda.graph(again):
        output = static * 2
    again.replay()
    assert torch.equal(output, static * 2)
    assert torch.equal(torch.ones(MIB, device="cuda") * 5, static * 5)


def nested_captures(folder):
    """A stream that captures already is told as such, and its capture goes on."""
    enable()
    static = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = static * 2
        expect(regraph.torch.Error, torch.cuda.CUDAGraph().capture_begin, "capturing already")
        expect(regraph.torch.Error, torch.cuda.CUDAGraph().capture_end, "not begun by this graph")
        output = output + 1
    graph.replay()
    assert torch.equal(output, static * 3)


def kept_graph(folder):
    """A graph that is kept is instantiated later, and a graph can be captured again."""
    enable()
    static = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    for factor in (2, 5):
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = static * factor
        assert graph.raw_cuda_graph() != 0
        graph.instantiate()
        graph.replay()
        assert torch.equal(output, static * factor)
        del output
        graph.reset()


def backward_in_capture(folder):
    """A whole step with its backward pass, which runs on a thread of its own, is captured."""
    enable()
    eager, network = model(), model()
    static = torch.randn(16, 64, device="cuda")
    step = lambda one: one(static).square().mean().backward()  # noqa: E731
    warm_up(step, network)
    network.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(network)
    for _ in range(3):
        graph.replay()
    step(eager)
    for expected, found in zip(eager.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def others_go_on(folder):
    """Another thread's eager work goes on, and stays right, while a graph is captured."""
    enable()
    static = torch.ones(MIB, device="cuda")
    stop, wrong = threading.Event(), []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            while not stop.is_set():
                value = torch.full((MIB,), 3.0, device="cuda")
                if (value * 2 - 6).any():
                    wrong.append(value)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            graph = torch.cuda.CUDAGraph()
            torch.cuda.empty_cache()
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.capture_begin(capture_error_mode="thread_local")
                output = static
                for _ in range(50):
                    output = output + 1
                graph.capture_end()
                graph.replay()
                torch.cuda.current_stream().synchronize()
            assert torch.equal(output, static + 50)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


def captures_of_native_code(folder):
    """Captures that PyTorch's own methods begin and end, as C++ programs call them, are judged."""
    kind = torch._C._CUDAGraph
    begin, end = kind.capture_begin, kind.capture_end  # Before they are replaced.
    enable()
    static = torch.ones(MIB, device="cuda")
    graphs, outputs = [], []
    for _ in range(2):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.stream(torch.cuda.Stream()):
            begin(graphs[-1], pool=None, capture_error_mode="global")
            output = static
            for _ in range(8):
                output = output + 1
            end(graphs[-1])
        outputs.append(output)
    reports = regraph.torch.captures(0)
    assert len(reports) == len(graphs)
    if regraph.torch.backend() == "native":
        # It is known of graphs that were read alone.
        assert all(report.minimum_bytes is not None for report in reports), reports
    for graph, output in zip(graphs, outputs, strict=True):
        graph.replay()
        assert torch.equal(output, static + 8)


def captures_begun_without_pytorch(folder):
    """Captures by the driver's own calls work. The checker judges them where the program says when they end."""
    enable()
    driver = ctypes.CDLL("libcuda.so.1")
    stream = torch.cuda.Stream()
    handle = ctypes.c_void_p(stream.cuda_stream)

    def call(name, *arguments):
        code = getattr(driver, name)(*arguments)
        assert code == 0, (name, code)

    def capture(judged):
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.stream(stream):
            call("cuStreamBeginCapture_v2", handle, 2)  # Relaxed.
            output = static
            for _ in range(8):
                output = output + 1
            if judged:
                regraph.torch.judge_capture()
            call("cuStreamEndCapture", handle, ctypes.byref(graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        return executable, output

    def unjudged():
        torch.ones(1, device="cuda")  # A request outside captures: the end of one is noticed.
        return regraph.torch.memory_stats()["unjudged_captures"]

    static = torch.ones(MIB, device="cuda")
    static + 1  # Its kernel is loaded now.
    torch.cuda.synchronize()
    errors, told = os.dup(2), Path(folder) / "told"
    with told.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            captured = [capture(False)]
            assert unjudged() == 1
            captured.append(capture(True))
            assert unjudged() == 1
        finally:
            regraph._native.flush_messages()
            os.dup2(errors, 2)
    text = told.read_text()
    assert text.count("has ended, and its graph was not judged") == 1, text
    print(text.strip())
    assert [report.verified for report in regraph.torch.captures(0)] == [False, True]
    for executable, output in captured:
        for _ in range(2):
            call("cuGraphLaunch", executable, handle)
        stream.synchronize()
        assert torch.equal(output, static + 8)
    expect(regraph.torch.Error, lambda: regraph.torch.judge_capture(stream), "captur")


PROGRAMS = {
    function.__name__: function
    for function in (
        capture_and_replay,
        graphed_callables,
        several_streams,
        shared_pool,
        failed_capture,
        nested_captures,
        kept_graph,
        backward_in_capture,
        others_go_on,
        captures_of_native_code,
        captures_begun_without_pytorch,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
