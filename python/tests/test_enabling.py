"""Enabling: the order of its steps, and everything that keeps it from happening."""

import types

import pytest

from fake_native import HOOKS

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch
from regraph.compiling import Unavailable


def replaced():
    """What tells whether PyTorch is as it was."""
    return (
        torch._C._cuda_memoryStats,
        torch._C._cuda_memorySnapshot,
        torch.cuda.memory.MemPool.__init__,
        torch._C._CUDAGraph.capture_begin,
        torch.cuda.graph.__enter__,
        torch.cuda.graph.__exit__,
        torch._C._set_cudnn_benchmark,
        vars(torch.UntypedStorage).get("_share_cuda_"),
    )


def test_the_steps_come_in_order(gpu, native):
    regraph.torch.enable(settings="history:10", check=True, native=False)
    assert native.calls == [
        ("library_path",),
        ("allocator", "/lib/libregraph.so", "regraph_torch_allocate", "regraph_torch_free"),
        ("start", "history:10", True, ("PYTORCH_ALLOC_CONF", "")),
        ("hooks",),
        ("set_init_fn", HOOKS["init"]),
        ("set_reset_fn", HOOKS["reset"]),
        ("set_memory_fraction_fn", HOOKS["memory_fraction"]),
        ("set_base_alloc_fn", HOOKS["base_allocation"]),
        ("set_record_stream_fn", HOOKS["record_stream"]),
        ("set_begin_allocate_to_pool", HOOKS["begin_pool"]),
        ("set_end_allocate_to_pool_fn", HOOKS["end_pool"]),
        ("set_release_pool", HOOKS["release_pool"]),
        ("change", gpu.allocator),
        ("throws_out_of_memory",),
    ]
    assert regraph.torch.is_enabled()
    assert regraph.torch.backend() == "plugin"


def test_the_native_allocator_is_taken_where_it_can_be_had(gpu, native):
    regraph.torch.enable(settings="history:10", backend_name="native")
    assert native.calls == [
        ("start", "history:10", None, ("PYTORCH_ALLOC_CONF", "")),
        ("install", "library", "native"),
        ("history_setting",),
        ("throws_out_of_memory",),
    ]
    assert regraph.torch.backend() == "native"
    # It serves what a plug-in cannot, so nothing of that is replaced.
    assert torch.cuda.memory.MemPool.__init__.__qualname__ == "MemPool.__init__"


def test_without_it_the_plug_in_is_taken_with_a_warning(gpu, native):
    native.failures["load"] = Unavailable("there is no C++ compiler")
    with pytest.warns(UserWarning, match=r"without torch.cuda.MemPool.*there is no C\+\+ compiler"):
        regraph.torch.enable()
    assert regraph.torch.backend() == "plugin"


def test_it_can_be_required(gpu, native):
    native.failures["load"] = Unavailable("there is no C++ compiler")
    before = replaced()
    with pytest.raises(regraph.torch.Error, match=r"not available: there is no C\+\+ compiler\."):
        regraph.torch.enable(native=True)
    assert native.calls == []
    assert replaced() == before
    assert regraph.torch.backend() is None


def test_a_native_allocator_that_comes_too_late_leaves_torch_as_it_was(gpu, native):
    native.failures["install"] = RuntimeError("already initialized")
    before = replaced()
    with pytest.raises(regraph.torch.Error, match="used CUDA already"):
        regraph.torch.enable()
    assert replaced() == before
    assert not regraph.torch.is_enabled()


def test_the_environment_is_the_librarys_to_read(gpu, native):
    regraph.torch.enable()
    assert ("start", None, None, ("PYTORCH_ALLOC_CONF", "")) in native.calls


@pytest.mark.parametrize("wrong", [{"native": 1}, {"backend_name": 5}])
def test_arguments_of_other_types_are_refused(gpu, native, wrong):
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} is a .* or None, not int"):
        regraph.torch.enable(**wrong)
    assert native.calls == []


def test_a_second_time_with_the_same_does_nothing(gpu, native):
    regraph.torch.enable(settings="history:10", check=True, backend_name="native")
    native.calls.clear()
    regraph.torch.enable(settings="history:10", check=True, backend_name="native")
    regraph.torch.enable(native=True)
    regraph.torch.enable()
    assert native.calls == []


