"""A mixture of experts on six streams."""

from __future__ import annotations

import torch
from torch import nn

from ..devices import Device
from .layers import Block, Gated
from .model import ModelCase

_EXPERTS = 8
_EXPERT_STREAMS = 4


class Experts(nn.Module):
    """Eight experts on four streams and a shared one on a fifth; each sees all tokens."""

    def __init__(self, device: Device, streams: list[object], width: int, hidden: int) -> None:
        super().__init__()
        self._device = device
        self._shared_stream, self._streams = streams[0], streams[1:]
        self.router = nn.Linear(width, _EXPERTS, bias=False)
        self.shared = Gated(width, hidden)
        self.experts = nn.ModuleList(Gated(width, hidden // 2) for _ in range(_EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shared expert's result and those of the others by their weights, summed up."""
        device = self._device
        main = device.current()
        shares = self.router(x).softmax(-1)
        results = []
        self._shared_stream.wait_stream(main)
        with device.on(self._shared_stream):
            results.append(self.shared(x))
        device.record(x, self._shared_stream)
        for index, expert in enumerate(self.experts):
            stream = self._streams[index % _EXPERT_STREAMS]
            if index < _EXPERT_STREAMS:
                stream.wait_stream(main)
            with device.on(stream):
                results.append(expert(x) * shares[..., index : index + 1])
            device.record(x, stream)
            device.record(shares, stream)
        for stream in (self._shared_stream, *self._streams):
            main.wait_stream(stream)
        for result in results:
            device.record(result, main)
        total = results[0] + results[1]
        for result in results[2:]:
            total = total + result
        return total


class Mixture(ModelCase):
    """8 layers of width 1,024 over 2,048 tokens; 3 layers in training."""

    def __init__(
        self, training: bool = False, width: int = 1_024, hidden: int = 2_816, tokens: int = 2_048
    ) -> None:
        super().__init__(training)
        self._width, self._hidden, self._tokens = width, hidden, tokens

    def model(self, device: Device) -> nn.Module:
        """The layers, on the same side streams."""
        streams = [device.stream() for _ in range(_EXPERT_STREAMS + 1)]
        heads = self._width // 64
        layers = 3 if self._training else 8
        return nn.Sequential(
            *(
                Block(self._width, heads, Experts(device, streams, self._width, self._hidden))
                for _ in range(layers)
            )
        )

    def input(self) -> tuple[int, ...]:
        """One sequence."""
        return (1, self._tokens, self._width)
