"""Programs about what PyTorch is told of memory: history, snapshots, profiles, failures."""

import gc
import os
import pickle
from pathlib import Path

import torch
from common import MIB, enable, expect, main

import regraph.torch


def traces():
    """The events of the first device."""
    return torch.cuda.memory._snapshot()["device_traces"][0]


def blocks_of(state):
    """The blocks of a snapshot by their addresses, with the segment of each."""
    return {
        block["address"]: (block, segment)
        for segment in state["segments"]
        for block in segment["blocks"]
    }


def names(frames):
    """The functions of a stack."""
    return [frame["name"] for frame in frames]


def a_block_of_this_function():
    """Allocates; the stack of the block shows it."""
    return torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")


def history_has_stacks(folder):
    """Blocks, events and segments have Python's stacks, or those of native code too."""
    enable(native=True)
    for stacks in ("python", "all"):
        torch.cuda.memory._record_memory_history(stacks=stacks, clear_history=True)
        assert torch._C._cuda_isHistoryEnabled()
        torch.cuda.empty_cache()
        tensor = a_block_of_this_function()
        address = tensor.data_ptr()
        state = torch.cuda.memory._snapshot()
        block, segment = blocks_of(state)[address]
        assert "a_block_of_this_function" in names(block["frames"]), block
        assert "a_block_of_this_function" in names(segment["frames"]), segment["frames"]
        del tensor
        events = [it for it in traces() if it.get("addr") == address]
        actions = [it["action"] for it in events]
        assert actions[-3:] == ["alloc", "free_requested", "free_completed"], actions
        assert events[-3]["size"] == 3 * MIB
        assert "a_block_of_this_function" in names(events[-3]["frames"])
        # The default context is "all": where it was freed.
        assert "history_has_stacks" in names(events[-1]["frames"])
        assert "a_block_of_this_function" not in names(events[-1]["frames"])
        native = any("torch" in it["name"] or "at::" in it["name"] for it in events[-3]["frames"])
        assert native == (stacks == "all"), names(events[-3]["frames"])
        times = [it["time_us"] for it in traces()]
        assert times == sorted(times)
        path = Path(folder) / f"{stacks}.pickle"
        regraph.torch._dump_snapshot(str(path))
        assert "a_block_of_this_function" in str(pickle.loads(path.read_bytes())["device_traces"])
    torch.cuda.memory._record_memory_history(None)
    assert not torch._C._cuda_isHistoryEnabled()
    assert not traces()


def history_contexts(folder):
    """The contexts that are asked for are kept, and no others."""
    enable(native=True)
    older = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.memory._record_memory_history(context="state", stacks="python", clear_history=True)
    tensor = a_block_of_this_function()
    block, _ = blocks_of(torch.cuda.memory._snapshot())[tensor.data_ptr()]
    assert "a_block_of_this_function" in names(block["frames"])
    assert not any(it.get("frames") for it in traces())
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", clear_history=True)
    tensor = a_block_of_this_function()
    address = tensor.data_ptr()
    del tensor
    freed = [it for it in traces() if it["action"] == "free_completed"][-1]
    assert freed["addr"] == address
    assert "a_block_of_this_function" in names(freed["frames"])
    torch.cuda.memory._record_memory_history(context=None, clear_history=True)
    tensor = a_block_of_this_function()
    assert any(it["action"] == "alloc" for it in traces())
    assert not any(it.get("frames") for it in traces())
    torch.cuda.memory._record_memory_history("state", stacks="python")
    assert len(traces()) <= 1
    del older, tensor
    gc.collect()
    torch.cuda.empty_cache()
    assert traces()[-1]["action"] in ("segment_free", "segment_unmap")


