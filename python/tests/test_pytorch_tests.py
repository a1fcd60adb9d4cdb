"""The tool that runs PyTorch's own tests, on test files, a PyTorch and a regraph made up here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent / "tools" / "pytorch_tests.py"

MODULES = {
    "torch/__init__.py": "from torch import cuda",
    "torch/cuda.py": """
        broken = False
        share = None
        def is_available(): return True
        def is_initialized(): return True
        def set_per_process_memory_fraction(given):
            global share
            share = given
        def synchronize():
            if broken:
                raise RuntimeError("an illegal memory access was encountered")
    """,
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/codecache.py": """
        class CppCodeCache:
            def load(): pass
    """,
    "torch/testing/__init__.py": "",
    "torch/testing/_internal/__init__.py": "",
    "torch/testing/_internal/inductor_utils.py": "HAS_CUDA_AND_TRITON = True",
    "regraph/__init__.py": "",
    "regraph/torch/__init__.py": """
        door = None
        def enable(native=True):
            global door
            door = "native" if native else "plugin"
        def backend(): return door
    """,
    "test_cuda.py": """
        import os, sys, time, unittest
        import pytest
        import torch
        def enabled():
            return "regraph" in sys.modules
        ran = []
        class TestCuda(unittest.TestCase):
            def setUp(self): ran.append(1)
            def test_passes(self): pass
            def test_fails(self): assert not enabled(), "a difference"
            def test_fails_always(self): assert False, "PyTorch's own failure"
            def test_is_known(self): assert not enabled(), "a known one"
            def test_crashes(self):
                if enabled():
                    os.abort()
            def test_hangs(self):
                if enabled():
                    time.sleep(600)
            def test_is_skipped(self):
                if enabled():
                    self.skipTest("not here")
            def test_needs_a_new_process(self): assert len(ran) == 1
            def test_breaks_the_gpu(self):
                torch.cuda.broken = enabled()
                assert not enabled(), "an illegal access"
            def test_needs_the_gpu(self): torch.cuda.synchronize()
            def test_parts(self):
                for part in range(3):
                    with self.subTest(part=part):
                        assert not (enabled() and part == 1), "the second part"
            def test_with_other_tests(self): assert torch.cuda.share == 0.4
            @pytest.mark.serial
            def test_alone(self): assert torch.cuda.share is None
    """,
    "inductor/test_cudagraph_trees.py": """
        from torch.testing._internal.inductor_utils import HAS_CUDA
        def test_tree(): assert HAS_CUDA
    """,
}

KNOWN = """
# What is known.
test_cuda.py::*::test_is_known (native): it
  is so.
test_cuda.py::TestCuda::test_passes: no longer.
test_cuda.py::TestCuda::test_fails (plugin): through the other door only.
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        indent = len(text) - len(text.lstrip()) - 1 if text.startswith("\n") else 0
        path.write_text("\n".join(line[indent:] for line in text.splitlines()) + "\n")
    (tmp_path / "known.txt").write_text(KNOWN)
    return tmp_path


def run(folder, *arguments):
    command = [sys.executable, str(TOOL), str(folder), "--known", str(folder / "known.txt")]
    return subprocess.run(
        [*command, "--jobs", "2", *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def sections(text):
    """The lines under each title, without its count."""
    found, title = {}, ""
    for line in text.splitlines():
        if line.startswith("  "):
            found.setdefault(title, []).append(line.strip())
        else:
            title = line.rpartition(" (")[0]
    return found


def test_a_run_of_both_files(folder):
    done = run(folder, "--door", "native", "--test-limit", "2", "--out", str(folder / "out.json"))
    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith("14 tests; regraph's door: native\n"), done.stdout
    found = sections(done.stdout)
    different = found["Pass under PyTorch's allocator and not under regraph"]
    name = "test_cuda.py::TestCuda::test_"
    for line, start in zip(
        different,
        [
            f"{name}breaks_the_gpu: failed: AssertionError: an illegal access",
            f"{name}crashes: crashed: SIGABRT: Fatal Python error: Aborted",
            f"{name}fails: failed: AssertionError: a difference",
            f"{name}hangs: crashed: no end after 2 s",
            f"{name}is_skipped: skipped: Skipped: not here",
            f"{name}parts: failed: AssertionError: the second part",
        ],
        strict=True,
    ):
        assert line.startswith(start), done.stdout
    [known] = found["Known differences"]
    assert known.startswith(f"{name}is_known: it is so. (failed: AssertionError: a known one")
    assert found["Listed as different, but pass"] == [f"{name}passes"]
    assert [
        line.partition(":")[2].partition(" (")[0]
        for line in found["Passed only in a process of their own"]
    ] == [":TestCuda::test_needs_a_new_process"] * 2

    written = json.loads((folder / "out.json").read_text())
    assert written["door"] == "native"
    assert len(written["tests"]) == 14
    assert "PyTorch's own failure" in written["first"]["pytorch"][f"{name}fails_always"]["text"]


def test_a_run_without_a_difference(folder):
    done = run(
        folder,
        "--only",
        "test_tree",
        "--only",
        "test_alone",
        "--only",
        "test_is_known",
        "--door",
        "native",
    )
    assert done.returncode == 0, done.stdout
    assert "pytorch  3 passed\n  regraph  1 failed, 2 passed" in done.stdout


def test_the_other_door(folder):
    done = run(folder, "--only", "test_fails", "--only", "test_is_known", "--door", "plugin")
    found = sections(done.stdout)
    [known] = found["Known differences"]
    assert known.startswith("test_cuda.py::TestCuda::test_fails: through the other door only.")
    [other] = found["Pass under PyTorch's allocator and not under regraph"]
    assert other.startswith("test_cuda.py::TestCuda::test_is_known")
    assert done.returncode == 1


def test_the_time_is_up(folder):
    done = run(folder, "--only", "test_hangs", "--time-limit", "4")
    assert done.returncode == 1
    assert "The time was up before all tests had run." in done.stdout


def test_what_does_not_start(folder):
    (folder / "regraph/torch/__init__.py").write_text("raise ImportError('no library')\n")
    done = run(folder, "--only", "test_passes")
    assert done.returncode == 1
    assert "Processes of test_cuda.py ended outside tests under regraph:" in done.stdout
    assert "ImportError: no library" in done.stdout
    assert "pytorch  1 passed\n  regraph  1 not run" in done.stdout


def test_a_file_that_cannot_be_imported(folder):
    (folder / "test_cuda.py").write_text("import not_there\n")
    done = run(folder)
    assert done.returncode == 1
    assert "Processes of test_cuda.py ended outside tests under pytorch:" in done.stdout
    assert "No module named 'not_there'" in done.stdout
    assert "pytorch  1 passed\n  regraph  1 passed" in done.stdout


def test_a_crash_at_the_end_of_a_process(folder):
    (folder / "test_cuda.py").write_text(
        "import atexit, os, sys\ndef test_at_exit():\n    atexit.register(os.abort)\n"
    )
    done = run(folder, "--only", "test_at_exit")
    assert done.returncode == 1
    assert "Processes of test_cuda.py ended outside tests under regraph:" in done.stdout
    assert "SIGABRT" in done.stdout


def test_a_list_that_cannot_be_read(folder):
    (folder / "known.txt").write_text("test_x (driver): why\n")
    done = run(folder)
    assert done.returncode == 1
    assert "not `NAME (native|plugin): reason`: test_x (driver): why" in done.stdout
