"""What a measuring process does with a request."""

from __future__ import annotations

import time
import traceback
from typing import Any

from .allocators import ALLOCATORS
from .records import Record
from .yardstick import yardstick


def work(request: dict[str, Any]) -> Record:
    """Runs one case under one allocator and never raises: a failure is in the record."""
    record = Record(request["case"], request["allocator"], int(request["repeat"]))
    begin = time.monotonic()
    try:
        from .devices import DryDevice, GpuDevice
        from .measure import Options, measure

        if not request.get("dry"):
            ALLOCATORS[record.allocator].enable()
        from .cases import chosen

        quick, dry = bool(request.get("quick")), bool(request.get("dry"))
        make = chosen([record.case], quick, dry)[record.case]
        device = DryDevice() if dry else GpuDevice()
        record.yardstick_ns.append(yardstick())
        measure(make(), device, Options(**request.get("options", {})), record)
        record.yardstick_ns.append(yardstick())
    except BaseException as error:
        record.ok = False
        record.error = f"{type(error).__name__}: {error}".strip()
        traceback.print_exc()
    record.seconds = round(time.monotonic() - begin, 3)
    return record
