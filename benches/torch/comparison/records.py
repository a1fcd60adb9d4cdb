"""One record per run: what is in it, and files of them, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass
class Soak:
    """A long run of replays, with other work's allocations in between.

    `digests` are those of the checks, in order, `after` the replays up to each, counted from the
    start. `steady` says whether all are the first replay's, where all replays start alike.
    """

    replays: int = 0
    after: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    steady: bool | None = None
    correct: bool | None = None


@dataclass
class Record:
    """A case under an allocator, once. Bytes and nanoseconds.

    `reserved_bytes` and `device_bytes` are what the capture added, `pool_bytes` what its pool then
    held, `peak_allocated_bytes` the highest of live blocks during the capture over what was live
    before. Of several captures in a process all times are there, and memory of the first.
    `yardstick_ns` is the time of a call that needs no GPU, before and after the case.
    """

    case: str
    allocator: str
    repeat: int
    ok: bool = False
    error: str = ""
    reserved_bytes: int | None = None
    pool_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    device_bytes: int | None = None
    graphs: int | None = None
    capture_ns: list[int] = field(default_factory=list)
    body_ns: list[int] = field(default_factory=list)
    replay_ns: list[int] = field(default_factory=list)
    yardstick_ns: list[float] = field(default_factory=list)
    digest: str = ""
    correct: bool | None = None
    soak: Soak | None = None
    #: Figures that only some cases have, such as the C++ program's time of a call.
    calls: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def line(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)


def record_from(values: dict[str, Any]) -> Record:
    """A record from its JSON object. Raises ValueError where it is none."""
    known = {one.name for one in fields(Record)}
    unknown = set(values) - known
    missing = {"case", "allocator", "repeat"} - set(values)
    if unknown or missing:
        raise ValueError(f"not a record: unknown {sorted(unknown)}, missing {sorted(missing)}")
    record = Record(**values)
    if isinstance(record.soak, dict):
        record.soak = Soak(**record.soak)
    return record


def read(paths: Iterable[Path]) -> list[Record]:
    """All records of some files. A last line that was cut off is left out."""
    records = []
    for path in paths:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                records.append(record_from(json.loads(line)))
            except json.JSONDecodeError:
                if number != len(lines):
                    raise
    return records


def append(path: Path, record: Record) -> None:
    """Adds a record to a file, at once."""
    with path.open("a") as file:
        file.write(record.line() + "\n")
