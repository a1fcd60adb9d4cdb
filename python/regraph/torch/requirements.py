"""Which PyTorch the package needs. Checked before any other file of the package uses PyTorch."""

import re

MINIMUM = (2, 7)

_NEEDED = f"PyTorch {MINIMUM[0]}.{MINIMUM[1]} or newer, built for CUDA"
_HINT = "see https://pytorch.org/get-started/locally"


def require_torch() -> None:
    """Checks that PyTorch can be imported and is new enough.

    Raises:
        ImportError: PyTorch is missing, or older than `MINIMUM`.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise  # PyTorch is installed, but something that it needs is not.
        raise ImportError(
            f"regraph.torch needs {_NEEDED}, and PyTorch is not installed; {_HINT}.", name="torch"
        ) from error
    version = getattr(torch, "__version__", None)
    if version is None:
        raise ImportError(
            f"regraph.torch needs {_NEEDED}, and the module `torch` that Python finds is not "
            f"PyTorch ({getattr(torch, '__path__', torch)}); {_HINT}.",
            name="torch",
        )
    numbers = numbers_of(version)
    # A version that names no numbers is a build of one's own.
    if numbers is not None and numbers < MINIMUM:
        raise ImportError(
            f"regraph.torch needs {_NEEDED}, and PyTorch {version} is installed; {_HINT}.",
            name="torch",
        )


def numbers_of(version: object) -> tuple[int, int] | None:
    """The first two numbers of a version, if it names them."""
    numbers = re.match(r"(\d+)\.(\d+)", str(version))
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))
