#!/usr/bin/env python3
"""Times single calls through PyTorch, under its own allocator or with `--regraph [SETTINGS]` under regraph.

Prints a line a call: nanoseconds, the median of seven rounds. Run both in turns and take the least of some runs; the
last line, a call that needs no GPU, tells how fast the machine was meanwhile.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable

import torch

ROUNDS = 7
NODES = 2_000
MIB = 1 << 20


def eager(run: Callable[[int], None], calls: int) -> float:
    """Nanoseconds for each of so many calls."""
    run(calls // 10)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        run(calls)
        times.append((time.perf_counter_ns() - start) / calls)
    return statistics.median(times)


def empties(size: int, device: str = "cuda") -> Callable[[int], None]:
    def run(calls: int) -> None:
        for _ in range(calls):
            torch.empty(size, dtype=torch.uint8, device=device)

    return run


def mixed() -> Callable[[int], None]:
    choose = random.Random(1)
    sizes = [int(2 ** choose.uniform(9, 25)) for _ in range(4096)]

    def run(calls: int) -> None:
        live: list[torch.Tensor | None] = [None] * 64
        for call in range(calls):
            live[call % 64] = torch.empty(sizes[call % 4096], dtype=torch.uint8, device="cuda")

    return run


def captured(body: Callable[[], None], stream: torch.cuda.Stream) -> tuple[float, float]:
    """Nanoseconds in the body of a capture, and in its begin and end."""
    inside, around = [], []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        times = [time.perf_counter_ns()]
        with torch.cuda.stream(stream):
            graph.capture_begin()
            times.append(time.perf_counter_ns())
            body()
            times.append(time.perf_counter_ns())
            graph.capture_end()
            times.append(time.perf_counter_ns())
        inside.append(times[2] - times[1])
        around.append(times[3] - times[2] + times[1] - times[0])
        del graph
    return statistics.median(inside), statistics.median(around)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regraph", nargs="?", const="", metavar="SETTINGS")
    chosen = parser.parse_args().regraph
    if chosen is not None:
        import regraph.torch

        regraph.torch.enable(settings=chosen or None)
    one, many = torch.zeros(1024, device="cuda"), torch.zeros(MIB // 4, device="cuda")
    a, b = torch.cuda.Stream(), torch.cuda.Stream()

    def node() -> None:
        one.add_(1)

    def nodes() -> None:
        for _ in range(NODES):
            one.add_(1)

    def temporaries() -> None:
        kept = many
        for _ in range(NODES):
            kept = many + 1
        del kept

    def chain() -> None:
        live = [many] * 8
        for step in range(NODES):
            live[step % 8] = live[(step + 3) % 8] + 1

    def two() -> None:
        b.wait_stream(a)
        for _ in range(NODES // 4):
            first = many + 1
            b.wait_stream(a)
            with torch.cuda.stream(b):
                second = first + 1
                first.record_stream(b)
                del first
            a.wait_stream(b)
            second.record_stream(a)
            third = second + 1
            del second
            fourth = third + 1
            del third, fourth
        a.wait_stream(b)

    for name, size in [("512 B", 512), ("1 MiB", MIB), ("20 MiB", 20 * MIB)]:
        print(f"torch.empty of {name} and its free: {eager(empties(size), 20_000):.0f}")
    print(f"sizes from 512 B to 32 MiB, 64 live: {eager(mixed(), 8_000):.0f}")
    gc.disable()
    for name, body, count in [
        ("one node", node, 1),
        ("a node without memory", nodes, NODES),
        ("a node with a 1 MiB temporary", temporaries, NODES),
        ("the same with eight live", chain, NODES),
        ("a block on two streams, record_stream", two, NODES),
    ]:
        inside, around = captured(body, a)
        print(f"capture, {name}: {inside / count:.0f}; begin and end: {around / count:.0f}")
    print(f"without a GPU: {eager(empties(2048, 'cpu'), 20_000):.0f}")


if __name__ == "__main__":
    main()
