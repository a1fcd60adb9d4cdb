"""Captures: what the library is told, in which order, also where a call fails."""

import os
import sys
import types

import pytest

from fake_native import CAPTURE, OutOfMemory, Refused

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch
from regraph.torch import capturing

BEGIN = ["capture_beginning", "torch.capture_begin", "capture_begun"]
GIVEN_UP = ["torch.capture_end", "capture_failing", "torch.reset", "capture_failed"]


@pytest.mark.parametrize(("arguments", "keywords"), [((object(),), {}), ((), {"generator": object()})])
def test_a_generators_state_lies_in_no_region(enabled, native, arguments, keywords):
    torch.cuda.CUDAGraph().register_generator_state(*arguments, **keywords)
    assert native.calls == [
        ("enter_region", None),
        ("torch.register_generator_state",),
        ("leave_region",),
    ]


def test_a_capture_is_told_and_judged(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    assert native.calls == [
        ("capture_beginning", 0, 7),
        ("torch.capture_begin",),
        ("capture_begun", 0, 7, True),
        ("capture_ending", 0, 7),
        ("torch.capture_end",),
        ("capture_ended", 0, 7),
    ]


@pytest.mark.parametrize(
    ("arguments", "keywords", "expected"),
    [
        ((), {}, (None, "global")),
        (((0, 1),), {}, ((0, 1), "global")),
        (((0, 1), "relaxed"), {}, ((0, 1), "relaxed")),
        ((), {"pool": (0, 1), "capture_error_mode": "thread_local"}, ((0, 1), "thread_local")),
    ],
)
def test_arguments_go_through(enabled, arguments, keywords, expected):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(*arguments, **keywords)
    assert graph.arguments == expected


def test_subclasses_are_told_of_too(enabled, native):
    class Graph(torch.cuda.CUDAGraph):
        def capture_begin(self, *arguments, **keywords):
            native.calls.append(("subclass",))
            super().capture_begin(*arguments, **keywords)

    graph = Graph()
    graph.capture_begin(pool=(0, 1))
    graph.capture_end()
    assert native.names() == ["subclass", *BEGIN, *_end()]


@pytest.mark.parametrize("name", ["capture_end", "capture_end_pre"])
def test_captures_of_the_native_class_are_told_and_judged(gpu, native, name):
    """As of programs that call it themselves; the Python class of later versions ends by the second."""
    kind = torch._C._CUDAGraph
    setattr(kind, name, kind.capture_end)
    regraph.torch.enable(native=False)
    native.calls.clear()
    graph = kind()
    graph.capture_begin((0, 1), "relaxed")
    assert graph.arguments == ((0, 1), "relaxed")
    getattr(graph, name)()
    assert native.names() == [*BEGIN, *_end()]


def test_the_native_class_is_put_back(gpu, native):
    kind = torch._C._CUDAGraph
    before = kind.capture_begin, kind.capture_end
    native.failures["change"] = RuntimeError("not now")
    with pytest.raises(regraph.torch.Error, match="not now"):
        regraph.torch.enable(native=False)
    assert (kind.capture_begin, kind.capture_end) == before


def test_a_capture_that_does_not_begin(enabled, native):
    native.failures["torch.capture_begin"] = RuntimeError("not here")
    with pytest.raises(RuntimeError, match="not here"):
        torch.cuda.CUDAGraph().capture_begin()
    assert native.names() == [*BEGIN[:2], "capture_failed"]


def test_captures_beside_a_communication_library_map_nothing_ahead(enabled, native, monkeypatch):
    monkeypatch.setitem(torch.distributed.distributed_c10d._pg_map, "group", "nccl")
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    assert native.calls[-1] == ("capture_begun", 0, 7, False)
    del graph
    assert native.calls[-1] == ("capture_dropped", 0, 7, CAPTURE)


@pytest.mark.parametrize(
    ("before", "later", "hook", "groups", "alone"),
    [
        ("0", "0", "0", ["cpu:gloo,cuda:nccl", "cuda:nccl"], True),
        ("0", "0", "0", ["cpu:gloo,cuda:gloo"], True),
        ("1", "0", "0", ["cuda:nccl"], False),
        (None, "0", "0", ["cuda:nccl"], False),
        ("0", "1", "0", ["cuda:nccl"], False),
        ("0", "0", "1", ["cuda:nccl"], False),
        ("0", "0", "0", ["cuda:nccl", "cpu:gloo,cuda:ucc"], False),
    ],
)
def test_nccl_can_be_told_to_register_nothing_of_captures(
    gpu, native, monkeypatch, before, later, hook, groups, alone
):
    name = "NCCL_GRAPH_REGISTER"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    regraph.torch.enable(native=False)
    monkeypatch.setenv(name, later)
    monkeypatch.setenv("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", hook)
    world = types.SimpleNamespace(pg_backend_config=dict(enumerate(groups)))
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_world", world)
    monkeypatch.setitem(torch.distributed.distributed_c10d._pg_map, "group", "nccl")
    torch.cuda.CUDAGraph().capture_begin()
    assert ("capture_begun", 0, 7, alone) in native.calls


def test_a_plan_beside_a_communication_library_is_warned_of_once(enabled, native, monkeypatch):
    native.answers["plans_captures"] = True
    alone = torch.cuda.CUDAGraph()
    alone.capture_begin()
    alone.capture_end()
    monkeypatch.setitem(torch.distributed.distributed_c10d._pg_map, "group", "nccl")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="plan:exact has no effect") as warned:
        first.capture_begin()
        first.capture_end()
        second.capture_begin()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    begun = [call for call in native.calls if call[0] == "capture_begun"]
    assert [call[-1] for call in begun] == [True, False, False]


