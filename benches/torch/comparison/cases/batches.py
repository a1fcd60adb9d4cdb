"""Graphs of every batch size of one model, captured into one pool."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..devices import Body, Device
from .case import Case, fill_random

_BLOCKS = 8
_WIDTH = 1_024
#: What a gated unit is wider than the activations.
_WIDER = 3
#: Tokens of one row of a batch: 64 KiB of activations.
_TOKENS = 32


class Batches(Case):
    """Eight blocks of gated linear units, in bfloat16; with two streams, the gates on the second.

    `order` is that of the captures; `alone` captures the largest size only. Each graph copies its
    result to an output of its own outside the pool, as graphs that share a pool have to.
    """

    checks = 4

    def __init__(
        self, streams: int, order: str, largest: int, width: int = _WIDTH, tokens: int = _TOKENS
    ) -> None:
        self._two = streams == 2
        self._largest = largest
        self._width = width
        self._tokens = tokens
        sizes = list(range(1, largest + 1))
        self._sizes = {
            "alone": [largest],
            "ascending": sizes,
            "descending": sizes[::-1],
        }[order]

    def prepare(self, device: Device) -> None:
        """Weights, one input for all sizes and an output for each."""
        self.device = device
        self.stream = device.stream()
        self._side = device.stream() if self._two else None
        width, wide = self._width, self._width * _WIDER

        def weight(rows: int, columns: int, seed: int) -> torch.Tensor:
            empty = torch.empty(rows, columns, dtype=torch.bfloat16, device=device.device)
            return fill_random(empty, seed, columns**-0.5)

        self._weights = [
            (
                weight(wide, width, 3 * block),
                weight(wide, width, 3 * block + 1),
                weight(width, wide, 3 * block + 2),
            )
            for block in range(_BLOCKS)
        ]
        rows = self._largest * self._tokens
        self._input = weight(rows, width, 1_000) * width**0.5
        self._outputs = {
            size: torch.zeros(
                size * self._tokens, width, dtype=torch.bfloat16, device=device.device
            )
            for size in self._sizes
        }

    def bodies(self) -> list[Body]:
        """A graph for each size."""
        return [lambda size=size: self._forward(size) for size in self._sizes]

    @torch.no_grad()
    def _forward(self, size: int) -> None:
        x = self._input[: size * self._tokens].clone()
        for gate_weight, up_weight, down_weight in self._weights:
            if self._side is None:
                gate = F.linear(x, gate_weight).tanh_()
                up = F.linear(x, up_weight)
            else:
                main = self.device.current()
                self._side.wait_stream(main)
                with self.device.on(self._side):
                    gate = F.linear(x, gate_weight).tanh_()
                self.device.record(x, self._side)
                up = F.linear(x, up_weight)
                main.wait_stream(self._side)
                self.device.record(gate, main)
            gated = up * gate
            del gate, up
            down = F.linear(gated, down_weight)
            del gated
            x = x + down
            del down
        self._outputs[size].copy_(x)

    def outputs(self) -> list[torch.Tensor]:
        """The results of all sizes."""
        return list(self._outputs.values())

    def clear(self) -> None:
        """Overwrites the results."""
        for output in self._outputs.values():
            output.zero_()
