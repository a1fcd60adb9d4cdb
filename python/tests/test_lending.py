"""Eager work in what graphs do not keep, and replays that are told of."""

import contextlib
import threading
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from interrupts import behind_each_call

import regraph.torch
from regraph.torch import launches, lending, pools

POOL = (0, 3)


@pytest.fixture
def lends(gpu, native, monkeypatch):
    """PyTorch with a GPU and the native allocator, and graphs of a pool."""
    graph = torch._C._CUDAGraph
    regraph.torch.enable(native=True)
    native.calls.clear()
    on = 0

    @contextlib.contextmanager
    def device(index):
        nonlocal on
        before, on = on, index
        try:
            yield
        finally:
            on = before

    monkeypatch.setattr(torch.cuda, "device", device)
    # Of one device alone.
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: gpu.capturing and on == 1
    )
    monkeypatch.setattr(graph, "replay", lambda self: self._note("torch.replay"), raising=False)
    monkeypatch.setattr(graph, "pool", lambda self: POOL, raising=False)
    return graph


def test_eager_work_borrows_and_replays_are_told(lends, native):
    native.answers["lending_device"] = 0
    graph = lends()
    graph.replay()
    assert native.names() == ["torch.replay"], "nothing was lent yet"
    native.calls.clear()
    with regraph.torch.borrow(POOL, device=0):
        assert native.calls == [("begin_borrowing", 0, POOL)]
    assert native.calls[1:] == [("end_borrowing",)]
    native.calls.clear()
    for _ in range(2):
        graph.replay()
        assert native.calls == [
            ("launch_begins", POOL, 7),
            ("torch.replay",),
            ("launch_ends",),
        ]
        native.calls.clear()
        with regraph.torch.borrow(POOL, device=0):
            pass
        native.calls.clear()


def test_a_launch_that_is_refused_is_not_made(lends, native):
    native.answers["lending_device"] = 0
    with regraph.torch.borrow(POOL, device=0):
        native.failures["launch_begins"] = native.Error("blocks live")
        native.calls.clear()
        with pytest.raises(RuntimeError, match="blocks live"):
            lends().replay()
        # Asked again once cycles of references are collected.
        assert native.names() == ["launch_begins", "launch_begins"]


def test_the_end_of_a_launch_is_told_even_if_it_fails(lends, native):
    native.answers["lending_device"] = 0
    with regraph.torch.borrow(POOL, device=0):
        native.failures["torch.replay"] = native.Error("no such kernel")
        native.calls.clear()
        with pytest.raises(RuntimeError, match="no such kernel"):
            lends().replay()
        assert native.names()[-1] == "launch_ends"


def test_replays_of_other_pools_go_on_as_ever(lends, native, monkeypatch):
    with regraph.torch.borrow(POOL, device=0):
        pass
    native.calls.clear()
    lends().replay()
    assert native.calls == [("launch_begins", POOL), ("torch.replay",), ("launch_ends",)]
    native.calls.clear()

    def has_none(graph):
        raise RuntimeError("no capture has ended")

    monkeypatch.setattr(lends, "pool", has_none)
    lends().replay()
    assert native.names() == ["torch.replay"], "PyTorch says what is wrong"


def test_a_tree_s_warm_up_borrows_all_that_is_free(lends, native):
    pools._begin(0, POOL)
    assert native.calls == [("has_checkpoint", 0, POOL), ("begin_thread_pool", 0, POOL)]
    assert not hasattr(lends.replay, "for_good")
    native.answers["has_checkpoint"] = True
    native.calls.clear()
    pools._begin(0, POOL)
    assert native.calls == [("has_checkpoint", 0, POOL), ("begin_borrowing", 0, POOL)]
    assert lends.replay.for_good


def test_regions_that_wake_leave_the_telling(lends, native):
    launches.watch(for_good=False)
    with regraph.torch.borrow(POOL, device=0):
        pass
    launches.unwatch()
    native.calls.clear()
    lends().replay()
    assert native.names() == ["launch_begins", "torch.replay", "launch_ends"]


def test_replays_that_began_before_they_were_told_of_are_waited_for(lends, native, monkeypatch):
    """The method that is replaced goes on in threads that have called it."""
    inside, go_on, order = threading.Event(), threading.Lock(), []
    go_on.acquire()

    class CUDAGraph(torch.cuda.CUDAGraph):
        def replay(self):
            inside.set()
            # In no function of Python's, as in PyTorch's own.
            go_on.acquire()

    def replays():
        CUDAGraph().replay()
        order.append("replayed")

    def borrows():
        with regraph.torch.borrow(POOL, device=0):
            order.append("borrowed")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", CUDAGraph)
    threads = [threading.Thread(target=replays)]
    threads[0].start()
    assert inside.wait(10)
    threads.append(threading.Thread(target=borrows))
    threads[1].start()
    threads[1].join(0.2)
    assert order == []
    go_on.release()
    for thread in threads:
        thread.join(10)
    assert sorted(order) == ["borrowed", "replayed"]


def test_who_gets_a_raw_handle_may_launch_it(enabled, native, monkeypatch):
    from regraph.torch.patches import Patches

    graph = torch._C._CUDAGraph
    monkeypatch.setattr(graph, "pool", lambda self: POOL, raising=False)
    monkeypatch.setattr(graph, "raw_cuda_graph_exec", lambda self: 0xE, raising=False)
    patches = Patches()
    launches.install(patches)
    native.calls.clear()
    assert graph().raw_cuda_graph_exec() == 0xE
    assert native.calls == [("launches_elsewhere", POOL)]
    patches.undo()


