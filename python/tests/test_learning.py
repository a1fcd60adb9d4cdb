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


def test_a_run_that_fails_teaches_nothing(initialized, native):
    with pytest.raises(ValueError, match="of the run"), regraph.torch.learn(0):
        raise ValueError("of the run")
    assert native.names() == ["learn", "forget_run"]
    with regraph.torch.learn(0):
        pass
    assert native.names()[2:] == ["learn", "learned"]


def test_a_run_in_a_run_is_refused_and_leaves_it(initialized, native):
    with regraph.torch.learn(0):
        with pytest.raises(regraph.torch.Error, match="device 0 is being learned from already"):
            with regraph.torch.learn(0):
                raise AssertionError
        with regraph.torch.learn(1):
            pass
    assert native.calls == [("learn", 0), ("learn", 1), ("learned", 1), ("learned", 0)]


def test_what_does_not_begin_does_not_end(initialized, native):
    native.failures["learn"] = native.Error("no such device")
    with pytest.raises(regraph.torch.Error, match="no such device"), regraph.torch.learn(0):
        pass
    assert native.names() == ["learn"]
    native.failures.clear()
    with regraph.torch.learn(0):
        pass


def test_what_was_learned_can_be_forgotten(initialized, native):
    regraph.torch.forget_learned(1)
    assert native.calls == [("forget_learned", 1)]


def test_learning_needs_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match="learn needs regraph"), regraph.torch.learn():
        pass
