"""What a profiler that reads NVTX is shown."""

import os
import subprocess
from pathlib import Path

import torch
from common import MIB, enable, main

import regraph.torch

#: A library in a profiler's place, which writes down what it is shown.
SOURCE = Path(__file__).resolve().parents[3] / "tests/reports/profiler.c"


def nvtx_shows_captures_loans_and_sleep(folder):
    """Messages are marks, what takes time is a range that ends, beside PyTorch's own ranges."""
    library, profile = Path(folder, "profiler.so"), Path(folder, "profile")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    os.environ["NVTX_INJECTION64_PATH"] = str(library)
    os.environ["PROFILE"] = str(profile)
    enable(settings="nvtx:True")
    with torch.cuda.nvtx.range("the program's own"), regraph.torch.region("weights"):
        weights = torch.ones(8 * MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = weights + 1
    graph.replay()
    with regraph.torch.borrow(graph.pool()):
        del outputs
    regraph.torch.sleep("weights")
    regraph.torch.wake()
    lines = [line.split(" ", 2) for line in profile.read_text().splitlines()]
    begun = {number: text for what, number, text in lines if what == "start"}
    ended = [number for what, number, _ in lines if what == "end"]
    assert sorted(begun) == sorted(ended), lines
    for words in (
        ": capture ",
        ": verdict on capture ",
        " more for pool ",
        ": sleep of regions weights",
        ": wake of regions weights",
    ):
        assert any(words in text for text in begun.values()), (words, lines)
    marks = [text for what, _, text in lines if what == "mark"]
    for words in (" is verified, in ", " lends memory of its graphs to a thread", " went back"):
        assert any(words in text for text in marks), (words, lines)
    # PyTorch's own are not in regraph's domain.
    assert not any("the program's own" in text for text in [*begun.values(), *marks]), lines


PROGRAMS = {program.__name__: program for program in (nvtx_shows_captures_loans_and_sleep,)}

if __name__ == "__main__":
    main(PROGRAMS)
