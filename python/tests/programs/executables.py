"""Graphs that share executables, within a budget."""

import ctypes
import faulthandler
import gc
import random
import threading
import time

import torch
from common import MIB, enable, expect, main

import regraph.torch

SIZES = (1, 2, 3, 8, 16, 33, 64, 100)


class Sizes:
    """A small network over two streams, captured for each size into one pool."""

    def __init__(self, graph_class, pool=None, cycles=0):
        torch.manual_seed(0)
        self.first = torch.randn(64, 128, device="cuda")
        self.second = torch.randn(128, 64, device="cuda")
        self.side = torch.cuda.Stream()
        self.inputs = {size: torch.zeros(size, 64, device="cuda") for size in SIZES}
        self.outputs, self.graphs = {}, {}
        capture_stream = torch.cuda.Stream()
        for stream in (capture_stream, self.side):
            with torch.cuda.stream(stream):
                self.first @ self.second  # Libraries make their workspaces.
        pool = pool or torch.cuda.graph_pool_handle()
        for size in SIZES:
            graph = graph_class()
            with torch.cuda.graph(graph, pool=pool, stream=capture_stream):
                if cycles:
                    torch.cuda._sleep(cycles)
                self.outputs[size] = self.step(self.inputs[size])
            self.graphs[size] = graph
        torch.cuda.synchronize()

    def step(self, batch):
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            beside = torch.tanh(batch) * 2
        beside.record_stream(main)
        hidden = torch.relu(batch @ self.first)
        main.wait_stream(self.side)
        return hidden @ self.second + beside

    def run(self, size, value):
        """A replay, and a copy of its output behind it."""
        self.inputs[size].fill_(value)
        self.graphs[size].replay()
        return self.outputs[size].clone()


def _expected():
    """What PyTorch's own graphs give."""
    theirs = Sizes(torch.cuda.CUDAGraph)
    values = [0.5, -1.25, 3.0]
    return {(size, value): theirs.run(size, value) for size in SIZES for value in values}


def _agree(ours, expected, times):
    results = []
    for _ in range(times):
        size, value = random.choice(list(expected))
        results.append((size, value, ours.run(size, value)))
    for size, value, result in results:
        assert torch.equal(result, expected[size, value]), (size, value)


def sizes_within_a_quarter_replay_as_pytorchs(folder):
    """Graphs that share executables, or take turns within a budget, are bit for bit as PyTorch's."""
    enable()
    expected = _expected()
    ours = Sizes(regraph.torch.Graph)
    before = regraph.torch.executables()
    assert (before.graphs, before.executables, before.made) == (len(SIZES), 0, 0)
    _agree(ours, expected, 50)
    each = regraph.torch.executables()
    assert each.made == each.executables <= len(SIZES) and each.updates == 0
    # Each its own, a quarter of them at a time.
    quarter = each.graph_bytes // 4
    assert quarter >= max(graph.foreseen_bytes() for graph in ours.graphs.values())
    regraph.torch.keep_executables(quarter, functions=None)
    _agree(ours, expected, 200)
    few = regraph.torch.executables()
    assert few.executables <= 2 and few.evicted > 20 and few.updates == 0, few
    assert few.foreseen_bytes <= quarter
    # As many as there are shapes.
    regraph.torch.keep_executables(functions="any")
    regraph.torch.release_executables()
    for size in SIZES:
        ours.graphs[size].prepare()
    _agree(ours, expected, 1000)
    shared = regraph.torch.executables()
    assert shared.executables <= len(SIZES) - 2 and shared.updates > 100, shared
    # Both.
    regraph.torch.keep_executables(quarter, functions="any")
    _agree(ours, expected, 1000)
    print(each, few, shared, regraph.torch.executables(), sep="\n", flush=True)
    del ours
    gc.collect()
    gone = regraph.torch.executables()
    assert (gone.graphs, gone.executables) == (0, 0), gone


def updates_wait_for_no_launch(folder):
    """While a size runs another one gets its executable, and each has its own parameters."""
    enable()
    expected = _expected()
    regraph.torch.keep_executables(functions="any")
    ours = Sizes(regraph.torch.Graph, cycles=40_000_000)
    for size in SIZES:
        ours.graphs[size].prepare()
    torch.cuda.synchronize()
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    results, running, before = [], 0, None
    for number in range(24):
        size, value = random.choice(list(expected))
        stream = streams[number % 2]
        # Graphs of one pool are the program's to order.
        stream.wait_stream(streams[1 - number % 2])
        with torch.cuda.stream(stream):
            results.append((size, value, ours.run(size, value)))
            done = torch.cuda.Event()
            done.record()
        running += before is not None and not before.query()
        before = done
    torch.cuda.synchronize()
    assert running >= 15, "launches run on while others are updated"
    assert regraph.torch.executables().updates > 10
    for size, value, result in results:
        assert torch.equal(result, expected[size, value]), (size, value)
    # One that runs is waited for where its executable has to go.
    budget = max(graph.foreseen_bytes() for graph in ours.graphs.values())
    regraph.torch.keep_executables(budget, functions=None)
    for size in (8, 64, 8):
        assert torch.equal(ours.run(size, 3.0), expected[size, 3.0])
    assert regraph.torch.executables().executables == 1


