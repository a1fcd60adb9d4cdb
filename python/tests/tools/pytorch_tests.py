#!/usr/bin/env python3
"""Runs PyTorch's own tests of its allocator and of graph trees under PyTorch's and under regraph.

    python3 pytorch_tests.py DIRECTORY [--only NAME] [--jobs N] [--out FILE]

DIRECTORY holds `test_cuda.py` and `inductor/test_cudagraph_trees.py` of PyTorch's sources. Needs
PyTorch, regraph's wheel, pytest and what the files import (expecttest, psutil, hypothesis). The
report names each test that passes under PyTorch's allocator and not under regraph; those of
`pytorch_differences.txt` are shown apart, with their reasons. Exit code 1: there are others.
"""

import argparse
import collections
import contextlib
import dataclasses
import fnmatch
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
FILES = ("test_cuda.py", "inductor/test_cudagraph_trees.py")
ALLOCATORS = ("pytorch", "regraph")
DOORS = ("native", "plugin")
# Of the GPU's memory, for all processes that run at a time.
SHARED_MEMORY = 0.8
# A process needs seconds to import PyTorch: a further one must have some tests to run.
WORTH_A_PROCESS = 4
# pytest's for passed, failed and none chosen; the plug-in's for a GPU that takes no more work.
FINE = (0, 1, 5, 75)
LONGEST_TEXT = 6000


@dataclasses.dataclass
class Result:
    """What came of a test in one process."""

    outcome: str
    error: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclasses.dataclass
class Difference:
    """A line of the list of known differences."""

    pattern: str
    door: str | None
    reason: str
    met: bool = False


@dataclasses.dataclass
class Known:
    """The list of known differences."""

    differences: list[Difference]
    door: str | None = None

    @classmethod
    def read(cls, path: Path) -> "Known":
        """Reads lines `NAME [(DOOR)]: reason`; a reason goes on in lines that are indented."""
        lines: list[str] = []
        for line in path.read_text().splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0].isspace() and lines:
                lines[-1] += " " + line.strip()
            else:
                lines.append(line)
        differences = []
        for line in lines:
            head, separator, reason = line.partition(": ")
            name, _, door = head.partition(" (")
            door = door.rstrip(")")
            if not separator or (door and door not in DOORS):
                raise SystemExit(f"{path}: not `NAME (native|plugin): reason`: {line}")
            differences.append(Difference(name, door or None, reason))
        return cls(differences)

    def find(self, name: str) -> Difference | None:
        """The line for a test, with the door in use."""
        for one in self.differences:
            if one.door in (None, self.door) and fnmatch.fnmatchcase(name, one.pattern):
                return one
        return None


class Group:
    """Tests that some processes share, all under one allocator."""

    def __init__(self, options: argparse.Namespace, allocator: str, file: str, *more: str) -> None:
        self.allocator = allocator
        self.folder = Path(tempfile.mkdtemp(prefix=f"{allocator}-", dir=options.state))
        self.file = file
        self.results: dict[str, Result] = {}
        # How processes ended that ran no test at that time, and the output of the last.
        self.deaths: list[str] = []
        self.output = ""
        self._fruitless = 0
        self._options = options
        self._more = [str(options.directory / file), *more]
        self._read: dict[Path, int] = {}
        self._started: dict[Path, tuple[str, float]] = {}

    def command(self) -> list[str]:
        """What a process of the group runs."""
        options = self._options
        command = [options.python, "-m", "pytest", "-q", "-c", os.devnull, "-p", "pytorch_plugin"]
        command += ["-p", "no:cacheprovider", "--rootdir", str(options.directory)]
        command += ["--allocator", self.allocator, "--folder", str(self.folder)]
        if options.door is not None:
            command += ["--door", options.door]
        for part in options.only:
            command += ["--match", part]
        return command + self._more

    def found(self) -> dict[str, Any] | None:
        """The tests and the door in use, once a process has collected them."""
        try:
            return json.loads((self.folder / "tests.json").read_text())
        except FileNotFoundError:
            return None

    def left(self) -> int | None:
        """How many tests no process has taken, as far as known."""
        found = self.found()
        if found is None:
            return None
        return len(found["tests"]) - sum(1 for _ in (self.folder / "taken").iterdir())

    def look(self, process: int) -> tuple[str, float] | None:
        """Takes in what a process has written; the test that it runs, and since when."""
        path = self.folder / f"{process}.jsonl"
        if path.exists():
            with path.open() as file:
                file.seek(self._read.get(path, 0))
                while (line := file.readline()).endswith("\n"):
                    self._read[path] = file.tell()
                    self._take_in(path, json.loads(line))
        return self._started.get(path)

    def gives_up(self) -> bool:
        """Whether process after process ended without a test."""
        return self._fruitless >= 2

    def ended(self, process: int, code: int, error: str, output: str) -> None:
        """Notes how a process ended, on the test it ran if there was one."""
        running = self.look(process)
        path = self.folder / f"{process}.jsonl"
        self._fruitless = 0 if path in self._read or code in FINE else self._fruitless + 1
        if running is not None:
            name, since = self._started.pop(path)
            took = round(time.monotonic() - since, 2)
            self.results[name] = Result("crashed", error, output[-LONGEST_TEXT:], took)
        elif code not in FINE:
            self.deaths.append(error)
            self.output = output[-LONGEST_TEXT:]

    def _take_in(self, path: Path, what: dict[str, Any]) -> None:
        name = what.pop("test")
        if what:
            self.results[name] = Result(**what)
            self._started.pop(path, None)
        else:
            self._started[path] = (name, time.monotonic())


