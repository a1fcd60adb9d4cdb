"""A data-parallel training step, its all-reduce included, as one graph on each of two GPUs.

    torchrun --nproc-per-node 2 ddp.py --allocator regraph --out record.json

Every rank trains the same weights on data of its own. Rank 0 writes one record: the digests are
over the weights of both ranks, which must stay the same, and must not depend on the allocator.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

# Errors of NCCL are not looked for from another thread, which would end a capture.
os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

from comparison.allocators import ALLOCATORS  # noqa: E402
from comparison.records import Record, Soak  # noqa: E402
from comparison.yardstick import yardstick  # noqa: E402

#: As PyTorch's documentation asks before a capture of data-parallel steps.
WARM_UPS = 11
_LAYERS, _WIDTH, _BATCH = 6, 2_048, 512
_CHECKS = 10


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--allocator", choices=ALLOCATORS, default="default")
    parser.add_argument("--mode", choices=("ddp", "flat"), default="ddp",
                        help="DistributedDataParallel, or one all-reduce of flat gradients")
    parser.add_argument("--replays", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


class Step:
    """The training step of one rank."""

    def __init__(self, rank: int, mode: str) -> None:
        import torch
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        from comparison.cases.case import fill_random, initialise

        self._torch = torch
        self.stream = torch.cuda.Stream()
        device = torch.device("cuda", rank)
        layers = [
            layer for _ in range(_LAYERS) for layer in (nn.Linear(_WIDTH, _WIDTH), nn.GELU())
        ]
        model = nn.Sequential(*layers).to(device)
        initialise(model)
        self.parameters = list(model.parameters())
        self.input = fill_random(torch.empty(_BATCH, _WIDTH, device=device), 100 + rank)
        self.loss = torch.zeros((), device=device)
        self.flat = None
        self.stream.wait_stream(torch.cuda.current_stream())
        if mode == "ddp":
            with torch.cuda.stream(self.stream):
                model = DistributedDataParallel(model, device_ids=[rank])
        else:
            size = sum(parameter.numel() for parameter in self.parameters)
            self.flat = torch.zeros(size, device=device)
        self._model = model
        self._optimizer = torch.optim.SGD(self.parameters, lr=1e-3, momentum=0.9, foreach=True)

    def __call__(self) -> None:
        """Forward, backward, all-reduce, optimizer."""
        self.let_go()
        loss = self._model(self.input).square().mean()
        loss.backward()
        if self.flat is not None:
            self._reduce()
        self._optimizer.step()
        self.loss.copy_(loss.detach())

    def let_go(self) -> None:
        """Of gradients: the next backward makes them, or writes them into the buckets' views."""
        if self.flat is None:
            self._optimizer.zero_grad(set_to_none=True)
            return
        for parameter in self.parameters:
            parameter.grad = None

    def _reduce(self) -> None:
        torch = self._torch
        gradients = [parameter.grad for parameter in self.parameters]
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=self.flat)
        torch.distributed.all_reduce(self.flat)
        self.flat.mul_(1.0 / torch.distributed.get_world_size())
        parts = self.flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def measure(options: argparse.Namespace, rank: int, record: Record) -> None:
    """Captures and replays; fills the record in as it goes."""
    import torch
    import torch.distributed as dist

    from comparison.devices import GpuDevice
    from comparison.digest import digest
    from comparison.measure import other_work

    torch.set_deterministic_debug_mode("error")
    torch.utils.deterministic.fill_uninitialized_memory = False
    device = GpuDevice(rank)
    dist.init_process_group("nccl", timeout=timedelta(seconds=120))
    step = Step(rank, options.mode)
    with torch.cuda.stream(step.stream):
        for _ in range(WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(step.stream)
    step.let_go()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()

    before = device.memory()
    device.reset_peak()
    graph = torch.cuda.CUDAGraph()
    begin = time.perf_counter_ns()
    # NCCL's watchdog may call the driver from its own thread meanwhile.
    with torch.cuda.graph(graph, stream=step.stream, capture_error_mode="thread_local"):
        entered = time.perf_counter_ns()
        step()
        left = time.perf_counter_ns()
    record.capture_ns.append(time.perf_counter_ns() - begin)
    record.body_ns.append(left - entered)
    torch.cuda.synchronize()
    after = device.memory()
    record.graphs = 1
    record.reserved_bytes = after.reserved - before.reserved
    record.peak_allocated_bytes = after.peak_allocated - before.allocated
    record.device_bytes = after.device - before.device
    record.pool_bytes = device.pool_bytes(graph.pool())
    record.versions = {**device.versions(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    dist.barrier()

    def results() -> str:
        """Of both ranks: each is told the other's digest."""
        own = digest([step.loss, *step.parameters])
        weights = digest(step.parameters)
        found: list[tuple[str, str]] = [("", "")] * dist.get_world_size()
        dist.all_gather_object(found, (own, weights))
        if len({weights for _, weights in found}) != 1:
            record.correct = False
        return "-".join(own[:32] for own, _ in found)

    graph.replay()
    torch.cuda.synchronize()
    record.correct = True
    record.digest = results()
    soak = Soak(replays=1)
    every = max(1, options.replays // _CHECKS)
    for number in range(2, options.replays + 1):
        if number % every == 0 or number == options.replays:
            other_work(device)
            graph.replay()
            torch.cuda.synchronize()
            soak.digests.append(results())
            soak.after.append(number)
        else:
            graph.replay()
        soak.replays = number
    record.soak = soak
    times = []
    for _ in range(50):
        times.append(device.time(graph.replay))
        torch.cuda.synchronize()
    record.replay_ns = [elapsed() for elapsed in times]
    record.ok = True
    graph.reset()
    dist.barrier()


def main() -> int:
    """See the module's words."""
    options = arguments()
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    name = "ddp" if options.mode == "ddp" else "ddp-flat"
    record = Record(name, options.allocator, options.repeat)
    begin = time.monotonic()
    try:
        ALLOCATORS[options.allocator].enable()
        record.yardstick_ns.append(yardstick())
        measure(options, rank, record)
        record.yardstick_ns.append(yardstick())
    except BaseException as error:
        record.ok = False
        record.error = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    record.seconds = round(time.monotonic() - begin, 3)
    # A rank that fails says so itself: the other one may be ended before it can.
    if rank == 0 or not record.ok:
        print(json.dumps({"case": name, "allocator": options.allocator, "ok": record.ok,
                          "digest": record.digest, "error": record.error}), flush=True)
        if options.out and (record.ok or not options.out.exists()):
            options.out.write_text(record.line() + "\n")
    sys.stdout.flush()
    sys.stderr.flush()
    # NCCL's own end may wait for a rank that has failed.
    os._exit(0 if record.ok else 1)


if __name__ == "__main__":
    main()
