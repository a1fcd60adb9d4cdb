"""A pipeline: chunks through stages, each stage on a stream of its own."""

from __future__ import annotations

import torch
from torch import nn

from ..devices import Device
from .layers import Gated
from .model import ModelCase

_CHUNKS = 6
_STAGES = 4
_LAYERS = 3


class Stages(nn.Module):
    """Three residual gated units a stage."""

    def __init__(self, device: Device, width: int, hidden: int) -> None:
        super().__init__()
        self._device = device
        self._streams = [device.stream() for _ in range(_STAGES)]
        self.stages = nn.ModuleList(
            nn.ModuleList(Gated(width, hidden) for _ in range(_LAYERS)) for _ in range(_STAGES)
        )

    def forward(self, chunks: torch.Tensor, outputs: torch.Tensor | None = None) -> torch.Tensor:
        """Each chunk goes through all stages; the last stage's stream writes its result."""
        device = self._device
        main = device.current()
        if outputs is None:
            outputs = torch.empty_like(chunks)
        for chunk, output in zip(chunks.unbind(), outputs.unbind(), strict=True):
            x, before = chunk, main
            for stage, stream in zip(self.stages, self._streams, strict=True):
                stream.wait_stream(before)
                with device.on(stream):
                    for layer in stage:
                        y = x + layer(x)
                        device.record(x, stream)
                        x = y
                        del y
                before = stream
            with device.on(before):
                output.copy_(x)
            del x
        for stream in self._streams:
            main.wait_stream(stream)
        return outputs


class Pipeline(ModelCase):
    """6 chunks of 2,048 tokens of width 1,024 through 4 stages."""

    def __init__(self, width: int = 1_024, hidden: int = 4_096, tokens: int = 2_048) -> None:
        super().__init__()
        self._width, self._hidden, self._tokens = width, hidden, tokens

    def model(self, device: Device) -> nn.Module:
        """The stages."""
        return Stages(device, self._width, self._hidden)

    def input(self) -> tuple[int, ...]:
        """All chunks."""
        return (_CHUNKS, self._tokens, self._width)

    @torch.no_grad()
    def _infer(self) -> None:
        self._model(self._input, self._output)
