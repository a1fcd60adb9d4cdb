"""Programs whose captures are laid out by a plan: outputs stay those of eager code, bit for bit."""

import random

import torch
from common import enable, main

import regraph.torch

FEATURES, HIDDEN = 384, 1000
GRAPHS, REPLAYS = 12, 1000
INPUTS = 4
"""Inputs for each graph."""
TOGETHER = 50
"""So many replays are launched before any is waited for."""


class TwoBranches(torch.nn.Module):
    """Layers of two branches each, one on another stream, with blocks that are no multiples of pages."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.pairs = torch.nn.ModuleList(
            torch.nn.ModuleList([self.branch(HIDDEN), self.branch(HIDDEN + 300)]) for _ in range(4)
        )
        self.side = torch.cuda.Stream()

    @staticmethod
    def branch(hidden):
        layers = [torch.nn.Linear(FEATURES, hidden), torch.nn.GELU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(hidden, FEATURES))

    def forward(self, value):
        stream = torch.cuda.current_stream()
        for here, there in self.pairs:
            self.side.wait_stream(stream)
            with torch.cuda.stream(self.side):
                other = there(value)
            value.record_stream(self.side)
            own = here(value)
            stream.wait_stream(self.side)
            other.record_stream(stream)
            value = torch.tanh(own + other)
        return value


def _replays(settings):
    """Replays graphs of one pool in random order, and captures three of them anew on the way."""
    enable(settings=settings)
    network = TwoBranches().cuda().eval()
    order = random.Random(0)
    pool = torch.cuda.graph_pool_handle()
    rows = [97 * number + 41 for number in range(1, GRAPHS + 1)]
    torch.manual_seed(1)
    given = [[torch.randn(count, FEATURES, device="cuda") for _ in range(INPUTS)] for count in rows]
    static = [torch.empty_like(inputs[0]) for inputs in given]
    graphs, outputs = [None] * GRAPHS, [None] * GRAPHS

    def capture(number):
        if graphs[number] is not None:
            graphs[number].reset()
        outputs[number] = None
        graphs[number] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[number], pool=pool):
            outputs[number] = network(static[number])

    def replay(number, which):
        static[number].copy_(given[number][which])
        graphs[number].replay()
        return outputs[number].clone()

    with torch.no_grad():
        expected = [[network(one) for one in inputs] for inputs in given]
        if "learned" in settings:
            with regraph.torch.learn():
                network(static[-1])
        # The largest neither first nor last.
        for number in order.sample(range(GRAPHS), GRAPHS):
            capture(number)
        again = dict(zip(range(REPLAYS // 4, REPLAYS, REPLAYS // 4), order.sample(range(GRAPHS), 3), strict=True))
        found = []
        for step in range(REPLAYS):
            if step in again:
                capture(again[step])
            number, which = order.randrange(GRAPHS), order.randrange(INPUTS)
            found.append((number, which, replay(number, which)))
            if len(found) == TOGETHER:
                for number, which, output in found:
                    assert torch.equal(output, expected[number][which]), (step, number, which)
                found.clear()
    captures = regraph.torch.captures()
    assert len(captures) == GRAPHS + len(again) == GRAPHS + 3
    assert {capture.planned for capture in captures} == {"exact" in settings}


def random_replays_of_planned_graphs(folder):
    """Graphs with a plan of one pool, in random order, some captured again."""
    _replays("plan:exact")


def random_replays_of_learned_graphs(folder):
    """Graphs of one pool that follow what a run and earlier captures have asked for, in random order."""
    _replays("plan:auto")


def training_of_planned_graphs(folder):
    """Training steps with a plan lead to the weights of eager code."""
    enable(settings="plan:exact")
    eager, graphed = TwoBranches().cuda(), TwoBranches().cuda()
    networks = (eager, graphed)
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.05) for network in networks]
    torch.manual_seed(1)
    given = [torch.randn(700, FEATURES, device="cuda") for _ in range(8)]
    static = torch.zeros_like(given[0])

    def step(network, optimizer, value):
        optimizer.zero_grad(set_to_none=True)
        network(value).square().mean().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    for network, optimizer in zip(networks, optimizers, strict=True):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for value in given[:2]:
                step(network, optimizer, value)
        torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(graphed, optimizers[1], static)
    for value in given:
        step(eager, optimizers[0], value)
        static.copy_(value)
        graph.replay()
    for expected, found in zip(eager.parameters(), graphed.parameters(), strict=True):
        assert torch.equal(found, expected)
    (capture,) = regraph.torch.captures()
    assert capture.planned


PROGRAMS = {
    program.__name__: program
    for program in (
        random_replays_of_planned_graphs,
        random_replays_of_learned_graphs,
        training_of_planned_graphs,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
