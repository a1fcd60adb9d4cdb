"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable

from .records import Record

_QUERY = "name,driver_version,memory.total,clocks.max.sm,power.limit"


def describe(records: Iterable[Record]) -> dict[str, object]:
    """The host, and the GPU with its driver and libraries as the runs saw them."""
    found: dict[str, object] = {
        "host": f"{_processor()}, {os.cpu_count()} processors, {platform.platform()}",
        "python": platform.python_version(),
    }
    for record in records:
        if record.versions:
            found.update(record.versions)
            break
    return found


def graphics() -> dict[str, object]:
    """What the driver's own tool says of each GPU; empty where there is none."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    names = ("name", "driver", "memory", "highest clock", "power limit")
    gpus = [
        ", ".join(f"{name} {value.strip()}" for name, value in zip(names, values, strict=False))
        for values in (line.split(",") for line in done.stdout.splitlines())
    ]
    return {f"GPU {index}": gpu for index, gpu in enumerate(gpus)}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
