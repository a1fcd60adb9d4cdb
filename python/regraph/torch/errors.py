"""What goes wrong on regraph's side of PyTorch."""

from regraph.errors import Error, OutOfMemory, Refused

__all__ = ["Error", "OutOfMemory", "Refused"]
