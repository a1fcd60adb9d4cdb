"""The allocator class's part in CUDA graph trees: PyTorch's own calls, with hooks that take notes."""

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
from regraph.torch import native

POOL = (0, 7)
CHECKPOINT = 0xC0
KEPT, STALE = 0x1000, 0x2000
live = [KEPT, STALE]
calls = []
Address, Device, Half = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
Each = ctypes.CFUNCTYPE(None, Address, Address)


def take(*pool):
    calls.append(("take", *pool))
    return CHECKPOINT


def restore(device, first, second, checkpoint, context, freed, restored):
    calls.append(("restore", device, first, second, checkpoint))
    for address in live:
        freed(context, address)
    live[:] = [KEPT, STALE]
    for address in live:
        restored(context, address)


def tell(device, first, second, context, each):
    for address in live:
        each(context, address)


def free(address):
    calls.append(("free", address))
    if address not in live:
        return False
    live.remove(address)
    return True


served = {
    "checkpoint_take": ctypes.CFUNCTYPE(Address, Device, Half, Half)(take),
    "checkpoint_drop": ctypes.CFUNCTYPE(None, Address)(lambda it: calls.append(("drop", it))),
    "checkpoint_restore": ctypes.CFUNCTYPE(
        None, Device, Half, Half, Address, Address, Each, Each
    )(restore),
    "pool_live": ctypes.CFUNCTYPE(None, Device, Half, Half, Address, Each)(tell),
    "free": ctypes.CFUNCTYPE(ctypes.c_bool, Address)(free),
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
native.install(library, "regraph")
calls.clear()

check = torch._C._cuda_checkPoolLiveAllocations
assert check(0, POOL, {KEPT, STALE})
assert not check(0, POOL, {KEPT})
assert not check(0, POOL, {KEPT, STALE + 1})
assert not check(0, POOL, {KEPT, STALE, STALE + 1})

state = torch._C._cuda_getCheckpointState(0, POOL)
assert calls == [("take", 0, *POOL)]
live.remove(KEPT)
# A tensor that a replayed graph has made: no one frees its memory yet.
storage = torch._C._construct_storage_from_data_pointer(KEPT, torch.device("cuda", 0), 64)
assert not torch._C._has_Standard_Deleter(storage._cdata)
torch._C._cuda_setCheckpointPoolState(0, state, [], [storage._cdata])
assert calls[1:] == [("restore", 0, *POOL, CHECKPOINT)]
assert torch._C._has_Standard_Deleter(storage._cdata)
assert live == [KEPT, STALE], "what no tensor takes over stays live"
del storage
assert calls[2:] == [("free", KEPT)]
torch._C._cuda_cudaCachingAllocator_raw_delete(STALE)
assert calls[3:] == [("free", STALE)]
try:
    torch._C._cuda_cudaCachingAllocator_raw_delete(STALE)
except RuntimeError as error:
    assert "invalid device pointer: 0x" in str(error), error
else:
    raise AssertionError("PyTorch's own allocator raises")
del state
assert calls[5:] == [("drop", CHECKPOINT)]
print("done")
"""


@pytest.mark.skipif(
    not hasattr(torch._C, "_cuda_setCheckpointPoolState"), reason="PyTorch is built without CUDA"
)
def test_pytorchs_own_calls_reach_the_hooks():
    must_be_done(PROGRAM)
