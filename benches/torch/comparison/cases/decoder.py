"""A decoder on one stream."""

from __future__ import annotations

from torch import nn

from ..devices import Device
from .layers import Block, Gated
from .model import ModelCase


class Decoder(ModelCase):
    """16 layers of width 1,024 over 2,048 tokens; 6 layers in training."""

    def __init__(
        self, training: bool = False, width: int = 1_024, hidden: int = 2_816, tokens: int = 2_048
    ) -> None:
        super().__init__(training)
        self._width, self._hidden, self._tokens = width, hidden, tokens

    def model(self, device: Device) -> nn.Module:
        """The layers, one after the other."""
        heads = self._width // 64
        layers = 6 if self._training else 16
        return nn.Sequential(
            *(Block(self._width, heads, Gated(self._width, self._hidden)) for _ in range(layers))
        )

    def input(self) -> tuple[int, ...]:
        """One sequence."""
        return (1, self._tokens, self._width)