@pytest.mark.parametrize(
    "other",
    [{"settings": "history:11"}, {"check": False}, {"native": False}, {"backend_name": "regraph"}],
)
def test_a_second_time_with_something_else_is_an_error(gpu, native, other):
    regraph.torch.enable(settings="history:10", check=True, backend_name="native")
    native.calls.clear()
    with pytest.raises(regraph.torch.Error, match=next(iter(other))):
        regraph.torch.enable(**other)
    assert native.calls == []


@pytest.mark.parametrize(
    ("owner", "name", "value", "message"),
    [
        ("version", "hip", "6.2", "built for ROCm"),
        ("version", "cuda", None, "built for CPUs only"),
        ("cuda", "_is_in_bad_fork", lambda: True, "spawn"),
        ("cuda", "is_initialized", lambda: True, "used CUDA already"),
        ("cuda", "device_count", lambda: 0, "no NVIDIA GPU"),
        ("cuda.memory", "get_allocator_backend", lambda: "pluggable", "another allocator"),
        ("cuda.memory", "get_allocator_backend", lambda: "cudaMallocAsync", "cudaMallocAsync"),
    ],
)
def test_what_keeps_it_from_starting(gpu, native, monkeypatch, owner, name, value, message):
    before = replaced()
    for part in owner.split("."):
        target = getattr(torch if part != "memory" else torch.cuda, part)
    monkeypatch.setattr(target, name, value)
    with pytest.raises(regraph.torch.Error, match=message):
        regraph.torch.enable()
    assert native.calls == []
    assert not regraph.torch.is_enabled()
    assert replaced() == before


def test_a_torch_without_a_hook_is_told_as_such(gpu, native):
    del gpu.allocator.set_begin_allocate_to_pool
    with pytest.raises(regraph.torch.Error, match=r"lacks hooks .*set_begin_allocate_to_pool\)"):
        regraph.torch.enable(native=False)
    assert "start" not in native.names()


def test_wrong_settings_are_told_as_such(gpu, native):
    native.failures["start"] = ValueError("no key `histroy`; `history`?")
    before = replaced()
    with pytest.raises(regraph.torch.Error, match="settings are wrong: no key `histroy`"):
        regraph.torch.enable(settings="histroy:1")
    assert replaced() == before


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("Can't swap an already initialized allocator", "used CUDA already"),
        ("something else", "something else"),
    ],
)
def test_a_refused_change_leaves_torch_as_it_was(gpu, native, failure, expected):
    native.failures["change"] = RuntimeError(failure)
    before = replaced()
    with pytest.raises(RuntimeError, match=expected):
        regraph.torch.enable(native=False)
    assert replaced() == before
    assert not regraph.torch.is_enabled()


def test_every_patch_can_be_undone(gpu):
    from regraph.torch import enabling

    before = replaced()
    regraph.torch.enable(native=False)
    assert all(new != old for new, old in zip(replaced(), before, strict=True))
    enabling._patches.undo()
    assert replaced() == before


HOOK = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"


@pytest.fixture
def nccl(monkeypatch):
    """A class of groups as PyTorch's; notes what is registered."""

    class Group:
        def __init__(self, rank):
            self.registered = [rank]

        def register_mem_pool(self, pool, symm=False):
            self.registered.append((pool, symm))

    monkeypatch.setattr(torch.distributed.distributed_c10d, "ProcessGroupNCCL", Group, raising=False)
    return Group


