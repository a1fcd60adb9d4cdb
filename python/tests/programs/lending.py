"""Eager work in memory that graphs do not keep between replays."""

import random

import torch
from common import MIB, enable, expect, main

import regraph.torch


def _graph(factor, pool=None):
    """A graph with temporaries of 64 MiB each, its input and its output."""
    graph = torch.cuda.CUDAGraph()
    static = torch.ones(4 * MIB, device="cuda")
    with torch.cuda.graph(graph, pool=pool):
        wide = static.repeat(4) * factor
        for _ in range(3):
            wide = wide + 1
        output = wide[: 4 * MIB] + 0.0
        del wide
    return graph, static, output


def _is_right(graph, static, output, factor):
    value = float(random.randint(1, 100))
    static.fill_(value)
    graph.replay()
    assert float(output.min()) == float(output.max()) == value * factor + 3


def eager_work_borrows(folder):
    """What lies between replays in graphs' memory is whole, and graphs are right after it."""
    enable(native=True)
    graphs = [(*_graph(2), 2)]
    pool = graphs[0][0].pool()
    graphs.append((*_graph(3, pool), 3))
    _is_right(*graphs[0])
    torch.cuda.synchronize()
    streams = (torch.cuda.current_stream(), torch.cuda.Stream())
    # The checks below take eager memory on both streams.
    checks = []
    for stream in streams:
        with torch.cuda.stream(stream):
            checks.append(torch.zeros(4 * MIB, dtype=torch.bool, device="cuda"))
    del checks
    before = torch.cuda.memory_reserved()
    for number in range(100):
        stream = random.choice(streams)
        with torch.cuda.stream(stream):
            with regraph.torch.borrow(pool):
                lent = [
                    torch.full((random.randint(1, 2 * MIB),), number, device="cuda")
                    for _ in range(4)
                ]
            # The sums are no lent blocks.
            wrong = sum((each != number).sum() for each in lent)
        assert regraph.torch.lent_bytes(pool) >= 8 * sum(each.numel() for each in lent)
        if number % 5 == 0:
            expect(RuntimeError, graphs[0][0].replay)
        del lent
        assert regraph.torch.lent_bytes(pool) == 0
        # No synchronization between the work above and this.
        _is_right(*graphs[0])
        _is_right(*graphs[1])
        streams[1].synchronize()
        assert int(wrong) == 0
    # Masks of up to 2 MiB, four at a time on each stream, twice where a stream is not done with the first ones.
    # What was lent would take up to 64 MiB.
    assert torch.cuda.memory_reserved() <= before + 32 * MIB


def inputs_and_outputs_are_not_lent(folder):
    """A tensor that is too large for what is temporary has memory of its own, and outputs stay."""
    enable(native=True)
    graph, static, output = _graph(2)
    static.fill_(5)
    graph.replay()
    with regraph.torch.borrow(graph.pool()):
        everything = [torch.full((MIB,), 7.0, device="cuda") for _ in range(200)]
    assert 0 < regraph.torch.lent_bytes(graph.pool()) < 200 * 4 * MIB
    assert float(output.min()) == float(output.max()) == 13
    assert all(bool((each == 7).all()) for each in everything)
    del everything
    graph.replay()
    assert float(output.min()) == float(output.max()) == 13


def two_gibibytes_are_lent(folder):
    """Beside graphs whose temporary memory is 2 GiB eager work of that size takes next to nothing more."""
    enable(native=True)
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    static = torch.ones(MIB, device="cuda")
    with torch.cuda.graph(graph):
        parts = [static.repeat(128) * factor for factor in range(4)]
        output = sum(part[:MIB] for part in parts)
        del parts
    graph.replay()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    assert before >= 2 << 30
    for _ in range(5):
        with regraph.torch.borrow(graph.pool()):
            lent, wanted = [], (2 << 30) - 64 * MIB
            while wanted > 0:
                size = min(wanted, random.randint(1, 96) * MIB)
                lent.append(torch.full((size // 4,), 7.0, device="cuda"))
                wanted -= size
        grown = torch.cuda.memory_reserved() - before
        assert grown <= 128 * MIB, (grown / MIB, regraph.torch.lent_bytes(graph.pool()) / MIB)
        assert all(float(each.min()) == float(each.max()) == 7 for each in lent)
        del lent
        static.fill_(3)
        graph.replay()
        assert float(output.min()) == float(output.max()) == 3 * 6
    print(f"{before >> 20} MiB before, {grown >> 20} MiB more for {(2 << 10) - 64} MiB", flush=True)


def graphs_that_others_launch_lend_nothing(folder):
    """Who has a graph's handle may launch it without a word."""
    enable(native=True)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    static = torch.ones(16 * MIB, device="cuda")
    with torch.cuda.graph(graph):
        output = (static * 2 + 1).sum()
    graph.instantiate()
    graph.replay()
    graph.raw_cuda_graph()
    with regraph.torch.borrow(graph.pool()):
        kept = torch.full((16 * MIB,), 3.0, device="cuda")
        assert regraph.torch.lent_bytes(graph.pool()) == 0
    graph.replay()
    assert bool((kept == 3).all()) and float(output) == 3 * 16 * MIB


PROGRAMS = {
    function.__name__: function
    for function in (
        eager_work_borrows,
        inputs_and_outputs_are_not_lent,
        two_gibibytes_are_lent,
        graphs_that_others_launch_lend_nothing,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