def test_an_interrupt_leaves_nothing_begun(lends, native):
    def borrows():
        with regraph.torch.borrow(POOL, device=0):
            pass

    def balanced(begins, ends):
        assert native.names().count(begins) == native.names().count(ends)

    assert behind_each_call(borrows, lambda: balanced("begin_borrowing", "end_borrowing")) >= 3
    native.answers["lending_device"] = 0
    graph = lends()
    assert behind_each_call(graph.replay, lambda: balanced("launch_begins", "launch_ends")) >= 3


def test_nothing_is_borrowed_in_a_capture(lends, native, gpu):
    gpu.capturing = True
    # The device that is named counts, and not the current one.
    with pytest.raises(regraph.torch.Error, match="device 1 is capturing; end the capture first"):
        with regraph.torch.borrow(POOL, device=1):
            pass
    assert native.calls == []
    with regraph.torch.borrow(POOL, device=0):
        pass


def test_a_refusal_says_why(lends, native):
    native.failures["begin_borrowing"] = native.Error("there is no such pool")
    with pytest.raises(regraph.torch.Error, match="no such pool"), regraph.torch.borrow(POOL, device=0):
        pass
    assert "end_borrowing" not in native.names()


def test_another_process_is_lent_memory(lends, native, monkeypatch):
    stream = types.SimpleNamespace(cuda_stream=0x57)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    loan = regraph.torch.lend(POOL, 64, device=0)
    assert native.calls == [("lend_to_process", 0, POOL, 64, 0x57)]
    assert (loan.handle, loan.size, loan.state) == (b"the handle", 64, "taken")
    native.calls.clear()
    assert loan.recall()
    # An interrupt ends a wait without an end.
    [(name, seconds)] = native.calls
    assert name == "recall_loan" and 0 < seconds <= 1
    native.answers["recall_loan"] = False
    assert not loan.recall(timeout=0)
    # Replays are told of from now on.
    native.answers["lending_device"] = 0
    native.calls.clear()
    lends().replay()
    assert native.names()[0] == "launch_begins"


def test_a_loan_of_another_process_is_given_back(lends, native, monkeypatch):
    class Tensor:
        """As a tensor that lies in memory."""

        def __init__(self, memory):
            self.memory = memory

    monkeypatch.setattr(lending._Memory, "tensor", lambda memory, index: Tensor(memory))
    with regraph.torch.take_loan(b"the handle", device=0) as loan:
        assert native.calls == [("take_loan", 0, b"the handle")]
        memory = loan.tensor.memory.__cuda_array_interface__
        assert memory["data"][0] > 0 and memory["shape"] == (64,)
        assert not loan.recalled()
        native.answers["wait_for_recall"] = True
        assert loan.recalled(timeout=None)
        view = loan.tensor
        with pytest.raises(regraph.torch.Error, match="tensors lie in the 64 bytes at 0x"):
            loan.give_back()
        # Another tensor that comes and goes does not hide the first.
        assert loan.tensor.memory is view.memory
        with pytest.raises(regraph.torch.Error, match="tensors lie in"):
            loan.give_back()
        assert "give_back_loan" not in native.names()
        del view
        native.failures["give_back_loan"] = native.Error("device 0 captures")
        with pytest.raises(regraph.torch.Error, match="captures"):
            loan.give_back()
        # It is here still.
        assert loan.tensor is not None
        del native.failures["give_back_loan"]
    assert native.calls[-1] == ("give_back_loan",)
    with pytest.raises(regraph.torch.Error, match="was given back"):
        loan.tensor  # noqa: B018
    native.calls.clear()
    loan.give_back()
    assert native.calls == []


def test_what_a_block_raised_goes_on_where_its_tensors_keep_the_loan(lends, native, monkeypatch):
    class Tensor:
        def __init__(self, memory):
            self.memory = memory

    monkeypatch.setattr(lending._Memory, "tensor", lambda memory, index: Tensor(memory))
    with pytest.raises(ValueError, match="the block's own"):
        with regraph.torch.take_loan(b"the handle", device=0) as loan:
            view = loan.tensor
            raise ValueError("the block's own")
    assert "give_back_loan" not in native.names()
    del view
    loan.give_back()
    assert native.calls[-1] == ("give_back_loan",)


def test_an_interrupt_while_a_loan_is_given_back_leaves_it_here_or_there(lends, native, monkeypatch):
    monkeypatch.setattr(lending._Memory, "tensor", lambda memory, index: memory)

    def gives_back():
        loan = regraph.torch.take_loan(b"the handle", device=0)
        try:
            loan.give_back()
        finally:
            loan.give_back()

    def is_given_back():
        taken, given = (native.names().count(it) for it in ("take_loan", "give_back_loan"))
        assert given >= taken - 1
        native.calls.clear()

    assert behind_each_call(gives_back, is_given_back) >= 2


def test_nothing_is_lent_to_a_process_in_a_capture(lends, native, gpu):
    gpu.capturing = True
    for call in (lambda: regraph.torch.lend(POOL, 64, 1), lambda: regraph.torch.take_loan(b"", 1)):
        with pytest.raises(regraph.torch.Error, match="device 1 is capturing; end the capture"):
            call()
    assert native.calls == []


def test_what_is_lent_is_told(lends, native):
    assert regraph.torch.lent_bytes(POOL, device=0) == 5


def test_it_needs_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match="borrow needs regraph"), regraph.torch.borrow(POOL):
        pass
