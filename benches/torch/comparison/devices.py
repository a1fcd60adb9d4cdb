"""The device as the cases see it: a GPU, or a stand-in that runs the same code on the processor.

The stand-in has one order of work and no figures. It is there to try the cases without a GPU.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Body = Callable[[], None]


@dataclass
class Captured:
    """A captured graph and what its capture took, in nanoseconds.

    `whole_ns` is from before `torch.cuda.graph` is entered until after it is left, which
    instantiates the graph; `body_ns` is the part in which the program ran.
    """

    replay: Callable[[], None]
    whole_ns: int
    body_ns: int
    graph: Any = None


@dataclass(frozen=True)
class Memory:
    """Bytes: what the allocator reserved and handed out, and what the device has in use."""

    reserved: int = 0
    allocated: int = 0
    peak_allocated: int = 0
    device: int = 0


class GpuDevice:
    """A GPU, by its number."""

    name = "cuda"

    def __init__(self, index: int = 0) -> None:
        torch.cuda.init()
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(index)

    def stream(self) -> Any:
        """A new stream."""
        return torch.cuda.Stream()

    def current(self) -> Any:
        """The stream that work goes to."""
        return torch.cuda.current_stream()

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        """Work goes to this stream within the context."""
        return torch.cuda.stream(stream)

    def set_stream(self, stream: Any) -> None:
        """Work goes to this stream from now on."""
        torch.cuda.set_stream(stream)

    def record(self, tensor: torch.Tensor, stream: Any) -> None:
        """Records a stream as a user of a tensor."""
        tensor.record_stream(stream)

    def synchronize(self) -> None:
        """Waits for all work."""
        torch.cuda.synchronize()

    def empty_cache(self) -> None:
        """Gives free memory back to the driver."""
        torch.cuda.empty_cache()

    def reset_peak(self) -> None:
        """The peak is what is allocated now."""
        torch.cuda.reset_peak_memory_stats()

    def memory(self) -> Memory:
        """The allocator's figures and the driver's."""
        figures = torch.cuda.memory_stats()
        free, total = torch.cuda.mem_get_info()
        return Memory(
            reserved=int(figures["reserved_bytes.all.current"]),
            allocated=int(figures["allocated_bytes.all.current"]),
            peak_allocated=int(figures["allocated_bytes.all.peak"]),
            device=total - free,
        )

    def pool(self) -> Any:
        """A pool that graphs can share."""
        return torch.cuda.graph_pool_handle()

    def pool_bytes(self, pool: Any) -> int | None:
        """What a pool has reserved, or nothing where the allocator gives no snapshot."""
        try:
            segments = torch.cuda.memory_snapshot()
            identity = tuple(pool)
            return sum(
                int(segment["total_size"])
                for segment in segments
                if tuple(segment["segment_pool_id"]) == identity
            )
        except (RuntimeError, KeyError, TypeError, AttributeError):
            return None

    def settings(self) -> dict[str, Any]:
        """The allocator's settings as it understood them."""
        try:
            snapshot = torch.cuda.memory._snapshot()
            return {key: repr(value) for key, value in snapshot["allocator_settings"].items()}
        except (RuntimeError, KeyError, TypeError, AttributeError) as error:
            return {"unknown": str(error).split("\n", 1)[0]}

    def capture(self, body: Body, pool: Any, stream: Any) -> Captured:
        """Captures what `body` launches on `stream` and on streams that it forks."""
        graph = torch.cuda.CUDAGraph()
        begin = time.perf_counter_ns()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            entered = time.perf_counter_ns()
            body()
            left = time.perf_counter_ns()
        end = time.perf_counter_ns()
        return Captured(graph.replay, end - begin, left - entered, graph)

    def time(self, work: Callable[[], None]) -> Callable[[], int]:
        """Runs work between two events; the answer, asked after a synchronize, is nanoseconds."""
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        return lambda: round(begin.elapsed_time(end) * 1e6)

    def versions(self) -> dict[str, Any]:
        """Of the device and of what drives it."""
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "gpu": properties.name,
            "gpu_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }


class _DryStream:
    """A stream of the stand-in: all work is done in the order in which it is issued."""

    def wait_stream(self, other: _DryStream) -> None:
        """Nothing: the other's work is done."""


class DryDevice:
    """The stand-in."""

    name = "dry"

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._current = _DryStream()

    def stream(self) -> Any:
        """A new stream."""
        return _DryStream()

    def current(self) -> Any:
        """The stream that work goes to."""
        return self._current

    @contextlib.contextmanager
    def on(self, stream: Any) -> Any:
        """Work goes to this stream within the context."""
        before, self._current = self._current, stream
        yield
        self._current = before

    def set_stream(self, stream: Any) -> None:
        """Work goes to this stream from now on."""
        self._current = stream

    def record(self, tensor: torch.Tensor, stream: Any) -> None:
        """Nothing to record: the tensor must only be one."""
        assert isinstance(tensor, torch.Tensor) and isinstance(stream, _DryStream)

    def synchronize(self) -> None:
        """All work is done."""

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def reset_peak(self) -> None:
        """There is no peak."""

    def memory(self) -> Memory:
        """No figures."""
        return Memory()

    def pool(self) -> Any:
        """A pool that graphs can share."""
        return (0, 1)

    def pool_bytes(self, pool: Any) -> int | None:
        """No figures."""
        return None

    def settings(self) -> dict[str, Any]:
        """No settings."""
        return {}

    def capture(self, body: Body, pool: Any, stream: Any) -> Captured:
        """Runs the body once, as the warm-up does; a replay runs it again."""
        begin = time.perf_counter_ns()
        with self.on(stream):
            body()
        end = time.perf_counter_ns()

        def replay() -> None:
            with self.on(stream):
                body()

        return Captured(replay, end - begin, end - begin)

    def time(self, work: Callable[[], None]) -> Callable[[], int]:
        """Runs work; the answer is nanoseconds."""
        begin = time.perf_counter_ns()
        work()
        elapsed = time.perf_counter_ns() - begin
        return lambda: elapsed

    def versions(self) -> dict[str, Any]:
        """Of PyTorch."""
        return {"gpu": "none", "torch": torch.__version__}


Device = GpuDevice | DryDevice
