"""Runs outside captures that show what captures will ask for."""

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.cuda._utils import _get_device_index

from regraph import _native
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error

if TYPE_CHECKING:
    from torch.types import Device

_lock = threading.Lock()
#: The devices whose requests are noted.
_learning: set[int] = set()


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

    A block that raises teaches nothing.

    More of the capture's tensors have the place of one that was freed then: what only the run of the capture
    wrote to a tensor that it frees, by work that was not captured, is overwritten sooner.

    Without a mark captures follow warm-ups and earlier captures (`plan:auto`, the default); warm-ups on several
    streams, where `Tensor.record_stream` shows that these wait for each other. A marked run begins and ends where
    the program says, and its layout is searched for longer.

    Streams that wait for each other are known to do so by `Tensor.record_stream` only. With
    `plan:exact` captures do without this. All threads' requests on the device count.

    Args:
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled, or a run on the device is being learned from already.
    """
    require_enabled("learn")
    torch.cuda.init()
    number = _get_device_index(device, optional=True)
    with _lock:
        if number in _learning:
            raise Error(
                f"learn: a run on device {number} is being learned from already; end that first."
            )
        _learning.add(number)
    try:
        _native.learn(number)
        try:
            yield
        except BaseException:
            # Half of the work is not what the capture will ask for.
            _native.forget_run(number)
            raise
        _native.learned(number)
    finally:
        with _lock:
            _learning.discard(number)


def forget_learned(device: "Device" = None) -> None:
    """Forgets all that was learned on a device, from marked runs, and with `plan:auto` from
    warm-ups and captures.

    Captures that follow it already go on.

    Args:
        device: The device; `None` is the current one.

    Raises:
        Error: regraph is not enabled.
    """
    require_enabled("forget_learned")
    torch.cuda.init()
    _native.forget_learned(_get_device_index(device, optional=True))
