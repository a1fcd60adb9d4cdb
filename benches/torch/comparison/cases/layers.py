"""Layers that the models share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    """Root mean square normalisation with a gain."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the last dimension."""
        return F.rms_norm(x, self.gain.shape, self.gain, 1e-6)


class Attention(nn.Module):
    """Self-attention, from one product for queries, keys and values."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self._heads = heads
        self._causal = causal
        self.mixed = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of a batch of sequences."""
        batch, length, width = x.shape
        mixed = self.mixed(x).view(batch, length, 3, self._heads, width // self._heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind()
        y = F.scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        return self.output(y.transpose(1, 2).reshape(batch, length, width))


class Gated(nn.Module):
    """A gated linear unit and its way back."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of any batch."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Plain(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of any batch."""
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """A transformer's layer: attention and a feed-forward part, each behind a norm."""

    def __init__(
        self, width: int, heads: int, feed_forward: nn.Module, causal: bool = True
    ) -> None:
        super().__init__()
        self.first = Norm(width)
        self.attention = Attention(width, heads, causal)
        self.second = Norm(width)
        self.feed_forward = feed_forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of a batch of sequences."""
        x = x + self.attention(self.first(x))
        return x + self.feed_forward(self.second(x))
