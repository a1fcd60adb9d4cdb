"""What graphs' executables take, and what it costs to share them.

    python benches/torch/executables.py [--quick]

Two sets of graphs, each in one pool: 35 batch sizes of a decoder of 32 layers on two streams, and 128 small graphs. Each
is captured in a process of its own by PyTorch's graphs, and by regraph's with an executable for each, with executables
that graphs of one shape share, and within a quarter of what all would take. "Device" is by how much the driver's free
memory shrank but for what the pool took; "call" is the host's time for a replay of another graph than the last, on a
device with nothing to do, the least of four rounds. The second table has replays of one graph at a time, by PyTorch's
graph and by one that shares its executable, in turns: back to back, and each waited for; the least of four rounds.
The yardstick is a call that needs no GPU: compare rows where it agrees.

Needs an NVIDIA GPU, PyTorch 2.8 or newer and `regraph-torch`. Outputs of all graphs must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from comparison.digest import digest
from comparison.yardstick import yardstick

import regraph.torch

MIB = 1 << 20
ROUNDS = 4
HEADS, WIDTH, HIDDEN, CACHED = 16, 1024, 2816, 128


class Decoder:
    """A step of a decoder for each batch size. Its weights are random."""

    name = "decoder, 35 sizes"
    sizes = (1, 2, 4, *range(8, 257, 8))
    layers = 32
    alone = (1, 64, 256)

    def __init__(self) -> None:
        torch.manual_seed(0)
        shapes = [
            (WIDTH, 3 * WIDTH),
            (WIDTH, WIDTH),
            (WIDTH, HIDDEN),
            (WIDTH, HIDDEN),
            (HIDDEN, WIDTH),
        ]
        self.weights = [
            [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 40 for shape in shapes]
            for _ in range(self.layers)
        ]
        shape = (max(self.sizes), HEADS, CACHED, WIDTH // HEADS)
        self.cache = [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
        self.side = torch.cuda.Stream()

    def input(self, size: int) -> torch.Tensor:
        """Hidden states of a batch."""
        return torch.randn(size, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """One token for each sequence."""
        size, main = x.shape[0], torch.cuda.current_stream()
        keys, values = (each[:size] for each in self.cache)
        for mixed, out, gate, up, down in self.weights:
            h = F.rms_norm(x, (WIDTH,))
            query = (h @ mixed)[:, :WIDTH].view(size, HEADS, 1, WIDTH // HEADS)
            attended = F.scaled_dot_product_attention(query, keys, values)
            x = x + attended.reshape(size, WIDTH) @ out
            h = F.rms_norm(x, (WIDTH,))
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                upward = h @ up
            upward.record_stream(main)
            gated = F.silu(h @ gate)
            main.wait_stream(self.side)
            x = x + (gated * upward) @ down
        return x


class Small:
    """A chain of small kernels for each of 128 sizes."""

    name = "128 small graphs"
    sizes = tuple(range(1, 129))
    alone = (1, 64, 128)

    def input(self, size: int) -> torch.Tensor:
        """So many times 64 numbers."""
        return torch.ones(size * 64, device="cuda")

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """12 kernels."""
        for number in range(6):
            x = torch.tanh(x * (1 + number / 8))
        return x


SETS = {"decoder": Decoder, "small": Small}
MODES = {
    "pytorch": "PyTorch's graphs",
    "own": "regraph, each its own",
    "shared": "regraph, shared",
    "quarter": "regraph, a quarter",
}


class Captured:
    """Graphs of a set in one pool, with their inputs and outputs."""

    def __init__(self, work: Any, make: Callable[[], Any], sizes: tuple[int, ...]) -> None:
        self.inputs = {size: work.input(size) for size in sizes}
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        # Libraries load their kernels, and make their workspaces.
        with torch.cuda.stream(stream):
            for size in sizes:
                work.step(self.inputs[size])
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, reserved = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        self.graphs, self.outputs = {}, {}
        # The largest first, as servers do.
        for size in sorted(sizes, reverse=True):
            self.graphs[size] = graph = make()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                self.outputs[size] = work.step(self.inputs[size])
        self.before = free + reserved

    def taken(self) -> int:
        """By how much the device has less since, but for what PyTorch's memory is."""
        torch.cuda.synchronize()
        return self.before - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()

    def digest(self) -> str:
        """Of all outputs, each behind a replay."""
        outputs = []
        for size in sorted(self.graphs):
            self.graphs[size].replay()
            outputs.append(self.outputs[size].clone())
        return digest(outputs)