@pytest.mark.filterwarnings("error")
def test_without_a_plan_nothing_is_warned_of(enabled, native, monkeypatch):
    monkeypatch.setitem(torch.distributed.distributed_c10d._pg_map, "group", "nccl")
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    assert native.names().count("plans_captures") == 1


def test_a_capture_that_the_library_does_not_take(enabled, native):
    native.failures["capture_begun"] = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        torch.cuda.CUDAGraph().capture_begin()
    assert native.names() == [*BEGIN, *GIVEN_UP]


def test_a_stream_that_captures_already_is_left_alone(enabled, native):
    native.failures["capture_beginning"] = regraph.torch.Error("capturing already")
    with pytest.raises(regraph.torch.Error, match="capturing already"):
        torch.cuda.CUDAGraph().capture_begin()
    assert native.names() == ["capture_beginning"]


@pytest.mark.parametrize("error", [Refused("block 1, node 2"), RuntimeError("driver")])
def test_a_refused_graph_is_ended_and_dropped(enabled, native, error):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.failures["capture_ending"] = error
    with pytest.raises(type(error)) as raised:
        graph.capture_end()
    assert raised.value is error
    assert native.names() == [*BEGIN, "capture_ending", *GIVEN_UP]


def test_a_refusal_is_raised_even_if_dropping_fails(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.failures["capture_ending"] = Refused("block 1")
    for name in ("torch.capture_end", "torch.reset", "capture_failed"):
        native.failures[name] = RuntimeError(name)
    with (
        pytest.raises(regraph.torch.Refused, match="block 1"),
        pytest.warns(UserWarning, match="capture_failed"),
    ):
        graph.capture_end()
    assert native.names() == [*BEGIN, "capture_ending", *GIVEN_UP]


def test_an_end_that_fails_goes_on_with_torchs_error(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.failures["torch.capture_end"] = RuntimeError("invalidated")
    with pytest.raises(RuntimeError, match="invalidated"):
        graph.capture_end()
    assert native.names() == [*BEGIN, "capture_ending", *GIVEN_UP]


def test_a_graph_that_the_library_does_not_take_is_dropped(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.failures["capture_ended"] = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        graph.capture_end()
    assert native.names() == [*BEGIN, *_end(), "torch.reset"]


def test_an_end_on_another_stream_is_torchs_error_and_the_capture_goes_on(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    enabled.stream = 8
    native.failures["torch.capture_end"] = RuntimeError("same stream")
    with pytest.raises(RuntimeError, match="same stream"):
        graph.capture_end()
    enabled.stream = 7
    native.failures.clear()
    graph.capture_end()
    assert native.names() == [*BEGIN, "torch.capture_end", *_end()]


def test_an_end_without_a_beginning(enabled, native):
    graph = torch.cuda.CUDAGraph()
    native.failures["torch.capture_end"] = RuntimeError("not capturing")
    with pytest.raises(RuntimeError, match="not capturing"):
        graph.capture_end()
    enabled.capturing = True
    with pytest.raises(regraph.torch.Error, match="not begun by this graph"):
        graph.capture_end()
    assert native.names() == ["torch.capture_end"]


def test_a_failed_capture_then_a_good_one_of_the_same_graph(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.failures["torch.capture_end"] = RuntimeError("invalidated")
    with pytest.raises(RuntimeError):
        graph.capture_end()
    native.failures.clear()
    native.calls.clear()
    graph.capture_begin()
    graph.capture_end()
    assert native.names() == [*BEGIN, *_end()]


def test_a_graph_that_is_dropped_names_its_own_capture(enabled, native):
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    first.capture_begin()
    native.answers["capture_begun"] = CAPTURE + 1
    second.capture_begin()
    del first
    assert native.calls[-1] == ("capture_dropped", 0, 7, CAPTURE)


def test_a_graph_that_begins_twice_names_its_latest_capture(enabled, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.answers["capture_begun"] = CAPTURE + 1
    graph.capture_begin()
    native.calls.clear()
    del graph
    assert native.calls == [("capture_dropped", 0, 7, CAPTURE + 1)]


def test_a_capture_into_no_pool_is_not_told_of_when_its_graph_is_dropped(enabled, native):
    native.answers["capture_begun"] = None
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.calls.clear()
    del graph
    assert native.calls == []
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    assert native.names() == [*BEGIN, *_end()]


def entered(left):
    """`torch.cuda.graph` around a capture that has begun; exits of its stream go to `left`."""
    context = object.__new__(torch.cuda.graph)
    context.cuda_graph = torch.cuda.CUDAGraph()
    context._enable_annotations = False  # Of later versions.
    context.stream_ctx = types.SimpleNamespace(__exit__=lambda *error: left.append(error))
    context.cuda_graph.capture_begin()
    return context


def left_by(context, error):
    """What comes out of a `with` block that `error` leaves."""
    try:
        try:
            raise error
        except BaseException as raised:
            if not context.__exit__(type(raised), raised, raised.__traceback__):
                raise
    except BaseException as raised:
        return raised
    return None


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_in_a_capture_comes_out_as_itself(enabled, native, kind):
    error = kind("the program's")
    assert left_by(entered([]), error) is error
    assert not getattr(error, "__notes__", [])
    assert native.names() == [*BEGIN, *_end()]


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("torch.capture_end", RuntimeError("CUDA error: invalidated")),
        ("capture_ending", Refused("block 1, node 2")),
        ("capture_ended", RuntimeError("no graph")),
    ],
)
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_so_it_does_where_the_capture_cannot_be_ended(enabled, native, name, failure, kind):
    left, error = [], kind("the program's")
    native.failures[name] = failure
    assert left_by(entered(left), error) is error
    # The stream that was current before is so again.
    assert left[-1] == (None, None, None)
    if sys.version_info >= (3, 11):
        (note,) = error.__notes__
        assert str(failure) in note
    # The failure is cleaned up as ever, and the next capture is like any other.
    assert "torch.reset" in native.names()
    native.failures.clear()
    native.calls.clear()
    assert left_by(entered([]), error) is error
    assert native.names() == [*BEGIN, *_end()]


def test_an_interrupt_while_the_capture_ends_goes_first(enabled, native):
    native.failures["torch.capture_end"] = KeyboardInterrupt()
    assert isinstance(left_by(entered([]), ValueError("the program's")), KeyboardInterrupt)


@pytest.mark.parametrize("fails", [False, True])
def test_the_context_manager_restores_the_stream(enabled, native, fails):
    left = []
    context = entered(left)
    if fails:
        native.failures["capture_ending"] = Refused("block 1")
        with pytest.raises(Refused):
            context.__exit__(None, None, None)
    else:
        context.__exit__(None, None, None)
    # Later versions of PyTorch restore it themselves; the second time does nothing.
    assert set(left) == {(None, None, None)}


@pytest.mark.parametrize("previous", [None, object()])
def test_it_does_so_where_the_capture_does_not_begin(enabled, native, monkeypatch, previous):
    left, ctx = [], types.SimpleNamespace(src_prev_stream=None)
    ctx.__enter__ = lambda: setattr(ctx, "src_prev_stream", previous)
    ctx.__exit__ = lambda *error: left.append(error)
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: ctx)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    native.failures["capture_beginning"] = regraph.torch.Error("the pool sleeps")
    with pytest.raises(regraph.torch.Error, match="sleeps"):
        torch.cuda.graph(torch.cuda.CUDAGraph(), stream=object()).__enter__()
    assert left == ([] if previous is None else [(None, None, None)])


def test_a_plan_without_memory_is_pytorchs_error(enabled, native):
    native.failures["capture_ending"] = OutOfMemory("the capture runs on 5 bytes in all")
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    with pytest.raises(torch.OutOfMemoryError, match="5 bytes"):
        graph.capture_end()
    assert native.names() == [*BEGIN, "capture_ending", *GIVEN_UP]


def _end():
    return ["capture_ending", "torch.capture_end", "capture_ended"]


@pytest.mark.parametrize(("stream", "expected"), [(None, 7), (9, 9)])
def test_a_capture_that_the_program_began_by_itself_is_judged_where_it_says_so(
    enabled, native, stream, expected
):
    regraph.torch.judge_capture(stream)
    assert native.calls == [("judge_capture", 0, expected)]


def test_what_is_registered_of_such_a_capture_does_not_sleep(enabled, native, monkeypatch):
    monkeypatch.setitem(torch.distributed.distributed_c10d._pg_map, "group", "nccl")
    marked = []
    monkeypatch.setattr(capturing.calls().registered, "add", marked.append)
    native.failures["judge_capture"] = regraph.torch.Refused("two blocks")
    with pytest.raises(regraph.torch.Refused, match="two blocks"):
        regraph.torch.judge_capture()
    assert marked == [None]


def test_what_is_no_stream_is_not_judged(enabled, native):
    with pytest.raises(TypeError, match="str is no CUDA stream"):
        regraph.torch.judge_capture("x")
    assert native.calls == []


def test_judging_needs_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match="judge_capture needs regraph"):
        regraph.torch.judge_capture()


def test_captures_that_nothing_is_asked_for_after_are_noticed_at_the_end_of_the_process(
    enabled, native
):
    capturing.calls().forget_all()
    assert native.names() == ["notice_ends"]


def test_a_process_that_was_forked_ends_without_a_call(enabled, native, monkeypatch):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.calls.clear()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        capturing.calls().forget_all()
    assert native.calls == []
    graph.capture_end()
