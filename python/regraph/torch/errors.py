"""What goes wrong on regraph's side of PyTorch."""

from regraph.errors import Error, Refused

__all__ = ["Error", "Refused"]