def history_of_pools(folder):
    """Segments and events name the pools of graphs; a snapshot of one pool has its memory alone."""
    enable(native=True)
    torch.cuda.memory._record_memory_history(stacks="python")
    static = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = static * 2
    pool = graph.pool()
    state = torch.cuda.memory._snapshot()
    _, segment = blocks_of(state)[output.data_ptr()]
    assert tuple(segment["segment_pool_id"]) == tuple(pool)
    _, segment = blocks_of(state)[static.data_ptr()]
    assert tuple(segment["segment_pool_id"]) == (0, 0)
    ours = [it for it in state["device_traces"][0] if it.get("addr") == output.data_ptr()]
    if "pool_id" in ours[0]:
        assert tuple(ours[-1]["pool_id"]) == tuple(pool)
    if hasattr(torch.cuda, "MemPool"):
        one = torch.cuda.memory_snapshot(pool)
        assert one and all(tuple(it["segment_pool_id"]) == tuple(pool) for it in one)
        assert output.data_ptr() in blocks_of({"segments": one})
    graph.replay()
    assert torch.equal(output, static * 2)


def history_of_settings(folder):
    """A history that the settings ask for has PyTorch's stacks, and explanations have them."""
    enable(native=True, settings="history:1000")
    tensor = a_block_of_this_function()
    address = tensor.data_ptr()
    event = [it for it in traces() if it.get("addr") == address][-1]
    assert "a_block_of_this_function" in names(event["frames"])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(1 << 28)
        double = tensor + 1
    tensor.record_stream(side)
    del tensor
    found = {it["address"]: it for it in regraph.torch.explain()}
    assert any("a_block_of_this_function" in frame for frame in found[address]["stack"]), found
    torch.cuda.synchronize()
    assert double.numel() == 3 * MIB
    assert regraph.torch.memory_summary()


def profiles(folder):
    """A profile shows what each operation allocated and freed."""
    from torch.profiler import ProfilerActivity, profile

    enable(native=True)
    torch.ones(1, device="cuda")
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, profile_memory=True, record_shapes=True) as result:
        tensor = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        tensor = tensor + 1
        del tensor
    averages = {it.key: it for it in result.key_averages()}
    gained = [getattr(it, "self_device_memory_usage", 0) for it in averages.values()]
    assert max(gained) >= 5 * MIB, averages
    freed = [it for it in result.events() if it.name == "[memory]"]
    assert any(it.device_memory_usage <= -5 * MIB for it in freed), freed


