"""What goes wrong on regraph's side of a door."""

from regraph._native import OutOfMemory, Refused

__all__ = ["Error", "OutOfMemory", "Refused"]


class Error(RuntimeError):
    """Something that regraph cannot do; the message says what, and what to do about it."""
