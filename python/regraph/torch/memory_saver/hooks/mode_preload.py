"""How processes that are started get what their parent has."""

import contextlib
import os
import site
import warnings
from collections.abc import Iterator

from regraph.aliasing import VARIABLE
from regraph.torch.memory_saver.utils import change_env

#: What Python runs at its start, of the folders in which packages are installed.
_START = "regraph-torch.pth"


@contextlib.contextmanager
def configure_subprocess() -> Iterator[None]:
    """Processes that are started within it, by spawn too, find regraph's `torch_memory_saver`.

    They inherit an environment variable, which Python's start reads where the wheel of regraph is installed.
    """
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    if not any(os.path.exists(os.path.join(folder, _START)) for folder in folders):
        warnings.warn(
            f"{_START} is in none of {folders}: processes that are started will not find regraph's "
            "torch_memory_saver. Install the wheel of regraph, or call regraph.torch.memory_saver.install() in each.",
            stacklevel=3,
        )
    with change_env(VARIABLE, "1"):
        yield
