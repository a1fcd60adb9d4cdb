#!/usr/bin/env python3
"""Sleep and wake with contents, on the same work, under vLLM's allocator, torch_memory_saver and regraph.

    python benches/torch/sleep.py [--rounds 4] [--peers DIR] [--plot FILE.svg]

The work is a model of 24 layers (6 GiB) and graphs of it for six batch sizes on two streams, in one pool. It has state
that no replay writes: a block that is allocated in the first capture, filled once behind all captures, and read by each
replay. All contents are kept. Each run is a process of its own, and allocators take turns; the table has the least of
all rounds. After each wake all graphs are replayed, and their whole outputs compared with those before the first sleep.

The others' files are fetched by pip into the folder that `--peers` names, where they are not there already: of vLLM's
wheel its allocator alone, which runs without the rest of vLLM. Without a network they are skipped, with a word about
which wheels to put into that folder. Records are added to `sleep.jsonl` in the folder of `--out` at once, so commands
with the same folder add up; `--report` measures nothing, and writes `sleep.md`, `sleep.json` and the picture from them.

Needs an NVIDIA GPU with 24 GB, 24 GB of the host's memory, PyTorch 2.11 and `regraph-torch`.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from comparison.digest import digest
from comparison.machine import describe, graphics
from comparison.sleepers import KINDS, Kind, Sleeper
from comparison.sleeping import MIB, Slept, draw, markdown, results, slept_from

_HERE = Path(__file__).resolve().parent
_RECORDS = "sleep.jsonl"
_SLEEPS = 5
_ALIKE = 0.25


class Work:
    """A model whose weights sleep, and graphs of it. Its layers run two by two, on two streams."""

    def __init__(self, sleeper: Sleeper, quick: bool) -> None:
        torch.manual_seed(0)
        self.width, self.layers = (512, 4) if quick else (4096, 24)
        self.sizes = (1024, 64, 1) if quick else (16384, 4096, 512, 64, 8, 1)
        self.main, self.side = torch.cuda.Stream(), torch.cuda.Stream()
        # What cuBLAS keeps for a stream is made with its first product, and must not sleep.
        for stream in (self.main, self.side):
            with torch.cuda.stream(stream):
                torch.mm(self._random(64, 64), self._random(64, 64))
        torch.cuda.synchronize()
        with sleeper.weights():
            self.weights = [
                (
                    self._random(self.width, 4 * self.width).div_(self.width**0.5),
                    self._random(4 * self.width, self.width).div_(self.width**0.5),
                )
                for _ in range(self.layers)
            ]
            self.input = self._random(max(self.sizes), self.width)
        with torch.cuda.stream(self.main):
            for size in (self.sizes[0], self.sizes[-1]):
                self.step(size)
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        before = used()
        self._capture(sleeper)
        self.graphs_bytes = used() - before
        # Behind the captures, and never again.
        self.state.fill_(_ALIKE)
        torch.cuda.synchronize()

    def _capture(self, sleeper: Sleeper) -> None:
        self.graphs, self.outputs = [], []
        with sleeper.graphs() as pool:
            for size in self.sizes:
                graph = torch.cuda.CUDAGraph()
                with sleeper.capture(graph, pool, self.main):
                    if not self.graphs:
                        self.state = torch.empty(2 * MIB, device="cuda")
                    self.outputs.append(self.step(size) + self.state[:1].to(torch.bfloat16))
                pool = pool or graph.pool()
                self.graphs.append(graph)

    @staticmethod
    def _random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    def step(self, size: int) -> torch.Tensor:
        """The model for the first rows of the input."""
        x = self.input[:size]
        for first, second in zip(self.weights[::2], self.weights[1::2], strict=True):
            self.side.wait_stream(self.main)
            one = self._layer(x, *first)
            with torch.cuda.stream(self.side):
                other = self._layer(x, *second)
            x.record_stream(self.side)
            self.main.wait_stream(self.side)
            other.record_stream(self.main)
            x = one + other
        return x

    @staticmethod
    def _layer(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ up) @ down

    def kept_bytes(self) -> int:
        """What must be there after a wake."""
        tensors = [
            self.input,
            self.state,
            *self.outputs,
            *(w for layer in self.weights for w in layer),
        ]
        return sum(tensor.nbytes for tensor in tensors)

    def replayed(self) -> list[str]:
        """Digests of all outputs, each behind its graph's replay, and of what no replay writes."""
        digests = []
        for graph, output in zip(self.graphs, self.outputs, strict=True):
            graph.replay()
            torch.cuda.synchronize()
            digests.append(digest([output]))
        return [*digests, digest([self.state])]


def used() -> int:
    """Bytes of the device that are in use."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def resident() -> int:
    """Bytes of the process that are in the host's memory."""
    with open("/proc/self/status") as status:
        kib = next(line.split()[1] for line in status if line.startswith("VmRSS"))
    return int(kib) << 10


