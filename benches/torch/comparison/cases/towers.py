"""Two towers with a contrastive loss, trained, a stream each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..devices import Device
from .layers import Block, Plain
from .model import ModelCase

#: Of each tower: width and length of its sequences.
_IMAGE = (768, 64)
_TEXT = (512, 80)
_JOINT = 512
_SCALE = 10.0


class Tower(nn.Module):
    """A transformer whose mean over the sequence is projected and normalised."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(Block(width, width // 64, Plain(width, 4 * width), False) for _ in range(layers))
        )
        self.joint = nn.Linear(width, _JOINT, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A unit vector for each sequence."""
        return F.normalize(self.joint(self.layers(x).mean(1)).float(), dim=-1)


class Pair(nn.Module):
    """The towers: the first on the current stream, the second on its own."""

    def __init__(self, device: Device, layers: int) -> None:
        super().__init__()
        self._device = device
        self._stream = device.stream()
        self.image = Tower(_IMAGE[0], layers)
        self.text = Tower(_TEXT[0], layers)

    def forward(self, source: torch.Tensor) -> torch.Tensor:
        """How well each image goes with each text, scaled."""
        device = self._device
        main = device.current()
        images = source[:, : _IMAGE[0] * _IMAGE[1]].view(-1, _IMAGE[1], _IMAGE[0])
        texts = source[:, _IMAGE[0] * _IMAGE[1] :].view(-1, _TEXT[1], _TEXT[0])
        self._stream.wait_stream(main)
        with device.on(self._stream):
            text = self.text(texts)
        image = self.image(images)
        main.wait_stream(self._stream)
        device.record(text, main)
        return _SCALE * image @ text.t()


class Towers(ModelCase):
    """A training step over a batch of pairs."""

    def __init__(self, batch: int = 48, layers: int = 6) -> None:
        super().__init__(training=True)
        self._batch, self._layers = batch, layers

    def model(self, device: Device) -> nn.Module:
        """Both towers."""
        return Pair(device, self._layers)

    def input(self) -> tuple[int, ...]:
        """Image and text of each pair, one behind the other."""
        return (self._batch, _IMAGE[0] * _IMAGE[1] + _TEXT[0] * _TEXT[1])

    def loss(self, model: nn.Module, source: torch.Tensor) -> torch.Tensor:
        """Each image is to find its text, and the other way round."""
        scores = model(source)
        labels = torch.arange(len(scores), device=scores.device)
        return (F.cross_entropy(scores, labels) + F.cross_entropy(scores.t(), labels)) / 2
