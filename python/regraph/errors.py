"""What goes wrong on regraph's side of a door: all of it derives from `Error`, which is a `RuntimeError`."""

from regraph._native import Error, OutOfMemory, Refused

__all__ = ["Error", "OutOfMemory", "Refused"]
