"""Measuring processes as the command sees them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .allocators import Allocator
from .records import Record, record_from

_WORKER = Path(__file__).resolve().parent.parent / "worker.py"
#: What PyTorch, regraph or CUDA say where a fork came too late.
_FORKED_TOO_LATE = ("forked subprocess", "forked from one", "initialization error")


class Workers:
    """One parent process for each allocator, each of whose children runs one request.

    That saves loading PyTorch for every run. With `fresh` each request gets an interpreter of its
    own instead, as it does where a device cannot be used behind a fork.
    """

    def __init__(self, directory: Path, fresh: bool, timeout: float) -> None:
        self._directory = directory
        self._fresh = fresh
        self._timeout = timeout
        self._parents: dict[str, subprocess.Popen[str]] = {}
        self._logs: dict[str, IO[str]] = {}

    def start(self, allocators: list[Allocator]) -> None:
        """Starts the parents, so that all load PyTorch at once."""
        if not self._fresh:
            for allocator in allocators:
                self._parent(allocator)

    def run(self, allocator: Allocator, request: dict[str, Any]) -> Record:
        """Runs a request, and answers with a record in any case."""
        request = {
            **request,
            "timeout": self._timeout,
            "result": str(self._directory / f"result-{os.getpid()}.json"),
        }
        if self._fresh:
            return self._run_fresh(allocator, request)
        record = self._run_forked(allocator, request)
        if any(words in record.error for words in _FORKED_TOO_LATE):
            self._fresh = True
            return self._run_fresh(allocator, request)
        return record

    def close(self) -> None:
        """Ends all parents."""
        for parent in self._parents.values():
            with contextlib.suppress(OSError):
                parent.stdin.close()
            try:
                parent.wait(10)
            except subprocess.TimeoutExpired:
                parent.kill()
        for log in self._logs.values():
            log.close()

    def _log(self, allocator: Allocator) -> IO[str]:
        if allocator.name not in self._logs:
            path = self._directory / f"log-{allocator.name}.txt"
            self._logs[allocator.name] = path.open("a")
        return self._logs[allocator.name]

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(_WORKER), *arguments]

    def _parent(self, allocator: Allocator) -> subprocess.Popen[str]:
        parent = self._parents.get(allocator.name)
        if parent is None or parent.poll() is not None:
            parent = subprocess.Popen(
                self._command("--serve"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log(allocator),
                env=allocator.environment(os.environ),
                text=True,
            )
            self._parents[allocator.name] = parent
        return parent

    def _run_forked(self, allocator: Allocator, request: dict[str, Any]) -> Record:
        parent = self._parent(allocator)
        try:
            parent.stdin.write(json.dumps(request) + "\n")
            parent.stdin.flush()
            # Loading PyTorch may come first; the parent itself ends a child that takes too long.
            ready, _, _ = select.select([parent.stdout], [], [], self._timeout + 120)
            line = parent.stdout.readline() if ready else ""
        except OSError:
            line = ""
        if line:
            return record_from(json.loads(line))
        parent.kill()
        parent.wait()
        return self._lost(request, f"the measuring process ended: see {self._log(allocator).name}")

    def _run_fresh(self, allocator: Allocator, request: dict[str, Any]) -> Record:
        try:
            done = subprocess.run(
                self._command(),
                input=json.dumps(request) + "\n",
                stdout=subprocess.PIPE,
                stderr=self._log(allocator),
                env=allocator.environment(os.environ),
                text=True,
                timeout=self._timeout + 60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return self._lost(request, "timed out")
        if not done.stdout:
            return self._lost(request, f"the process ended with status {done.returncode}")
        return record_from(json.loads(done.stdout.splitlines()[-1]))

    @staticmethod
    def _lost(request: dict[str, Any], error: str) -> Record:
        return Record(request["case"], request["allocator"], int(request["repeat"]), error=error)


@contextlib.contextmanager
def workers(directory: Path, fresh: bool, timeout: float) -> Iterator[Workers]:
    """Workers that end with the context."""
    one = Workers(directory, fresh, timeout)
    try:
        yield one
    finally:
        one.close()
