"""What the programs share. Each program is a function, run in a process of its own."""

import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

import regraph.torch

MIB = 1 << 20


def enable(**arguments: Any) -> None:
    """Enables regraph, with the checker on."""
    regraph.torch.enable(**{"check": True, **arguments})


def expect(kind: type[BaseException], call: Callable[[], Any], text: str = "") -> BaseException:
    """Calls, and returns the exception that it must raise."""
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def model() -> torch.nn.Module:
    """A small network on the GPU, the same every time."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)]
    return torch.nn.Sequential(*layers).cuda()


def main(programs: dict[str, Any]) -> None:
    """Runs the program whose name is the first argument, with the others."""
    try:
        programs[sys.argv[1]](*sys.argv[2:])
        torch.cuda.synchronize()
    except SystemExit:
        # Of one whose library is not there.
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
