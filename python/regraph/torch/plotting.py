"""What a capture needs, as a page."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from regraph import _native
from regraph.torch import estimating
from regraph.torch.enabling import require_enabled
from regraph.torch.errors import Error

if TYPE_CHECKING:
    from torch.types import Device


def plot(
    capture: "Callable[[], Any] | str | os.PathLike[str]",
    path: "str | os.PathLike[str]" = "capture.html",
    device: "Device" = None,
) -> str:
    """Draws what a capture needs, and which lines of code need it, as a page that any browser opens.

        regraph.torch.plot(step, "step.html")

    The page shows where each block of the capture lies over time under each policy and plan, with the
    least memory that is possible, and a table of the lines of Python that hold the memory; a block that
    is pointed at tells its size, its stream and its stack. It is one file that loads nothing. Programmatic
    launches prove what the setting `programmatic` says, or `trust` where regraph is not enabled.

    A function is captured once as `estimate` does it: its graph is never launched.
    Call it when libraries are ready, after a run of warming up. A capture that the program makes anyway
    is drawn from its trace (`record_trace`).

    Args:
        capture: A function whose work is captured, or the path of a trace.
        path: The file to write, over one that is there; the drawing alone if it ends in `.svg`.
        device: The device that the function is captured on; `None` is the current one.

    Returns:
        The path.

    Raises:
        Error: The path's folder is not there; the trace cannot be read; for a function those of
            `estimate`. Also what a capture of the function raises.
    """
    page = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(page))
    if not os.path.isdir(folder):
        raise Error(f"The page cannot be written: there is no folder {folder}.")
    if not callable(capture):
        trace = os.fspath(capture)
        _native.plot(trace, os.path.basename(trace), page)
        return page
    require_enabled("plot")
    title = getattr(capture, "__qualname__", type(capture).__qualname__)
    function = capture
    estimating.show(
        lambda _: function(),
        [None],
        device,
        lambda *_: _native.plot(None, title, page),
        stacks=True,
    )
    return page
