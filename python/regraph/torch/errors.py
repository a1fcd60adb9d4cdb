"""What goes wrong on regraph's side of PyTorch."""

from regraph._native import Refused

__all__ = ["Error", "Refused"]


class Error(RuntimeError):
    """Something that regraph cannot do; the message says what, and what to do about it."""
