#!/usr/bin/env python3
"""Compares PyTorch's allocator and regraph as PyTorch's allocator on the same captures.

    python benches/torch/run.py --out results

Each run is a fresh process, and allocators take turns. The table has the least time of the runs during
which the machine was not busy with other things, by a call that needs no GPU. Every record is in
`results/records.jsonl` as soon as it is there; a later command with the same directory adds to it.
`--report` only makes `results.md`, `results.json`, `results.svg` and `results.png` from the records.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from comparison.allocators import ALLOCATORS, BASE, Allocator
from comparison.machine import describe, graphics
from comparison.programs import Outside, cpp_cases, ddp_cases
from comparison.records import Record, append, read
from comparison.summary import summarise
from comparison.table import markdown

_HERE = Path(__file__).resolve().parent
_RECORDS = "records.jsonl"
Run = tuple[str, str, int, Callable[[], Record]]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=_HERE / "results", help="directory of records and results")
    add("--only", default="", help="groups (models, batches, sweep, ddp, cpp) or names of cases, "
        "with * and ?, separated by commas; by default models, batches and sweep")
    usual = ",".join(name for name, allocator in ALLOCATORS.items() if allocator.usual)
    add("--allocators", default=usual, help="separated by commas")
    add("--repeats", type=int, default=4, help="runs of each case under each allocator")
    add("--first", type=int, default=0, help="number of the first repeat, to add more later")
    add("--captures", type=int, default=3, help="captures timed in each run")
    add("--warm-ups", type=int, help="how often work runs before its capture, else as the case says")
    add("--new-streams", action="store_true", help="capture on streams that no work ran on before, "
        "but for the sweep, whose work names its streams")
    add("--soak", type=int, default=1_000, help="replays whose results are checked, in the first "
        "repeat, under PyTorch as it comes and regraph; 0 for none")
    add("--soak-seconds", type=float, default=6.0, help="at most, for each such run")
    add("--quick", action="store_true", help="fewer and smaller cases, one run of each")
    add("--time-limit", type=float, help="start nothing after so many seconds")
    add("--timeout", type=float, default=120.0, help="end a run after so many seconds")
    add("--fresh", action="store_true", help="load PyTorch anew for each run instead of forking")
    add("--dry", action="store_true", help="without a GPU: only tries the cases' code")
    add("--cpp", type=Path, default=_HERE / "cpp" / "build" / "captures", help="the C++ program")
    add("--regraph-library", type=Path, help="regraph's C library, for the C++ program")
    add("--list", action="store_true", help="print the cases and stop")
    add("--report", action="store_true", help="measure nothing, write the results again")
    add("--self-test", action="store_true", help="test the benchmark itself, without a GPU")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.captures = 1, 1
        options.soak = min(options.soak, 100)
    unknown = set(options.allocators.split(",")) - set(ALLOCATORS)
    if unknown:
        parser.error(f"no such allocator: {', '.join(sorted(unknown))}")
    return options


def inside(options: argparse.Namespace) -> list[str]:
    """The chosen cases that run in a measuring process."""
    from comparison.cases import chosen

    only = [one for one in options.only.split(",") if one]
    return list(chosen(only, options.quick))


def outside(options: argparse.Namespace) -> list[Outside]:
    """The chosen cases that are programs; only where they are asked for."""
    only = [one for one in options.only.split(",") if one]
    found: list[Outside] = []
    if any(one.startswith("ddp") for one in only):
        found += [
            case
            for case in ddp_cases(max(options.soak, 2))
            if any(one == "ddp" or fnmatch.fnmatch(case.case, one) for one in only)
        ]
    if any(one.startswith("cpp") for one in only):
        if not options.cpp.exists():
            raise SystemExit(f"{options.cpp} is not there: run benches/torch/cpp/build.py")
        found += [
            case
            for case in cpp_cases(options.cpp, options.regraph_library, options.quick)
            if any(one == "cpp" or fnmatch.fnmatch(case.case, one) for one in only)
        ]
    return found


def runs(options: argparse.Namespace, forked: Any) -> Iterator[Run]:
    """All runs in turn: repeats, in each the cases, for each the allocators, rotated."""
    names = options.allocators.split(",")
    programs = outside(options)
    cases = inside(options)
    for repeat in range(options.first, options.first + options.repeats):
        turn = repeat % len(names)
        rotated = [ALLOCATORS[name] for name in names[turn:] + names[:turn]]
        for case in cases:
            for allocator in rotated:
                soaks = repeat == 0 and allocator.name in (BASE, "regraph")
                request = {
                    "case": case,
                    "allocator": allocator.name,
                    "repeat": repeat,
                    "quick": options.quick,
                    "dry": options.dry,
                    "options": {
                        "captures": options.captures,
                        "warm_ups": options.warm_ups,
                        "new_streams": options.new_streams,
                        "soak": options.soak if soaks else 0,
                        "soak_seconds": options.soak_seconds,
                    },
                }
                yield case, allocator.name, repeat, _bound(forked.run, allocator, request)
        for program in programs:
            for allocator in rotated:
                if allocator.name in program.allocators:
                    arguments = (allocator, repeat, options.out, options.timeout)
                    yield program.case, allocator.name, repeat, _bound(program.run, *arguments)


def _bound(function: Callable[..., Record], *values: Any) -> Callable[[], Record]:
    return lambda: function(*values)


def measure(options: argparse.Namespace) -> None:
    """Runs everything and writes each record down at once."""
    from comparison.processes import workers

    options.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    seen: list[Record] = []
    with workers(options.out, options.fresh, options.timeout) as forked:
        if inside(options):
            allocators: list[Allocator] = [ALLOCATORS[n] for n in options.allocators.split(",")]
            forked.start(allocators)
        for case, allocator, repeat, run in runs(options, forked):
            if options.time_limit and time.monotonic() - begin > options.time_limit:
                print("the time limit is over; what was measured is kept", flush=True)
                break
            print(f"[{time.monotonic() - begin:6.1f} s] {case} {allocator} {repeat}: ",
                  end="", flush=True)
            record = run()
            append(options.out / _RECORDS, record)
            seen.append(record)
            print(_brief(record), flush=True)
    machine = {**graphics(), **describe(seen)}
    (options.out / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")


def _brief(record: Record) -> str:
    if not record.ok:
        return f"FAILED: {(record.error.splitlines() or ['?'])[0]}"
    reserved = f"{(record.reserved_bytes or 0) / 2**20:.0f} MiB"
    captured = f"{min(record.capture_ns, default=0) / 1e6:.1f} ms"
    replayed = f"replay {min(record.replay_ns, default=0) / 1e6:.3f} ms"
    yardstick = "/".join(f"{one:.0f}" for one in record.yardstick_ns)
    wrong = ", WRONG RESULTS" if record.correct is False else ""
    return (f"{reserved}, {captured}, {replayed}, yardstick {yardstick} ns, "
            f"in {record.seconds:.1f} s{wrong}")


def report(options: argparse.Namespace) -> bool:
    """Writes the results from all records in the directory, below it too; says if all are good."""
    from comparison import picture

    records = read(sorted(options.out.rglob(f"*{_RECORDS}")))
    rows = summarise(records)
    machines = sorted(options.out.rglob("machine.json"))
    machine = json.loads(machines[0].read_text()) if machines else describe(records)
    text = markdown(rows, machine)
    (options.out / "results.md").write_text(text)
    results = {"machine": machine, "cases": [asdict(row) for row in rows]}
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    if not picture.draw(rows, [options.out / "results.svg", options.out / "results.png"]):
        print("no picture: matplotlib is missing, or there is nothing to compare")
    print(f"{len(records)} records, {len(rows)} cases: {options.out / 'results.md'}")
    rejected, counted = (sum(sum(of.values()) for of in column)
                         for column in ([row.rejected for row in rows], [row.runs for row in rows]))
    print(f"{rejected} of {counted} runs do not count for times: the machine was slower than it can be")
    good = bool(rows)
    for row in rows:
        if row.results.startswith(("WRONG", "DIFFERENT")) or row.errors:
            print(f"  {row.case}: {row.results or '-'}; failed: {', '.join(row.errors) or 'none'}")
            good = False
    return good


def main() -> int:
    """See the module's words."""
    options = arguments()
    if options.self_test:
        from comparison.selftest import run_all

        return run_all()
    if options.list:
        print("\n".join([*inside(options), *(case.case for case in outside(options))]))
        return 0
    if not options.report:
        measure(options)
    return 0 if report(options) else 1


if __name__ == "__main__":
    sys.exit(main())
