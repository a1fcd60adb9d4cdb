"""Graphs whose executables regraph keeps: which calls they become, and what they refuse."""

import importlib
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch
from regraph.torch import executing

POOL = (0, 3)
RAW = 0x60


class State:
    """A generator's state, from which each replay of PyTorch's draws as much as `draws` says."""

    def __init__(self):
        self.offset = 0

    def graphsafe_get_state(self):
        return self

    def get_offset(self):
        return self.offset

    def set_offset(self, offset):
        self.offset = offset


@pytest.fixture
def keeping(enabled, native, monkeypatch):
    """PyTorch with graphs that it keeps. Its `Graph` is the class under test."""
    state, graph = State(), torch._C._CUDAGraph
    given = types.SimpleNamespace(state=state, draws=0, gpu=enabled)

    def replay(self):
        self._note("torch.replay")
        state.offset += given.draws

    monkeypatch.setattr(graph, "__init__", lambda self, keep=False: setattr(self, "keep", keep))
    monkeypatch.setattr(graph, "replay", replay, raising=False)
    monkeypatch.setattr(graph, "pool", lambda self: POOL, raising=False)
    monkeypatch.setattr(graph, "instantiate", lambda self: None, raising=False)
    monkeypatch.setattr(graph, "raw_cuda_graph", lambda self: RAW, raising=False)
    monkeypatch.setattr(
        torch.cuda.CUDAGraph, "__new__", lambda cls, keep=False: object.__new__(cls)
    )
    monkeypatch.setattr(torch.cuda, "default_generators", [state])
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    # It derives from the class that PyTorch has when it is made.
    module = importlib.reload(executing)
    monkeypatch.setattr(module, "_KNOWS_GENERATORS", True)
    monkeypatch.setattr(module, "_get_device_index", lambda device, optional: device or 0)
    given.Graph, given.module = module.Graph, module
    yield given
    monkeypatch.undo()
    importlib.reload(executing)


def captured(keeping, native):
    graph = keeping.Graph()
    graph.capture_begin(POOL)
    graph.capture_end()
    return graph


def test_a_capture_gives_its_graph_away_and_replays_launch_that(keeping, native):
    graph = captured(keeping, native)
    assert graph.keep, "PyTorch keeps the raw graph"
    assert native.names()[-2:] == ["capture_ended", "take_graph"]
    assert native.calls[-1] == ("take_graph", 0, POOL, RAW)
    native.calls.clear()
    for _ in range(3):
        graph.replay()
    # Whether it draws random numbers is known after the first.
    assert native.names() == ["torch.replay", *["launch_graph"] * 3]
    assert native.calls[-1] == ("launch_graph", 7)


def test_later_versions_end_captures_in_two_steps(keeping, native, monkeypatch):
    graph, ends = torch._C._CUDAGraph, torch.cuda.CUDAGraph.capture_end

    def capture_end(self):
        ends(self)
        self.capture_end_post()

    monkeypatch.setattr(
        graph, "capture_end_post", lambda self: self._note("torch.post"), raising=False
    )
    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_end", capture_end)
    captured(keeping, native).replay()
    assert native.names()[-5:] == [
        "capture_ended",
        "torch.post",
        "take_graph",
        "torch.replay",
        "launch_graph",
    ]


def test_a_capture_that_does_not_begin_leaves_a_graph_on_its_device(keeping, native, monkeypatch):
    graph = captured(keeping, native)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_generators", [State(), State()])
    native.failures["capture_beginning"] = regraph.torch.Error("capturing already")
    with pytest.raises(regraph.torch.Error, match="capturing already"):
        graph.capture_begin(POOL)
    asked = []
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: asked.append(device))
    graph.replay()
    assert asked == [0]


def test_pytorch_sets_the_numbers_of_each_replay_that_draws(keeping, native):
    keeping.draws = 4
    graph = captured(keeping, native)
    native.calls.clear()
    for _ in range(3):
        graph.replay()
    assert native.names() == ["torch.replay", "launch_graph"] * 3


def test_pytorch_is_told_of_each_replay_where_any_generator_may_be_drawn_from(
    keeping, native, monkeypatch
):
    monkeypatch.setattr(keeping.module, "_KNOWS_GENERATORS", False)
    graph = captured(keeping, native)
    native.calls.clear()
    graph.replay()
    graph.replay()
    assert native.names() == ["torch.replay", "launch_graph"] * 2


def test_generators_of_the_program_s_own_count(keeping, native):
    own = State()
    graph = keeping.Graph()
    graph.register_generator_state(own)
    graph.capture_begin(POOL)
    graph.capture_end()
    before = torch._C._CUDAGraph.replay

    def replay(self):
        before(self)
        own.offset += 4

    torch._C._CUDAGraph.replay = replay
    native.calls.clear()
    graph.replay()
    graph.replay()
    assert native.names() == ["torch.replay", "launch_graph"] * 2


def test_a_refused_launch_is_tried_again_once_cycles_are_collected(keeping, native):
    graph = captured(keeping, native)
    graph.replay()
    native.calls.clear()
    native.failures["launch_graph"] = native.Error("blocks live")
    with pytest.raises(regraph.torch.Error, match="blocks live"):
        graph.replay()
    assert native.names() == ["launch_graph", "launch_graph"]


