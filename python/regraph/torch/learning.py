"""Runs outside captures that show what captures will ask for."""

import contextlib
from collections.abc import Iterator

from typing import TYPE_CHECKING

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch.enabling import require_enabled

if TYPE_CHECKING:
    from torch.types import Device


@contextlib.contextmanager
def learn(device: "Device" = None) -> Iterator[None]:
    """Learns from the work in the `with` block how the memory of its capture is to be laid out.

    The block runs, once and outside captures, what will be captured: one run of warming up. A capture
    that then begins with a request for as many bytes gets its memory in close to the least that it can
    run on. Where it asks for something else, it gets memory as usual.

        with regraph.torch.learn():
            model(inputs)
        with torch.cuda.graph(graph):
            model(inputs)

    Streams that wait for each other are known to do so by `Tensor.record_stream` only. With
    `plan:exact` captures do without this. All threads' requests on the device count, and each takes a
    lock meanwhile.

    Args:
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled.
    """
    require_enabled("learn")
    torch.cuda.init()
    number = _get_device_index(device, optional=True)
    _native.learn(number)
    try:
        yield
    finally:
        _native.learned(number)