@pytest.mark.parametrize("name", [HOOK, HOOK.removeprefix("TORCH_")])
def test_segments_that_grow_are_not_registered(gpu, native, nccl, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    before = replaced()
    with pytest.raises(regraph.torch.Error, match=f"{name}=1.*expandable_segments:False.*unset"):
        regraph.torch.enable()
    assert not regraph.torch.is_enabled()
    assert replaced() == before
    assert "install" not in native.names()
    monkeypatch.setenv(name, "0")
    regraph.torch.enable()
    assert nccl(3).registered == [3]
    # PyTorch reads it when the first group is made.
    monkeypatch.setenv(name, "true")
    with pytest.raises(regraph.torch.Error, match=f"{name}=true"):
        nccl(4)


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_whole_segments_are_registered_and_pytorch_leaves_its_own_that_grow(
    gpu, native, nccl, monkeypatch, conf
):
    monkeypatch.setenv(HOOK, "1")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", conf)
    monkeypatch.setitem(native.answers, "memory_sleeps", bool(conf))
    regraph.torch.enable()
    assert nccl(3).registered == [3]


@pytest.mark.parametrize(
    ("cuda", "every"),
    [
        ("max_split_size_mb:64", "expandable_segments:True"),
        ("", "expandable_segments:True"),
        ("expandable_segments:True", "expandable_segments:False"),
        ("expandable_segments:True,expandable_segments:False", "expandable_segments:True"),
    ],
)
def test_segments_are_registered_where_a_variable_that_pytorch_may_read_has_none_grow(
    gpu, native, nccl, monkeypatch, cuda, every
):
    monkeypatch.setenv(HOOK, "1")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", cuda)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", every)
    with pytest.raises(regraph.torch.Error, match=HOOK):
        regraph.torch.enable()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", " expandable_segments :\tTrue")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    regraph.torch.enable()


def test_segments_that_grow_still_behind_a_late_setting_are_not_registered(
    gpu, native, nccl, monkeypatch
):
    from regraph.torch import registering

    monkeypatch.setattr(registering, "_keeps_growing", False)
    name = "_accelerator_setAllocatorSettings"
    monkeypatch.setattr(torch._C, name, lambda text: None, raising=False)
    regraph.torch.enable()
    monkeypatch.setitem(native.answers, "memory_sleeps", False)
    monkeypatch.setenv(HOOK, "1")
    assert nccl(3).registered == [3]
    # Pools that were made before keep what they were made with.
    monkeypatch.setitem(native.answers, "change_settings", ["expandable_segments"])
    with pytest.warns(UserWarning, match="expandable_segments"):
        getattr(torch._C, name)("expandable_segments:False")
    with pytest.raises(regraph.torch.Error, match=HOOK):
        nccl(4)


def test_a_pool_that_grows_is_not_registered(gpu, native, nccl, monkeypatch):
    own, given = types.SimpleNamespace(id=(0, 1), allocator=None), types.SimpleNamespace(allocator=1)
    regraph.torch.enable()
    group = nccl(3)
    with pytest.raises(regraph.torch.Error, match="register_mem_pool.*expandable_segments:False"):
        group.register_mem_pool(own)
    group.register_mem_pool(given, symm=True)
    monkeypatch.setitem(native.answers, "memory_sleeps", False)
    group.register_mem_pool(own)
    assert group.registered == [3, (given, True), (own, False)]


def test_of_a_pool_that_does_not_tell_regraph_knows_whether_it_has_an_allocator(
    gpu, native, nccl, monkeypatch
):
    # PyTorch's pools do not, from 2.11 on.
    pool = types.SimpleNamespace(id=(0, 1))
    assert hasattr(torch.cuda.MemPool, "id")
    regraph.torch.enable()
    group = nccl(3)
    with pytest.raises(regraph.torch.Error, match="register_mem_pool.*expandable_segments:False"):
        group.register_mem_pool(pool)
    monkeypatch.setitem(native.answers, "has_source", True)
    group.register_mem_pool(pool)
    assert native.calls[-1] == ("has_source", (0, 1))
    assert group.registered == [3, (pool, False)]


def test_pytorchs_own_class_of_groups_is_asked(gpu, native, monkeypatch):
    if not torch.distributed.is_nccl_available():
        return
    regraph.torch.enable()
    monkeypatch.setenv(HOOK, "1")
    with pytest.raises(regraph.torch.Error, match=HOOK):
        torch.distributed.ProcessGroupNCCL(torch.distributed.HashStore(), 0, 1)
    monkeypatch.setenv(HOOK, "0")
    # PyTorch's own: there is no GPU.
    with pytest.raises((RuntimeError, ValueError), match="GPU"):
        torch.distributed.ProcessGroupNCCL(torch.distributed.HashStore(), 0, 1)
