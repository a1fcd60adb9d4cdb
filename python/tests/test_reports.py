"""What captures came to: as records, and in the table."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import regraph.torch

PLANNED = {
    "pool": (0, 1),
    "verified": True,
    "nodes": 209,
    "blocks": 272,
    "reserved_bytes": 48 << 20,
    "minimum_bytes": 45 << 20,
    "mappings": 31,
    "plan_share_percent": 40,
    "mappings_within_share": 11,
}
UNKNOWN = {**PLANNED, "pool": (0, 2), "minimum_bytes": None, "mappings": None}
EMPTY = {**PLANNED, "reserved_bytes": 0, "minimum_bytes": 0, "mappings": 0}


@pytest.fixture
def initialized(enabled, monkeypatch):
    """PyTorch with a GPU that it has used."""
    monkeypatch.setattr(torch.cuda, "init", lambda: None)


def test_a_capture_has_its_figures(initialized, native):
    native.answers["captures"] = [PLANNED, UNKNOWN, EMPTY]
    planned, unknown, empty = regraph.torch.captures(0)
    assert planned == regraph.torch.Capture(**PLANNED)
    assert planned.ratio == pytest.approx(48 / 45)
    assert planned.planned
    assert planned.verified
    assert (planned.plan_share_percent, planned.mappings_within_share) == (40, 11)
    assert (unknown.minimum_bytes, unknown.ratio, unknown.planned) == (None, None, False)
    assert (empty.minimum_bytes, empty.ratio, empty.planned) == (0, None, True)
    assert native.calls == [("captures", 0)]


def test_nothing_is_computed_before_somebody_asks(initialized, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    assert "captures" not in native.names()


def test_the_module_that_tells_of_captures_does_not_hide_the_function():
    import regraph.torch.capturing

    assert callable(regraph.torch.captures)


def test_captures_need_regraph(gpu):
    with pytest.raises(regraph.torch.Error, match=r"captures needs regraph"):
        regraph.torch.captures(0)


def test_the_table_has_a_row_for_each(enabled, native):
    without = regraph.torch.memory_summary(0, abbreviated=True)
    native.answers["captures"] = [PLANNED, UNKNOWN]
    table = regraph.torch.memory_summary(0, abbreviated=True)
    assert table.startswith(without)
    lines = table[len(without) :].splitlines()
    assert {len(line) for line in lines} == {77}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["Capture in pool", "Reserved", "Minimum", "Ratio", "Mapped at"]
    assert rows[3] == ["(0, 1)", "49152 KiB", "46080 KiB", "1.07", "31"]
    assert rows[4] == ["(0, 2)", "49152 KiB", "-", "-", "-"]
    assert len(rows) == 6
