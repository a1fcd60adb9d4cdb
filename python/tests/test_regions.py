"""Regions: memory by tag that sleeps and wakes."""

import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from interrupts import behind_each_call

import regraph.torch
from regraph.torch.memory_saver import TorchMemorySaver

ROW = {
    "tag": "weights",
    "backup": "host",
    "awake_bytes": 1 << 20,
    "asleep_bytes": 2 << 20,
    "host_bytes": 3 << 20,
    "file_bytes": 0,
    "folder": None,
}


@pytest.fixture
def graphs(enabled, native, monkeypatch):
    """PyTorch's class of graphs with a pool and replays, which are noted."""
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    cls = torch._C._CUDAGraph

    def replay(graph):
        native.calls.append(("torch.replay",))

    monkeypatch.setattr(cls, "replay", replay, raising=False)
    monkeypatch.setattr(cls, "pool", lambda graph: (0, 3), raising=False)
    yield cls
    from regraph.torch import launches

    launches._replaced.undo()


def test_a_region_is_entered_and_left(enabled, native):
    with regraph.torch.region("weights"), regraph.torch.region("cache", backup="none"):
        pass
    assert native.done() == [
        ("enter_region", "weights"),
        ("set_region_backup", "cache", "none"),
        ("enter_region", "cache"),
        ("leave_region",),
        ("leave_region",),
    ]


def test_it_is_left_by_an_exception_too(enabled, native):
    with pytest.raises(KeyError), regraph.torch.region("weights"):
        raise KeyError
    assert native.done() == [("enter_region", "weights"), ("leave_region",)]


@pytest.mark.parametrize(
    "stay",
    [
        lambda: regraph.torch.region("weights", backup="none"),
        regraph.torch.outside_regions,
        lambda: TorchMemorySaver().region("weights", enable_cpu_backup=True),
    ],
)
def test_an_interrupt_leaves_no_region_entered(enabled, native, stay):
    def run():
        with stay():
            pass

    def check():
        assert native.names().count("enter_region") == native.names().count("leave_region")

    assert behind_each_call(run, check) >= 3


def test_nothing_is_entered_where_the_backup_is_wrong(enabled, native):
    native.failures["set_region_backup"] = ValueError("not 'disk'")
    with pytest.raises(ValueError, match="not 'disk'"), regraph.torch.region("a", backup="disk"):
        raise AssertionError
    assert native.done() == [("set_region_backup", "a", "disk")]


def test_a_thread_goes_out_of_all_regions(enabled, native):
    with regraph.torch.outside_regions():
        pass
    assert native.calls == [("enter_region", None), ("leave_region",)]


@pytest.mark.parametrize("call", ["sleep", "try_sleep", "wake"])
def test_tags_are_one_or_some_or_all(enabled, native, call):
    function = getattr(regraph.torch, call)
    expected = {"sleep": 5, "try_sleep": 6, "wake": 4}[call]
    assert (
        function() == function("a") == function(["a", "b"]) == function(x for x in "ab") == expected
    )
    named = [arguments for name, *arguments in native.calls if name == call]
    assert named == [[None], [["a"]], [["a", "b"]], [["a", "b"]]]


def test_a_region_is_forgotten(enabled, native):
    regraph.torch.forget("weights")
    assert native.done() == [("forget_region", "weights")]


def test_what_keeps_a_region_is_said(enabled, native):
    native.failures["forget_region"] = native.Error("region \"weights\" is in use: 1 threads")
    with pytest.raises(regraph.torch.Error, match="in use: 1 threads"):
        regraph.torch.forget("weights")


