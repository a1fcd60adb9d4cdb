"""Marks the last use of a tensor on a stream, before the tensor is freed."""

import torch

from regraph import _native, streams
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error


def record_use(tensor: torch.Tensor, stream: torch.cuda.Stream | int | None = None) -> None:
    """Marks the stream's current position as its last use of a tensor's memory.

    A later owner of the memory waits for the stream's work up to this call. After
    `Tensor.record_stream` it waits for all of the stream's work up to the free. Call this function
    again after a later use.

    Args:
        tensor: A tensor on a GPU, whose memory is regraph's.
        stream: The stream, or its raw handle; `None` is the current stream of the tensor's device.

    Raises:
        Error: The tensor is on no GPU, its memory is not regraph's, or the stream is the default stream of another GPU.
    """
    require_enabled("record_use")
    if not hasattr(tensor, "untyped_storage"):
        raise TypeError(f"record_use needs a tensor, not {type(tensor).__name__}")
    if not tensor.is_cuda:
        raise Error(f"record_use needs a tensor on a GPU; this one is on {tensor.device}.")
    if stream is None:
        stream = torch.cuda.current_stream(tensor.device)
    address = tensor.untyped_storage().data_ptr()
    if address == 0:  # No bytes, so no memory.
        return
    handle = streams.handle_on(stream, lambda: tensor.device.index, torch.cuda.current_device)
    try:
        _native.record_use(address, handle)
    except RuntimeError as error:
        raise Error(f"The use of this tensor cannot be recorded: {error}") from error
