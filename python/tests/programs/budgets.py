"""Programs whose graphs have a budget, of their pool and of their executables."""

import random
import sys

import torch
from common import MIB, enable, expect, main

import regraph.torch
from regraph import _native


def held(pool):
    """Bytes of a pool."""
    rows = _native.pools(0)
    return sum(row["reserved"] for row in rows if tuple(row["id"]) == tuple(pool))


def beside():
    """Bytes of the device that are no memory of PyTorch's."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


class Captured:
    """A chain of kernels over tensors of a size, and what it must give."""

    def __init__(self, pool, mebibytes, nodes, kind=regraph.torch.Graph):
        self.input = torch.arange(mebibytes * MIB // 4, device="cuda", dtype=torch.float32)
        self.graph = kind()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = self.step(nodes)
        self.expected = self.step(nodes)

    def step(self, nodes):
        """Two tensors live at any time."""
        x = self.input
        for number in range(nodes):
            x = x * 1.0009765625 + number
        return x.clone()

    def replay(self):
        """Its result is what eager work gives, bit for bit."""
        self.output.zero_()
        self.graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(self.output, self.expected)


def captures_stay_within_their_budget(folder):
    """Requests beyond it fail, in captures of random sizes; graphs from before go on, and what fits goes in."""
    enable()
    # Kernels are loaded, and what the driver keeps for launches of graphs is there.
    Captured(None, 1, 2).replay()
    order, before = random.Random(7), beside()
    budget, executables = 96 * MIB, 16 * MIB
    pool = regraph.torch.capture_budget(budget, executables)
    graphs, refused = [], 0
    for _ in range(40):
        size = order.choice([1, 2, 3, 5, 8, 13, 21, 34, 55])
        try:
            graphs.append(Captured(pool, size, order.randrange(1, 40)))
        except torch.OutOfMemoryError as error:
            refused += 1
            if sys.version_info >= (3, 11):
                notes = "".join(error.__notes__)
                assert "By capture_budget the pool" in notes and "the largest blocks" in notes, (
                    notes
                )
        assert held(pool) <= budget - executables, held(pool)
        for each in order.sample(graphs, min(len(graphs), 4)):
            each.replay()
        taken = regraph.torch.executables(pool)
        assert held(pool) + taken.counted_bytes <= budget, taken
        assert beside() - before <= executables, (beside(), before)
        if len(graphs) > 6:
            del graphs[order.randrange(len(graphs))]
    assert refused and graphs, (refused, len(graphs))
    for each in graphs:
        each.replay()
    # Others are not held back.
    torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
    Captured(None, 128, 2).replay()


def executables_stay_within_their_budget(folder):
    """The longest unused ones go, and a graph whose own can never fit is refused; others go on."""
    enable()
    pool = regraph.torch.capture_budget(64 * MIB, 12 * MIB, functions=None)
    first = Captured(pool, 1, 100)
    first.replay()
    large = "does not fit. By capture_budget the pool"
    expect(regraph.torch.Error, lambda: Captured(pool, 1, 4000), large)
    graphs = [first, *(Captured(pool, 1, 150 + number) for number in range(8))]
    for _ in range(3):
        for each in graphs:
            each.replay()
            taken = regraph.torch.executables(pool)
            assert taken.counted_bytes <= 12 * MIB, taken
    assert taken.evicted > 0, taken
    kind = torch.cuda.CUDAGraph
    expect(regraph.torch.Error, lambda: Captured(pool, 1, 1, kind), "regraph.torch.Graph")
    torch.cuda.synchronize()
    first.replay()


PROGRAMS = {
    function.__name__: function
    for function in (
        captures_stay_within_their_budget,
        executables_stay_within_their_budget,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
