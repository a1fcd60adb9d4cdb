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


def prepared(settings, is_new):
    """A step over the first rows of a static input, on two streams, warmed up.

    Where captures will be on a stream that is new then, that is done on another one.
    """
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

    own = torch.cuda.Stream()
    if not is_new:
        # Where captures will be: what libraries keep for a stream is there before.
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


def estimate(settings, is_new):
    """Prints what graphs of all sizes need, in a process of its own: the driver keeps memory."""
    step = prepared(settings, is_new)
    before = reserved()
    with torch.no_grad():
        need = regraph.torch.estimate(step, SIZES)
    regraph.empty_cache()
    # A piece more for small blocks outside captures at most, and workspaces of a stream that estimates keep.
    assert reserved() <= before + (72 if is_new else 2) * MIB, (reserved(), before)
    assert regraph.torch.captures() == []
    # Captures behind it have their memory.
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = step(SIZES[0])
    graph.replay()
    torch.cuda.synchronize()
    assert bool(output.isfinite().all())
    assert not (is_new and need.workspace_bytes), need
    print(json.dumps(list(need)))


def compare(settings, is_new=False):
    """What was estimated in another process is what graphs take in this one, within 5 percent."""
    program = f"import estimates; estimates.estimate({settings!r}, {is_new})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=150,
    )
    need = regraph.torch.Estimate(*json.loads(done.stdout.splitlines()[-1]))
    pool_bytes, executable_bytes = need.pool_bytes, need.executable_bytes
    step = prepared(settings, is_new)
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
    assert held <= need.bound.pool_bytes and taken <= need.bound.executable_bytes


def graphs_take_what_was_estimated(folder):
    """With the settings that are the default."""
    compare(None)


def graphs_on_a_new_stream_take_what_was_estimated(folder):
    """With what libraries keep for the stream in the graphs' pool."""
    compare(None, is_new=True)


def planned_graphs_take_what_was_estimated(folder):
    """With memory that comes at a capture's end."""
    compare("plan:exact")


PROGRAMS = {
    function.__name__: function
    for function in (
        graphs_take_what_was_estimated,
        graphs_on_a_new_stream_take_what_was_estimated,
        planned_graphs_take_what_was_estimated,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
