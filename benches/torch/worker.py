"""A measuring process: `worker.py` runs one request or, with `--serve`, forks for each.

Requests come one a line on the standard input and answers, one a line, go to the standard output;
everything else that is printed goes to the standard error. With `--serve` the process has PyTorch
loaded and the device untouched, and each request is run by a fresh child of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from comparison.records import Record, record_from
from comparison.worker import work


def _answer_in_child(request: dict[str, Any]) -> Record:
    """Forks, and waits for the child as long as the request allows."""
    result = Path(request["result"])
    result.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            part = result.with_suffix(".part")
            part.write_text(work(request).line())
            part.rename(result)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Without the parent's clean-up, which is not this process's.
            os._exit(0)
    status = _wait(child, float(request["timeout"]))
    if result.exists():
        return record_from(json.loads(result.read_text()))
    lost = Record(request["case"], request["allocator"], int(request["repeat"]))
    lost.error = "timed out" if status is None else f"the process ended: wait status {status}"
    return lost


def _wait(child: int, seconds: float) -> int | None:
    """The child's wait status, or nothing where it had to be ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> None:
    """See the module's words."""
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print must not be taken for an answer.
    os.dup2(2, 1)
    serve = "--serve" in sys.argv[1:]
    if serve:
        # What children would otherwise load each for itself; the optimizers need the compiler.
        import torch._dynamo  # noqa: F401

        import comparison.cases
        import comparison.measure  # noqa: F401
    for line in sys.stdin:
        request = json.loads(line)
        record = _answer_in_child(request) if serve else work(request)
        answers.write(record.line() + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
