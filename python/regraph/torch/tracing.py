"""Writing captures down, to be replayed and judged without a GPU."""

import os
import threading
from types import TracebackType

from regraph import _native
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error

_lock = threading.Lock()
_current: "Recording | None" = None


class Recording:
    """A recording that is under way; also a context manager that stops it."""

    def stop(self) -> None:
        """Stops; does nothing the second time."""
        global _current
        with _lock:
            if _current is self:
                # Another recording can begin, also where this one cannot be stopped in order.
                _current = None
                _native.record_trace(None)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def record_trace(path: "str | os.PathLike[str]", *, stacks: bool = True) -> Recording:
    """Writes each capture that ends from now on as a trace, which `regraph.torch.plot` and `regraph replay` read.

    With `check=False` a capture that began before is not written.

    Args:
        path: The file. A second capture goes to the same path with a number before the suffix.
        stacks: Whether the trace says where in the Python program each block was asked for. Requests
            take some ten microseconds longer then.

    Returns:
        The recording: stop it, or use it as a context manager.

    Raises:
        Error: Another recording is under way, or the path's folder is not there.
    """
    global _current
    require_enabled("record_trace")
    # Captures end later: the program may be in another folder then.
    file = os.path.abspath(os.fspath(path))
    folder = os.path.dirname(file)
    if not os.path.isdir(folder):
        raise Error(f"Captures cannot be recorded: there is no folder {folder}.")
    with _lock:
        if _current is not None:
            raise Error("Captures are being recorded already; stop that recording first.")
        _native.record_trace(file, stacks)
        _current = Recording()
        return _current
