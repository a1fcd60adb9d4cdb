"""A plug-in of pytest for `pytorch_tests.py`: one of several processes that share some tests.

It puts the process on the allocator asked for, takes test after test that no other process has
taken, and writes down each start and each result at once, so that a crash loses one test.
"""

import faulthandler
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

# The exit code of a process whose GPU takes no more work after an error: a new one goes on.
BROKEN = 75
LONGEST_TEXT = 6000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("PyTorch's tests under an allocator")
    group.addoption("--allocator", choices=("pytorch", "regraph"), default="pytorch")
    group.addoption("--door", choices=("native", "plugin"))
    group.addoption("--folder", type=Path, help="where the processes of these tests meet")
    group.addoption("--match", action="append", default=[], help="a part of a test's name")
    group.addoption("--exactly", help="one test's name")
    group.addoption("--serial", choices=("leave out", "only", "too"), default="too")
    group.addoption("--share", type=float, help="the share of the GPU's memory for this process")


def pytest_configure(config: pytest.Config) -> None:
    """Enables regraph before a test file is imported: those use CUDA when they are."""
    door = None
    if config.getoption("allocator") == "regraph":
        import regraph.torch

        asked = config.getoption("door")
        regraph.torch.enable(**({} if asked is None else {"native": asked == "native"}))
        door = regraph.torch.backend() if hasattr(regraph.torch, "backend") else "plugin"
    if any("inductor" in Path(name).parts for name in config.args):
        _import_helpers()
    config.pluginmanager.register(_Shared(config, door))


def _import_helpers() -> None:
    """PyTorch's helpers for tests of its compiler, quicker and with names of older versions."""
    from torch._inductor.codecache import CppCodeCache

    def no_compiler(*arguments: Any, **more: Any) -> None:
        raise OSError("not tried")

    # The import compiles a C++ program to see whether it can; that takes some 15 s.
    load, CppCodeCache.load = CppCodeCache.load, no_compiler
    try:
        from torch.testing._internal import inductor_utils
    finally:
        CppCodeCache.load = load
    if not hasattr(inductor_utils, "HAS_CUDA"):
        inductor_utils.HAS_CUDA = inductor_utils.HAS_CUDA_AND_TRITON


class _Shared:
    """The part of one process in running tests that several share."""

    def __init__(self, config: pytest.Config, door: Any) -> None:
        self._folder = config.getoption("folder")
        self._share = config.getoption("share")
        self._door = door
        self._reports: list[pytest.TestReport] = []
        (self._folder / "taken").mkdir(parents=True, exist_ok=True)
        self._results = (self._folder / f"{os.getpid()}.jsonl").open("a")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]):
        exactly, parts = config.getoption("exactly"), config.getoption("match")
        serial = config.getoption("serial")

        def chosen(item: pytest.Item) -> bool:
            if exactly is not None:
                return item.nodeid == exactly
            alone = item.get_closest_marker("serial") is not None
            if serial != "too" and alone != (serial == "only"):
                return False
            return not parts or any(part in item.nodeid for part in parts)

        items[:] = [item for item in items if chosen(item)]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.testsfailed:
            return
        found = {"tests": [item.nodeid for item in session.items], "door": self._door}
        written = self._folder / f"{os.getpid()}.tests"
        written.write_text(json.dumps(found))
        written.replace(self._folder / "tests.json")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("the test file cannot be imported")
        for item in session.items:
            if not self._take(item.nodeid):
                continue
            self._note(test=item.nodeid)
            self._reports = []
            self._limit_memory()
            # Nothing follows, as far as this process knows: it tears down all it has set up.
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            result = _result(self._reports)
            self._note(test=item.nodeid, **result)
            if result["outcome"] == "failed" and not _gpu_works():
                self._results.close()
                os._exit(BROKEN)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def _take(self, name: str) -> bool:
        """Whether this process runs the test: the first that makes the file does."""
        mark = self._folder / "taken" / hashlib.sha256(name.encode()).hexdigest()
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _note(self, **what: Any) -> None:
        self._results.write(json.dumps(what) + "\n")
        self._results.flush()

    def _limit_memory(self) -> None:
        """Before each test, for some set the limit themselves and leave none."""
        if self._share is None:
            return
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(self._share)


def _result(reports: list[pytest.TestReport]) -> dict[str, Any]:
    for report in reports:
        if report.failed:
            text = str(report.longrepr)
            return {
                "outcome": "failed",
                "seconds": _seconds(reports),
                "error": _first_line(report, text),
                "text": text[-LONGEST_TEXT:],
            }
    for report in reports:
        if report.skipped:
            reason = (
                report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected failure"
            )
            return {"outcome": "skipped", "seconds": _seconds(reports), "error": str(reason)}
    return {"outcome": "passed", "seconds": _seconds(reports)}


def _seconds(reports: list[pytest.TestReport]) -> float:
    return round(sum(report.duration for report in reports), 2)


def _first_line(report: pytest.TestReport, text: str) -> str:
    """What the exception said first, after its type."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else text).strip().splitlines() or ["no message"]
    # "AssertionError: " alone says little.
    return " ".join(lines[:2])[:300] if len(lines[0]) < 40 else lines[0][:300]


def _gpu_works() -> bool:
    import torch

    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


faulthandler.enable()