def executables_of_a_sleeping_pool_come_back(folder):
    """Graphs whose pool sleeps are refused, give their executables up, and replay when it wakes."""
    enable()
    expected = _expected()
    pool = torch.cuda.graph_pool_handle()
    regraph.torch.keep_executables(functions="any", pool=pool)
    with regraph.torch.region("graphs"):
        ours = Sizes(regraph.torch.Graph, pool)
    for _ in range(3):
        _agree(ours, expected, 20)
        made = regraph.torch.executables(pool).made
        regraph.torch.sleep("graphs")
        for call in (ours.graphs[8].replay, ours.graphs[64].prepare):
            expect(regraph.torch.Error, call, "regraph.torch.wake")
        assert regraph.torch.release_executables(pool) > 0
        assert regraph.torch.executables(pool).executables == 0
        regraph.torch.wake()
        _agree(ours, expected, 20)
        assert regraph.torch.executables(pool).made > made
    told = expect(
        regraph.torch.Error,
        lambda: regraph.torch.executables(torch.cuda.graph_pool_handle()),
        "not kept by themselves",
    )
    assert "keep_executables" in str(told)


def random_numbers_are_drawn_as_pytorchs(folder):
    """Each replay draws the numbers that PyTorch's graphs draw, of the default generator and of others."""
    enable()
    regraph.torch.keep_executables(functions="any")

    def draw(graph_class):
        own = torch.Generator("cuda").manual_seed(3)
        source = torch.ones(1000, device="cuda")
        drawn = []
        for number in range(3):
            graph = graph_class()
            if number == 1:
                graph.register_generator_state(own)
            with torch.cuda.graph(graph):
                output = source * 2
                if number == 0:
                    output = output * torch.rand_like(source)
                if number == 1:
                    output = output * torch.rand(1000, device="cuda", generator=own)
            drawn.append((graph, output))
        torch.manual_seed(11)
        results = []
        for _ in range(4):
            for graph, output in drawn:
                graph.replay()
                results.append(output.clone())
            results.append(torch.rand(5, device="cuda"))
        return results

    theirs, ours = draw(torch.cuda.CUDAGraph), draw(regraph.torch.Graph)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], ours[4]) and not torch.equal(ours[1], ours[5])


def graphed_callables_train_as_pytorchs(folder):
    """`make_graphed_callables` by such graphs gives PyTorch's outputs and gradients."""
    enable()
    regraph.torch.keep_executables(functions="any")

    def train(make):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(64, 64).cuda() for _ in range(3)]
        batch = torch.randn(32, 64, device="cuda", requires_grad=True)
        graphed = make(tuple(layers), tuple((batch.detach().requires_grad_(),) for _ in layers))
        losses = []
        for _ in range(5):
            hidden = batch
            for layer in graphed:
                hidden = layer(hidden)
            loss = hidden.square().mean()
            loss.backward()
            losses.append(loss.detach().clone())
        gradients = [each.grad.clone() for layer in layers for each in layer.parameters()]
        return (losses, gradients), layers

    theirs, _ = train(torch.cuda.make_graphed_callables)
    assert regraph.torch.executables().graphs == 0
    ours, layers = train(regraph.torch.make_graphed_callables)
    figures = regraph.torch.executables()
    assert figures.graphs == 6 and 0 < figures.executables < 6, figures
    for mine, others in zip(ours, theirs, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(mine, others, strict=True))
    assert all(layer.training for layer in layers)


def such_graphs_lend_between_replays(folder):
    """What they do not keep is borrowed; they are refused while that lives, and come after it."""
    enable(native=True)
    graph = regraph.torch.Graph()
    static = torch.ones(4 * MIB, device="cuda")
    with torch.cuda.graph(graph):
        wide = static.repeat(4) * 2
        output = wide[: 4 * MIB] + 1
        del wide
    graph.replay()
    with regraph.torch.borrow(graph.pool()):
        lent = torch.full((MIB,), 7.0, device="cuda")
    assert regraph.torch.lent_bytes(graph.pool()) >= 4 * MIB
    expect(regraph.torch.Error, graph.replay)
    assert bool((lent == 7).all())
    lent = [lent]
    lent.append(lent)  # Only the collector of cycles frees it.
    del lent
    static.fill_(5)
    graph.replay()
    assert float(output.min()) == float(output.max()) == 11
    graph.raw_cuda_graph()
    with regraph.torch.borrow(graph.pool()):
        kept = torch.full((MIB,), 3.0, device="cuda")
        assert regraph.torch.lent_bytes(graph.pool()) == 0, "who has its handle may launch it"
    assert bool((kept == 3).all())


