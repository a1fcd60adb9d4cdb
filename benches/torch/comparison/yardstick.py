"""The time of a call that needs no GPU: how fast the machine is at the moment."""

from __future__ import annotations

import time
from statistics import median

_CALLS, _REPEATS = 2_000, 15


def yardstick() -> float:
    """Nanoseconds to make and drop a small tensor in the processor's memory: the median of tries."""
    import torch

    tries = []
    for _ in range(_REPEATS):
        begin = time.perf_counter_ns()
        for _ in range(_CALLS):
            torch.empty(512)
        tries.append((time.perf_counter_ns() - begin) / _CALLS)
    return round(median(tries), 1)
