"""Where a tensor's last use on a stream is, told before it is freed."""

import torch

from regraph import _native
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error


def record_use(tensor: torch.Tensor, stream: torch.cuda.Stream | int | None = None) -> None:
    """Records that a stream uses a tensor's memory up to here.

    What the stream does after this call need not be waited for when the memory is given to others;
    `Tensor.record_stream` has them wait for all that it did up to the free. Call it again where
    the stream uses the tensor again.

    Args:
        tensor: A tensor on a GPU, whose memory is regraph's.
        stream: The stream, or its raw handle; `None` is the current stream of the tensor's device.

    Raises:
        Error: The tensor is on no GPU, or its memory is not regraph's.
    """
    require_enabled("record_use")
    if not hasattr(tensor, "untyped_storage"):
        raise TypeError(f"record_use needs a tensor, not {type(tensor).__name__}")
    if not tensor.is_cuda:
        raise Error(f"record_use needs a tensor on a GPU; this one is on {tensor.device}.")
    if stream is None:
        stream = torch.cuda.current_stream(tensor.device)
    handle = stream if isinstance(stream, int) else stream.cuda_stream
    address = tensor.untyped_storage().data_ptr()
    if address == 0:  # No bytes, so no memory.
        return
    try:
        _native.record_use(address, handle)
    except RuntimeError as error:
        raise Error(f"The use of this tensor cannot be recorded: {error}") from error
