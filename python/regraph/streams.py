"""Streams of any library, as CUDA names them."""

from typing import Any


def handle(stream: Any) -> int:
    """The raw handle of a stream: of an integer, or an object with the CUDA stream protocol.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # A pair of the protocol's version and the handle; an attribute in early versions.
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            # Numba's older versions keep a ctypes object, with `None` for the default stream.
            return int(getattr(value, "value", value) or 0)
    raise TypeError(f"{type(stream).__name__} is no CUDA stream")
