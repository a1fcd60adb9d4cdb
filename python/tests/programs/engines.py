"""Programs of engines' own classes, whose sources lie where the environment says."""

import importlib
import logging
import os
import sys
import types

import torch
from common import MIB, main

import regraph.torch
from regraph.torch import vllm

#: A folder with `vllm/device_allocator` of vLLM's wheel.
SOURCES = "REGRAPH_VLLM_SOURCES"
LEVELS = ((1, None), (2, None), (1, ["weights"]), (2, ["weights"]), (1, ["kv_cache"]), (2, ["kv_cache"]))


def vllms_own_backends_keep_state(folder):
    """vLLM's own backend and regraph's, each called by vLLM's own factory: a tag of state comes back at every level."""
    backends = _vllm()
    vllm.register()
    assert regraph.torch.is_enabled()
    allocator = sys.modules["vllm.device_allocator"].get_mem_allocator_instance()
    assert allocator.get_current_usage() == 0
    with allocator.use_memory_pool(tag="weights"):
        weights = torch.full((16 * MIB,), 2.0, device="cuda")
    with allocator.use_memory_pool(tag="runtime"):
        adapters = torch.arange(4 * MIB, dtype=torch.int32, device="cuda")
        with allocator.use_memory_pool(tag="kv_cache"):
            cache = torch.zeros(16 * MIB, device="cuda")
        state = torch.full((1000,), 7.0, device="cuda")
    with allocator.use_memory_pool(tag="workspace"):
        scratch = torch.zeros(MIB, device="cuda")
    static = torch.ones(16 * MIB, device="cuda")
    graphs = []
    for factor in (1, 2):
        graph = torch.cuda.CUDAGraph()
        with allocator.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
            output = static * weights * factor + state[0]
        graphs.append((graph, output, factor))
    assert graphs[0][0].pool() == graphs[1][0].pool() == pool
    expected, places = adapters.cpu(), [adapters.data_ptr(), state.data_ptr()]
    for name in ("regraph", "cumem"):
        backend = backends.SleepModeBackendFactory.create_backend(types.SimpleNamespace(sleep_mode_backend=name))
        for level, tags in LEVELS:
            torch.cuda.synchronize()
            awake = torch.cuda.mem_get_info()[0]
            backend.suspend(level)
            assert torch.cuda.mem_get_info()[0] - awake > 128 * MIB
            backend.resume(tags)
            # Whatever was waked.
            assert torch.equal(adapters.cpu(), expected) and bool((state == 7).all()), (name, level, tags)
            scratch.fill_(1)
            assert [adapters.data_ptr(), state.data_ptr()] == places
            asleep = {row.tag for row in regraph.torch.regions() if row.asleep_bytes}
            assert asleep == (set() if tags is None else {"weights", "kv_cache"} - set(tags)), asleep
            if tags is not None:
                backend.resume()
            if level == 1:
                assert bool((weights == 2).all())
            weights.fill_(2.0)
            cache.fill_(3.0)
            for graph, output, factor in graphs:
                graph.replay()
                assert float(output.min()) == float(output.max()) == 2 * factor + 7
        backend.discard(("kv_cache",))
        assert {row.tag for row in regraph.torch.regions() if row.asleep_bytes} == {"kv_cache"}
        backend.resume()
        cache.fill_(4.0)
        assert torch.equal(adapters.cpu(), expected)


def _vllm():
    """vLLM's module of backends; ends the program where its sources are not there."""
    folder = os.environ.get(SOURCES)
    if not folder or not os.path.exists(os.path.join(folder, "vllm/device_allocator/__init__.py")):
        print(f"skipped: {SOURCES} names no folder with vLLM's device_allocator")
        sys.exit(0)
    for name, names in (
        ("vllm", {}),
        ("vllm.logger", {"init_logger": logging.getLogger}),
        ("vllm.platforms", {"current_platform": types.SimpleNamespace(is_cuda_alike=lambda: True)}),
    ):
        module = types.ModuleType(name)
        module.__dict__.update(names)
        module.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules[name] = module
    os.environ[vllm.VARIABLE] = "1"
    return importlib.import_module("vllm.device_allocator.sleep_mode_backend")


PROGRAMS = {program.__name__: program for program in (vllms_own_backends_keep_state,)}

if __name__ == "__main__":
    main(PROGRAMS)
