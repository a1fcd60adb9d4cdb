"""Runs that captures are learned from."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch


@pytest.fixture
def initialized(enabled, monkeypatch):
    """PyTorch with a GPU that it has used."""
    monkeypatch.setattr(torch.cuda, "init", lambda: None)


def test_a_run_is_noted_from_its_begin_to_its_end(initialized, native):
    with regraph.torch.learn(0):
        assert native.calls == [("learn", 0)]
    assert native.calls == [("learn", 0), ("learned", 0)]


def test_a_run_that_fails_ends_all_the_same(initialized, native):
    with pytest.raises(ValueError, match="of the run"), regraph.torch.learn(0):
        raise ValueError("of the run")
    assert native.names() == ["learn", "learned"]


def test_what_does_not_begin_does_not_end(initialized, native):
    native.failures["learn"] = RuntimeError("no such device")
    with pytest.raises(RuntimeError, match="no such device"), regraph.torch.learn(0):
        pass
    assert native.names() == ["learn"]


def test_learning_needs_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match="learn needs regraph"):
        with regraph.torch.learn():
            pass
