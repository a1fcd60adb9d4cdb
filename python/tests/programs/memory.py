"""Programs about memory, figures and tools."""

import gc
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from common import MIB, enable, expect, main

import regraph.torch


def figures(folder):
    """Figures follow what is allocated and freed, under PyTorch's names."""
    assert torch.cuda.memory_stats() == {}
    enable()
    assert torch.cuda.memory_stats() == {}
    torch.cuda.init()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    small = torch.empty(100, dtype=torch.uint8, device="cuda")
    during = torch.cuda.memory_stats()

    def gain(key):
        return during[key] - before[key]

    assert gain("requested_bytes.all.current") == 3 * MIB + 100
    assert gain("allocated_bytes.all.current") >= 3 * MIB + 100
    assert gain("allocation.all.current") == 2
    assert gain("allocation.large_pool.current") == gain("allocation.small_pool.current") == 1
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() >= 3 * MIB
    del tensor, small
    assert torch.cuda.memory_allocated() == before["allocated_bytes.all.current"]
    assert torch.cuda.max_memory_allocated() >= 3 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    summary = torch.cuda.memory_summary()
    assert regraph.torch.memory_summary().startswith(summary)
    if hasattr(torch, "accelerator") and hasattr(torch.accelerator, "memory_stats"):
        assert torch.accelerator.memory_stats() == torch.cuda.memory_stats()
        torch.accelerator.empty_cache()
    # Every figure that PyTorch's own allocator gives is there.
    program = "import torch; torch.cuda.init(); print(*torch.cuda.memory_stats())"
    native = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    missing = set(native.stdout.decode().split()) - set(torch.cuda.memory_stats())
    assert not missing, missing


def empty_cache(folder):
    """Free memory goes back to the driver when it is asked for."""
    enable()
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    held = torch.cuda.memory_reserved()
    del tensor
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() == held
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= held - 64 * MIB


def eager_tensors_that_a_capture_frees(folder):
    """What eager work made and a capture frees is eager work's again, while the graph and its pool live on."""
    enable()
    given, stream, pool = torch.ones(1024, device="cuda"), torch.cuda.Stream(), None
    graphs = []
    for _ in range(4):
        with torch.cuda.stream(stream):
            output = torch.ones(16 * MIB, device="cuda")
        torch.cuda.synchronize()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool, stream=stream):
            output = given * 2
        pool = graphs[-1].pool()
    del output
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < 64 * MIB, torch.cuda.memory_summary()


