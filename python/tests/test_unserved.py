"""What cannot be served says so, in one sentence, where it is asked for."""

import contextlib
import types
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch


def test_pools_of_torchs_own(enabled):
    with pytest.raises(regraph.torch.Error, match="MemPool works with PyTorch's own"):
        torch.cuda.MemPool()
    pool = types.SimpleNamespace(id=(0, 1))
    with pytest.raises(regraph.torch.Error, match="MemPool"), torch.cuda.use_mem_pool(pool, 0):
        pass


@pytest.mark.parametrize(
    "name",
    [
        "_cuda_beginAllocateCurrentThreadToPool",
        "_cuda_getCheckpointState",
        "_cuda_setCheckpointPoolState",
        "_cuda_checkPoolLiveAllocations",
    ],
)
def test_graph_trees_name_the_switch(enabled, name):
    from torch._inductor import config

    assert config.triton.cudagraph_trees in (True, False)
    with pytest.raises(regraph.torch.Error, match="config.triton.cudagraph_trees = False"):
        getattr(torch._C, name)(0, (0, 1))


def test_sharing_between_processes(enabled):
    storage = torch.empty(4).untyped_storage()
    with pytest.raises(regraph.torch.Error, match="between processes"):
        storage._share_cuda_()
    with pytest.raises(regraph.torch.Error, match="between processes"):
        torch.UntypedStorage._new_shared_cuda(0, b"")


def test_keeping_a_pool(gpu):
    torch.cuda.CUDAGraph.retain_pool = lambda self, pool: None
    regraph.torch.enable(native=False)
    with pytest.raises(regraph.torch.Error, match="retain_pool"):
        torch.cuda.CUDAGraph().retain_pool((0, 1))


def test_the_cache_stays_on(enabled, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    torch.cuda.caching_allocator_enable(True)
    with pytest.raises(regraph.torch.Error, match="REGRAPH_NO_MEMORY_CACHING"):
        torch.cuda.caching_allocator_enable(False)


@contextlib.contextmanager
def benchmark_put_back():
    before = torch.backends.cudnn.benchmark
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.backends.cudnn.benchmark = before


def test_benchmark_is_turned_off(gpu):
    with benchmark_put_back():
        torch.backends.cudnn.benchmark = True
        with pytest.warns(UserWarning, match="benchmark stays off"):
            regraph.torch.enable(native=False)
        assert not torch.backends.cudnn.benchmark


def test_benchmark_stays_off(enabled):
    with benchmark_put_back():
        with pytest.warns(UserWarning, match="benchmark stays off"):
            torch.backends.cudnn.benchmark = True
        assert not torch.backends.cudnn.benchmark
        flags = torch.backends.cudnn.flags(enabled=True, benchmark=True)
        with pytest.warns(UserWarning, match="benchmark stays off"), flags:
            assert not torch.backends.cudnn.benchmark