def failures(folder):
    """A request that fails says so in PyTorch's words, to observers and the history too."""
    enable(native=True)
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: seen.append(figures))
    torch.cuda.memory._record_memory_history(stacks="python")
    torch.cuda.set_per_process_memory_fraction(0.1)
    total = torch.cuda.get_device_properties(0).total_memory
    error = expect(
        torch.OutOfMemoryError, lambda: torch.empty(total // 2, dtype=torch.uint8, device="cuda")
    )
    text = str(error)
    assert text.startswith("CUDA out of memory. Tried to allocate "), text
    assert "GPU 0 has a total capacity of" in text and "is free" in text, text
    assert "allowed" in text and "regraph:" in text, text
    assert len(seen) == 1 and seen[0][0] == 0 and seen[0][1] >= total // 2, seen
    assert seen[0][2] < total, seen
    failed = [it for it in traces() if it["action"] == "oom"]
    assert len(failed) == 1 and failed[0]["size"] >= total // 2 and failed[0]["device_free"] > 0
    assert "failures" in str(failed[0]["frames"])

    def fail(*_):
        raise KeyError("of the observer")

    torch._C._cuda_attach_out_of_memory_observer(fail)
    expect(KeyError, lambda: torch.empty(total // 2, dtype=torch.uint8, device="cuda"))
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.ones(MIB, device="cuda").sum().item() == MIB


def messages_and_metrics(folder):
    """What happens goes to Python's `logging`, from whichever thread, and figures to Prometheus."""
    import logging

    records = []

    class Handler(logging.Handler):
        def emit(self, record):
            records.append((record.levelname, record.getMessage()))
            # A handler may call the library.
            regraph.metrics()

    logger = logging.getLogger("regraph")
    logger.addHandler(Handler())
    logger.setLevel(logging.DEBUG)
    enable(native=True)
    static = torch.ones(32 * MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = static + 1
    graph.replay()
    assert torch.equal(output, static + 1)
    regraph._native.flush_messages()
    text = "\n".join(f"{level} {message}" for level, message in records)
    assert "INFO device 0: engine " in text and "DEBUG device 0: pool " in text, text
    assert " has grown by " in text and " is verified, in " in text, text
    said = len(records)
    logger.setLevel(logging.CRITICAL)
    del graph, output
    torch.cuda.empty_cache()
    regraph._native.flush_messages()
    assert len(records) == said, records[said:]
    metrics = regraph.metrics()
    assert 'regraph_captures_verified_total{device="0"} 1\n' in metrics, metrics
    assert metrics.count("# TYPE regraph_reserved_bytes gauge\n") == 1, metrics


def native_figures(folder):
    """PyTorch's figures come from the class, and are regraph's own."""
    from regraph import _native

    enable(native=True)
    assert torch.cuda.memory_stats() == {}
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    small = torch.empty(100, dtype=torch.uint8, device="cuda")
    theirs, ours = torch.cuda.memory_stats_as_nested_dict(), _native.statistics(0)
    for name, figure in theirs.items():
        if name in ours and isinstance(figure, dict) and "all" in figure:
            assert figure == ours[name], name
    for name in ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"):
        assert theirs[name] == ours[name], name
    assert torch.cuda.memory_allocated() == ours["allocated_bytes"]["all"]["current"]
    del tensor, small
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    assert regraph.torch.memory_summary().startswith(torch.cuda.memory_summary())
    if hasattr(torch, "accelerator") and hasattr(torch.accelerator, "memory_stats"):
        assert torch.accelerator.memory_stats() == torch.cuda.memory_stats()


def metadata(folder):
    """Compile contexts, user metadata and annotations stand in the history."""
    enable(native=True)
    if not hasattr(torch._C, "_cuda_setMemoryMetadata"):
        return
    # It counts, and ends, whether or not a history is kept.
    torch._C._cuda_setMemoryMetadata("before")
    torch.cuda.memory._record_memory_history(stacks="python")
    first = a_block_of_this_function()
    event = [it for it in traces() if it.get("addr") == first.data_ptr()][-1]
    assert event["user_metadata"] == torch._C._cuda_getMemoryMetadata() == "before"
    torch._C._cuda_setMemoryMetadata("of the user")
    assert torch._C._cuda_getMemoryMetadata() == "of the user"
    tensor = a_block_of_this_function()
    torch._C._cuda_setMemoryMetadata("")
    event = [it for it in traces() if it.get("addr") == tensor.data_ptr()][-1]
    assert event["user_metadata"] == "of the user"
    other = a_block_of_this_function()
    event = [it for it in traces() if it.get("addr") == other.data_ptr()][-1]
    assert not event["user_metadata"] and event["compile_context"] == "N/A"


def registrations(folder):
    """NCCL registers memory as it comes, and lets go of it before it goes."""
    import torch.distributed as dist

    if not dist.is_nccl_available():
        return
    os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
    # Memory that is had in whole segments is what NCCL's hook registers.
    enable(native=True, settings="expandable_segments:False")
    early = torch.ones(MIB, device="cuda")
    store = f"file://{folder}/store"
    dist.init_process_group("nccl", init_method=store, rank=0, world_size=1)
    dist.all_reduce(early)
    several = [torch.ones(16 * MIB, device="cuda") for _ in range(4)]
    for tensor in several:
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    del several, tensor, early
    torch.cuda.empty_cache()
    static = torch.ones(32 * MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sums = static * 2
        dist.all_reduce(sums)
        output = sums + 1
    graph.replay()
    assert torch.equal(output, static * 3)
    del graph, sums, output
    torch.cuda.empty_cache()
    dist.destroy_process_group()


PROGRAMS = {
    function.__name__: function
    for function in (
        history_has_stacks,
        history_contexts,
        history_of_pools,
        history_of_settings,
        profiles,
        failures,
        messages_and_metrics,
        native_figures,
        metadata,
        registrations,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
