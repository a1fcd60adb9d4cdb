"""The allocator class's pools: PyTorch's own calls, with hooks that take notes."""

import pytest

from own_process import must_be_done

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# The class becomes PyTorch's allocator for good: in a process of its own.
PROGRAM = """
import ctypes
import re
import sys

import fake_native

fake = fake_native.FakeNative()
sys.modules["regraph._native"] = fake
import torch

from regraph import compiling
from regraph.torch import native, pools
from regraph.torch.patches import Patches

POOL = (0, 7)
# PyTorch 2.14 asks CUDA, which a machine without a GPU cannot answer.
torch.cuda.is_current_stream_capturing = lambda: False
calls = []
caches = [True]
Address, Device, Half = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64


def note(name):
    return lambda *arguments: calls.append((name, *arguments))


def set_caching(value):
    caches[0] = value


served = {
    "route_begin": ctypes.CFUNCTYPE(None, Device, Half, Half, Address)(
        lambda *arguments: calls.append(("route_begin", *arguments[:3]))
    ),
    "end_pool": ctypes.CFUNCTYPE(None, Device, Half, Half)(note("end_pool")),
    "release_pool": ctypes.CFUNCTYPE(None, Device, Half, Half)(note("release_pool")),
    "reset": ctypes.CFUNCTYPE(None)(note("reset")),
    "set_caching": ctypes.CFUNCTYPE(None, ctypes.c_bool)(set_caching),
    "is_caching": ctypes.CFUNCTYPE(ctypes.c_bool)(lambda: caches[0]),
}
unserved = ctypes.CFUNCTYPE(None)(lambda: calls.append("not served here"))
names = re.findall(r"HOOK\\([^,]+, (\\w+),", (compiling.SOURCES / "hooks.h").read_text())
fake.hooks = lambda: {
    name: ctypes.cast(served.get(name, unserved), Address).value for name in names
}
fake.is_allocator_class = lambda table: True
try:
    library = native.load()
except compiling.Unavailable as error:
    print("unavailable:", error)
    sys.exit(0)
pools.install(Patches())
native.install(library, "regraph")
calls.clear()

torch._C._cuda_beginAllocateToPool(0, POOL)
torch._C._cuda_endAllocateToPool(0, POOL)
torch._C._cuda_releasePool(0, POOL)
names = ("route_begin", "end_pool", "release_pool")
assert calls == [(name, 0, *POOL) for name in names], calls
calls.clear()


class Pool:
    id = POOL


if hasattr(torch.cuda.memory, "_cuda_beginAllocateCurrentThreadToPool"):
    with torch.cuda.use_mem_pool(Pool, 0):
        assert not calls, "no filter is made"
        assert fake.calls[-1] == ("begin_thread_pool", 0, POOL), fake.calls
    assert calls == [(name, 0, *POOL) for name in names[1:]], calls
    calls.clear()

torch._C._cuda_cudaCachingAllocator_enable(False)
assert not caches[0], "off"
torch._C._cuda_cudaCachingAllocator_enable(True)
assert caches[0], "on again"
torch._C._cuda_emptyCache()
assert calls == [("reset",)], calls
print("done")
"""


@pytest.mark.skipif(
    not hasattr(torch._C, "_cuda_beginAllocateToPool"), reason="PyTorch is built without CUDA"
)
def test_pytorchs_own_calls_reach_the_hooks():
    must_be_done(PROGRAM)
