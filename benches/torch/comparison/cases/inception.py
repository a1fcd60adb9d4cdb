"""GoogLeNet with the branches of each Inception block on streams of their own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..devices import Device
from .model import ModelCase

#: Of each block: inputs, 1x1, 3x3 before and after, second 3x3 before and after, behind the pool.
_BLOCKS = (
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
)
_POOL_BEFORE = {2: 3, 7: 2}


class Convolution(nn.Module):
    """A convolution, a norm with fixed statistics and a rectifier in place."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=kernel // 2, bias=False
        )
        self.norm = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of a batch of images."""
        return F.relu(self.norm(self.convolution(x)), inplace=True)


class Inception(nn.Module):
    """Four branches: the first on the current stream, the others on three."""

    def __init__(self, device: Device, streams: list[object], sizes: tuple[int, ...]) -> None:
        super().__init__()
        inputs, one, reduce, three, reduce_second, second, pooled = sizes
        self._device = device
        self._streams = streams
        self.first = Convolution(inputs, one, 1)
        self.others = nn.ModuleList(
            (
                nn.Sequential(Convolution(inputs, reduce, 1), Convolution(reduce, three, 3)),
                nn.Sequential(
                    Convolution(inputs, reduce_second, 1), Convolution(reduce_second, second, 3)
                ),
                nn.Sequential(
                    nn.MaxPool2d(3, stride=1, padding=1, ceil_mode=True),
                    Convolution(inputs, pooled, 1),
                ),
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The branches' results side by side."""
        device = self._device
        main = device.current()
        for stream in self._streams:
            stream.wait_stream(main)
        results = []
        for branch, stream in zip(self.others, self._streams, strict=True):
            with device.on(stream):
                results.append(branch(x))
            device.record(x, stream)
        first = self.first(x)
        for result, stream in zip(results, self._streams, strict=True):
            main.wait_stream(stream)
            device.record(result, main)
        return torch.cat((first, *results), 1)


class GoogLeNet(nn.Module):
    """The network without its auxiliary heads."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        streams = [device.stream() for _ in range(3)]
        layers: list[nn.Module] = [
            Convolution(3, 64, 7, 2),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Convolution(64, 64, 1),
            Convolution(64, 192, 3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        ]
        for index, sizes in enumerate(_BLOCKS):
            if index in _POOL_BEFORE:
                layers.append(nn.MaxPool2d(_POOL_BEFORE[index], 2, ceil_mode=True))
            layers.append(Inception(device, streams, sizes))
        self.layers = nn.Sequential(*layers)
        self.classes = nn.Linear(1_024, 1_000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The classes of a batch of images."""
        x = self.layers(x)
        return self.classes(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class InceptionCase(ModelCase):
    """A batch of 32 images of 224x224 in single precision."""

    dtype = torch.float32

    def __init__(self, batch: int = 32, side: int = 224) -> None:
        super().__init__()
        self._batch, self._side = batch, side

    def model(self, device: Device) -> nn.Module:
        """The network."""
        return GoogLeNet(device)

    def input(self) -> tuple[int, ...]:
        """The images."""
        return (self._batch, 3, self._side, self._side)
