"""The results in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean

from .allocators import ALLOCATORS, BASE
from .summary import METRICS, Metric, Row, allocators_of

_CAPTION = """\
Memory is the median of all runs. A time is the least of the runs whose yardstick shows that the
machine was not busy with other things. In brackets: the ratio to PyTorch as it comes. *Reserved
by the capture* is what `reserved_bytes` of `torch.cuda.memory_stats()` rises by, *taken from the
device* what the driver says is gone, graphs included. *Time of the capture* is that of the whole
`with torch.cuda.graph(...)`, instantiation included. Time in the allocator alone cannot be told
apart in Python: the calls' times are those of the C++ program, where it ran.
"""


def markdown(rows: Sequence[Row], machine: Mapping[str, object]) -> str:
    """All of it: the machine, a table for each metric, calls, results and failures."""
    parts = ["# PyTorch's allocator and regraph\n", _machine(machine), _CAPTION]
    names = allocators_of(rows)
    for metric in METRICS:
        shown = [row for row in rows if any(metric.key in row.figures.get(n, {}) for n in names)]
        if shown:
            parts.append(f"## {metric.title}, {metric.unit}\n\n{_metric(metric, shown, names)}")
    batches = _batches(rows, names)
    if batches:
        parts.append(f"## All batch sizes against the largest alone, reserved\n\n{batches}")
    if any(row.yardsticks for row in rows):
        parts.append(f"## A call without a GPU, beside every run, ns\n\n{_yardsticks(rows, names)}")
    if any(row.calls for row in rows):
        parts.append(f"## Calls, C++ program\n\n{_calls(rows)}")
    results = [(row.case, row.results) for row in rows if row.results]
    if results:
        parts.append(f"## Results, bit for bit\n\n{_table(('case', 'results'), results)}")
    failures = [
        (row.case, ALLOCATORS[name].title, _short(error))
        for row in rows
        for name, error in row.errors.items()
    ]
    if failures:
        parts.append(f"## Failures\n\n{_table(('case', 'allocator', 'error'), failures)}")
    return "\n".join(parts)


def _machine(machine: Mapping[str, object]) -> str:
    return "".join(f"* {key}: {value}\n" for key, value in machine.items())


def _metric(metric: Metric, rows: Sequence[Row], names: Sequence[str]) -> str:
    lines = []
    for row in rows:
        cells = [row.case]
        for name in names:
            figure = row.figures.get(name, {}).get(metric.key)
            ratio = row.ratio(metric.key, name)
            if figure is None:
                cells.append(_why_none(row, name))
            elif name == BASE or ratio is None:
                cells.append(number(figure))
            else:
                cells.append(f"{number(figure)} ({ratio:.2f})")
        lines.append(cells)
    if metric.timed:
        means = (_mean([row.ratio(metric.key, name) for row in rows]) for name in names)
        lines.append(["geometric mean of the ratios", *means])
    return _table(("case", *(ALLOCATORS[name].title for name in names)), lines)


def _why_none(row: Row, name: str) -> str:
    if name in row.errors:
        return "failed"
    return "too noisy" if row.rejected.get(name) else ""


def _mean(ratios: Iterable[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio]
    return f"{geometric_mean(known):.3f} of {len(known)}" if known else ""


def _yardsticks(rows: Iterable[Row], names: Sequence[str]) -> str:
    lines = []
    for row in rows:
        cells = [row.case]
        for name in names:
            if name not in row.yardsticks:
                cells.append("")
                continue
            least, most = row.yardsticks[name]
            rejected = row.rejected[name]
            told = f", {rejected} of {row.runs[name]} runs rejected" if rejected else ""
            cells.append(f"{number(least)} to {number(most)}{told}")
        lines.append(cells)
    return _table(("case", *(ALLOCATORS[name].title for name in names)), lines)


def _batches(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Each allocator's memory for graphs of all sizes over its own for the largest size."""
    of_case = {row.case: row for row in rows if row.case.startswith("batches-")}
    lines = []
    for case, row in of_case.items():
        kind, _, order = case.rpartition("-")
        alone = of_case.get(f"{kind}-alone")
        if order == "alone" or alone is None:
            continue
        ratios = [
            (row.figures.get(name, {}).get("reserved"), alone.figures.get(name, {}).get("reserved"))
            for name in names
        ]
        lines.append([case, *(f"{all_ / one:.3f}" if all_ and one else "" for all_, one in ratios)])
    return _table(("case", *(ALLOCATORS[name].title for name in names)), lines) if lines else ""


def _calls(rows: Iterable[Row]) -> str:
    rows = [row for row in rows if row.calls]
    keys = list(dict.fromkeys(key for row in rows for of in row.calls.values() for key in of))
    lines = [
        [row.case, ALLOCATORS[name].title, *(number(calls[k]) if k in calls else "" for k in keys)]
        for row in rows
        for name, calls in row.calls.items()
    ]
    return _table(("case", "allocator", *keys), lines)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))


def _short(error: str) -> str:
    first = (error.splitlines() or [""])[0]
    return first[:200].replace("|", "\\|")


def number(value: float) -> str:
    """With as many places as are worth reading."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"
