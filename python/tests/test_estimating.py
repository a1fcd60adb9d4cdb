"""Estimates: which calls a capture becomes that is shown and comes to nothing."""

import contextlib
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch

SHOWN = [
    "capture_beginning",
    "torch.capture_begin",
    "capture_begun",
    "function",
    "capture_shown",
    "memory_info",
    "torch.capture_end",
    "upload",
    "memory_info",
    "capture_failed",
]


@pytest.fixture
def estimating(enabled, native, monkeypatch):
    """A GPU whose executable graphs take 2 MiB each. Returns the calls' names."""

    class Graph(torch.cuda.CUDAGraph):
        def raw_cuda_graph_exec(self):
            native.answers["memory_info"] = (native.answers["memory_info"][0] - (2 << 20), 0)
            return 0x77

    class Context(contextlib.AbstractContextManager):
        capture_stream = 7

        def __init__(self, graph, pool):
            self.graph, self.pool = graph, pool

        def __enter__(self):
            self.graph.capture_begin(self.pool)

        def __exit__(self, *raised):
            self.graph.capture_end()

    monkeypatch.setitem(native.answers, "memory_info", (1 << 30, 0))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", Context)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape, device: ones(*shape))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(
        "regraph.torch.estimating._get_device_index", lambda device, optional: device or 0
    )
    native.answers["estimated"] = 96 << 20
    return native


def test_each_size_is_captured_and_shown_and_nothing_is_kept(estimating):
    sizes = []

    def function(size):
        sizes.append(size)
        estimating.calls.append(("function",))

    need = regraph.torch.estimate(function, [8, 4, 1])
    assert sizes == [8, 4, 1]
    assert need == regraph.torch.Estimate(pool_bytes=96 << 20, executable_bytes=6 << 20)
    assert need.total_bytes == 102 << 20
    assert estimating.names() == [
        "estimate",
        *SHOWN * 3,
        *["torch.reset"] * 3,
        "pools",
        "estimated",
        "estimate",
    ]
    assert ("estimate", True, False) in estimating.calls
    assert ("estimate", False) in estimating.calls
    assert ("upload", 0, 0x77, 7) in estimating.calls
    # Captures are as ever behind it.
    estimating.calls.clear()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    assert "capture_ended" in estimating.names()
    assert "capture_shown" not in estimating.names()


@pytest.mark.parametrize("failing", ["function", "capture_shown", "torch.capture_end", "upload"])
def test_a_capture_that_fails_ends_the_estimate(estimating, failing):
    estimating.failures[failing] = RuntimeError("no")

    def function(size):
        if failing == "function":
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        regraph.torch.estimate(function, [8, 4])
    assert estimating.calls[-1] == ("estimate", False)
    assert "estimated" not in estimating.names()
    assert estimating.names().count("capture_failed") == 1


def test_memory_that_is_kept_from_a_capture_is_told_of(estimating, monkeypatch):
    cleared = []
    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append(1), raising=False
    )
    estimating.answers["pools"] = [
        {"id": (0, 1), "reserved": 0, "allocated": 512, "graphs": 0},
        {"id": (0, 2), "reserved": 0, "allocated": 4, "graphs": 1},
    ]
    with pytest.raises(regraph.torch.Error, match="512 bytes are kept"):
        regraph.torch.estimate(lambda size: None, [8])
    assert cleared
    assert "estimated" not in estimating.names()


def test_a_function_is_drawn_from_a_capture_that_comes_to_nothing(estimating, tmp_path):
    def step():
        estimating.calls.append(("function",))

    page = str(tmp_path / "step.html")
    assert regraph.torch.plot(step, page) == page
    names = estimating.names()
    assert names == ["estimate", *SHOWN, "torch.reset", "pools", "plot", "estimate"]
    assert estimating.calls[0] == ("estimate", True, True)
    _, trace, title, written = estimating.calls[names.index("plot")]
    assert (trace, written) == (None, page)
    assert title.endswith("step")


def test_two_estimates_at_once_are_refused(estimating):
    refused = []

    def estimate():
        try:
            regraph.torch.estimate(lambda size: None, [1])
        except regraph.torch.Error as error:
            refused.append(str(error))

    def function(size):
        estimating.calls.clear()
        estimate()
        thread = threading.Thread(target=estimate)
        thread.start()
        thread.join(10)
        assert estimating.calls == []

    assert regraph.torch.estimate(function, [1]).pool_bytes == 96 << 20
    assert len(refused) == 2 and all("being estimated already" in told for told in refused)
    estimate()
    assert len(refused) == 2


def test_an_estimate_that_is_refused_leaves_regions_able_to_sleep(estimating, monkeypatch):
    from regraph.torch import capturing

    registering = capturing.calls().registering
    monkeypatch.setattr(registering, "may_happen", lambda: True)
    with pytest.raises(regraph.torch.Error, match="communication libraries"):
        regraph.torch.estimate(lambda size: None, [1])
    regraph.torch.sleep()
    assert ("sleep", None) in estimating.calls


def test_nothing_is_estimated_without_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match="enable"):
        regraph.torch.estimate(lambda size: None, [1])
