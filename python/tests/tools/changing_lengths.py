#!/usr/bin/env python3
"""Trains a transformer on batches whose length changes at every step, under PyTorch's own allocator or with `--regraph
[SETTINGS]` under regraph, and prints the most that was reserved over the most that was allocated.

PyTorch's allocator has expandable segments where `PYTORCH_ALLOC_CONF` says so.
"""

import argparse
import random

import torch
from torch import Tensor, nn

MIB = 1 << 20
WIDTH, LAYERS, WORDS, TOKENS = 512, 6, 8_192, 8_192


class Layer(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 8, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, value: Tensor) -> Tensor:
        normed = self.norms[0](value)
        value = value + self.attend(normed, normed, normed, need_weights=False)[0]
        return value + self.inner(self.norms[1](value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regraph", nargs="?", const="", metavar="SETTINGS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    if options.regraph is not None:
        import regraph.torch

        regraph.torch.enable(settings=options.regraph or None)
    draw = random.Random(options.seed)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    side = torch.cuda.Stream()
    for _ in range(options.steps):
        length = int(2 ** draw.uniform(4, 11))
        batch = max(TOKENS // length // draw.choice((1, 2, 4)), 1)
        # As a data loader does, on a stream of its own.
        with torch.cuda.stream(side):
            words = torch.randint(WORDS, (batch, length + 1), device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        words.record_stream(torch.cuda.current_stream())
        logits = model(words[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    reserved, allocated = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    print(f"seed {options.seed}: {reserved / allocated:.3f} = {reserved / MIB:.0f} / {allocated / MIB:.0f} MiB")


if __name__ == "__main__":
    main()