def test_a_file_keeps_what_a_region_holds(enabled, native, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    with regraph.torch.region("weights", backup="file", folder=tmp_path.name):
        pass
    regraph.torch.set_backup("weights", "file", folder="/mnt")
    regraph.torch.set_backup("weights", "none")
    assert [call for call in native.done() if "backup" in call[0]] == [
        ("set_region_file_backup", "weights", str(tmp_path)),
        ("set_region_file_backup", "weights", "/mnt"),
        ("set_region_backup", "weights", "none"),
    ]


def test_processes_share_a_file(enabled, native, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with regraph.torch.region("weights", backup="shared", file="weights"):
        pass
    regraph.torch.set_backup("weights", "shared", file="/dev/shm/weights")
    assert [call for call in native.done() if "backup" in call[0]] == [
        ("set_region_shared_backup", "weights", str(tmp_path / "weights")),
        ("set_region_shared_backup", "weights", "/dev/shm/weights"),
    ]


@pytest.mark.parametrize("backup", [None, "host", "file", "shared"])
def test_a_shared_file_goes_with_its_backup_alone(enabled, native, backup):
    given = {} if backup == "shared" else {"file": "/mnt/weights"}
    if backup == "file":
        given["folder"] = "/mnt"
    with pytest.raises(ValueError, match="file goes with"):
        regraph.torch.region("weights", backup, **given).__enter__()
    with pytest.raises(ValueError, match="file goes with"):
        regraph.torch.set_backup("weights", backup, **given)
    assert native.done() == []


@pytest.mark.parametrize("backup", [None, "host", "file"])
def test_a_folder_goes_with_files_alone(enabled, native, backup):
    folder = None if backup == "file" else "/mnt"
    native.answers["regions"] = [{**ROW, "awake_bytes": 5}]
    with pytest.raises(ValueError, match="folder goes with"):
        regraph.torch.region("weights", backup, folder).__enter__()
    with pytest.raises(ValueError, match="folder goes with"):
        regraph.torch.set_backup("weights", backup, folder)
    assert native.done() == []


@pytest.mark.parametrize("call", ["sleep", "try_sleep", "wake", "is_asleep"])
def test_a_refusal_names_the_region(enabled, native, call):
    native.failures[call] = native.Error('there is no region "weight"')
    with pytest.raises(regraph.torch.Error, match="weight"):
        getattr(regraph.torch, call)("weight")


@pytest.mark.parametrize("holds", [False, True])
def test_a_backup_that_contradicts_what_is_there_is_refused(enabled, native, holds):
    row = {**ROW, "awake_bytes": 0, "asleep_bytes": 5 * holds}
    native.answers["regions"] = [{**row, "tag": "another"}, row]
    with regraph.torch.region("weights", backup="host"):
        pass
    native.calls.clear()
    if not holds:
        with regraph.torch.region("weights", backup="none"):
            pass
        assert ("set_region_backup", "weights", "none") in native.calls
        return
    with pytest.raises(
        regraph.torch.Error, match=r"'host', not 'none'; call set_backup\('weights'"
    ), regraph.torch.region("weights", backup="none"):
        raise AssertionError
    assert native.done() == []
    regraph.torch.set_backup("weights", "none")
    assert native.done() == [("set_region_backup", "weights", "none")]


def test_where_nothing_sleeps_regions_warn(enabled, native, monkeypatch):
    monkeypatch.setitem(native.answers, "memory_sleeps", False)
    with pytest.warns(UserWarning, match="cannot sleep.*expandable_segments:False") as warned:
        with regraph.torch.region("weights"):
            pass
        regraph.torch.put_graphs_into("graphs")
    assert [one.filename for one in warned] == [__file__] * 2
    regraph.torch.put_graphs_into(None)


@pytest.fixture
def registers(graphs, native):
    """Captures in which a library may register memory, of regions that exist by then."""
    capturing = sys.modules["regraph.torch.capturing"]
    capturing.calls().registering.groups = ("nccl",)
    native.answers["region_tags"] = ["graphs", "weights"]
    return graphs


@pytest.mark.parametrize("call", ["sleep", "try_sleep"])
def test_memory_that_a_library_may_have_registered_does_not_sleep(registers, native, call):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    native.answers["region_tags"] = ["graphs", "later", "weights"]
    native.calls.clear()
    sleep = getattr(regraph.torch, call)
    for tags, named in [
        (None, "graphs"),
        ("weights", "weights"),
        (["later", "weights"], "weights"),
    ]:
        with pytest.raises(regraph.torch.Error, match=rf"pool \(0, 3\).*{named}.*GRAPH_REGISTER=0"):
            sleep(tags)
    assert call not in native.names()
    # What there was not then it cannot have registered.
    sleep("later")
    # NCCL may still have what it registered for a graph that is gone.
    graph.reset()
    with pytest.raises(regraph.torch.Error, match="graphs.*weights.*GRAPH_REGISTER=0"):
        sleep()
    sleep("later")


def test_nothing_sleeps_beside_such_a_capture(registers, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    native.calls.clear()
    with pytest.raises(regraph.torch.Error, match="is being captured beside torch.distributed"):
        regraph.torch.sleep("later")
    assert native.calls == []
    graph.capture_end()
    regraph.torch.sleep("later")


def test_such_a_capture_begins_when_regions_sleep(registers, native, monkeypatch):
    """Else it could end between the look at what was captured and the sleep."""
    inside, begins, order = threading.Event(), threading.Event(), []

    def sleep(tags):
        inside.set()
        assert begins.wait(10)
        # The capture would begin now.
        time.sleep(0.05)
        order.append("slept")
        return 0

    def capture():
        begins.set()
        graph.capture_begin()
        order.append("began")

    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=capture)
    monkeypatch.setattr(native, "sleep", sleep)
    sleeper = threading.Thread(target=regraph.torch.sleep)
    sleeper.start()
    assert inside.wait(10)
    thread.start()
    for each in (sleeper, thread):
        each.join(10)
    assert order == ["slept", "began"]


def test_a_region_that_is_forgotten_has_nothing_registered(registers, native):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    native.failures["forget_region"] = native.Error("in use")
    with pytest.raises(regraph.torch.Error, match="in use"):
        regraph.torch.forget("weights")
    with pytest.raises(regraph.torch.Error, match="may have registered memory"):
        regraph.torch.sleep("weights")
    del native.failures["forget_region"]
    regraph.torch.forget("weights")
    assert regraph.torch.sleep("weights") == 5
    with pytest.raises(regraph.torch.Error, match="may have registered memory"):
        regraph.torch.sleep("graphs")


def test_what_was_registered_for_a_graph_that_is_gone_stays_awake(registers):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    graph.capture_end()
    del graph
    with pytest.raises(regraph.torch.Error, match="a pool that is gone"):
        regraph.torch.sleep()


def test_what_was_registered_in_a_capture_that_is_dropped_stays_awake(registers):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    del graph
    with pytest.raises(regraph.torch.Error, match="a pool that is gone"):
        regraph.torch.sleep()


@pytest.mark.parametrize("failing", ["capture_ending", "torch.capture_end", "capture_ended"])
def test_what_was_registered_in_a_capture_that_fails_stays_awake(registers, native, failing):
    graph = torch.cuda.CUDAGraph()
    native.failures[failing] = native.Error("no")
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="no"):
        graph.capture_end()
    with pytest.raises(regraph.torch.Error, match="may have registered memory"):
        regraph.torch.sleep()


def test_a_capture_that_does_not_begin_keeps_nothing_awake(registers, native):
    native.failures["torch.capture_begin"] = native.Error("no")
    with pytest.raises(RuntimeError, match="no"):
        torch.cuda.CUDAGraph().capture_begin()
    regraph.torch.sleep()


def test_too_little_memory_to_wake_is_pytorchs_error(enabled, native):
    native.failures["wake"] = native.OutOfMemory("40 MiB are missing")
    with pytest.raises(torch.OutOfMemoryError, match="40 MiB"):
        regraph.torch.wake()


@pytest.mark.parametrize(
    "call",
    [
        "sleep",
        "try_sleep",
        "wake",
        "regions",
        "host_bytes",
        "free_host",
        lambda: regraph.torch.is_asleep("a"),
        lambda: regraph.torch.put_graphs_into("a"),
        lambda: regraph.torch.set_backup("a", "none"),
        lambda: regraph.torch.region("a").__enter__(),
        lambda: regraph.torch.outside_regions().__enter__(),
    ],
)
def test_it_needs_regraph(gpu, call):
    with pytest.raises(regraph.torch.Error, match="needs regraph"):
        (getattr(regraph.torch, call) if isinstance(call, str) else call)()


def test_figures(enabled, native, monkeypatch):
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    native.answers["regions"] = [ROW]
    (region,) = regraph.torch.regions(0)
    assert region == regraph.torch.Region(**ROW) and region.asleep_bytes == 2 << 20
    assert (regraph.torch.host_bytes(), regraph.torch.free_host()) == (3, 2)
    assert regraph.torch._snapshot()["regions"] == {0: [ROW]}
    assert "regions" not in torch.cuda.memory._snapshot()
    table = regraph.torch.memory_summary(0)
    assert {len(line) for line in table.splitlines()} == {77}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert ["Region", "Awake", "Asleep", "Kept", "Backup"] in rows
    assert ["weights", "1024 KiB", "2048 KiB", "3072 KiB", "host"] in rows
    native.answers["regions"] = [{**ROW, "backup": "file", "host_bytes": 0, "file_bytes": 1 << 20}]
    assert regraph.torch.regions(0)[0].file_bytes == 1 << 20
    rows = [line.strip("|").split() for line in regraph.torch.memory_summary(0).splitlines()]
    assert ["weights", "|", "1024", "KiB", "|", "2048", "KiB", "|", "1024", "KiB", "|", "file"] in rows


@pytest.mark.parametrize("native_door", [False, True])
def test_statistics_have_regions_whichever_door(gpu, native, native_door, monkeypatch):
    names = ("awake_bytes", "asleep_bytes", "host_bytes", "file_bytes")
    figures = {name: ROW[name] for name in names}
    if native_door:
        regraph.torch.enable(native=True)
        native.answers["regions"] = [ROW]
        theirs = {"allocation": {"all": {"current": 1}}}
        monkeypatch.setattr(torch._C, "_cuda_memoryStats", lambda device: theirs, raising=False)
    else:
        regraph.torch.enable(native=False)
        nested = {**native.answers["statistics"], "regions": {"weights": figures}}
        monkeypatch.setitem(native.answers, "statistics", nested)
    assert regraph.torch.memory_stats(0)["regions.weights.asleep_bytes"] == 2 << 20
    assert regraph.torch.memory_stats_as_nested_dict(0)["regions"] == {"weights": figures}


def test_replays_are_looked_at_as_long_as_something_sleeps(graphs, native):
    graph, replay = graphs(), graphs.replay
    graph.replay()
    native.answers["region_tags"], native.answers["is_asleep"] = ["a"], True
    regraph.torch.sleep()
    assert graphs.replay is not replay
    native.calls.clear()
    graph.replay()
    assert native.calls == [("launch_begins", (0, 3)), ("torch.replay",), ("launch_ends",)]
    native.failures["launch_begins"] = native.Error('pool 3 of region "a" is suspended')
    with pytest.raises(regraph.torch.Error, match='region "a"'):
        graph.replay()
    # Once only, and no longer than needed.
    regraph.torch.sleep()
    native.answers["is_asleep"] = False
    regraph.torch.wake()
    assert graphs.replay is replay
    native.calls.clear()
    graph.replay()
    assert native.calls == [("torch.replay",)]


def test_a_sleep_that_fails_leaves_replays_as_they_were(graphs, native):
    replay = graphs.replay
    native.failures["sleep"] = native.Error("a stream captures")
    with pytest.raises(regraph.torch.Error):
        regraph.torch.sleep()
    assert graphs.replay is replay


def test_a_graph_without_a_capture_gets_pytorchs_own_error(graphs, native, monkeypatch):
    native.answers["region_tags"], native.answers["is_asleep"] = ["a"], True
    regraph.torch.sleep()

    def none(graph):
        raise RuntimeError("no capture")

    monkeypatch.setattr(graphs, "pool", none)
    graphs().replay()
    assert native.names()[-1] == "torch.replay" and "launch_begins" not in native.names()


def test_other_threads_wait_and_are_not_mixed_up(enabled, native, monkeypatch):
    """One call at a time moves regions, without the interpreter's lock held."""
    inside, go_on, order = threading.Event(), threading.Event(), []

    def sleep(tags):
        inside.set()
        assert go_on.wait(10)
        order.append("slept")
        return 0

    def wake(tags):
        order.append("woke")
        return 0

    monkeypatch.setattr(native, "sleep", sleep)
    monkeypatch.setattr(native, "wake", wake)
    threads = [threading.Thread(target=regraph.torch.sleep)]
    threads[0].start()
    assert inside.wait(10)
    threads.append(threading.Thread(target=regraph.torch.wake))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == ["slept", "woke"]
