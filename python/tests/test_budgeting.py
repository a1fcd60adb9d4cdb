"""Budgets of pools: what is asked of the library, and what is refused with which words."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fake_native
import regraph.torch
from regraph.torch import budgeting, executing

MIB = 1 << 20
POOL = (0, 9)


@pytest.fixture
def budgets(enabled, native, monkeypatch):
    """PyTorch whose next pool is `POOL`, with graphs that it keeps."""
    graph = torch._C._CUDAGraph
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: POOL)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(budgeting, "_get_device_index", lambda device, optional: device or 0)
    monkeypatch.setattr(graph, "pool", lambda self: POOL, raising=False)
    monkeypatch.setattr(graph, "raw_cuda_graph", lambda self: 0x60, raising=False)
    monkeypatch.setattr(graph, "__init__", lambda self, keep=False: None)
    monkeypatch.setattr(
        torch.cuda.CUDAGraph, "__new__", lambda cls, keep=False: object.__new__(cls)
    )
    monkeypatch.setattr(
        torch.cuda,
        "default_generators",
        [type("_", (), {"graphsafe_get_state": lambda self: self})()],
    )
    # `Graph` derives from the class that PyTorch has when it is made.
    importlib.reload(executing)
    yield native
    budgeting.budgets.clear()
    monkeypatch.undo()
    importlib.reload(executing)


def test_a_pool_and_its_executables_have_parts_of_the_budget(budgets):
    assert regraph.torch.capture_budget(601 * MIB, 32 * MIB, "same", 1) == POOL
    assert budgets.calls == [
        ("keep_executables", 1, POOL, 22 * MIB, "same"),
        # In whole pieces.
        ("limit_pool", 1, POOL, 568 * MIB),
    ]
    budgets.calls.clear()
    regraph.torch.capture_budget(800 * MIB)
    assert budgets.calls[1] == ("limit_pool", 0, POOL, 700 * MIB)
    budgets.calls.clear()
    regraph.torch.capture_budget(64 * MIB)
    assert budgets.calls[0] == ("keep_executables", 0, POOL, 6 * MIB, "any")


@pytest.mark.parametrize("parts", [(600 * MIB, 10 * MIB), (17 * MIB, 16 * MIB), (-1, None)])
def test_parts_that_are_too_small_are_refused(budgets, parts):
    with pytest.raises(ValueError):
        regraph.torch.capture_budget(*parts)
    assert budgets.calls == []
    assert budgeting.of(POOL, 0) is None


def test_a_later_limit_for_executables_replaces_that_of_the_budget(budgets):
    regraph.torch.capture_budget(64 * MIB, 16 * MIB)
    assert budgeting.of(POOL, 1) is None
    executing.keep_executables(64 * MIB, pool=POOL, device=1)
    with pytest.raises(regraph.torch.Error, match="does not fit"):
        budgeting.of(POOL, 0).require_room(8 * MIB)
    executing.keep_executables(64 * MIB, pool=POOL, device=0)
    budgeting.of(POOL, 0).require_room(64 * MIB)
    executing.keep_executables(None, pool=POOL, device=0)
    budgeting.of(POOL, 0).require_room(800 * MIB)
    assert "executables may take as much as the device gives" in budgeting.of(POOL, 0).report()


def test_nothing_has_a_budget_without_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match="enable"):
        regraph.torch.capture_budget(600 * MIB)


def test_graphs_whose_executables_pytorch_makes_are_refused_before_they_begin(budgets):
    regraph.torch.capture_budget(600 * MIB)
    budgets.calls.clear()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(regraph.torch.Error, match="regraph.torch.Graph"):
        graph.capture_begin(POOL)
    assert budgets.calls == []
    # Other pools have no budget.
    for pool in ((0, 10), None):
        graph.capture_begin(pool)
        graph.capture_end()
    executing.Graph().capture_begin(pool=POOL)


def test_a_graph_whose_executable_never_fits_is_refused_at_its_end(budgets, monkeypatch):
    regraph.torch.capture_budget(600 * MIB, 12 * MIB)
    budgets.answers["pools"] = [
        {"id": POOL, "reserved": 64 * MIB, "allocated": 0, "graphs": 3},
        {"id": (0, 3), "reserved": 1, "allocated": 0, "graphs": 1},
    ]
    blocks = [
        {"address": 4096 * size, "size": size * MIB, "state": state}
        for size, state in [(4, "active_allocated"), (9, "inactive"), (6, "active_allocated")]
    ]
    segments = [
        {"device": 0, "segment_pool_id": list(POOL), "blocks": blocks},
        {"device": 1, "segment_pool_id": list(POOL), "blocks": [{**blocks[0], "size": 98 * MIB}]},
        {"device": 0, "segment_pool_id": [0, 0], "blocks": [{**blocks[0], "size": 99 * MIB}]},
    ]
    monkeypatch.setitem(budgets.answers, "snapshot", json.dumps({"segments": segments}))
    monkeypatch.setattr(fake_native.Graph, "foreseen_bytes", lambda self: 2 * MIB + 1)
    graph = executing.Graph()
    graph.capture_begin(POOL)
    with pytest.raises(regraph.torch.Error) as raised:
        graph.capture_end()
    told = str(raised.value)
    assert "would take 2.0 MiB, and does not fit" in told
    assert "may hold 588.0 MiB and holds 64.0 MiB, for 3 graphs" in told
    assert "executables may take 12.0 MiB" in told
    assert "the largest blocks in the pool: 6.0 MiB at 0x6000, 4.0 MiB at 0x4000." in told
    assert "torch.reset" in budgets.names()
    with pytest.raises(regraph.torch.Error, match="nothing was captured"):
        graph.pin()
    # One that fits is a graph as any.
    monkeypatch.setattr(fake_native.Graph, "foreseen_bytes", lambda self: 2 * MIB)
    graph.capture_begin(POOL)
    graph.capture_end()
    graph.pin()


def test_a_request_that_does_not_fit_is_told_with_the_budget(budgets, monkeypatch):
    regraph.torch.capture_budget(600 * MIB, 32 * MIB)
    left = []

    class Context(torch.cuda.graph):
        def __init__(self, pool):
            self.pool = () if pool is None else (pool,)

    from regraph.torch import capturing

    monkeypatch.setattr(capturing, "_add_note", lambda error, note: left.append(note))
    budgets.failures["executables"] = fake_native.Error("not kept")
    failure = torch.OutOfMemoryError("no")
    for pool, count in ((None, 0), ((0, 4), 0), (POOL, 1)):
        capturing._tell_budget(failure, Context(pool).pool)
        assert len(left) == count
    assert left[0].startswith("By capture_budget the pool (0, 9) may hold 568.0 MiB and holds 0.0")
    # Nothing that goes wrong here hides the failure.
    budgets.failures["pools"] = ZeroDivisionError()
    capturing._tell_budget(failure, (POOL,))
    assert len(left) == 1
