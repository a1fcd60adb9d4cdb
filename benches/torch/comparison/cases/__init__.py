"""The captures that are compared, by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from ..program import workloads
from .batches import Batches
from .case import Case
from .decoder import Decoder
from .inception import InceptionCase
from .mixture import Mixture
from .pipeline import Pipeline
from .sweep import Sweep
from .towers import Towers

Make = Callable[[], Case]

_BATCHES = 128
_QUICK_BATCHES = 16


def catalogue(quick: bool = False, dry: bool = False) -> dict[str, dict[str, Make]]:
    """The cases of each group.

    With `quick`, the shorter half or less of them; with `dry`, sizes that a processor can run.
    """
    layer: dict[str, Any] = {"width": 64, "hidden": 64, "tokens": 8} if dry else {}
    batch: dict[str, Any] = {"width": 32, "tokens": 2} if dry else {}
    block: dict[str, Any] = {"words": 16} if dry else {}
    images: dict[str, Any] = {"batch": 1, "side": 64} if dry else {}
    pairs: dict[str, Any] = {"batch": 2, "layers": 1} if dry else {}
    models: dict[str, Make] = {
        "decoder": lambda: Decoder(**layer),
        "mixture": lambda: Mixture(**layer),
        "inception": lambda: InceptionCase(**images),
        "pipeline": lambda: Pipeline(**layer),
        "decoder-training": lambda: Decoder(training=True, **layer),
        "mixture-training": lambda: Mixture(training=True, **layer),
        "towers-training": lambda: Towers(**pairs),
    }
    largest = _QUICK_BATCHES if quick else _BATCHES
    batches: dict[str, Make] = {}
    for streams in (1, 2):
        for order in ("alone", "ascending", "descending"):
            batches[f"batches-{streams}s-{order}"] = (
                lambda streams=streams, order=order: Batches(streams, order, largest, **batch)
            )
    sweep: dict[str, Make] = {}
    for workload in workloads():
        if not quick or workload.steps == 1_000:
            sweep[workload.name] = lambda workload=workload: Sweep(workload, **block)
    return {"models": models, "batches": batches, "sweep": sweep}


def chosen(only: list[str], quick: bool = False, dry: bool = False) -> dict[str, Make]:
    """The cases whose name or group one of these patterns matches; all without patterns."""
    found: dict[str, Make] = {}
    for group, cases in catalogue(quick, dry).items():
        for name, make in cases.items():
            if not only or any(group == one or fnmatch.fnmatch(name, one) for one in only):
                found[name] = make
    return found
