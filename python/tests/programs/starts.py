"""Programs about enabling, and about what cannot be served."""

import multiprocessing
import os
import warnings

import torch
from common import MIB, enable, expect, main

import regraph.torch


def second_time(folder):
    """Enabling again with the same does nothing, also when CUDA was used; with something else it is an error."""
    enable()
    enable()
    expect(regraph.torch.Error, lambda: enable(settings="history:5"), "history:5")
    assert torch.ones(MIB, device="cuda").sum().item() == MIB
    enable()
    expect(regraph.torch.Error, lambda: enable(native=False), "enabled already")
    assert torch.cuda.memory.get_allocator_backend() == "regraph"


def too_late(folder):
    """Enabling after the first tensor is an error, and PyTorch goes on."""
    tensor = torch.ones(MIB, device="cuda")
    expect(regraph.torch.Error, enable, "used CUDA already")
    assert not regraph.torch.is_enabled()
    assert torch.cuda.memory_allocated() >= 4 * MIB
    assert tensor.sum().item() == MIB


def wrong_settings(folder):
    """Wrong settings are told as such, and right ones are taken afterwards."""
    expect(regraph.torch.Error, lambda: enable(settings="histroy:5"), "histroy")
    enable(settings="history:5")
    assert torch.ones(MIB, device="cuda").sum().item() == MIB


def _child(queue, enabling):
    try:
        if enabling:
            enable()
        assert regraph.torch.is_enabled()
        queue.put(torch.ones(MIB, device="cuda").sum().item())
    except BaseException as error:
        queue.put(repr(error))
        raise


def children(folder):
    """A spawned child enables for itself."""
    enable()
    assert torch.ones(MIB, device="cuda").sum().item() == MIB
    _run_child("spawn", True)


def forked_child(folder):
    """A child forked before CUDA was used inherits all."""
    enable()
    _run_child("fork", False)
    assert torch.ones(MIB, device="cuda").sum().item() == MIB


def forked_later(folder):
    """A child that is forked later frees what it has of its parent's, without a word."""
    enable()
    kept = [torch.ones(MIB, device="cuda")]
    told = os.path.join(folder, "told")
    child = os.fork()
    if child == 0:
        os.dup2(os.open(told, os.O_CREAT | os.O_WRONLY, 0o600), 2)
        kept.clear()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert os.path.getsize(told) == 0
    assert kept[0].sum().item() == MIB


def _run_child(method, enabling):
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=_child, args=(queue, enabling))
    child.start()
    answer = queue.get()
    child.join()
    assert answer == MIB and child.exitcode == 0, (answer, child.exitcode)


def unserved(folder):
    """What a plug-in cannot serve says so, and everything else goes on."""
    enable(native=False)
    assert torch.cuda.memory.get_allocator_backend() == "pluggable"
    error = regraph.torch.Error
    tensor = torch.ones(MIB, device="cuda")
    expect(error, torch.cuda.MemPool, "MemPool")
    expect(error, tensor.untyped_storage()._share_cuda_, "between processes")
    expect(error, lambda: torch.cuda.caching_allocator_enable(False), "cache")
    assert tensor.sum().item() == MIB


def convolutions(folder):
    """Convolutions run with cuDNN's benchmark on."""
    torch.backends.cudnn.benchmark = True
    enable()
    assert torch.backends.cudnn.benchmark
    _convolve()


def convolutions_of_a_plug_in(folder):
    """Convolutions run though cuDNN's benchmark was asked for."""
    torch.backends.cudnn.benchmark = True
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        enable(native=False)
        torch.backends.cudnn.benchmark = True
    assert sum("benchmark stays off" in str(one.message) for one in told) == 2
    _convolve()


def _convolve():
    network = torch.nn.Conv2d(3, 8, 3).cuda()
    given = torch.randn(2, 3, 32, 32, device="cuda")
    expected = network.cpu()(given.cpu())
    torch.testing.assert_close(network.cuda()(given).cpu(), expected, atol=1e-2, rtol=1e-2)


def compiled_trees(folder):
    """torch.compile's graph trees run, and what they return outlives a run."""
    enable()
    function = lambda value: (value @ value).relu() + 1  # noqa: E731
    with torch.no_grad():
        compiled = torch.compile(function, mode="reduce-overhead")
        for size in (64, 96, 64):
            for seed in range(4):
                torch.manual_seed(seed)
                given = torch.randn(size, size, device="cuda")
                torch.compiler.cudagraph_mark_step_begin()
                torch.testing.assert_close(compiled(given), function(given))


def compiled_graphs(folder):
    """As a plug-in, graph trees name the switch, and with it the graphs are served."""
    from torch._inductor import config

    enable(native=False)
    given = torch.randn(64, 64, device="cuda")
    function = lambda value: (value @ value).relu() + 1  # noqa: E731
    with torch.no_grad():
        compiled = torch.compile(function, mode="reduce-overhead")
        expect(Exception, lambda: compiled(given), "cudagraph_trees = False")
        torch._dynamo.reset()
        config.triton.cudagraph_trees = False
        compiled = torch.compile(function, mode="reduce-overhead")
        for seed in range(4):
            torch.manual_seed(seed)
            given = torch.randn(64, 64, device="cuda")
            torch.testing.assert_close(compiled(given), function(given))


PROGRAMS = {
    function.__name__: function
    for function in (
        second_time,
        too_late,
        wrong_settings,
        children,
        forked_child,
        forked_later,
        unserved,
        convolutions,
        convolutions_of_a_plug_in,
        compiled_trees,
        compiled_graphs,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
