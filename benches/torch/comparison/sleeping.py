"""What a sleep and a wake cost: records of processes, the table of the least, and its picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from .sleepers import KINDS

_DESIGN = Path(__file__).resolve().parents[3] / "design"
MIB = 1 << 20


@dataclass(frozen=True)
class Slept:
    """One process under one allocator. Bytes and seconds."""

    allocator: str
    round: int
    #: What must be kept: weights, the input, the graphs' outputs, and what was written at capture time only.
    kept_bytes: int
    #: Bytes a second from page-locked memory of the host and to it, by one large copy.
    to_host: float
    from_host: float
    first_sleep: float
    #: The least of the later ones.
    sleep: float
    wake: float
    #: By how much the device had less behind the captures than before: pools and executables.
    graphs_bytes: int
    #: By how much the process had more resident memory asleep than before its first sleep.
    host_bytes: int
    #: What the device has in use asleep, the context included.
    asleep_bytes: int
    #: Outputs, and contents that no replay writes, that were not what they were before, of all wakes.
    wrong: int
    versions: dict[str, Any]


def slept_from(values: dict[str, Any]) -> Slept:
    """A record from its JSON object. Raises ValueError where it is none."""
    if set(values) != {field.name for field in fields(Slept)}:
        raise ValueError(f"not a record of a sleep: {sorted(values)}")
    return Slept(**values)


@dataclass(frozen=True)
class _Figure:
    """A line of the table: what is taken of an allocator's rounds, and how it is written."""

    title: str
    of: Callable[[list[Slept], float, float], float]
    written: str = "{:,.0f}"
    #: Whether less is better; where it is not, nothing is in bold.
    compared: bool = True


def _least(name: str, unit: float = 1.0) -> Callable[[list[Slept], float, float], float]:
    return lambda rounds, down, up: min(getattr(each, name) for each in rounds) / unit


def _over_link(name: str, is_sleep: bool) -> Callable[[list[Slept], float, float], float]:
    """The least time over what the link takes for the same contents."""

    def ratio(rounds: list[Slept], down: float, up: float) -> float:
        link = down if is_sleep else up
        return min(getattr(each, name) * link / each.kept_bytes for each in rounds)

    return ratio


FIGURES = {
    "link": _Figure(
        "link to the host, GiB/s",
        lambda rounds, down, up: max(each.to_host for each in rounds) / 2**30,
        "{:.1f}",
        compared=False,
    ),
    "first": _Figure("first sleep, s", _least("first_sleep"), "{:.3f}"),
    "first over link": _Figure(
        "first sleep over the link's time", _over_link("first_sleep", True), "{:.2f}"
    ),
    "sleep": _Figure("sleep, s", _least("sleep"), "{:.3f}"),
    "sleep over link": _Figure("sleep over the link's time", _over_link("sleep", True), "{:.2f}"),
    "wake": _Figure("wake, s", _least("wake"), "{:.3f}"),
    "wake over link": _Figure("wake over the link's time", _over_link("wake", False), "{:.2f}"),
    "graphs": _Figure("graphs, MiB", _least("graphs_bytes", MIB)),
    "host": _Figure("host memory, MiB", _least("host_bytes", MIB)),
    "asleep": _Figure("left on the device, MiB", _least("asleep_bytes", MIB)),
    "wrong": _Figure(
        "wrong outputs", lambda rounds, down, up: float(sum(each.wrong for each in rounds))
    ),
}


def figures(records: Iterable[Slept]) -> dict[str, dict[str, float]]:
    """By allocator, the figures of all its rounds. The link is the fastest that any round has seen."""
    rounds: dict[str, list[Slept]] = {}
    for record in records:
        rounds.setdefault(record.allocator, []).append(record)
    every = [each for of in rounds.values() for each in of]
    down = max((each.to_host for each in every), default=0.0)
    up = max((each.from_host for each in every), default=0.0)
    return {
        name: {key: figure.of(rounds[name], down, up) for key, figure in FIGURES.items()}
        for name in KINDS
        if name in rounds
    }