def memory(work: Any, mode: str, turns: int) -> dict[str, Any]:
    """What executables take in a mode, and what a switch costs."""
    make = torch.cuda.CUDAGraph if mode == "pytorch" else regraph.torch.Graph
    if mode == "shared":
        regraph.torch.keep_executables(functions="any")
    captured = Captured(work, make, work.sizes)
    if mode == "quarter":
        total = regraph.torch.executables().graph_bytes
        regraph.torch.keep_executables(total // 4, functions=None)
    for size in captured.graphs:
        captured.graphs[size].replay()
    order = random.Random(1)
    call = float("inf")
    for _ in range(ROUNDS):
        spent, last = 0.0, None
        for _ in range(turns):
            size = order.choice([each for each in work.sizes if each != last])
            torch.cuda.synchronize()
            begin = time.perf_counter()
            captured.graphs[size].replay()
            spent += time.perf_counter() - begin
            last = size
        call = min(call, spent / turns * 1e6)
    taken, digested = captured.taken(), captured.digest()
    figures = {} if mode == "pytorch" else regraph.torch.executables()._asdict()
    return {"taken": taken, "call": call, "digest": digested, **figures}


def replays(work: Any, turns: int) -> list[dict[str, Any]]:
    """Replays of one graph, by both classes in turns."""
    regraph.torch.keep_executables(functions="any")
    sets = [
        Captured(work, make, work.alone) for make in (torch.cuda.CUDAGraph, regraph.torch.Graph)
    ]
    rows = []
    for size in work.alone:
        least = [[float("inf")] * 2 for _ in sets]
        for _ in range(ROUNDS):
            for times, captured in zip(least, sets, strict=True):
                graph = captured.graphs[size]
                graph.replay()
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(turns):
                    graph.replay()
                torch.cuda.synchronize()
                times[0] = min(times[0], (time.perf_counter() - begin) / turns * 1e6)
                begin = time.perf_counter()
                for _ in range(turns):
                    graph.replay()
                    torch.cuda.synchronize()
                times[1] = min(times[1], (time.perf_counter() - begin) / turns * 1e6)
        rows.append({"size": size, "theirs": least[0], "ours": least[1]})
    return rows


def apart(run: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own, which has not used the GPU before."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            regraph.torch.enable()
            with torch.no_grad():
                told = json.dumps(run())
            with os.fdopen(writes, "w") as pipe:
                pipe.write(told)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else None


def main() -> int:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer replays")
    turns = 40 if parser.parse_args().quick else 200
    # PyTorch collects before each capture: not what is here already.
    gc.freeze()
    failed = False
    print(
        f"{'':<18} {'':<22} {'device':>8} {'foreseen':>9} {'there':>6} {'made':>5} "
        f"{'updates':>8} {'evicted':>8} {'call, us':>9} {'yardstick':>9}"
    )
    for name, kind in SETS.items():
        digests = set()
        for mode, told in MODES.items():
            before = yardstick()
            row = apart(lambda kind=kind, mode=mode: memory(kind(), mode, turns))
            if row is None:
                failed = True
                continue
            digests.add(row["digest"])
            figures = [row.get(each, "") for each in ("executables", "made", "updates", "evicted")]
            foreseen = f"{row['foreseen_bytes'] / MIB:.1f}" if "foreseen_bytes" in row else ""
            print(
                f"{kind.name:<18} {told:<22} {row['taken'] / MIB:>8.1f} {foreseen:>9} "
                f"{figures[0]:>6} {figures[1]:>5} {figures[2]:>8} {figures[3]:>8} "
                f"{row['call']:>9.1f} {before:>9.1f}",
                flush=True,
            )
        if len(digests) > 1:
            failed = True
            print(f"{name}: OUTPUTS DIFFER", flush=True)
    print(
        f"\n{'replay of one, us':<18} {'size':>5} {'PyTorch':>9} {'regraph':>9} {'ratio':>6} "
        f"{'waited for':>11} {'regraph':>9} {'ratio':>6} {'yardstick':>9}"
    )
    for kind in SETS.values():
        before = yardstick()
        rows = apart(lambda kind=kind: replays(kind(), turns))
        failed |= rows is None
        for row in rows or []:
            (one, other), (mine, others) = row["theirs"], row["ours"]
            print(
                f"{kind.name:<18} {row['size']:>5} {one:>9.1f} {mine:>9.1f} {mine / one:>6.2f} "
                f"{other:>11.1f} {others:>9.1f} {others / other:>6.2f} {before:>9.1f}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
