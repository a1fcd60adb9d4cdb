"""Snapshots and history, by PyTorch's names."""

import pickle
import sys

import pytest

import fake_native

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch

ALLOC, POOLED = 0x7F00_0000_0000, 0x7F10_0000_0000


def test_a_snapshot_has_torchs_shape(enabled):
    state = torch.cuda.memory._snapshot()
    assert set(state) == set(fake_native.snapshot())
    assert [segment["segment_pool_id"] for segment in state["segments"]] == [(0, 0), (0, 3)]
    assert state["device_traces"][0][0]["pool_id"] == (0, 0)
    assert regraph.torch._snapshot() == state


def test_segments_of_one_pool(enabled):
    def addresses(*pool):
        return [segment["address"] for segment in torch.cuda.memory_snapshot(*pool)]

    assert addresses() == [ALLOC, POOLED]
    assert addresses((0, 3)) == [POOLED]
    assert addresses((0, 9)) == []


def test_traces_can_be_left_out(enabled):
    assert torch._C._cuda_memorySnapshot((0, 0, False))["device_traces"] == [[]]
    assert len(torch._C._cuda_memorySnapshot((0, 0))["device_traces"][0]) == 1


def test_torchs_own_tools_take_it(enabled, tmp_path):
    from torch.cuda import _memory_viz

    state = torch.cuda.memory._snapshot()
    assert "<html" in _memory_viz.trace_plot(state)
    assert "0 in use" not in _memory_viz.segsum(state)
    path = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    assert pickle.loads(path.read_bytes()) == state


def test_our_dump_is_the_librarys(enabled, native, tmp_path):
    regraph.torch._dump_snapshot(tmp_path / "a.pickle")
    assert native.calls == [("dump_snapshot", str(tmp_path / "a.pickle"))]


def test_history_goes_on_and_off(enabled, native):
    record = torch.cuda.memory._record_memory_history
    assert not torch._C._cuda_isHistoryEnabled()
    record(max_entries=100)
    assert torch._C._cuda_isHistoryEnabled()
    record("state")
    record("all", stacks="python", clear_history=True)
    record(None)
    assert not torch._C._cuda_isHistoryEnabled()
    record(True, trace_alloc_max_entries=5)
    record(False)
    assert native.calls == [
        ("record_history", entries) for entries in (100, 1, 0, sys.maxsize, 0, 5, 0)
    ]


def test_an_unknown_kind_of_history_is_an_error(enabled, native):
    with pytest.raises(RuntimeError, match="'everything'"):
        torch.cuda.memory._record_memory_history("everything")
    assert native.calls == []
