"""Training on two GPUs, with and without memory that NCCL registers.

Each program runs the same training under PyTorch's allocator and under regraph, in processes of their
own, with NCCL's registration of memory off and on. Weights after it must be equal, bit for bit.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from common import enable, main

import regraph.torch

# By which allocator, and whether NCCL registers memory of captures. PyTorch has it register whole segments, too.
WAYS = (
    ("pytorch", False),
    ("pytorch", True),
    ("regraph", False),
    ("regraph", True),
    ("segments", True),
    ("planned", False),
)
SETTINGS = {"planned": "plan:exact", "segments": "expandable_segments:False"}
LAYERS, WIDTH, BATCH, STEPS, REPLAYS = 4, 1_024, 64, 6, 20
# What PyTorch's documentation asks for before a data-parallel step is captured.
WARM_UPS = 11
# Seconds: NCCL compiles and connects at first use.
LIMIT = 150


def _layers(rank):
    torch.manual_seed(0)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*layers).to(f"cuda:{rank}")


def _step(model, optimizer, given):
    optimizer.zero_grad(set_to_none=True)
    loss = model(given).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def _digest(model):
    state = hashlib.sha256()
    for parameter in model.parameters():
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        assert torch.isfinite(whole).all()
        state.update(whole.detach().cpu().numpy().tobytes())
    return state.hexdigest()


def _given(rank):
    generator = torch.Generator(f"cuda:{rank}").manual_seed(rank + 1)
    return torch.randn(BATCH, WIDTH, device=f"cuda:{rank}", generator=generator)


def eager_data_parallel(rank):
    model = torch.nn.parallel.DistributedDataParallel(_layers(rank), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    given = _given(rank)
    for _ in range(STEPS):
        _step(model, optimizer, given)
    torch.cuda.empty_cache()
    for _ in range(STEPS):
        _step(model, optimizer, given)
    return _digest(model)


def captured_data_parallel(rank):
    stream, graph, given = torch.cuda.Stream(), torch.cuda.CUDAGraph(), _given(rank)
    with torch.cuda.stream(stream):
        model = torch.nn.parallel.DistributedDataParallel(_layers(rank), device_ids=[rank])
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True, capturable=True)
        for _ in range(WARM_UPS):
            _step(model, optimizer, given)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        _step(model, optimizer, given)
    for turn in range(REPLAYS):
        graph.replay()
        # Eager work beside the graph's memory.
        eager = torch.full((turn + 1, 1 << 20), float(turn), device=given.device)
        torch.distributed.all_reduce(eager)
        assert eager.eq(2 * turn).all()
    torch.cuda.synchronize()
    return _digest(model)


def sharded(rank):
    from torch.distributed.fsdp import fully_shard

    model = _layers(rank)
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = _given(rank)
    for _ in range(2 * STEPS):
        _step(model, optimizer, given)
    torch.cuda.empty_cache()
    for _ in range(STEPS):
        _step(model, optimizer, given)
    return _digest(model)


def _rank(training, allocator, out):
    """One process of a training."""
    rank = int(os.environ["RANK"])
    if allocator != "pytorch":
        enable(native=True, settings=SETTINGS.get(allocator))
    torch.cuda.set_device(rank)
    # At a file: a port that was free may be taken by the time that it is used.
    meet = {"init_method": os.environ["MEET_AT"], "rank": rank, "world_size": 2}
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank), **meet)
    digest = TRAININGS[training](rank)
    if allocator != "pytorch":
        planned = {capture.planned for capture in regraph.torch.captures()}
        assert planned <= {allocator == "planned"}
    reserved = torch.cuda.max_memory_reserved()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    Path(out).write_text(json.dumps({"digest": digest, "reserved": reserved}))


def _start(training, allocator, registers, folder):
    """Starts both ranks; their processes and files."""
    environment = {
        **os.environ,
        "MEET_AT": f"file://{Path(folder).resolve()}/{training}-{allocator}-{registers}",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # Errors of NCCL are not looked for from another thread, which would end a capture.
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_GRAPH_REGISTER": str(int(registers)),
        "NCCL_LOCAL_REGISTER": str(int(registers)),
        # Segments that grow are refused.
        "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": str(
            int(registers and allocator != "regraph")
        ),
    }
    started = []
    for rank in range(2):
        out = Path(folder) / f"{training}-{allocator}-{registers}-{rank}.json"
        command = [sys.executable, __file__, "rank", training, allocator, str(out)]
        started.append((_run(command, {**environment, "RANK": str(rank)}), out))
    return started


def _run(command, environment):
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _compare(training, folder):
    """Trains in every way at once, and compares what comes of it."""
    if torch.cuda.device_count() < 2:
        return
    started = {way: _start(training, *way, folder) for way in WAYS}
    digests = {}
    try:
        for way, ranks in started.items():
            for process, out in ranks:
                text, _ = process.communicate(timeout=LIMIT)
                assert process.returncode == 0, f"{training} {way}: {process.returncode} {text}"
                found = json.loads(out.read_text())
                digests.setdefault(found["digest"], []).append(way)
                print(training, *way, out.stem[-1], found["reserved"] >> 20, "MiB", flush=True)
    finally:
        for ranks in started.values():
            for process, _ in ranks:
                process.kill()
    assert len(digests) == 1, digests


def training_on_two_gpus(folder):
    """DistributedDataParallel."""
    _compare("eager_data_parallel", folder)


def captured_training_on_two_gpus(folder):
    """A data-parallel step, its collectives included, as a graph."""
    _compare("captured_data_parallel", folder)


def sharded_training_on_two_gpus(folder):
    """Weights that are sharded, and gathered for each layer."""
    _compare("sharded", folder)


TRAININGS = {
    function.__name__: function
    for function in (eager_data_parallel, captured_data_parallel, sharded)
}

PROGRAMS = {
    function.__name__: function
    for function in (
        training_on_two_gpus,
        captured_training_on_two_gpus,
        sharded_training_on_two_gpus,
    )
}

if __name__ == "__main__":
    main({**PROGRAMS, "rank": _rank})
