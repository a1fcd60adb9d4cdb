"""Interrupts behind any call of the library, where the interpreter looks for signals."""

import sys
from collections.abc import Callable

import fake_native


def behind_each_call(run: Callable[[], None], check: Callable[[], None]) -> int:
    """Runs something again and again, interrupts each run one call later, and checks what is left then.

    Returns how many runs were interrupted.
    """
    runs = 0
    while _interrupted(run, runs):
        check()
        runs += 1
    check()
    return runs


def _interrupted(run: Callable[[], None], calls: int) -> bool:
    """Whether a run made more calls than these, and was interrupted."""
    left = calls

    def trace(frame, event, argument):
        nonlocal left
        inner = frame.f_code.co_filename == fake_native.__file__
        if not inner or frame.f_back.f_code.co_filename == fake_native.__file__:
            # The real library's calls are no functions of Python's.
            return None
        if event == "return":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False