class Process:
    """One process of a group, which leads a process group of its own."""

    def __init__(self, options: argparse.Namespace, group: Group, share: float | None) -> None:
        self.group = group
        self._limit = options.test_limit
        self._timed_out = False
        self._log: TextIO = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        }
        paths = [str(HERE), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        # Each process would start as many compilers as there are cores.
        environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        environment.setdefault("OMP_NUM_THREADS", "2")
        more = [] if share is None else ["--share", f"{share:.4f}"]
        self._child = subprocess.Popen(
            group.command() + more,
            cwd=options.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self) -> bool:
        """Whether it has ended; ends it when its test has run for too long."""
        running = self.group.look(self._child.pid)
        if self._child.poll() is None:
            if running is not None and time.monotonic() - running[1] > self._limit:
                self._timed_out = True
                # SIGABRT makes it print where it is.
                self._child.send_signal(signal.SIGABRT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(5)
                self._end()
            else:
                return False
        self._close()
        return True

    def stop(self) -> None:
        """Ends it before its time; the test it runs has no result then."""
        self.group.look(self._child.pid)
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _close(self) -> None:
        self._end()
        self._log.seek(0)
        text = self._log.read()
        self._log.close()
        code = self._child.returncode
        if self._timed_out:
            error = f"no end after {self._limit:.0f} s"
        elif code < 0:
            error = f"{signal.Signals(-code).name}: {_cause(text)}"
        else:
            error = f"exit code {code}: {_cause(text)}"
        self.group.ended(self._child.pid, code, error, text)


def _cause(text: str) -> str:
    """The line of a process's output that tells best why it ended."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for sign in ("what():", "panicked at", "regraph:", "Fatal Python error", "Error"):
        for line in lines:
            if sign in line:
                return line[:300]
    return lines[-1][:300] if lines else "no output"


class Run:
    """All that is run, until the time is up."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._end = time.monotonic() + options.time_limit
        self.late = False

    def together(self, groups: Iterable[Group], jobs: int, share: float | None) -> None:
        """Runs some groups, with up to so many processes at a time."""
        waiting = collections.deque(groups)
        every = list(waiting)
        running: list[Process] = []
        try:
            while not self._is_late():
                running = [process for process in running if not process.ended()]
                while len(running) < jobs and (group := _neediest(every, running)) is not None:
                    running.append(Process(self._options, group, share))
                if not running:
                    return
                time.sleep(0.1)
        finally:
            for process in running:
                process.stop()

    def _is_late(self) -> bool:
        self.late = self.late or time.monotonic() > self._end
        return self.late


def _neediest(groups: list[Group], running: list[Process]) -> Group | None:
    """The group that a further process would help most."""
    best, most = None, 0.0
    for group in groups:
        count = sum(process.group is group for process in running)
        left = group.left()
        if (
            group.gives_up()
            or left == 0
            or (left is not None and count and left < WORTH_A_PROCESS * (count + 1))
        ):
            continue
        # Until its tests are known, a group may have many.
        need = (1000 if left is None else left) / (count + 1)
        if need > most:
            best, most = group, need
    return best


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Runs the tests; what came of each, by allocator and name."""
    every = Run(options)
    files = [file for file in FILES if (options.directory / file).exists()]
    if not files:
        raise SystemExit(f"{options.directory} has neither of {', '.join(FILES)}")
    shared = [
        Group(options, allocator, file, "--serial", "leave out")
        for allocator in ALLOCATORS
        for file in files
    ]
    every.together(shared, options.jobs, SHARED_MEMORY / options.jobs)
    # They take most of the GPU's memory, or look at what all processes take of it.
    serial = [
        Group(options, allocator, file, "--serial", "only")
        for file in files
        for allocator in ALLOCATORS
    ]
    for group in serial:
        every.together([group], 1, None)
    first = _results([*shared, *serial])
    door = next(
        (
            found["door"]
            for group in shared
            if group.allocator == "regraph" and (found := group.found())
        ),
        None,
    )
    options.known.door = door

    # Alone in its process, with no limit of memory and without what other tests left. Those that pass
    # under one allocator come first.
    groups, failing = [], ("failed", "crashed")
    fails = {
        allocator: {name for name, result in first[allocator].items() if result.outcome in failing}
        for allocator in ALLOCATORS
    }
    for allocator, other in (ALLOCATORS, ALLOCATORS[::-1]):
        for name, result in first[allocator].items():
            listed = allocator == "regraph" and options.known.find(name)
            missed = first["pytorch"].get(name, result).outcome == "skipped"
            if name in fails[allocator] and not listed and not missed:
                file = name.partition("::")[0]
                group = Group(options, allocator, file, "--exactly", name)
                groups.append((name in fails[other], group))
    groups = [group for _, group in sorted(groups, key=lambda both: both[0])]
    every.together(groups, min(options.jobs, 8), None)
    tests = {
        test for group in [*shared, *serial] if (found := group.found()) for test in found["tests"]
    }
    return {
        "door": door,
        "late": every.late,
        "tests": sorted(tests),
        "first": first,
        "again": _results(groups),
        "deaths": [
            {
                "allocator": group.allocator,
                "file": group.file,
                "errors": group.deaths,
                "output": group.output,
                "tests": group.found() is not None,
            }
            for group in [*shared, *serial]
            if group.deaths
        ],
    }


def _results(groups: Iterable[Group]) -> dict[str, dict[str, Result]]:
    found: dict[str, dict[str, Result]] = {allocator: {} for allocator in ALLOCATORS}
    for group in groups:
        found[group.allocator].update(group.results)
    return found


def report(done: dict[str, Any], known: Known, out: TextIO) -> bool:
    """Prints what came of the tests; whether a difference is not listed."""

    def final(allocator: str, name: str) -> Result:
        first = done["first"][allocator].get(name, Result("not run"))
        again = done["again"][allocator].get(name)
        return again if again is not None and again.outcome == "passed" else first

    def say(*words: str) -> None:
        print(*words, file=out)

    say(f"{len(done['tests'])} tests; regraph's door: {done['door'] or 'not known'}")
    for allocator in ALLOCATORS:
        counts = collections.Counter(final(allocator, name).outcome for name in done["tests"])
        listed = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        say(f"  {allocator:8} {listed}")

    both = [
        (name, final("regraph", name))
        for name in done["tests"]
        if final("pytorch", name).outcome == "passed"
    ]
    differences = [(name, result) for name, result in both if result.outcome != "passed"]
    listed = [(name, known.find(name), result) for name, result in differences if known.find(name)]
    others = [(name, result) for name, result in differences if not known.find(name)]
    for _, difference, _ in listed:
        difference.met = True

    def print_all(title: str, lines: list[str]) -> None:
        if lines:
            say(f"\n{title} ({len(lines)}):")
            for line in lines:
                say("  " + line)

    print_all(
        "Pass under PyTorch's allocator and not under regraph",
        [f"{name}: {result.outcome}: {result.error}" for name, result in others],
    )
    print_all(
        "Known differences",
        [
            f"{name}: {difference.reason} ({result.outcome}: {result.error})"
            for name, difference, result in listed
        ],
    )
    print_all(
        "Listed as different, but pass",
        [name for name, result in both if result.outcome == "passed" and known.find(name)],
    )
    print_all(
        "Passed only in a process of their own",
        [
            f"{name} ({allocator}): {done['first'][allocator][name].error}"
            for allocator in ALLOCATORS
            for name, result in sorted(done["again"][allocator].items())
            if result.outcome == "passed"
        ],
    )
    print_all(
        "Pass under regraph alone",
        [
            f"{name}: {final('pytorch', name).error}"
            for name in done["tests"]
            if final("regraph", name).outcome == "passed"
            and final("pytorch", name).outcome in ("failed", "crashed")
        ],
    )
    slow = sorted(
        (
            (result.seconds, name, allocator)
            for allocator in ALLOCATORS
            for name, result in done["first"][allocator].items()
        ),
        reverse=True,
    )
    print_all(
        "Slowest",
        [
            f"{seconds:.1f} s {name} ({allocator})"
            for seconds, name, allocator in slow[:8]
            if seconds > 5
        ],
    )
    for death in done["deaths"]:
        say(f"\nProcesses of {death['file']} ended outside tests under {death['allocator']}:")
        for error in death["errors"]:
            say("  " + error)
        if not death["tests"]:
            say(death["output"])
    if done["late"]:
        say("\nThe time was up before all tests had run.")
    return bool(others or done["deaths"] or done["late"])


def write(done: dict[str, Any], path: Path) -> None:
    """Writes every result, with the texts of failures, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(done, default=dataclasses.asdict, indent=1))


def main() -> int:
    """Runs, reports and writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=lambda name: Path(name).resolve())
    parser.add_argument("--only", action="append", default=[], help="a part of a test's name")
    parser.add_argument("--jobs", type=int, default=max(1, min(12, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--time-limit", type=float, default=540, help="seconds for all")
    parser.add_argument("--test-limit", type=float, default=90, help="seconds for one test")
    parser.add_argument("--out", type=Path, help="a file for all results, in JSON")
    parser.add_argument("--door", choices=DOORS, help="regraph's door into PyTorch")
    parser.add_argument("--known", type=Path, default=HERE / "pytorch_differences.txt")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    options.known = Known.read(options.known)
    with tempfile.TemporaryDirectory(prefix="pytorch-tests-") as state:
        options.state = state
        began = time.monotonic()
        done = run(options)
    if options.out is not None:
        write(done, options.out)
    different = report(done, options.known, sys.stdout)
    print(f"\n{time.monotonic() - began:.0f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
