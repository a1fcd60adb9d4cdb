"""What programs take from `torch_memory_saver.utils`."""

import contextlib
import os
from collections.abc import Iterator
from typing import NoReturn

from regraph.torch.errors import Error


@contextlib.contextmanager
def change_env(key: str, value: str) -> Iterator[None]:
    """Sets an environment variable within it, and puts back what there was."""
    before = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = before


def get_binary_path_from_package(stem: str) -> NoReturn:
    """Not served: there is no library to load before others.

    Raises:
        Error: Always.
    """
    raise Error(
        f"regraph has no library {stem} for LD_PRELOAD. Give processes REGRAPH_TORCH_MEMORY_SAVER=1 in their "
        "environment instead (configure_subprocess() does), and enter regions in them: memory of a whole process "
        "(TMS_INIT_ENABLE) is not served."
    )
