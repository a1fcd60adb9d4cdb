"""What estimates say beside what captures then take, each in a process of its own.

    python told.py [decoder] [decoder2] [mlp]

Prints a table, in MiB: of a decoder of 24 layers on one stream and on two, for 35 batch sizes, and of a chain of linear
layers for four. "Left" is what the device has less behind the estimate. An estimate is right if it is within 32 MiB or
5 percent of what the captures take, and never too low by more than a piece of 2 MiB; the bounds must hold.

Needs an NVIDIA GPU with 24 GB; some three minutes for all.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import regraph.torch

MIB = 1 << 20
WIDTH, HIDDEN, HEADS, KEY_HEADS, LAYERS, CACHED, BATCH = 4096, 14336, 32, 8, 24, 256, 256
HEAD = WIDTH // HEADS


class Layer(nn.Module):
    """A layer of a decoder for one token of each sequence. On two streams attention runs beside the rest."""

    def __init__(self, side: torch.cuda.Stream | None) -> None:
        super().__init__()
        self.side = side
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * KEY_HEADS * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def attention(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Over what is cached, which gets the token's keys and values."""
        size = x.shape[0]
        queries, key, value = self.qkv(self.first(x)).split(
            [WIDTH, KEY_HEADS * HEAD, KEY_HEADS * HEAD], -1
        )
        keys[:size, :, :1].copy_(key.reshape(size, KEY_HEADS, 1, HEAD))
        values[:size, :, :1].copy_(value.reshape(size, KEY_HEADS, 1, HEAD))
        queries = queries.reshape(size, HEADS, 1, HEAD)
        attended = F.scaled_dot_product_attention(
            queries, keys[:size], values[:size], enable_gqa=True
        )
        return self.out(attended.reshape(size, WIDTH))

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """Gated units."""
        gate, value = self.up(self.second(x)).chunk(2, -1)
        return self.down(F.silu(gate) * value)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """One token for each sequence."""
        if self.side is None:
            x = x + self.attention(x, keys, values)
            return x + self.gated(x)
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            other = self.gated(x)
        x.record_stream(self.side)
        one = self.attention(x, keys, values)
        main.wait_stream(self.side)
        other.record_stream(main)
        return x + one + other


def decoder(streams: int) -> tuple[Callable[[int], Any], list[int]]:
    """A step of a decoder, and its batch sizes."""
    side = torch.cuda.Stream() if streams == 2 else None
    layers = nn.ModuleList(Layer(side) for _ in range(LAYERS))
    embedding, head = nn.Embedding(32_000, WIDTH), nn.Linear(WIDTH, 32_000, bias=False)
    keys = torch.zeros(BATCH, KEY_HEADS, CACHED, HEAD)
    values = torch.zeros_like(keys)
    tokens = torch.zeros(BATCH, dtype=torch.long)

    def step(size: int) -> torch.Tensor:
        x = embedding(tokens[:size])
        for layer in layers:
            x = layer(x, keys, values)
        return head(x).float()

    return step, [*range(BATCH, 7, -8), 4, 2, 1]


def chain() -> tuple[Callable[[int], Any], list[int]]:
    """Linear layers, and numbers of rows."""
    rows = torch.randn(4096, WIDTH)
    layers = nn.Sequential()
    for _ in range(12):
        layers.extend(
            [
                nn.Linear(WIDTH, 4 * WIDTH, bias=False),
                nn.GELU(),
                nn.Linear(4 * WIDTH, WIDTH, bias=False),
            ]
        )
    return lambda size: layers(rows[:size]), [4096, 2048, 512, 64]


MODELS: dict[str, Callable[[], tuple[Callable[[int], Any], list[int]]]] = {
    "decoder": lambda: decoder(1),
    "decoder2": lambda: decoder(2),
    "mlp": chain,
}


def used() -> int:
    """Bytes of the device that are in use."""
    free, total = torch.cuda.mem_get_info()
    return total - free


@torch.no_grad()
def figures(model: str, mode: str) -> dict[str, float]:
    """What a process finds: bytes, and seconds."""
    regraph.torch.enable()
    torch.set_default_dtype(torch.bfloat16)
    warming = torch.cuda.Stream()
    with torch.device("cuda"):
        step, sizes = MODELS[model]()
    with torch.cuda.stream(warming):
        for size in sizes:
            step(size)
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    reserved, before, begin = torch.cuda.memory_reserved(), used(), time.perf_counter()
    if mode == "estimate":
        need = regraph.torch.estimate(step, sizes)
        seconds = time.perf_counter() - begin
        bounds = {f"{name}_bound": size for name, size in need.bound._asdict().items()}
        return {**need._asdict(), **bounds, "left": used() - before, "seconds": seconds}
    graphs, pool = [], None
    for size in sizes:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            output = step(size)
        pool = pool or graph.pool()
        graphs.append((graph, output))
    seconds = time.perf_counter() - begin
    for graph, _ in graphs:
        graph.replay()
    torch.cuda.synchronize()
    grown = torch.cuda.memory_reserved() - reserved
    return {"pool": grown, "beside": used() - before - grown, "seconds": seconds}


def apart(model: str, mode: str) -> dict[str, float]:
    """What a process of its own finds."""
    done = subprocess.run(
        [sys.executable, __file__, model, mode], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Prints the table; fails where an estimate is wrong."""
    columns = ("told pool", "executables", "workspaces", "took pool", "beside", "error", "left")
    print(f"| MiB | {' | '.join(columns)} | seconds |")
    print(f"|---|{'---|' * (len(columns) + 1)}")
    wrong = []
    for model in sys.argv[1:] or MODELS:
        told, took = apart(model, "estimate"), apart(model, "capture")
        parts = [told["pool_bytes"], told["executable_bytes"], told["workspace_bytes"]]
        taken = took["pool"] + took["beside"]
        error = sum(parts) - taken
        sizes = [*parts, took["pool"], took["beside"], error, told["left"]]
        cells = " | ".join(f"{size / MIB:.1f}" for size in sizes)
        print(f"| {model} | {cells} | {told['seconds']:.1f}, {took['seconds']:.1f} |", flush=True)
        if not -2 * MIB <= error <= max(32 * MIB, 0.05 * taken):
            wrong.append(f"{model}: the estimate is {error / MIB:.1f} MiB off")
        bound = told["executable_bytes_bound"] + told["workspace_bytes_bound"]
        if took["pool"] > told["pool_bytes_bound"] or took["beside"] > bound:
            wrong.append(f"{model}: a bound does not hold")
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    if sys.argv[2:3] in (["estimate"], ["capture"]):
        print(json.dumps(figures(sys.argv[1], sys.argv[2])))
        sys.exit()
    sys.exit(main())
