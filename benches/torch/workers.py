#!/usr/bin/env python3
"""Sleep and wake of several processes that have the same weights: each with a backup of its own, and one for all.

    python benches/torch/workers.py [--workers 4] [--gib 4] [--rounds 4] [--folder /dev/shm]

Processes stand for the workers of one model on one GPU, or for replicas of it. All sleep at once, and wake at once;
each checks what it has then. A row is a kind of backup: `host` is memory of each process, `file` is a file of each in
the folder, and `shared` one file for all, to which equal contents are written once. Times are in seconds until the
last process is done: of the first round, and the least of the later ones. Kinds take turns, in processes of their own.
`kept` is what the machine's memory lost, in GiB, which is exact only on a machine that does nothing else.

Needs an NVIDIA GPU with room for all workers, PyTorch and `regraph-torch`, and the host's memory for all backups.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

KINDS = ("host", "file", "shared")
SPAWN = torch.multiprocessing.get_context("spawn")
#: Seconds that all processes wait for each other.
PATIENCE = 300
GIB = 1 << 30


def work(kind: str, folder: str, size: int, rounds: int, step: Any) -> None:
    """A worker: sleeps and wakes when all others do."""
    import regraph.torch

    regraph.torch.enable(native=True)
    if kind == "host":
        place: dict[str, Any] = {}
    elif kind == "file":
        place = {"backup": "file", "folder": folder}
    else:
        place = {"backup": "shared", "file": str(Path(folder) / "weights")}
    generator = torch.Generator(device="cuda").manual_seed(5)
    with regraph.torch.region("weights", **place):
        weights = torch.empty(size, dtype=torch.uint8, device="cuda")
    weights.random_(generator=generator)
    before = weights.view(torch.int64).sum().item()
    for _ in range(rounds):
        step.wait(PATIENCE)
        regraph.torch.sleep("weights")
        step.wait(PATIENCE)
        step.wait(PATIENCE)
        regraph.torch.wake("weights")
        step.wait(PATIENCE)
        assert weights.view(torch.int64).sum().item() == before


def available() -> int:
    """Bytes of the machine's memory that programs could have; what files in memory take is not among them."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def measure(kind: str, options: argparse.Namespace) -> list[dict[str, float]]:
    """Sleep, wake and what is kept, of each round."""
    folder = tempfile.mkdtemp(prefix="regraph-workers-", dir=options.folder)
    step = SPAWN.Barrier(options.workers + 1)
    arguments = (kind, folder, options.gib * GIB, options.rounds, step)
    workers = [SPAWN.Process(target=work, args=arguments) for _ in range(options.workers)]
    for worker in workers:
        worker.start()
    found = []
    try:
        for _ in range(options.rounds):
            step.wait(PATIENCE)
            before, began = available(), time.perf_counter()
            step.wait(PATIENCE)
            slept = time.perf_counter() - began
            kept = before - available()
            step.wait(PATIENCE)
            began = time.perf_counter()
            step.wait(PATIENCE)
            found.append({"sleep": slept, "wake": time.perf_counter() - began, "kept": kept / GIB})
        for worker in workers:
            worker.join(PATIENCE)
            assert worker.exitcode == 0, worker.exitcode
    finally:
        for worker in workers:
            worker.kill()
        shutil.rmtree(folder)
    return found


def main() -> None:
    """Prints the table, and a line of JSON for each kind behind it."""
    add = (
        parser := argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
    ).add_argument
    add("--workers", type=int, default=4)
    add("--gib", type=int, default=4, help="of weights, in each process")
    add("--rounds", type=int, default=4, help="of sleep and wake, in each turn")
    add("--turns", type=int, default=2, help="of each kind")
    add("--folder", default="/dev/shm", help="where files are; in memory by default")
    options = parser.parse_args()
    runs: dict[str, list[list[dict[str, float]]]] = {kind: [] for kind in KINDS}
    for _ in range(options.turns):
        for kind in KINDS:
            runs[kind].append(measure(kind, options))
    print("| backup | first sleep | sleep | wake | kept, GiB |\n|---|---|---|---|---|")
    for kind, of_kind in runs.items():
        first = min(rounds[0]["sleep"] for rounds in of_kind)
        later = [round_ for rounds in of_kind for round_ in rounds[1:] or rounds]
        sleep, wake = (min(round_[what] for round_ in later) for what in ("sleep", "wake"))
        # What is kept first is kept from then on.
        kept = max(rounds[0]["kept"] for rounds in of_kind)
        print(f"| {kind} | {first:.2f} | {sleep:.2f} | {wake:.2f} | {kept:.1f} |")
    for kind, of_kind in runs.items():
        print(json.dumps({"backup": kind, "turns": of_kind}))


if __name__ == "__main__":
    main()