def markdown(records: list[Slept], machine: dict[str, object]) -> str:
    """The table, and what it was measured on."""
    of = figures(records)
    titles = [KINDS[name].title for name in of]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for key, figure in FIGURES.items():
        written = [figure.written.format(of[name][key]) for name in of]
        least = min((of[name][key] for name in of), default=0.0)
        best = figure.written.format(least)
        # Where all are alike there is no better one.
        if figure.compared and len(set(written)) > 1:
            written = [f"**{each}**" if each == best else each for each in written]
        lines.append(f"| {figure.title} | {' | '.join(written)} |")
    if records:
        counts = ", ".join(
            f"{KINDS[name].title}: {sum(each.allocator == name for each in records)}" for name in of
        )
        kept = max(each.kept_bytes for each in records) / MIB
        lines += ["", f"Contents to keep: {kept:,.0f} MiB. Processes: {counts}.", ""]
    lines += [f"* {name}: {value}" for name, value in machine.items()]
    return "\n".join(lines) + "\n"


def _pictures() -> ModuleType:
    """`design/pictures.py`, for its colours and shapes."""
    sys.path.insert(0, str(_DESIGN))
    try:
        import pictures
    finally:
        sys.path.remove(str(_DESIGN))
    return pictures


_PANELS = (
    (
        "times what the link takes; bars of a row are to one scale",
        ("first over link", "sleep over link", "wake over link"),
    ),
    ("MiB", ("graphs", "host", "asleep")),
)
_ROW, _BAR, _LEFT, _WIDTH = 16, 12, 232, 340


def _drawn(pictures: ModuleType, colour: dict[str, str], of: dict[str, dict[str, float]]) -> str:
    fills = dict(zip(of, [colour["peer"], colour["reuse"]], strict=False))
    fills["regraph"] = colour["own"]
    parts, x = [], 12
    for name in of:
        parts.append(pictures.bar(x, 12, 12, 12, fills[name]))
        parts.append(pictures.text(x + 18, 23, KINDS[name].title, colour["text"]))
        x += 38 + 7 * len(KINDS[name].title)
    y = 44
    for unit, keys in _PANELS:
        parts.append(pictures.text(_LEFT, y + 8, unit, colour["note"], 12))
        y += 18
        for key in keys:
            most = max((each[key] for each in of.values()), default=0.0) or 1.0
            figure = FIGURES[key]
            title = figure.title.removesuffix(", MiB").removesuffix(" over the link's time")
            middle = y + _ROW * len(of) / 2 + 4
            parts.append(pictures.text(_LEFT - 12, middle, title, colour["text"], 13, "end"))
            for name, each in of.items():
                long = _WIDTH * each[key] / most
                written = figure.written.format(each[key])
                parts.append(pictures.bar(_LEFT, y, long, _BAR, fills[name]))
                parts.append(pictures.text(_LEFT + long + 6, y + 10, written, colour["note"], 11))
                y += _ROW
            y += 12
        y += 8
    return pictures.page(760, y, "Memory that sleeps and wakes with its contents", parts)


def draw(records: list[Slept], path: Path) -> list[Path]:
    """Draws the figures, for light pages and dark ones: `NAME-light.svg` and `NAME-dark.svg` of `NAME.svg`."""
    pictures, of = _pictures(), figures(records)
    paths = []
    for theme, colour in pictures.THEMES.items():
        paths.append(path.with_name(f"{path.stem}-{theme}.svg"))
        paths[-1].write_text(_drawn(pictures, colour, of))
    return paths


def results(records: list[Slept], machine: dict[str, object]) -> dict[str, Any]:
    """All of it as a JSON object."""
    return {
        "machine": machine,
        "figures": figures(records),
        "records": [asdict(each) for each in records],
    }
