"""Estimates: which calls a capture becomes that is shown and comes to nothing."""

import contextlib
import itertools
import threading
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch

SHOWN = [
    "stream",
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

# A look at what libraries keep for the later captures' stream, outside regions.
WARM = ["begin_estimate", "enter_region", *["statistics"] * 3, "leave_region"]


@pytest.fixture
def estimating(enabled, native, monkeypatch):
    """A GPU whose executable graphs take 2 MiB each. Returns the calls' names."""

    class Graph(torch.cuda.CUDAGraph):
        def raw_cuda_graph_exec(self):
            native.answers["memory_info"] = (native.answers["memory_info"][0] - (2 << 20), 0)
            return 0x77

    class Context(contextlib.AbstractContextManager):
        default_capture_stream = None

        def __init__(self, graph, pool, stream):
            assert stream is not None
            native.calls.append(("stream", stream))
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
    pools = itertools.count(1)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(pools)))
    streams = (f"new {number}" for number in itertools.count(1))
    monkeypatch.setattr("regraph.torch.estimating._new_stream", lambda: next(streams))
    monkeypatch.setattr("regraph.torch.estimating._warm", {})
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
        *WARM,
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


def workspaces(native, monkeypatch, *sizes):
    """Has libraries keep so much with each of two products, whose results take 4 KiB and 4 KiB."""
    figures = [10 << 20]
    for size in sizes:
        figures.append(figures[-1] + size + 4096)
    told = iter(figures)

    def statistics(device):
        # Nothing is made the second time.
        return {"allocated_bytes": {"all": {"current": next(told, 0)}}}

    monkeypatch.setattr(native, "statistics", statistics)


@pytest.mark.parametrize("known", [False, True])
def test_memory_that_is_kept_from_a_capture_is_told_of(estimating, monkeypatch, known):
    cleared = []
    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: cleared.append(1), raising=False
    )
    estimating.answers["pools"] = [
        {"id": (0, 1), "reserved": 0, "allocated": 512, "graphs": 0},
        {"id": (7, 2), "reserved": 0, "allocated": 4, "graphs": 1},
    ]
    stream = types.SimpleNamespace(device_index=0) if known else None
    with pytest.raises(regraph.torch.Error, match="512 bytes are kept"):
        regraph.torch.estimate(lambda size: None, [8], stream=stream)
    assert cleared
    assert estimating.calls[-1] == ("estimate", False)


@pytest.mark.parametrize("kept", [0, 24 << 20, 8 << 20, 32 << 20])
def test_what_libraries_keep_of_a_new_stream_is_no_mistake(estimating, monkeypatch, kept):
    workspaces(estimating, monkeypatch, 24 << 20, 8 << 20)
    estimating.answers["pools"] = [{"id": (0, 1), "reserved": 0, "allocated": kept, "graphs": 0}]
    need = regraph.torch.estimate(lambda size: None, [8, 4, 2])
    assert need.workspace_bytes == 0
    streams = [call[1] for call in estimating.calls if call[0] == "stream"]
    # The second has no workspace that lost its memory.
    assert streams == ["new 2", "new 1", "new 1"]
    # Of another estimate only the first stream is new, and what they keep is known.
    estimating.answers["pools"][0]["id"] = (0, 2)
    estimating.calls.clear()
    regraph.torch.estimate(lambda size: None, [8, 4])
    assert [call[1] for call in estimating.calls if call[0] == "stream"] == ["new 3", "new 1"]


@pytest.mark.parametrize("how", ["argument", "default"])
def test_what_a_known_stream_lacks_is_made_outside_and_told(estimating, monkeypatch, how):
    stream = types.SimpleNamespace(device_index=0)
    if how == "default":
        torch.cuda.graph.default_capture_stream = stream
    workspaces(estimating, monkeypatch, 24 << 20, 8 << 20)
    given = stream if how == "argument" else None
    need = regraph.torch.estimate(lambda size: None, [8], stream=given)
    assert need == regraph.torch.Estimate(96 << 20, 2 << 20, 32 << 20)
    assert (need.total_bytes, need.left_bytes) == (130 << 20, 34 << 20)
    assert ("stream", stream) in estimating.calls


def test_a_stream_of_another_device_is_not_captured_on(estimating):
    torch.cuda.graph.default_capture_stream = types.SimpleNamespace(device_index=1)
    regraph.torch.estimate(lambda size: None, [8])
    assert ("stream", "new 2") in estimating.calls


def test_what_is_no_stream_is_not_captured_on(estimating):
    with pytest.raises(TypeError, match="a stream of PyTorch's is needed, not str"):
        regraph.torch.estimate(lambda size: None, [8], stream="x")


def test_each_part_has_a_bound(native):
    need = regraph.torch.Estimate(96 << 20, 400 << 20, 32 << 20)
    assert need.bound == regraph.torch.Estimate(98 << 20, 420 << 20, 32 << 20)
    assert native.calls[-1] == ("bound", need.pool_bytes, need.executable_bytes)


def test_a_function_is_drawn_from_a_capture_that_comes_to_nothing(estimating, tmp_path):
    def step():
        estimating.calls.append(("function",))

    page = str(tmp_path / "step.html")
    assert regraph.torch.plot(step, page) == page
    names = estimating.names()
    assert names == [*WARM, "estimate", *SHOWN, "torch.reset", "pools", "plot", "estimate"]
    assert estimating.calls[len(WARM)] == ("estimate", True, True)
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
