"""A model as a case: inference, or a whole training step in the graph."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

from ..devices import Body, Device
from .case import Case, fill_random, initialise


class ModelCase(Case):
    """A model with random weights and a static input, captured as one graph.

    Inference copies the result to a static output. Training runs forward, backward and the
    optimizer (SGD with momentum); gradients are made inside the graph, and each replay is a step,
    so weights move from replay to replay.
    """

    dtype = torch.bfloat16
    learning_rate = 1e-3

    def __init__(self, training: bool = False) -> None:
        self._training = training
        self.steady = not training
        self.deterministic = training

    @abstractmethod
    def model(self, device: Device) -> nn.Module:
        """The model, not yet with weights, and without its streams' being used."""

    @abstractmethod
    def input(self) -> tuple[int, ...]:
        """The input's shape."""

    def prepare(self, device: Device) -> None:
        """Weights, input, output or target."""
        self.device = device
        self.stream = device.stream()
        with torch.device(device.device):
            self._model = self.model(device).to(self.dtype)
            self._input = fill_random(torch.empty(self.input(), dtype=self.dtype), 7_001)
        self._model.train(self._training)
        initialise(self._model)
        if self._training:
            self._parameters = list(self._model.parameters())
            self._loss = torch.zeros((), dtype=torch.float32, device=device.device)
            self._optimizer = torch.optim.SGD(
                self._parameters, lr=self.learning_rate, momentum=0.9, foreach=True
            )
        else:
            with torch.no_grad():
                self._output = torch.zeros_like(self._model(self._input))

    def bodies(self) -> list[Body]:
        """One graph."""
        return [self._step if self._training else self._infer]

    @torch.no_grad()
    def _infer(self) -> None:
        self._output.copy_(self._model(self._input))

    def loss(self, model: nn.Module, source: torch.Tensor) -> torch.Tensor:
        """What training makes smaller: here the mean square of the result."""
        return model(source).float().square().mean()

    def _step(self) -> None:
        self.settle()
        loss = self.loss(self._model, self._input)
        loss.backward()
        self._optimizer.step()
        self._loss.copy_(loss.detach())

    def settle(self) -> None:
        """Gradients come from the graph's memory: they are let go of before each capture."""
        if self._training:
            for parameter in self._parameters:
                parameter.grad = None

    def outputs(self) -> list[torch.Tensor]:
        """The result; of training the loss, all weights and all gradients."""
        if not self._training:
            return [self._output]
        gradients = [parameter.grad for parameter in self._parameters]
        return [self._loss, *self._parameters, *(grad for grad in gradients if grad is not None)]

    def clear(self) -> None:
        """Overwrites the result."""
        if self._training:
            self._loss.fill_(-1.0)
        else:
            self._output.zero_()
