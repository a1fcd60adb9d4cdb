#!/usr/bin/env python3
"""Runs what programs do with regraph, so that the compiler learns which branches are taken: `python/build-wheel
--trained` runs it with a wheel that counts them. Needs an NVIDIA GPU and PyTorch. Takes some ten seconds."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

import regraph.torch as regraph

KIB, MIB = 2**10, 2**20
Work = Callable[[], object]


def take(byte_count: int) -> Tensor:
    """A tensor of so many bytes."""
    return torch.empty(byte_count, dtype=torch.uint8, device="cuda")


def outside() -> None:
    """Tensors of one size, of a few sizes, and of sizes that hardly come twice; on two streams."""
    side, draw = torch.cuda.Stream(), random.Random(1)
    live: list[Tensor | None] = [None] * 64
    for turn in range(20_000):
        take(32 * KIB)
        live[turn % 64] = take(70_000 * (turn % 16 + 1))
    for turn in range(20_000):
        live[turn % 64] = take(int(2 ** draw.uniform(9, 25)))
        if turn % 16 == 0:
            with torch.cuda.stream(side):
                take(MIB).record_stream(torch.cuda.current_stream())
    live.clear()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def models() -> list[Work]:
    """Work on one stream, on several that fork and join, and a step of training."""
    sides = [torch.cuda.Stream() for _ in range(3)]
    layers = [nn.Linear(256, 256).cuda() for _ in range(12)]
    batch = torch.randn(64, 256, device="cuda")
    weights = [it for layer in layers for it in layer.parameters()]

    def chain() -> Tensor:
        value = batch
        for layer in layers * 8:
            value = torch.relu(layer(value)) + value
        return value

    def branches() -> Tensor:
        main, value = torch.cuda.current_stream(), batch
        for layer in layers * 4:
            parts = [layer(value)]
            for side in sides:
                side.wait_stream(main)
                value.record_stream(side)
                with torch.cuda.stream(side):
                    parts.append(torch.relu(layer(value)) * 0.5)
            for side, part in zip(sides, parts[1:], strict=True):
                main.wait_stream(side)
                part.record_stream(main)
            value = torch.stack(parts).mean(0)
        return value

    def training() -> None:
        chain().square().mean().backward()
        for weight in weights:
            weight.data.sub_(weight.grad, alpha=1e-6)
            weight.grad = None

    def small() -> Tensor:
        return batch.add_(1)

    return [chain, branches, training, small]


def captures(work: Work, count: int) -> None:
    """Warm-ups, and captures with a pool each and with one for all; each graph runs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    shared, kept = torch.cuda.graph_pool_handle(), []
    for turn in range(count):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, pool=shared if turn % 2 else None):
            output = work()
        graph.replay()
        kept = [*kept[-3:], (graph, output)]
    torch.cuda.synchronize()


def main() -> None:
    """Runs all of it."""
    regraph.enable()
    outside()
    for work in models():
        captures(work, 24)
    regraph.memory_summary()
    torch.cuda.memory_snapshot()


if __name__ == "__main__":
    main()
