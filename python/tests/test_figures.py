"""Figures: PyTorch's functions answer from the library, under their own names and formats."""

import pytest

from fake_native import BY_POOL, COUNTERS, OVERSIZE, OWN, POOLS, VALUES

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.cuda import memory_allocated as imported_before_enabling

import regraph.torch

KEYS = sorted(
    [*COUNTERS, OWN]
    + [f"{name}.{value}" for name in OVERSIZE for value in VALUES]
    + [f"{name}.{pool}.{value}" for name in BY_POOL for pool in POOLS for value in VALUES]
)


def cells(line):
    """What stands in a row of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_figures_are_flat_and_sorted(enabled, native):
    figures = regraph.torch.memory_stats(0)
    assert list(figures) == KEYS
    nested = native.answers["statistics"]
    assert (
        figures["reserved_bytes.large_pool.peak"] == nested["reserved_bytes"]["large_pool"]["peak"]
    )
    assert torch.cuda.memory_stats_as_nested_dict(0) == nested
    assert set(native.calls) == {("statistics", 0)}


def test_documented_keys_are_there(enabled):
    figures = torch.cuda.memory_stats(0)
    for name in ("segment", "reserved_bytes", "active", "active_bytes", "inactive_split"):
        for pool in ("all", "large_pool", "small_pool"):
            assert f"{name}.{pool}.current" in figures
            assert name in torch.cuda.memory_stats.__doc__
    assert {"num_alloc_retries", "num_ooms", "max_split_size"} <= set(figures)


def test_nothing_is_known_before_cuda_is_used(enabled, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: False)
    assert regraph.torch.memory_stats(0) == {}
    assert regraph.torch.memory_allocated(0) == 0


@pytest.mark.parametrize(
    ("function", "key"),
    [
        ("memory_allocated", "allocated_bytes.all.current"),
        ("max_memory_allocated", "allocated_bytes.all.peak"),
        ("memory_reserved", "reserved_bytes.all.current"),
        ("max_memory_reserved", "reserved_bytes.all.peak"),
        ("memory_cached", "reserved_bytes.all.current"),
        ("max_memory_cached", "reserved_bytes.all.peak"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_each_figure_answers(enabled, function, key):
    expected = torch.cuda.memory_stats(0)[key]
    assert getattr(torch.cuda, function)(0) == expected
    assert getattr(torch.cuda.memory, function)(0) == expected
    assert getattr(regraph.torch, function)(0) == expected


def test_a_name_imported_earlier_answers(enabled, native):
    expected = native.answers["statistics"]["allocated_bytes"]["all"]["current"]
    assert imported_before_enabling(0) == expected


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("reset_peak_memory_stats", "reset_peaks"),
        ("reset_max_memory_allocated", "reset_peaks"),
        ("reset_max_memory_cached", "reset_peaks"),
        ("reset_accumulated_memory_stats", "reset_accumulated"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_figures_can_be_reset(enabled, native, function, call):
    getattr(torch.cuda, function)(0)
    getattr(regraph.torch, function)(0)
    assert native.calls == [(call, 0), (call, 0)]


def test_the_fraction_answers(enabled, native, monkeypatch):
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    assert regraph.torch.get_per_process_memory_fraction(0) == 0.5
    assert torch._C._cuda_getMemoryFraction(0) == 0.5
    assert native.calls == [("memory_fraction", 0)] * 2


def test_an_observer_is_attached(enabled, native):
    torch._C._cuda_attach_out_of_memory_observer(print)
    assert native.calls == [("out_of_memory_observer", print)]


def test_a_pool_has_a_name(enabled, native, monkeypatch):
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    regraph.torch.set_pool_name((0, 1), "decoder", device=0)
    regraph.torch.set_pool_name((0, 1), None, device=0)
    assert native.calls == [("set_pool_name", 0, (0, 1), "decoder"), ("set_pool_name", 0, (0, 1), None)]
    row = {"id": (0, 1), "name": "decoder", "region": None, "graphs": 2}
    native.answers["pools"] = [{**row, "allocated": 0, "reserved": 0}]
    table = regraph.torch.memory_summary(0, abbreviated=True)
    assert any(cells(line)[0] == "decoder" for line in table.splitlines())


def test_the_table_is_torchs_with_rows_of_our_own(enabled, native):
    native.answers["pools"] = [
        {
            **{"id": (0, 1), "name": None, "region": "a", "graphs": 2},
            **{"allocated": 3 << 20, "reserved": 20 << 20},
        }
    ]
    theirs = torch.cuda.memory_summary(0, abbreviated=True)
    table = regraph.torch.memory_summary(0, abbreviated=True)
    assert table.startswith(theirs)
    assert {len(line) for line in table.splitlines()} == {77}
    own = [cells(line) for line in table[len(theirs) :].splitlines()]
    figures = native.answers["statistics"]
    calls = ("num_device_alloc", "num_device_free", "num_sync_all_streams")
    assert own[0] == ["Driver calls", "Allocate", "Free", "Wait", ""]
    assert own[2] == ["", *(str(figures[name]) for name in calls), ""]
    assert own[4] == ["Pool of graphs", "Allocated", "Reserved", "Graphs", "Region"]
    assert own[6] == ["(0, 1)", "3072 KiB", "20480 KiB", "2", "a"]


def test_the_accelerators_names_answer_too(enabled, native):
    if not hasattr(torch._C, "_accelerator_getDeviceStats"):
        pytest.skip("this PyTorch has no torch.accelerator.memory_stats")
    assert torch._C._accelerator_getDeviceStats(0) == native.answers["statistics"]
    torch._C._accelerator_resetPeakStats(0)
    torch._C._accelerator_resetAccumulatedStats(0)
    assert native.names() == ["statistics", "reset_peaks", "reset_accumulated"]
    assert torch._C._accelerator_isAllocatorInitialized() == torch.cuda.is_initialized()
