"""What a case is: work that is captured, its inputs before and its results after."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from ..devices import Body, Device


class Case(ABC):
    """A program to capture. Everything it makes in `prepare` lies outside the graphs' memory."""

    #: Runs of the body before the capture, on the streams of the capture.
    warm_ups = 2
    #: Whether a replay starts from the same state each time and so gives the same results.
    steady = True
    #: Whether kernels that give other results at each run must be avoided.
    deterministic = False
    #: Checks of the results in a long run, at most.
    checks = 10

    device: Device
    stream: object

    @abstractmethod
    def prepare(self, device: Device) -> None:
        """Makes streams, inputs, weights and outputs. Sets `device` and the stream to capture."""

    @abstractmethod
    def bodies(self) -> list[Body]:
        """What to capture, one graph each, all in one pool and replayed in this order."""

    @abstractmethod
    def outputs(self) -> list[torch.Tensor]:
        """The results: every tensor whose bytes must not depend on the allocator."""

    def settle(self) -> None:  # noqa: B027
        """Lets go of everything that a run of the body left behind."""

    def clear(self) -> None:  # noqa: B027
        """Overwrites results, so that a replay that does nothing is seen."""

    def correct(self) -> bool | None:
        """Whether the results are what they must be, where that is known without the device."""
        return None


def fill_random(tensor: torch.Tensor, seed: int, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers drawn on the tensor's device, the same for a seed at every run there."""
    generator = torch.Generator(tensor.device)
    generator.manual_seed(seed)
    with torch.no_grad():
        tensor.normal_(0.0, scale, generator=generator)
    return tensor


def initialise(module: torch.nn.Module, seed: int = 1) -> None:
    """Random weights that keep activations at their size; gains are 1 and offsets 0."""
    for index, parameter in enumerate(module.parameters()):
        if parameter.dim() > 1:
            fan_in = parameter[0].numel()
            fill_random(parameter.data, seed + index, fan_in**-0.5)
    for name, parameter in module.named_parameters():
        if parameter.dim() <= 1:
            parameter.data.fill_(0.0 if name.endswith("bias") else 1.0)
