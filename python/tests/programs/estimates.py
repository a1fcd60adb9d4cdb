"""Programs that ask what graphs will need, and see what they take."""

import json
import subprocess
import sys
from pathlib import Path

import torch
from common import MIB, enable, main

import regraph.torch
from regraph import _native

SIZES = (4096, 3000, 2048, 1024, 700, 512, 256, 128, 64, 8)


def prepared(settings):
    """A step over the first rows of a static input, on two streams, warmed up."""
    enable(settings=settings)
    torch.manual_seed(0)
    up = [torch.nn.Linear(1024, 4096).cuda() for _ in range(4)]
    down = [torch.nn.Linear(4096, 1024).cuda() for _ in range(4)]
    static = torch.zeros(max(SIZES), 1024, device="cuda")
    result = torch.zeros_like(static)
    side = torch.cuda.Stream()

    def step(rows):
        current = torch.cuda.current_stream()
        x = static[:rows] + 1
        for first, second in zip(up, down, strict=True):
            side.wait_stream(current)
            with torch.cuda.stream(side):
                x.record_stream(side)
                gate = first(x).sigmoid()
            value = first(x).relu()
            current.wait_stream(side)
            gate.record_stream(current)
            x = x + second(value * gate)
        # An output of the graph's own, beside the one that all share.
        result[:rows].copy_(x)
        return x[:1].clone()

    # Where captures will be: what libraries keep for a stream is there before.
    own = torch.cuda.Stream()
    torch.cuda.graph.default_capture_stream = own
    own.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(own), torch.no_grad():
        for rows in SIZES:
            step(rows)
    torch.cuda.synchronize()
    regraph.empty_cache()
    return step


def reserved():
    """Bytes that the engine holds."""
    return _native.statistics(0)["reserved_bytes"]["all"]["current"]


def estimate(settings):
    """Prints what graphs of all sizes need, in a process of its own: the driver keeps memory."""
    step = prepared(settings)
    before = reserved()
    with torch.no_grad():
        need = regraph.torch.estimate(step, SIZES)
    regraph.empty_cache()
    # A piece more for small blocks outside captures at most.
    assert reserved() <= before + 2 * MIB, (reserved(), before)
    assert regraph.torch.captures() == []
    # Captures behind it have their memory.
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = step(SIZES[0])
    graph.replay()
    torch.cuda.synchronize()
    assert bool(output.isfinite().all())
    print(json.dumps(list(need)))


def compare(settings):
    """What was estimated in another process is what graphs take in this one, within 5 percent."""
    program = f"import estimates; estimates.estimate({settings!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=150,
    )
    pool_bytes, executable_bytes = json.loads(done.stdout.splitlines()[-1])
    step = prepared(settings)
    before, free = reserved(), torch.cuda.mem_get_info()[0]
    pool = torch.cuda.graph_pool_handle()
    graphs, outputs = [], []
    with torch.no_grad():
        for rows in SIZES:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=pool):
                outputs.append(step(rows))
            graphs[-1].replay()
    torch.cuda.synchronize()
    held = regraph.torch.captures()[-1].reserved_bytes
    taken = free - torch.cuda.mem_get_info()[0] - (reserved() - before)
    print(f"estimated {pool_bytes / MIB:.0f} + {executable_bytes / MIB:.0f} MiB")
    print(f"taken     {held / MIB:.0f} + {taken / MIB:.0f} MiB")
    assert abs(pool_bytes - held) <= 0.05 * held
    assert abs(pool_bytes + executable_bytes - held - taken) <= 0.05 * (held + taken)


def graphs_take_what_was_estimated(folder):
    """With the settings that are the default."""
    compare(None)


def planned_graphs_take_what_was_estimated(folder):
    """With memory that comes at a capture's end."""
    compare("plan:exact")


PROGRAMS = {
    function.__name__: function
    for function in (
        graphs_take_what_was_estimated,
        planned_graphs_take_what_was_estimated,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
