"""A random capture of the sweep as a PyTorch program."""

from __future__ import annotations

import torch

from ..devices import Body, Device
from ..program import (
    ALLOCATE,
    BLOCK,
    FILL,
    FREE,
    NOTHING,
    STEP,
    USE,
    WAIT,
    Workload,
    draw,
    value_of,
)
from .case import Case

#: Words of a block that a step reads.
_READ = 1_024


class Sweep(Case):
    """Blocks of 4 MiB, each filled with its own number; every stream sums up what it reads."""

    warm_ups = 1

    def __init__(self, workload: Workload, words: int = BLOCK // 4) -> None:
        self._workload = workload
        self._words = words
        self._tensors: list[torch.Tensor | None] = []

    def prepare(self, device: Device) -> None:
        """Draws the program."""
        self.device = device
        self._program = draw(self._workload)
        self._streams = [device.stream() for _ in range(self._workload.streams)]
        self.stream = self._streams[0]
        self._sums = torch.zeros(
            self._workload.streams, min(_READ, self._words), dtype=torch.int32, device=device.device
        )

    def bodies(self) -> list[Body]:
        """One graph."""
        return [self._run]

    def _run(self) -> None:
        device, streams, words = self.device, self._streams, self._words
        record, set_stream, where = device.record, device.set_stream, device.device
        read = self._sums.shape[1]
        sums = list(self._sums.unbind())
        tensors: list[torch.Tensor | None] = [None] * self._program.blocks
        parts: list[torch.Tensor | None] = [None] * self._program.blocks
        set_stream(streams[0])
        self._sums.zero_()
        for kind, stream, other in self._program.operations:
            if kind == STEP:
                set_stream(streams[stream])
                if other == NOTHING:
                    sums[stream].add_(1)
                else:
                    sums[stream].add_(parts[other])
            elif kind == WAIT:
                streams[stream].wait_stream(streams[other])
            elif kind == ALLOCATE:
                set_stream(streams[stream])
                tensor = torch.empty(words, dtype=torch.int32, device=where)
                tensors[other] = tensor
                parts[other] = tensor[:read]
                del tensor
            elif kind == FILL:
                set_stream(streams[stream])
                tensors[other].fill_(value_of(other))
            elif kind == USE:
                record(tensors[other], streams[stream])
            elif kind == FREE:
                tensors[other] = parts[other] = None
        set_stream(streams[0])
        self._tensors = tensors

    def _kept(self) -> list[torch.Tensor]:
        return [self._tensors[block] for block in self._program.kept]

    def outputs(self) -> list[torch.Tensor]:
        """The sums, and of each block that was kept the lowest and the highest word."""
        bounds = [torch.stack(torch.aminmax(tensor)) for tensor in self._kept()]
        return [self._sums, *([torch.stack(bounds)] if bounds else [])]

    def settle(self) -> None:
        """Lets go of the blocks that were kept."""
        self._tensors = []

    def clear(self) -> None:
        """Overwrites the sums and every block that was kept."""
        self._sums.fill_(-1)
        for tensor in self._kept():
            tensor.fill_(-1)

    def correct(self) -> bool | None:
        """Every sum and every block is known in advance."""
        sums = torch.tensor(self._program.sums, dtype=torch.int32).unsqueeze(1)
        if not bool((self._sums.cpu() == sums).all()):
            return False
        if not self._program.kept:
            return True
        bounds = self.outputs()[1].cpu()
        values = torch.tensor([value_of(block) for block in self._program.kept], dtype=torch.int32)
        return bool((bounds == values.unsqueeze(1)).all())
