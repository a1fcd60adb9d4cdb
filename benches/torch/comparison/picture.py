"""The results as a picture: for each case and allocator the ratio to PyTorch as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .allocators import ALLOCATORS, BASE
from .summary import METRICS, PICTURED, Row, allocators_of

_COLOURS = {"reuse": "#e08214", "reuse+expandable": "#8073ac", "regraph": "#1b7837"}
_MARKS = {"reuse": "s", "reuse+expandable": "^", "regraph": "o"}


def draw(rows: Sequence[Row], paths: Sequence[Path]) -> bool:
    """Writes the picture, in the format of each path's ending. False without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.ticker import FuncFormatter
    except ImportError:
        return False
    rows = [row for row in rows if len(row.figures) > 1]
    if not rows:
        return False
    metrics = [metric for metric in METRICS if metric.key in PICTURED]
    names = [name for name in allocators_of(rows) if name != BASE]
    # Ids and dates that change from run to run are left out of the file.
    matplotlib.rcParams["svg.hashsalt"] = "regraph"
    height = 1.6 + 0.24 * len(rows)
    figure, axes = pyplot.subplots(
        1, len(metrics), figsize=(4 + 2.6 * len(metrics), height), sharey=True
    )
    for axis, metric in zip(axes, metrics, strict=True):
        axis.axvline(1.0, color="#888888", linewidth=1)
        for name in names:
            points = [
                (ratio, place)
                for place, row in enumerate(rows)
                if (ratio := row.ratio(metric.key, name)) is not None and ratio > 0
            ]
            axis.plot(
                [ratio for ratio, _ in points],
                [place for _, place in points],
                _MARKS.get(name, "o"),
                color=_COLOURS.get(name),
                markersize=5,
                alpha=0.85,
                label=ALLOCATORS[name].title,
            )
        ratios = [row.ratio(metric.key, name) or 1.0 for row in rows for name in names]
        if metric.unit == "MiB":
            # Memory may be a fiftieth; a range of a factor of 4 at least keeps ticks apart.
            axis.set_xscale("log", base=2)
            axis.set_xlim(min(0.5, *ratios) * 0.85, max(1.4, *ratios) * 1.1)
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        else:
            axis.set_xlim(0.0, max(1.5, *ratios) * 1.05)
        axis.set_title(metric.title, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(axis="both", color="#eeeeee")
        axis.set_axisbelow(True)
    axes[0].set_yticks(range(len(rows)), [row.case for row in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(names), fontsize=8, frameon=False)
    title = "Ratio to PyTorch as it comes (1); left is less, memory on a logarithmic scale"
    figure.suptitle(title, fontsize=10)
    figure.tight_layout(rect=(0, 0.6 / height, 1, 1))
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=120, metadata=metadata)
    pyplot.close(figure)
    return True