def seconds(call: Callable[[], object]) -> float:
    """What a call takes, with the device's work."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def link() -> tuple[float, float]:
    """Bytes a second to the host and from it, by copies of 1 GiB."""
    size = 1 << 30
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.ones(size, dtype=torch.uint8, device="cuda")
    down = min(seconds(lambda: host.copy_(device)) for _ in range(4))
    up = min(seconds(lambda: device.copy_(host)) for _ in range(4))
    return size / down, size / up


@torch.no_grad()
def measured(kind: Kind, folder: Path, number: int, quick: bool) -> Slept:
    """One process under an allocator."""
    sleeper: Sleeper = kind.make(folder)
    work = Work(sleeper, quick)
    right = work.replayed()
    before = resident()
    sleeps, wakes, wrong, asleep, host = [], [], 0, 0, 0
    for _ in range(1 + _SLEEPS):
        sleeps.append(seconds(sleeper.sleep))
        asleep, host = max(asleep, used()), max(host, resident() - before)
        wakes.append(seconds(sleeper.wake))
        wrong += sum(a != b for a, b in zip(right, work.replayed(), strict=True))
    # At the end: page-locked memory that PyTorch keeps would serve the others' sleeps.
    down, up = link()
    properties = torch.cuda.get_device_properties(0)
    versions = {"gpu": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda}
    return Slept(
        allocator=kind.name,
        round=number,
        kept_bytes=work.kept_bytes(),
        to_host=down,
        from_host=up,
        first_sleep=sleeps[0],
        sleep=min(sleeps[1:]),
        wake=min(wakes[1:]),
        graphs_bytes=work.graphs_bytes,
        host_bytes=host,
        asleep_bytes=asleep,
        wrong=wrong,
        versions=versions,
    )


def run(kind: Kind, number: int, options: argparse.Namespace) -> Slept | None:
    """A process under an allocator; none where it failed."""
    command = [sys.executable, __file__, "--under", kind.name, "--round", str(number)]
    command += ["--peers", str(options.peers), *(["--quick"] if options.quick else [])]
    try:
        done = subprocess.run(
            command,
            env=kind.environment(options.peers),
            capture_output=True,
            text=True,
            timeout=options.timeout,
        )
        return slept_from(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{kind.title} failed: {error}", flush=True)
    except (IndexError, ValueError):
        last = "\n".join(done.stderr.splitlines()[-12:])
        print(f"{kind.title} failed with {done.returncode}:\n{last}", flush=True)
    return None


def chosen(options: argparse.Namespace) -> list[Kind]:
    """The allocators whose files are there, or can be fetched; says which are not."""
    kinds = []
    for name in options.only.split(","):
        missing = KINDS[name].fetch(options.peers)
        if missing:
            print(f"{KINDS[name].title} is skipped: {missing}", flush=True)
        else:
            kinds.append(KINDS[name])
    return kinds


def measure(options: argparse.Namespace) -> bool:
    """Runs all rounds, in turns, and writes each record down at once; says if all went well."""
    options.out.mkdir(parents=True, exist_ok=True)
    kinds, good = chosen(options), True
    for number in range(options.rounds):
        turn = number % max(len(kinds), 1)
        for kind in kinds[turn:] + kinds[:turn]:
            record = run(kind, number, options)
            good &= record is not None
            if record is None:
                continue
            with (options.out / _RECORDS).open("a") as file:
                file.write(json.dumps(asdict(record)) + "\n")
            times = (record.first_sleep, record.sleep, record.wake)
            print(
                f"round {number}, {kind.title}: first sleep {times[0]:.3f} s, sleep {times[1]:.3f} s, "
                f"wake {times[2]:.3f} s, {record.wrong} wrong",
                flush=True,
            )
    return good


def report(options: argparse.Namespace) -> bool:
    """Writes the table and the picture from all records; says if all outputs were right."""
    path = options.out / _RECORDS
    lines = path.read_text().splitlines() if path.exists() else []
    records = [slept_from(json.loads(line)) for line in lines]
    versions = records[-1].versions if records else {}
    machine = {**graphics(), **describe([]), **versions}
    text = markdown(records, machine)
    (options.out / "sleep.md").write_text(text)
    (options.out / "sleep.json").write_text(json.dumps(results(records, machine), indent=1) + "\n")
    print(text)
    if options.plot and records:
        print("drawn:", ", ".join(str(path) for path in draw(records, options.plot)))
    return bool(records) and not any(record.wrong for record in records)


def main() -> int:
    """See the module's words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rounds", type=int, default=4, help="processes under each allocator")
    add("--peers", type=Path, default=_HERE / "peers", help="folder of the others' files")
    add("--only", default=",".join(KINDS), help="allocators, separated by commas")
    add("--out", type=Path, default=_HERE / "results", help="folder of records and results")
    add(
        "--plot",
        type=Path,
        help="a file that ends in .svg: draws the table, for light and dark pages",
    )
    add("--quick", action="store_true", help="a small model: only tries the code")
    add("--timeout", type=float, default=300.0, help="end a process after so many seconds")
    add("--report", action="store_true", help="measure nothing, write the results again")
    add("--under", choices=KINDS, help=argparse.SUPPRESS)
    add("--round", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - set(KINDS)
    if unknown:
        parser.error(f"no such allocator: {', '.join(sorted(unknown))}")
    if options.under:
        kind = KINDS[options.under]
        record = measured(kind, kind.folder(options.peers), options.round, options.quick)
        print(json.dumps(asdict(record)), flush=True)
        return 0
    good = options.report or measure(options)
    return 0 if report(options) and good else 1


if __name__ == "__main__":
    sys.exit(main())
