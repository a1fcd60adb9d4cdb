"""Uses, explanations and traces."""

import io
import os
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch


def tensor(address=0x7F00_0000_0000, device="cuda:0"):
    """What `record_use` looks at in a tensor."""
    storage = types.SimpleNamespace(data_ptr=lambda: address)
    return types.SimpleNamespace(
        is_cuda=device != "cpu", device=device, untyped_storage=lambda: storage
    )


def test_a_use_is_the_current_streams(enabled, native):
    regraph.torch.record_use(tensor())
    regraph.torch.record_use(tensor(), 9)
    regraph.torch.record_use(tensor(), types.SimpleNamespace(cuda_stream=11))
    assert native.calls == [("record_use", 0x7F00_0000_0000, stream) for stream in (7, 9, 11)]


def test_the_default_stream_of_another_device_is_refused(enabled, native):
    there = tensor(device=types.SimpleNamespace(index=1))
    with pytest.raises(regraph.torch.Error, match="default stream of device 0"):
        regraph.torch.record_use(there, types.SimpleNamespace(cuda_stream=0, device_index=0))
    regraph.torch.record_use(there, types.SimpleNamespace(cuda_stream=0, device_index=1))
    assert native.names() == ["record_use"]


def test_what_is_no_tensor_or_stream_is_a_type_error(enabled, native):
    with pytest.raises(TypeError, match="needs a tensor, not list"):
        regraph.torch.record_use([1])
    with pytest.raises(TypeError, match="needs a stream or its raw handle, not str"):
        regraph.torch.explain(0, stream="x")


def test_an_empty_tensor_has_no_memory_to_use(enabled, native):
    regraph.torch.record_use(tensor(address=0))
    assert native.calls == []


def test_uses_that_cannot_be_recorded(enabled, native):
    with pytest.raises(regraph.torch.Error, match="on cpu"):
        regraph.torch.record_use(torch.empty(1))
    native.failures["record_use"] = RuntimeError("no block at 0x7f0000000000")
    with pytest.raises(regraph.torch.Error, match="no block at"):
        regraph.torch.record_use(tensor())


def test_explanations_come_pool_by_pool(enabled, native):
    blocks = [
        {
            "pool": (0, 1),
            "address": 0x7F00_0000_0000,
            "bytes": 512,
            "block": 3,
            "reason": "waits for node 5 of stream 7",
            "stack": ["train.py:12 in step", "train.py:40 in main"],
        },
        {
            "pool": (0, 1),
            "address": 0x7F00_0000_0200,
            "bytes": 1024,
            "block": 4,
            "reason": None,
            "stack": [],
        },
    ]
    native.answers["explain"] = blocks
    text = io.StringIO()
    assert regraph.torch.explain(0, stream=9, file=text) == blocks
    assert native.calls == [("explain", 0, 9)]
    assert text.getvalue().splitlines() == [
        "pool (0, 1)",
        "  0x7f0000000000, 512 bytes: waits for node 5 of stream 7",
        "      train.py:12 in step",
        "      train.py:40 in main",
        "  0x7f0000000200, 1024 bytes: may be taken",
    ]


def test_nothing_to_explain(enabled, native, capsys):
    assert regraph.torch.explain(0) == []
    assert native.calls == [("explain", 0, 7)]
    assert capsys.readouterr().out == "No free block waits.\n"


def test_a_recording_stops_with_its_block(enabled, native, tmp_path):
    path = tmp_path / "trace.jsonl"
    again = pytest.raises(regraph.torch.Error, match="recorded already")
    with regraph.torch.record_trace(path) as recording, again:
        regraph.torch.record_trace(path)
    recording.stop()
    assert native.calls == [("record_trace", str(path), True), ("record_trace", None)]


def test_a_recording_stops_when_told(enabled, native):
    first = regraph.torch.record_trace("a.jsonl")
    first.stop()
    second = regraph.torch.record_trace("b.jsonl")
    first.stop()
    second.stop()
    # Where the program was then.
    files = [call[1] and os.path.relpath(call[1]) for call in native.calls]
    assert files == ["a.jsonl", None, "b.jsonl", None]
    assert os.path.isabs(native.calls[0][1])


def test_a_recording_that_cannot_be_stopped_is_over(enabled, native):
    recording = regraph.torch.record_trace("a.jsonl")
    native.failures["record_trace"] = native.Error("a device is lost")
    with pytest.raises(regraph.torch.Error, match="a device is lost"):
        recording.stop()
    native.failures.clear()
    regraph.torch.record_trace("b.jsonl").stop()


def test_a_recording_that_does_not_start_is_none(enabled, native):
    native.failures["record_trace"] = RuntimeError("no such folder")
    with pytest.raises(RuntimeError, match="no such folder"):
        regraph.torch.record_trace("a.jsonl")
    native.failures.clear()
    with pytest.raises(regraph.torch.Error, match="there is no folder"):
        regraph.torch.record_trace("nowhere/a.jsonl")
    regraph.torch.record_trace("a.jsonl").stop()


def test_a_recording_may_be_without_stacks(enabled, native):
    regraph.torch.record_trace("a.jsonl", stacks=False).stop()
    assert native.calls == [("record_trace", os.path.abspath("a.jsonl"), False), ("record_trace", None)]


def test_a_trace_is_drawn_without_a_gpu(native, tmp_path):
    page = tmp_path / "page.html"
    assert regraph.torch.plot(tmp_path / "a.jsonl", page) == str(page)
    assert native.calls == [("plot", str(tmp_path / "a.jsonl"), "a.jsonl", str(page))]
    with pytest.raises(regraph.torch.Error, match="there is no folder"):
        regraph.torch.plot("a.jsonl", tmp_path / "nowhere" / "page.html")


def test_tools_need_regraph(gpu, native):
    for call in (
        lambda: regraph.torch.record_use(tensor()),
        lambda: regraph.torch.explain(0),
        lambda: regraph.torch.record_trace("a.jsonl"),
        lambda: regraph.torch.plot(tensor),
    ):
        with pytest.raises(regraph.torch.Error, match="call regraph.torch.enable"):
            call()
    assert native.calls == []
