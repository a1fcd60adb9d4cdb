"""Cases that are programs of their own: two ranks of data-parallel training, and C++."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .allocators import ALLOCATORS, Allocator
from .records import Record, record_from

_HERE = Path(__file__).resolve().parent.parent




@dataclass(frozen=True)
class Outside:
    """A case that is run by a command. The command writes its record to the path it is given."""

    case: str
    allocators: tuple[str, ...]
    command: tuple[str, ...]

    def run(self, allocator: Allocator, repeat: int, directory: Path, timeout: float) -> Record:
        """Runs it, and answers with a record in any case."""
        result = directory / f"result-{os.getpid()}.json"
        result.unlink(missing_ok=True)
        lost = Record(self.case, allocator.name, repeat)
        command = [
            *self.command,
            *("--allocator", allocator.name),
            *("--repeat", str(repeat)),
            *("--out", str(result)),
        ]
        with (directory / f"log-{allocator.name}.txt").open("a") as log:
            # A group of its own, so that ranks which hang end with their parent.
            child = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env=allocator.environment(os.environ),
                start_new_session=True,
            )
            try:
                status = child.wait(timeout)
                lost.error = f"ended with status {status} and without a record: see {log.name}"
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                lost.error = "timed out"
        if not result.exists():
            return lost
        return record_from(json.loads(result.read_text()))


def ddp_cases(replays: int) -> list[Outside]:
    """The data-parallel step as PyTorch has it, and with one all-reduce of flat gradients."""
    return [
        Outside(
            "ddp" if mode == "ddp" else "ddp-flat",
            ("default", "regraph"),
            (
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes", "1", "--nproc-per-node", "2"),
                *("--master-addr", "127.0.0.1", "--master-port", str(_free_port())),
                *(str(_HERE / "ddp.py"), "--mode", mode, "--replays", str(replays)),
            ),
        )
        for mode in ("ddp", "flat")
    ]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cpp_cases(binary: Path, library: Path | None, quick: bool) -> list[Outside]:
    """The captures of the C++ program, as it lists them."""
    listed = subprocess.run(
        [str(binary), "--list"], capture_output=True, text=True, check=True, timeout=60
    )
    names = listed.stdout.split()
    if quick:
        names = [name for name in names if "50000" not in name and "10000" not in name]
    allocators = tuple(name for name in ALLOCATORS if library or name != "regraph")
    loaded = ("--library", str(library.resolve())) if library else ()
    return [
        Outside(name, allocators, (str(binary), "--case", name, *loaded)) for name in names
    ]
