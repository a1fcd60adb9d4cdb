"""Programs with pools of `torch.cuda.MemPool`, and with the cache off."""

import ctypes
import gc
import inspect
import subprocess
import threading
from pathlib import Path

import torch
from common import MIB, enable, expect, main

import regraph.torch

# An allocator that counts, on CUDA's driver interface.
OWN = r"""
#include <dlfcn.h>
#include <stddef.h>

int given, taken;

static void* driver(const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }

void* own_allocate(size_t bytes, int device, void* stream) {
  int (*allocate)(unsigned long long*, size_t) = driver("cuMemAlloc_v2");
  unsigned long long address = 0;
  if (allocate(&address, bytes) != 0) return NULL;
  ++given;
  return (void*)address;
}

void own_free(void* address, size_t bytes, int device, void* stream) {
  int (*release)(unsigned long long) = driver("cuMemFree_v2");
  if (release((unsigned long long)address) == 0) ++taken;
}
"""


def block(mebibytes: int = 8) -> torch.Tensor:
    """A tensor of its own."""
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def held_by(pool) -> int:
    """What a pool holds, in MiB."""
    return sum(segment["total_size"] for segment in pool.snapshot()) // MIB


def users(pool) -> int:
    """How many use a pool."""
    return pool.use_count()


def takes(argument: str) -> bool:
    """Whether pools of this PyTorch can be made with an argument."""
    return argument in inspect.signature(torch.cuda.MemPool.__init__).parameters


def mem_pools_nest(folder):
    """Requests go to the pool that was entered last, and to none outside."""
    enable(native=True)
    first, second = torch.cuda.MemPool(), torch.cuda.MemPool()
    assert users(first) == 1
    with torch.cuda.use_mem_pool(first):
        kept = [block(8)]
        with torch.cuda.use_mem_pool(second):
            kept.append(block(16))
            assert users(first) == users(second) == 2
        kept.append(block(24))
    kept.append(block(64))
    assert (held_by(first), held_by(second)) == (32, 16)
    assert users(first) == users(second) == 1
    for tensor in kept:
        tensor.fill_(1)
    assert all(tensor.sum().item() == tensor.numel() for tensor in kept[:1])


def mem_pools_and_threads(folder):
    """Only the thread that entered a pool has its memory from there."""
    enable(native=True)
    block(2)
    pool = torch.cuda.MemPool()
    tensors = []

    def elsewhere() -> None:
        tensors.append(block(32))
        with torch.cuda.use_mem_pool(pool):
            tensors.append(block(16))

    with torch.cuda.use_mem_pool(pool):
        thread = threading.Thread(target=elsewhere)
        tensors.append(block(8))
        thread.start()
        thread.join()
    assert held_by(pool) == 24


def mem_pool_keeps_its_memory(folder):
    """What is free in a pool stays with it until the pool goes."""
    enable(native=True)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        address = block(64).data_ptr()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert held_by(pool) == 64
    outside = block(64)
    assert outside.data_ptr() != address
    with torch.cuda.use_mem_pool(pool):
        assert block(64).data_ptr() == address
    before = torch.cuda.memory_reserved()
    del pool
    gc.collect()
    assert torch.cuda.memory_reserved() == before - 64 * MIB


def mem_pool_use_on_oom(folder):
    """Requests outside take from a pool before they fail, if it lets them."""
    enable(native=True)
    if not takes("use_on_oom"):
        return
    torch.cuda.set_per_process_memory_fraction(
        96 * MIB / torch.cuda.get_device_properties(0).total_memory
    )
    lends, keeps = torch.cuda.MemPool(use_on_oom=True), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(keeps):
        first = block(40)
    with torch.cuda.use_mem_pool(lends):
        second = block(40)
    address = second.data_ptr()
    expect(torch.OutOfMemoryError, lambda: block(40))
    del first, second
    borrowed = block(30)
    assert borrowed.data_ptr() == address
    expect(torch.OutOfMemoryError, lambda: block(30))
    del borrowed
    with torch.cuda.use_mem_pool(lends):
        assert block(20).data_ptr() == address


def mem_pool_no_split(folder):
    """Each block of a pool that does not split has a segment of its own."""
    enable(native=True)
    if not takes("no_split"):
        return
    pool = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(pool):
        tensors = [block(size) for size in (16, 2, 4)]
        assert len(pool.snapshot()) == 3
        places = [tensor.data_ptr() for tensor in tensors]
        del tensors
        small, large = block(3), block(5)
        assert [small.data_ptr(), large.data_ptr()] == [places[2], places[0]]
    assert all(len(segment["blocks"]) == 1 for segment in pool.snapshot())