def such_graphs_say_what_is_wrong(folder):
    """Resets, captures that the driver cannot copy, and calls that there are not."""
    enable()
    error = regraph.torch.Error
    graph = regraph.torch.Graph()
    expect(error, graph.replay, "nothing was captured")
    static = torch.ones(1000, device="cuda")
    with torch.cuda.graph(graph):
        output = static * 2
    graph.replay()
    assert float(output.sum()) == 2000
    expect(error, graph.raw_cuda_graph_exec, "torch.cuda.CUDAGraph")
    expect(error, lambda: graph.debug_dump("dump"), "torch.cuda.CUDAGraph")
    expect(ValueError, lambda: regraph.torch.keep_executables(functions="some"), "same")
    del output
    graph.reset()
    expect(error, graph.replay, "was reset")
    with torch.cuda.graph(graph):
        output = static * 3
    graph.instantiate()
    graph.replay()
    assert float(output.sum()) == 3000
    # Within a budget that no executable fits in.
    regraph.torch.keep_executables(1)
    expect(error, graph.replay, "raise the budget")
    regraph.torch.keep_executables()
    graph.replay()

    driver, other = ctypes.CDLL("libcuda.so.1"), regraph.torch.Graph()

    def allocates():
        with torch.cuda.graph(other):
            address = ctypes.c_uint64()
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            assert driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(512), stream) == 0
            static.add_(1)
            assert driver.cuMemFreeAsync(address, stream) == 0

    expect(error, allocates, "capture it by torch.cuda.CUDAGraph")
    expect(error, other.replay, "nothing was captured")
    with torch.cuda.graph(other):
        output = static * 4
    other.replay()
    assert float(output.sum()) == 4000

    def launches_in_a_capture():
        with torch.cuda.graph(regraph.torch.Graph()):
            static.mul_(1)
            other.replay()

    expect(error, launches_in_a_capture)
    other.replay()
    torch.cuda.synchronize()


def threads_replay_graphs_that_share(folder):
    """Threads with pools and streams of their own share executables, while others are captured and dropped."""
    enable()
    regraph.torch.keep_executables(functions="any")
    failures = []

    def work(number):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                static = torch.zeros(1000, device="cuda")
                for turn in range(20):
                    graph = regraph.torch.Graph()
                    with (
                        capturing,
                        torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
                    ):
                        output = static * (number + 2) + turn
                    for value in range(10):
                        static.fill_(value)
                        graph.replay()
                        expected = value * (number + 2) + turn
                        assert bool((output == expected).all()), (number, turn, value)
        except BaseException as failure:
            failures.append(failure)

    capturing = threading.Lock()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    gc.collect()
    assert regraph.torch.executables().graphs == 0


def a_graph_goes_while_another_waits_for_python(folder):
    """A graph is dropped while a thread prepares another, which waits for work that runs a function of Python's."""
    enable()
    stream, static, graphs = torch.cuda.Stream(), torch.ones(1024, device="cuda"), []
    for nodes in (1, 2, 3):
        graphs.append(regraph.torch.Graph())
        with torch.cuda.graph(graphs[-1], stream=stream):
            for _ in range(nodes):
                static.add_(1)
    first, second, third = graphs
    graphs.clear()
    # Room for one of them.
    most = max(graph.foreseen_bytes() for graph in (first, second, third))
    regraph.torch.keep_executables(budget_bytes=most)
    begun, end = threading.Event(), threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def wait(_):
        begun.set()
        end.wait(60)

    launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
    launch.argtypes = (ctypes.c_void_p, type(wait), ctypes.c_void_p)
    # No thread of Python's could say it.
    faulthandler.dump_traceback_later(120, exit=True)
    assert launch(stream.cuda_stream, wait, None) == 0
    with torch.cuda.stream(stream):
        first.replay()
    assert begun.wait(60)
    preparing = threading.Thread(target=second.prepare)
    preparing.start()
    time.sleep(1)
    assert preparing.is_alive(), "it waits for the first one"
    threading.Timer(1, end.set).start()
    third.reset()
    preparing.join()
    torch.cuda.synchronize()
    faulthandler.cancel_dump_traceback_later()
    assert static[0].item() == 2


PROGRAMS = {
    function.__name__: function
    for function in (
        sizes_within_a_quarter_replay_as_pytorchs,
        updates_wait_for_no_launch,
        executables_of_a_sleeping_pool_come_back,
        random_numbers_are_drawn_as_pytorchs,
        graphed_callables_train_as_pytorchs,
        such_graphs_lend_between_replays,
        such_graphs_say_what_is_wrong,
        threads_replay_graphs_that_share,
        a_graph_goes_while_another_waits_for_python,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
