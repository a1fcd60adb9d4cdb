"""Settings that a program gives to PyTorch."""

import pytest

from own_process import must_be_done

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch
from regraph import starting
from regraph.torch import settings

NAMES = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")
NAME = next((name for name in NAMES if hasattr(torch._C, name)), None)


@pytest.fixture(autouse=True)
def nothing_told():
    settings._told.clear()
    yield
    settings._told.clear()


@pytest.fixture
def set_settings(gpu, native, monkeypatch):
    """PyTorch's function with regraph enabled; PyTorch's own part takes notes."""
    monkeypatch.setattr(
        torch._C, NAME or NAMES[0], native._function("torch.settings"), raising=False
    )
    regraph.torch.enable(native=False)
    native.calls.clear()
    return getattr(torch._C, NAME or NAMES[0])


@pytest.mark.filterwarnings("error")
def test_both_read_them(set_settings, native):
    set_settings("max_split_size_mb:64,pinned_num_register_threads:4")
    text = "max_split_size_mb:64,pinned_num_register_threads:4"
    assert native.calls == [("torch.settings", text), ("change_settings", text)]


@pytest.mark.filterwarnings("error")
def test_pytorchs_function_is_the_one(gpu, native, monkeypatch):
    if NAME is None:
        pytest.skip("PyTorch has no such function")
    regraph.torch.enable(native=False)
    native.calls.clear()
    with pytest.raises((ValueError, RuntimeError), match="Unrecognized|nonsense"):
        getattr(torch._C, NAME)("nonsense:1")
    assert native.calls == []


def test_what_is_no_text_is_refused(set_settings, native):
    with pytest.raises(TypeError, match="a str, not int"):
        set_settings(5)
    assert native.calls == []


def test_keys_without_effect_are_told_once(set_settings, native):
    native.answers["change_settings"] = ["backend", "pinned_use_background_threads"]
    with pytest.warns(UserWarning, match="^backend: no effect") as warned:
        set_settings("backend:native")
        set_settings("backend:native")
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_the_name_of_the_backend_is_not_compared(set_settings, native):
    set_settings("backend : native, garbage_collection_threshold:0.5")
    assert native.calls[0] == ("torch.settings", " garbage_collection_threshold:0.5")


@pytest.mark.skipif(NAME is None or torch.version.cuda is None, reason="needs a PyTorch for CUDA")
@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_nor_is_that_of_the_environment_when_pytorch_reads_it(monkeypatch, variable):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    monkeypatch.setenv(variable, "backend:native")
    must_be_done(f"""
import warnings, torch, regraph.torch
warnings.simplefilter("ignore")
torch.cuda.device_count = lambda: 1
regraph.torch.enable(native=False)
torch._C.{NAME}("garbage_collection_threshold:0.5")
print("done")
""")


def test_what_is_wrong_comes_out(set_settings, native):
    native.failures["change_settings"] = ValueError("`max_split_size_mb`: expected")
    with pytest.raises(ValueError, match="max_split_size_mb"):
        set_settings("max_split_size_mb:1")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ("PYTORCH_ALLOC_CONF", "")),
        ({"PYTORCH_CUDA_ALLOC_CONF": "a:1"}, ("PYTORCH_CUDA_ALLOC_CONF", "a:1")),
        (
            {"PYTORCH_ALLOC_CONF": "b:2", "PYTORCH_CUDA_ALLOC_CONF": "a:1"},
            ("PYTORCH_CUDA_ALLOC_CONF", "a:1"),
        ),
        (
            {"PYTORCH_ALLOC_CONF": "b:2", "PYTORCH_CUDA_ALLOC_CONF": ""},
            ("PYTORCH_CUDA_ALLOC_CONF", ""),
        ),
    ],
)
def test_the_environments_are_read_at_the_start(gpu, native, monkeypatch, variables, expected):
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    native.answers["start"] = ["backend"] if expected[1] else []
    if expected[1]:
        with pytest.warns(UserWarning, match="backend: no effect"):
            regraph.torch.enable(native=False)
    else:
        regraph.torch.enable(native=False)
    assert ("start", None, None, expected) in native.calls


@pytest.mark.skipif(NAME is None or torch.version.cuda is None, reason="needs a PyTorch for CUDA")
@pytest.mark.parametrize("read", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_pytorch_reads_the_same_variable_of_two(read, monkeypatch):
    wrong, right = "garbage_collection_threshold:5", "garbage_collection_threshold:0.5"
    for name in starting.OF_PYTORCH:
        monkeypatch.setenv(name, wrong if name == read else right)
    must_be_done(f"""
import torch
from regraph import starting
try:
    torch._C.{NAME}("")
    name = None
except ValueError:
    name = "{read}"
assert (starting.of_pytorch()[1] == "{wrong}") == (name is not None), (starting.of_pytorch(), name)
print("done")
""")