def test_a_refused_replay_draws_no_random_numbers(keeping, native):
    keeping.draws = 4
    graph = captured(keeping, native)
    graph.replay()
    native.failures["launch_graph"] = native.Error("asleep")
    for _ in range(2):
        with pytest.raises(regraph.torch.Error, match="asleep"):
            graph.replay()
    assert keeping.state.offset == 4
    del native.failures["launch_graph"]
    graph.replay()
    assert keeping.state.offset == 8


def test_numbers_that_were_drawn_beside_a_refused_replay_do_not_come_again(keeping, native):
    keeping.draws = 4
    graph = captured(keeping, native)
    native.failures["launch_graph"] = native.Error("asleep")
    tells = graph._tell

    # Another thread draws a number before the launch is refused.
    def tell():
        drawn = tells()
        keeping.state.offset += 1
        return drawn

    graph._tell = tell
    with pytest.raises(regraph.torch.Error, match="asleep"):
        graph.replay()
    assert keeping.state.offset == 5


def test_a_graph_that_cannot_be_taken_is_reset(keeping, native):
    native.failures["take_graph"] = native.Error("cuGraphClone failed")
    graph = keeping.Graph()
    graph.capture_begin(POOL)
    with pytest.raises(
        regraph.torch.Error, match="cuGraphClone failed; capture it by torch.cuda.C"
    ):
        graph.capture_end()
    assert native.names()[-1] == "torch.reset"
    with pytest.raises(regraph.torch.Error, match="replay: nothing was captured"):
        graph.replay()
    del native.failures["take_graph"]
    graph.capture_begin(POOL)
    graph.capture_end()
    graph.replay()


def test_calls_of_a_graph_that_was_reset_say_so(keeping, native):
    graph = captured(keeping, native)
    graph.reset()
    assert native.names()[-1] == "torch.reset"
    for call in (graph.replay, graph.prepare, graph.pin, graph.foreseen_bytes):
        with pytest.raises(regraph.torch.Error, match="or the graph was reset; capture it first"):
            call()


def test_what_there_is_of_a_graph_beside_replays(keeping, native):
    graph = captured(keeping, native)
    native.calls.clear()
    graph.prepare()
    graph.instantiate()
    graph.pin()
    graph.pin(False)
    assert graph.foreseen_bytes() == 7
    assert native.calls == [
        *[("prepare_graph", 7)] * 2,
        ("pin_graph", True),
        ("pin_graph", False),
    ]
    native.calls.clear()
    assert graph.raw_cuda_graph() == 0x61
    assert native.calls == [("launches_elsewhere", POOL)]
    for call in (graph.raw_cuda_graph_exec, lambda: graph.debug_dump("dump")):
        with pytest.raises(regraph.torch.Error, match="Capture by torch.cuda.CUDAGraph for that"):
            call()


def test_older_versions_cannot_keep_graphs(keeping, native, monkeypatch):
    monkeypatch.delattr(torch._C._CUDAGraph, "raw_cuda_graph")
    with pytest.raises(regraph.torch.Error, match="which it does from 2.8 on"):
        keeping.Graph()


def test_executables_are_kept_and_told(keeping, native):
    native.calls.clear()
    module = keeping.module
    module.keep_executables()
    module.keep_executables(1 << 20, functions="same", pool=POOL, device=1)
    module.keep_executables(0, functions=None)
    assert native.calls == [
        ("keep_executables", 0, None, None, "any"),
        ("keep_executables", 1, POOL, 1 << 20, "same"),
        ("keep_executables", 0, None, 0, None),
    ]
    with pytest.raises(ValueError, match="negative"):
        module.keep_executables(-1)
    native.calls.clear()
    assert module.release_executables(POOL) == 8
    assert module.executables() == module.Executables(*[1] * 12)
    assert native.calls == [("release_executables", 0, POOL), ("executables", 0, None)]


def test_callables_are_graphed_by_pytorch_s_function_with_such_graphs(keeping, native, monkeypatch):
    # As PyTorch's: names are looked up in its module.
    source = """
def make_graphed_callables(callables, pool=None, *, many=1):
    graphs = [torch.cuda.CUDAGraph() for _ in range(many)]
    return graphs, torch.cuda.graph, torch.Tensor, callables, pool
"""
    names = {"torch": torch}
    exec(source, names)
    theirs = names["make_graphed_callables"]
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", theirs, raising=False)
    graphs, context, tensor, callables, pool = keeping.module.make_graphed_callables(
        "callables", pool=POOL, many=2
    )
    assert [type(graph) for graph in graphs] == [keeping.Graph] * 2
    assert (context, tensor, callables, pool) == (
        torch.cuda.graph,
        torch.Tensor,
        "callables",
        POOL,
    )
    assert type(theirs("")[0][0]) is torch.cuda.CUDAGraph


def test_they_need_regraph(gpu):
    for name, call in (
        ("keep_executables", regraph.torch.keep_executables),
        ("executables", regraph.torch.executables),
        ("release_executables", regraph.torch.release_executables),
        ("make_graphed_callables", lambda: regraph.torch.make_graphed_callables(())),
    ):
        with pytest.raises(regraph.torch.Error, match=f"{name} needs regraph"):
            call()
