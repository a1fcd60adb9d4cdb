#!/usr/bin/env python3
"""What an allocation and its free take in other libraries: from their own pools, and from regraph.

    python3 door_speed.py [--rounds N] [--bytes N] [--only LIBRARY]

Each library runs with its own pool, with regraph, and, where the interface for allocators is in Python,
with one that does nothing, which shows what the interface itself takes. They take turns, each turn in a
process of its own; the least of all turns counts. The last columns are a call that needs no GPU, the least
of each kind's turns: compare only where they agree. Needs a GPU, regraph's wheel, and CuPy, cuda.core or
Numba: what is not installed is left out. Exit code 1: a program failed.
"""

import argparse
import gc
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = ("own", "regraph", "nothing")
UNAVAILABLE = 7


def cupy(kind: str, size: int) -> Callable[[], object]:
    """`cupy.cuda.alloc`, from CuPy's default pool."""
    library = importlib.import_module("cupy")
    if kind == "regraph":
        importlib.import_module("regraph.cupy").enable()
    elif kind == "nothing":
        raise ImportError("the interface takes functions of C")
    allocate = library.cuda.alloc

    def pair() -> None:
        allocate(size)

    return pair


def cuda_core(kind: str, size: int) -> Callable[[], object]:
    """A buffer of the device's resource, closed at once."""
    core = importlib.import_module("cuda.core")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    resource = device.memory_resource
    if kind == "regraph":
        resource = importlib.import_module("regraph.cuda_core").MemoryResource(device)
    elif kind == "nothing":
        resource = _nothing(core)

    def pair() -> None:
        resource.allocate(size, stream=stream).close()

    return pair


def _nothing(core: Any) -> Any:
    """A resource of `cuda.core` whose buffers are at one address."""

    class Nothing(core.MemoryResource):  # type: ignore[misc]
        is_device_accessible = True
        is_host_accessible = False
        is_managed = False
        device_id = 0

        def allocate(self, size: int, *, stream: Any) -> Any:
            return core.Buffer.from_handle(1 << 40, size, mr=self, stream=stream)

        def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
            pass

    return Nothing()


def numba(kind: str, size: int) -> Callable[[], object]:
    """`memalloc` of the current context."""
    if kind == "regraph":
        importlib.import_module("regraph.numba").enable()
    elif kind == "nothing":
        raise ImportError("the interface makes what memory is handed out as")
    context = importlib.import_module("numba.cuda").current_context()

    def pair() -> None:
        context.memalloc(size)

    return pair


LIBRARIES = {function.__name__: function for function in (cupy, cuda_core, numba)}


def least(call: Callable[[], object]) -> float:
    """The time of a call in microseconds: the least of many short runs."""
    for _ in range(1000):
        call()
    best = float("inf")
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        for _ in range(200):
            call()
        best = min(best, (time.perf_counter_ns() - start) / 200)
    return best / 1e3


def nothing() -> None:
    """A call that needs no GPU."""
    sorted((3, 1, 2))


def turn(library: str, kind: str, size: int) -> None:
    """One turn, in a process of its own."""
    try:
        pair = LIBRARIES[library](kind, size)
    except ImportError as error:
        print(f"unavailable: {error}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    gc.disable()
    print(json.dumps([least(pair), least(nothing)]))


def main() -> None:
    """Runs the turns and prints a line for each library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=1 << 20)
    parser.add_argument("--only", choices=LIBRARIES)
    parser.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        turn(*arguments.turn, arguments.bytes)
        return
    failed = False
    print(f"{'us':12}" + "".join(f" {kind:>9}" for kind in KINDS) + "  regraph/own   no GPU")
    for library in [arguments.only] if arguments.only else LIBRARIES:
        times: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
        for _ in range(arguments.rounds):
            for kind in KINDS:
                command = [sys.executable, str(Path(__file__)), "--turn", library, kind]
                command += ["--bytes", str(arguments.bytes)]
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                if done.returncode == 0:
                    times[kind].append(json.loads(done.stdout.splitlines()[-1]))
                elif done.returncode != UNAVAILABLE:
                    print(f"{library}, {kind}:\n{done.stderr}", file=sys.stderr)
                    failed = True
        if not (times["own"] and times["regraph"]):
            print(f"{library:12} did not run")
            continue
        best = {
            kind: [min(column) for column in zip(*turns, strict=True)]
            for kind, turns in times.items()
            if turns
        }
        told = "".join(f" {best[kind][0]:9.3f}" if kind in best else f" {'-':>9}" for kind in KINDS)
        idle = ", ".join(f"{least:.3f}" for _, least in best.values())
        print(f"{library:12}{told} {best['regraph'][0] / best['own'][0]:12.2f}   {idle}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
