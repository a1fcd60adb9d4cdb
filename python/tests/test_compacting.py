"""Pools of graphs that give back what their graphs need no more."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch


@pytest.fixture
def waits(enabled, native, monkeypatch):
    """PyTorch with a GPU that it has used; waits for it are noted among the calls."""
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(
        torch.cuda, "synchronize", lambda device: native.calls.append(("wait", device))
    )


def test_a_pool_is_named_as_pytorch_names_it(waits, native):
    assert regraph.torch.compact(device=0) == 7
    assert regraph.torch.compact((0, 3), device=0) == 7
    assert regraph.torch.excess_bytes((0, 3), device=0) == 9
    # The library waits for the device, where no capture can begin: a wait here could ruin another thread's.
    assert native.calls == [
        ("compact", 0, None),
        ("compact", 0, (0, 3)),
        ("excess_bytes", 0, (0, 3)),
    ]


@pytest.mark.parametrize("name", ["compact", "excess_bytes"])
def test_a_refusal_says_why(waits, native, name):
    native.failures[name] = native.Error("pool 3 is busy")
    with pytest.raises(regraph.torch.Error, match="pool 3 is busy"):
        getattr(regraph.torch, name)(device=0)


@pytest.mark.parametrize("name", ["compact", "excess_bytes"])
def test_it_needs_regraph(gpu, name):
    with pytest.raises(regraph.torch.Error, match=f"{name} needs regraph"):
        getattr(regraph.torch, name)()
