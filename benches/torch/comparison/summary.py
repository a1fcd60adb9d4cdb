"""What the records of a case come to: one figure per allocator, and ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from .allocators import ALLOCATORS, BASE
from .records import Record


#: A run counts for times if its yardsticks are at most this multiple of the least of its case's runs.
NOISE = 1.1


@dataclass(frozen=True)
class Metric:
    """A figure that is compared. `read` gives a record's samples; `timed` says that they are times."""

    key: str
    title: str
    unit: str
    scale: float
    read: Callable[[Record], list[int]]
    timed: bool = False


def _one(value: int | None) -> list[int]:
    return [] if value is None else [value]


METRICS = (
    Metric("reserved", "Reserved by the capture", "MiB", 2**-20, lambda r: _one(r.reserved_bytes)),
    Metric("pool", "Held by its pool", "MiB", 2**-20, lambda r: _one(r.pool_bytes)),
    Metric("peak", "Peak allocated", "MiB", 2**-20, lambda r: _one(r.peak_allocated_bytes)),
    Metric("device", "Taken from the device", "MiB", 2**-20, lambda r: _one(r.device_bytes)),
    Metric("capture", "Time of the capture", "ms", 1e-6, lambda r: r.capture_ns, True),
    Metric("body", "Time of the captured program alone", "ms", 1e-6, lambda r: r.body_ns, True),
    Metric("replay", "Time of a replay", "ms", 1e-6, lambda r: r.replay_ns, True),
)
#: Those of the picture.
PICTURED = ("reserved", "peak", "capture", "replay")


@dataclass
class Row:
    """A case: for each allocator its figures, in the metric's unit.

    Memory is the median of the runs. A time is the least of the runs' medians, of those runs alone that
    are quiet by their yardsticks (`is_quiet`). `yardsticks` are the least and the greatest of an
    allocator's runs in nanoseconds, `rejected` is how many of its runs are not quiet.
    """

    case: str
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    calls: dict[str, dict[str, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    yardsticks: dict[str, tuple[float, float]] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    results: str = ""

    def ratio(self, metric: str, allocator: str) -> float | None:
        """An allocator's figure over that of PyTorch as it comes."""
        figure = self.figures.get(allocator, {}).get(metric)
        base = self.figures.get(BASE, {}).get(metric)
        return None if figure is None or not base else figure / base


def summarise(records: Iterable[Record]) -> list[Row]:
    """A row for each case, in the order in which they first appear."""
    cases: dict[str, list[Record]] = {}
    for record in records:
        cases.setdefault(record.case, []).append(record)
    return [_row(case, of_case) for case, of_case in cases.items()]


def allocators_of(rows: Iterable[Row]) -> list[str]:
    """Those that appear in some row, in the order of `ALLOCATORS`."""
    seen = {name for row in rows for name in (*row.figures, *row.calls, *row.errors)}
    return [name for name in ALLOCATORS if name in seen]


def _row(case: str, records: list[Record]) -> Row:
    row = Row(case)
    fastest = min((one for r in records if r.ok for one in r.yardstick_ns), default=0.0)
    for name in ALLOCATORS:
        own = [record for record in records if record.allocator == name]
        good = [record for record in own if record.ok]
        if own and not good:
            row.errors[name] = own[-1].error
        if not good:
            continue
        quiet = [record for record in good if is_quiet(record, fastest)]
        row.runs[name], row.rejected[name] = len(good), len(good) - len(quiet)
        yardsticks = [one for record in good for one in record.yardstick_ns]
        if yardsticks:
            row.yardsticks[name] = (min(yardsticks), max(yardsticks))
        row.figures[name] = {
            metric.key: figure * metric.scale
            for metric in METRICS
            if (figure := _figure(metric, quiet if metric.timed else good)) is not None
        }
        keys = dict.fromkeys(key for record in quiet for key in record.calls)
        if keys:
            row.calls[name] = {
                key: min(record.calls[key] for record in quiet if key in record.calls)
                for key in keys
            }
    row.results = compare_results(records)
    return row


def is_quiet(record: Record, fastest: float) -> bool:
    """Whether the machine was about as fast as in the fastest run of the case, before and after.

    Nothing tells that of a run without a yardstick, so it is not.
    """
    return bool(record.yardstick_ns) and max(record.yardstick_ns) <= fastest * NOISE


def _figure(metric: Metric, records: list[Record]) -> float | None:
    runs = [median(samples) for record in records if (samples := metric.read(record))]
    if not runs:
        return None
    return min(runs) if metric.timed else median(runs)


def compare_results(records: list[Record]) -> str:
    """In words, whether all results are the same bit for bit."""
    good = [record for record in records if record.ok and record.digest]
    if not good:
        return ""
    wrong = {
        record.allocator
        for record in good
        if record.correct is False or (record.soak and record.soak.correct is False)
    }
    if wrong:
        return f"WRONG: {', '.join(sorted(wrong))}"
    by_allocator: dict[str, set[str]] = {}
    for record in good:
        by_allocator.setdefault(record.allocator, set()).add(record.digest)
    base = by_allocator.get(BASE)
    if base and len(base) > 1:
        return "not comparable: differ from run to run under PyTorch's own allocator"
    unsteady = {r.allocator for r in good if r.soak and r.soak.steady is False}
    if unsteady:
        return f"DIFFERENT from replay to replay: {', '.join(sorted(unsteady))}"
    if len(set().union(*by_allocator.values())) > 1:
        other = [name for name, found in by_allocator.items() if found != base]
        return f"DIFFERENT: {', '.join(sorted(other))}"
    return _soaked(good, len(by_allocator))


def _soaked(good: list[Record], allocators: int) -> str:
    """All first results are one; now those after each same number of replays."""
    seen: dict[int, dict[str, set[str]]] = {}
    for record in good:
        if record.soak:
            for after, found in zip(record.soak.after, record.soak.digests, strict=True):
                seen.setdefault(after, {}).setdefault(record.allocator, set()).add(found)
    for after, found in sorted(seen.items()):
        if len(set().union(*found.values())) > 1:
            return f"DIFFERENT after {after} replays: {', '.join(sorted(found))}"
    same = "the same" if allocators > 1 else "one allocator only"
    known = ", as computed in advance" if all(record.correct for record in good) else ""
    replays = {record.soak.replays for record in good if record.soak}
    longest = f", {min(replays):,} replays" if replays else ""
    return f"{same}{known}{longest}"