def out_of_memory(folder):
    """A request above the fraction fails as in PyTorch, and is observed; the next is served."""
    enable()
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: seen.append(figures))
    torch.cuda.set_per_process_memory_fraction(0.1)
    if hasattr(torch.cuda, "get_per_process_memory_fraction"):
        assert torch.cuda.get_per_process_memory_fraction() == 0.1
    assert regraph.torch.get_per_process_memory_fraction() == 0.1
    total = torch.cuda.get_device_properties(0).total_memory
    ask = lambda: torch.empty(total // 2, dtype=torch.uint8, device="cuda")  # noqa: E731
    for _ in range(2):
        expect(torch.OutOfMemoryError, ask, "GiB")
    assert torch.cuda.memory_stats()["num_ooms"] == 2
    assert len(seen) == 2, seen
    for device, size, allowed, _ in seen:
        # PyTorch tells the size as it would be placed.
        assert device == 0 and total // 2 <= size < total // 2 + 4 * MIB, seen
        assert allowed < total // 9, seen
    assert torch.ones(MIB, device="cuda").sum().item() == MIB
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert ask().numel() == total // 2


def out_of_memory_in_capture(folder):
    """A request that fails in a capture leaves the capture alive."""
    enable()
    torch.cuda.set_per_process_memory_fraction(0.1)
    total = torch.cuda.get_device_properties(0).total_memory
    static = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = static + 1
        expect(torch.OutOfMemoryError, lambda: torch.empty(total // 2, device="cuda"))
        output = output * 3
    graph.replay()
    assert torch.equal(output, static * 6)


def out_of_memory_at_a_captures_end(folder):
    """With a plan a capture fails at its end where memory is short; what follows is served."""
    enable(settings="plan:exact")
    torch.cuda.set_per_process_memory_fraction(0.1)
    limit = torch.cuda.get_device_properties(0).total_memory // 10
    stream, static = torch.cuda.current_stream(), torch.ones(MIB, device="cuda")

    def capture(size: int) -> torch.cuda.CUDAGraph:
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            # One tensor lives at a time, but neither stream knows when the other one is done.
            side.wait_stream(torch.cuda.current_stream())
            torch.zeros(size, dtype=torch.uint8, device="cuda")
            with torch.cuda.stream(side):
                torch.zeros(size, dtype=torch.uint8, device="cuda")
            torch.cuda.current_stream().wait_stream(side)
            static.add_(1)
        return graph

    expect(torch.OutOfMemoryError, lambda: capture(6 * limit // 10), "the capture runs on")
    assert torch.cuda.current_stream() == stream
    capture(MIB).replay()
    assert (static == 2).all()


def the_per_thread_default_stream(folder):
    """Tensors are made there, used there by tensors of other streams, and not made there in a capture."""
    enable()
    main_stream, own = torch.cuda.Stream(), torch.cuda.ExternalStream(2)
    torch.cuda.set_stream(main_stream)
    for number in range(100):
        value = torch.full((MIB,), number, device="cuda")
        own.wait_stream(main_stream)
        with torch.cuda.stream(own):
            found = value * 2
        value.record_stream(own)
        del value
        torch.full((MIB,), -1, device="cuda")
        with torch.cuda.stream(own):
            assert (found == 2 * number).all()

    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream()):
            own.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(own):
                torch.empty(MIB, device="cuda")

    expect(RuntimeError, capture, "per-thread")


def uses(folder):
    """A use is recorded, and one that cannot be says why."""
    enable()
    side = torch.cuda.Stream()
    tensor = torch.ones(MIB, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        double = tensor * 2
    regraph.torch.record_use(tensor, side)
    regraph.torch.record_use(tensor[5:], side.cuda_stream)
    regraph.torch.record_use(torch.empty(0, device="cuda"))
    del tensor
    torch.cuda.synchronize()
    assert double.sum().item() == 2 * MIB
    expect(regraph.torch.Error, lambda: regraph.torch.record_use(torch.ones(1)), "cpu")


def explanations(folder):
    """A block that another stream still uses in a capture is explained."""
    enable(settings="history:1000,stacks:True")
    static = torch.ones(MIB, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    text = io.StringIO()
    with torch.cuda.graph(graph):
        current = torch.cuda.current_stream()
        value = static * 2
        address = value.data_ptr()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            result = value + 1
        value.record_stream(side)
        del value
        found = regraph.torch.explain(stream=current, file=text)
        current.wait_stream(side)
    waiting = [block for block in found if block["address"] == address]
    assert len(waiting) == 1 and waiting[0]["reason"], found
    assert f"{address:#x}" in text.getvalue()
    graph.replay()
    assert torch.equal(result, static * 3)


def traces(folder):
    """Captures are written as traces, which the command replays where there is one."""
    enable()
    path = Path(folder) / "trace.jsonl"
    static = torch.ones(MIB, device="cuda")

    def capture():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = static
            for _ in range(10):
                value = value + 1
        graph.replay()
        assert torch.equal(value, static + 10)

    with regraph.torch.record_trace(path):
        capture()
        capture()
    capture()
    files = sorted(Path(folder).glob("trace*.jsonl"))
    assert len(files) == 2 and path in files, files
    for file in files:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(lines) > 20
    command = os.environ.get("REGRAPH_COMMAND") or shutil.which("regraph")
    if command:
        for file in files:
            subprocess.run([command, "replay", str(file)], check=True)


def pages(folder):
    """A function's capture and a recorded one are drawn, and their blocks lead back to this file."""
    enable()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    static = torch.ones(MIB, device="cuda")
    side = torch.cuda.Stream()

    def step():
        current = torch.cuda.current_stream()
        value = static * 2
        side.wait_stream(current)
        with torch.cuda.stream(side):
            value.record_stream(side)
            other = value + 1
        current.wait_stream(side)
        other.record_stream(current)
        return other + value

    page = Path(regraph.torch.plot(step, Path(folder) / "step.html"))
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>") and "pages.&lt;locals&gt;.step" in text
    # In the table too, where frames of libraries are passed over.
    line = step.__code__.co_firstlineno + 2
    assert f"{Path(__file__).name}:{line} step" in text, text[:4000]
    assert "stream 1" in text
    # PyTorch's own history is as before.
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    assert any(frame["name"] == "step" for entry in entries for frame in entry.get("frames", ()))
    # Nothing of it lives, and captures go on as before.
    trace = Path(folder) / "trace.jsonl"
    graph = torch.cuda.CUDAGraph()
    with regraph.torch.record_trace(trace), torch.cuda.graph(graph):
        result = step()
    graph.replay()
    assert torch.equal(result, static * 4 + 1)
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert rows[0] == {"format": "regraph trace", "version": 1}
    named = [row["name"] for row in rows if row.get("op") == "label" and "node" in row]
    assert any("elementwise" in name for name in named), named
    drawing = Path(regraph.torch.plot(trace, Path(folder) / "trace.svg"))
    assert drawing.read_text().startswith("<svg ")


def snapshots(folder):
    """Snapshots and history have PyTorch's shape, and its tools take them."""
    from torch.cuda import _memory_viz

    enable()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    state = torch.cuda.memory._snapshot()
    blocks = [block for segment in state["segments"] for block in segment["blocks"]]
    assert [block["state"] for block in blocks if block["address"] == address] == [
        "active_allocated"
    ]
    assert any(entry["action"] == "alloc" for entry in state["device_traces"][0])
    assert torch.cuda.memory_snapshot() == state["segments"]
    told = state["allocator_settings"]
    assert told["roundup_power2_divisions"] == {str(1 << power): 1 for power in range(16)}
    assert told["pinned_num_register_threads"] == 1  # PyTorch's default.
    expect(RuntimeError, lambda: torch.cuda.get_per_process_memory_fraction(99), "init")
    _memory_viz.segsum(state)
    _memory_viz.trace_plot(state)
    for name, dump in (
        ("a.pickle", torch.cuda.memory._dump_snapshot),
        ("b.pickle", regraph.torch._dump_snapshot),
    ):
        path = Path(folder) / name
        dump(str(path))
        loaded = pickle.loads(path.read_bytes())
        assert set(loaded) >= {"segments", "device_traces"}
        _memory_viz.trace_plot(loaded)
        command = os.environ.get("REGRAPH_COMMAND") or shutil.which("regraph")
        if command:
            subprocess.run([command, "snapshot", str(path), str(path)], check=True)
    torch.cuda.memory._record_memory_history(None)
    assert not any(torch.cuda.memory._snapshot()["device_traces"])
    assert regraph.torch._snapshot()["segments"]


def a_green_context_that_is_gone(folder):
    """What its streams used is free once the device has done its work, and no capture keeps it."""
    try:
        from torch.cuda.green_contexts import GreenContext
    except ImportError:
        print("PyTorch has no green contexts")
        return
    enable()

    def reserved():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    beginning = reserved()
    context = GreenContext.create(16)
    stream = context.Stream()
    with torch.cuda.stream(stream):
        before, after = (torch.ones(64 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    del before
    del context, stream
    assert reserved() - beginning == 64 * MIB
    graph, given = torch.cuda.CUDAGraph(), torch.ones(MIB, device="cuda")
    with torch.cuda.graph(graph):
        result = given + 1
    del after
    graph.replay()
    assert (result == 2).all()
    del graph, given, result
    assert reserved() == beginning


PROGRAMS = {
    function.__name__: function
    for function in (
        a_green_context_that_is_gone,
        figures,
        empty_cache,
        eager_tensors_that_a_capture_frees,
        out_of_memory,
        out_of_memory_in_capture,
        out_of_memory_at_a_captures_end,
        the_per_thread_default_stream,
        uses,
        explanations,
        traces,
        pages,
        snapshots,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