def mem_pool_with_an_allocator(folder):
    """A pool's segments come from an allocator of the program's own, and go back through it."""
    source, library = Path(folder) / "own.c", Path(folder) / "own.so"
    source.write_text(OWN)
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    enable(native=True)
    own = torch.cuda.memory.CUDAPluggableAllocator(str(library), "own_allocate", "own_free")
    counts = ctypes.CDLL(str(library))
    given, taken = (ctypes.c_int.in_dll(counts, name) for name in ("given", "taken"))
    pool = torch.cuda.MemPool(own.allocator())
    with torch.cuda.use_mem_pool(pool):
        first = block(32).fill_(1)
        assert given.value == 1
        second = torch.empty(1000, device="cuda").fill_(2)
        assert given.value == 2
    block(32)
    assert given.value == 2
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        result = first[: 4 * MIB] + 1
    graph.replay()
    assert int(result[0]) == 2 and float(second[0]) == 2
    del first, second
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert taken.value == 0, "the pool keeps what is free"
    del result, graph, pool
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert taken.value == given.value


def mem_pool_of_graphs_and_eager_work(folder):
    """Graphs and eager work share a pool; neither writes where the other has something."""
    enable(native=True)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        eager = torch.full((2 * MIB,), 3.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        inner = eager + 1
        output = inner * 2
        del inner
    assert users(pool) == 2
    with torch.cuda.use_mem_pool(pool):
        others = [torch.full_like(eager, 7.0) for _ in range(4)]
    graph.replay()
    assert float(output.min()) == float(output.max()) == 8
    assert all(float(other.min()) == float(other.max()) == 7 for other in others)
    graph.reset()
    assert users(pool) == 1


def graph_keeps_a_pool(folder):
    """A pool that a graph retains outlives the graphs that were captured into it."""
    enable(native=True)
    if not hasattr(torch.cuda.CUDAGraph, "retain_pool"):
        return
    pool = torch.cuda.graph_pool_handle()
    keeper, graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        torch.ones(8 * MIB, device="cuda")
    keeper.retain_pool(pool)
    graph.reset()
    torch.cuda.empty_cache()
    assert any(row["id"] == tuple(pool) for row in regraph._native.pools(0))
    keeper.reset()
    torch.cuda.empty_cache()
    assert all(row["id"] != tuple(pool) for row in regraph._native.pools(0))


def blocks_outlive_their_pool(folder):
    """What is freed after its pool has gone serves eager work, and goes with the cache."""
    enable(native=True)
    block(2)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        first, second = block(64), block(64)
    del pool
    gc.collect()
    address = first.data_ptr()
    assert torch.cuda.memory_reserved() == before + 128 * MIB
    del first
    again = block(64)
    assert again.data_ptr() == address
    assert torch.cuda.memory_reserved() == before + 128 * MIB
    del again, second
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def caching_off_and_on(folder):
    """Without the cache a block goes back to the driver at its free; others stay as they are."""
    enable(native=True)
    kept = block(8).fill_(5)
    torch.cuda.caching_allocator_enable(False)
    held = torch.cuda.memory_reserved()
    alone = block(8).fill_(6)
    assert torch.cuda.memory_reserved() == held + 8 * MIB
    del alone
    assert torch.cuda.memory_reserved() == held
    torch.cuda.caching_allocator_enable(True)
    address = kept.data_ptr()
    assert int(kept[0]) == int(kept[-1]) == 5
    del kept
    assert block(8).data_ptr() == address


def cudnn_asks_for_the_largest_block(folder):
    """cuDNN's benchmark, which asks how large a workspace may be."""
    enable(native=True)
    torch.backends.cudnn.benchmark = True
    weights = torch.ones(8, 8, 3, 3, device="cuda")
    image = torch.ones(2, 8, 64, 64, device="cuda")
    result = torch.nn.functional.conv2d(image, weights)
    assert torch.backends.cudnn.benchmark
    assert float(result[0, 0, 0, 0]) == 72


PROGRAMS = {
    program.__name__: program
    for program in (
        mem_pools_nest,
        mem_pools_and_threads,
        mem_pool_keeps_its_memory,
        mem_pool_use_on_oom,
        mem_pool_no_split,
        mem_pool_with_an_allocator,
        mem_pool_of_graphs_and_eager_work,
        graph_keeps_a_pool,
        blocks_outlive_their_pool,
        caching_off_and_on,
        cudnn_asks_for_the_largest_block,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
