"""Programs with regions that sleep and wake."""

import os
import random
import shutil
import threading
import time

import torch
import torch.multiprocessing
from common import MIB, enable, expect, main

import regraph.torch
from regraph.torch import memory_saver, vllm

SPAWN = torch.multiprocessing.get_context("spawn")
# Seconds that a process waits for the other one.
PATIENCE = 150


def free_memory() -> int:
    """What the driver has free, in bytes."""
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def tagged(mebibytes: int, number: int) -> torch.Tensor:
    """A tensor whose every element says which one it is."""
    count = mebibytes * MIB // 4
    return (
        torch.arange(count, dtype=torch.int32, device="cuda").mul_(2654435761 % 2**31).add_(number)
    )


def holds(tensor: torch.Tensor, number: int) -> bool:
    """Whether it is as `tagged` has made it."""
    return bool(torch.equal(tensor, tagged(tensor.numel() * 4 // MIB, number)))


def eager_weights_sleep_and_wake(folder):
    """What is allocated eagerly in a region comes back with what it held, at its addresses."""
    enable()
    outside = tagged(8, 1)
    with regraph.torch.region("weights"):
        weights = [tagged(32, number) for number in range(4)]
        small = torch.full((100,), 7.0, device="cuda")
    view = weights[2][1000:2000]
    copied = view.cpu()
    places = [weight.data_ptr() for weight in weights]
    torch.cuda.empty_cache()
    before = free_memory()
    went = regraph.torch.sleep("weights")
    assert went >= 128 * MIB, went
    assert free_memory() >= before + went - 2 * MIB
    assert regraph.torch.is_asleep("weights")
    assert holds(outside, 1)
    assert regraph.torch.wake() == went
    assert free_memory() <= before + 2 * MIB
    assert [weight.data_ptr() for weight in weights] == places
    assert all(holds(weight, number) for number, weight in enumerate(weights))
    assert torch.equal(view.cpu(), copied) and bool((small == 7).all())
    (region,) = regraph.torch.regions()
    assert region.tag == "weights" and region.asleep_bytes == 0 and region.awake_bytes >= went
    assert regraph.torch.host_bytes() >= regraph.torch.free_host() > 0


def files_keep_what_regions_hold(folder):
    """Contents come back from a file, and little memory of the host is locked for them."""
    enable()
    folder = os.path.join(folder, "files")
    os.mkdir(folder)
    with regraph.torch.region("weights", backup="file", folder=folder):
        weights = [tagged(96, number) for number in range(3)]
    with regraph.torch.region("cache", backup="none"):
        cache = tagged(32, 9)
    for _ in range(2):
        regraph.torch.sleep()
        row = {region.tag: region for region in regraph.torch.regions()}["weights"]
        assert (row.backup, row.folder, row.host_bytes) == ("file", folder, 0)
        assert row.file_bytes >= 288 * MIB
        assert 0 < regraph.torch.host_bytes() <= 64 * MIB
        assert os.listdir(folder) == []
        regraph.torch.wake("weights")
        assert all(holds(weight, number) for number, weight in enumerate(weights))
        regraph.torch.wake()
    regraph.torch.set_backup("weights", "file", os.path.join(folder, "none"))
    expect(regraph.torch.Error, regraph.torch.sleep, "cannot be made")
    assert all(holds(weight, number) for number, weight in enumerate(weights))
    del cache


def _worker(path, mine, begin, done):
    """Has a model's weights of which `mine` tells one apart, and sleeps as often as it is told to."""
    enable()
    numbers = (0, 1, mine)
    with regraph.torch.region("weights", backup="shared", file=path):
        weights = [tagged(96, number) for number in numbers]
    for _ in range(2):
        begin.wait(PATIENCE)
        regraph.torch.sleep()
        (region,) = regraph.torch.regions()
        assert (region.backup, region.file, region.host_bytes) == ("shared", path, 0)
        assert region.file_bytes >= 288 * MIB and regraph.torch.host_bytes() <= 64 * MIB
        done.wait(PATIENCE)
        regraph.torch.wake()
        assert all(holds(weight, number) for weight, number in zip(weights, numbers, strict=True))


def processes_share_what_keeps_their_weights(folder):
    """Processes that sleep at once keep what is the same in one file, and what is not apart."""
    folder = os.path.join("/dev/shm", f"regraph-shared-{os.getpid()}")
    os.mkdir(folder)
    try:
        for mine in ((2, 2, 2), (2, 3, 2)):
            begin, done = SPAWN.Barrier(4), SPAWN.Barrier(4)
            path = os.path.join(folder, "weights")
            workers = [SPAWN.Process(target=_worker, args=(path, it, begin, done)) for it in mine]
            for worker in workers:
                worker.start()
            for _ in range(2):
                before = os.statvfs(folder).f_bfree
                begin.wait(PATIENCE)
                done.wait(PATIENCE)
                # The lock by which they write it in turn stays.
                assert sorted(os.listdir(folder)) == [".weights.lock", "weights"]
                taken = (before - os.statvfs(folder).f_bfree) * os.statvfs(folder).f_frsize
                assert taken <= 300 * MIB * len(set(mine)), f"{taken / MIB:.0f} MiB"
            for worker in workers:
                worker.join(PATIENCE)
                assert worker.exitcode == 0, worker.exitcode
    finally:
        shutil.rmtree(folder)


def graphs_replay_after_waking(folder):
    """A graph replays when its regions wake, without another capture; while they sleep it is refused."""
    enable()
    with regraph.torch.region("weights"):
        weights = torch.full((MIB,), 3.0, device="cuda")
    static = torch.zeros(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with regraph.torch.region("graphs"), torch.cuda.graph(graph):
        inner = static * weights
        output = inner + 1
        del inner
    place = output.data_ptr()
    for number in range(5):
        static.fill_(number)
        graph.replay()
        torch.cuda.synchronize()
        regraph.torch.sleep()
        expect(regraph.torch.Error, graph.replay, 'region "graphs"')
        regraph.torch.wake("graphs")
        assert float(output[0]) == float(output[-1]) == 3 * number + 1, "it kept its output"
        regraph.torch.wake("weights")
        static.fill_(number + 10)
        graph.replay()
        assert float(output.min()) == float(output.max()) == 3 * (number + 10) + 1
        assert output.data_ptr() == place


def planned_graphs_replay_after_waking(folder):
    """The same where captures get their memory at their end, and their contents are dropped."""
    enable(settings="plan:exact")
    static = torch.zeros(4 * MIB, device="cuda")
    graphs = []
    pool = torch.cuda.graph_pool_handle()
    with regraph.torch.region("graphs", backup="none"):
        for factor in range(1, 4):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                inner = static * factor
                output = inner + 1
                del inner
            graphs.append((graph, output, factor))
    for number in range(3):
        regraph.torch.sleep()
        assert regraph.torch.host_bytes() == 0
        regraph.torch.wake()
        static.fill_(number)
        for graph, output, factor in graphs:
            graph.replay()
            assert float(output.min()) == float(output.max()) == number * factor + 1


def regions_wake_in_any_order(folder):
    """Each region comes back by itself."""
    enable()
    tags = ("a", "b", "c", "d")
    tensors = {}
    for number, tag in enumerate(tags):
        with regraph.torch.region(tag):
            tensors[tag] = tagged(16, number)
    for _ in range(6):
        order = random.sample(tags, len(tags))
        regraph.torch.sleep()
        for count, tag in enumerate(order, 1):
            assert regraph.torch.wake(tag) >= 16 * MIB
            awake = {each for each in tags if not regraph.torch.is_asleep(each)}
            assert awake == set(order[:count])
            assert all(holds(tensors[each], tags.index(each)) for each in awake)


def what_sleeps_is_named(folder):
    """Who allocates in what sleeps, or captures into it, is told which region it is."""
    enable()
    graph, again = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    static = torch.ones(MIB, device="cuda")
    with regraph.torch.region("graphs"), torch.cuda.graph(graph):
        output = static + 1
    with regraph.torch.region("weights"):
        weights = tagged(16, 1)
    regraph.torch.sleep()

    def allocate() -> None:
        with regraph.torch.region("weights"):
            tagged(16, 2)

    def capture() -> None:
        with torch.cuda.graph(again, pool=graph.pool()):
            static.add(1)

    expect(RuntimeError, allocate, 'region "weights"')
    stream = torch.cuda.current_stream()
    expect(RuntimeError, capture, 'region "graphs"')
    assert torch.cuda.current_stream() == stream
    expect(regraph.torch.Error, lambda: regraph.torch.sleep("weight"), '"weight"')
    regraph.torch.wake()
    assert holds(weights, 1)
    graph.replay()
    assert float(output[0]) == 2
    # One that cannot be served leaves all as it was.
    torch.cuda.set_per_process_memory_fraction(0.5)
    with regraph.torch.region("large", backup="none"):
        large = torch.empty(int(free_memory() * 0.3), dtype=torch.uint8, device="cuda")
    regraph.torch.sleep("large")
    other = torch.empty(int(free_memory() * 0.3), dtype=torch.uint8, device="cuda")
    expect(torch.OutOfMemoryError, regraph.torch.wake)
    assert regraph.torch.is_asleep("large") and not regraph.torch.is_asleep("weights")
    del other
    assert regraph.torch.wake() >= large.numel()


def a_hundred_rounds_of_sleep(folder):
    """Regions that change between their sleeps keep what they hold."""
    enable()
    tags = ("a", "b", "c")
    held = {tag: [] for tag in tags}
    number = 0
    for tag in tags:
        with regraph.torch.region(tag):
            torch.empty(1, device="cuda")
    for _ in range(100):
        for tag in tags:
            if random.random() < 0.5:
                number += 1
                with regraph.torch.region(tag):
                    held[tag].append((tagged(random.randint(1, 24), number), number))
            if len(held[tag]) > 5:
                held[tag].pop(random.randrange(5))
        chosen = [tag for tag in tags if random.random() < 0.6]
        regraph.torch.sleep(chosen)
        for tag in set(tags) - set(chosen):
            assert all(holds(*each) for each in held[tag])
        random.shuffle(chosen)
        for tag in chosen:
            regraph.torch.wake(tag)
        assert all(holds(*each) for tag in tags for each in held[tag])


def sleep_waits_and_try_sleep_refuses(folder):
    """What runs, on whichever stream, is waited for; or it is refused, and nothing has changed."""
    enable()
    with regraph.torch.region("weights"):
        weights = tagged(64, 1)
    result = torch.empty_like(weights)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.cuda._sleep(200_000_000)
        result.copy_(weights)
    # A stream that regraph has never seen.
    with torch.cuda.stream(side):
        graph.replay()
    expect(regraph.torch.Error, regraph.torch.try_sleep, "not idle")
    assert not regraph.torch.is_asleep("weights")
    assert not side.query(), "it was not waited for"
    regraph.torch.sleep()
    assert side.query()
    assert holds(result, 1)
    regraph.torch.wake()
    torch.cuda.synchronize()
    assert regraph.torch.try_sleep() >= 64 * MIB
    regraph.torch.wake()
    assert holds(weights, 1)


def other_threads_go_on(folder):
    """While a region goes other threads of Python run, and those that allocate wait for their turn."""
    enable()
    with regraph.torch.region("weights"):
        weights = tagged(2048, 1)
    regraph.torch.sleep()
    regraph.torch.wake()
    ticks, over, failures = [0], threading.Event(), []

    def count() -> None:
        while not over.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    def allocate() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not over.is_set():
                    assert float((torch.ones(1000, device="cuda") + 1).sum()) == 2000
        except BaseException as error:
            failures.append(error)

    def rounds() -> int:
        gains = []
        for _ in range(10):
            before = ticks[0]
            regraph.torch.sleep()
            regraph.torch.wake()
            gains.append(ticks[0] - before)
        return min(gains)

    threads = [threading.Thread(target=count)]
    threads[0].start()
    least = rounds()
    # A thread that frees a tensor holds the interpreter while it waits: no ticks are asked for here.
    for _ in range(3):
        threads.append(threading.Thread(target=allocate))
        threads[-1].start()
    rounds()
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert least >= 5, f"the interpreter was held: {least} ticks in 4 GiB of copies"
    assert holds(weights, 1)


def nothing_is_left_while_asleep(folder):
    """What the process holds on the device while it sleeps does not grow with its sleeps."""
    enable()
    graph = torch.cuda.CUDAGraph()
    with regraph.torch.region("weights"):
        weights = tagged(256, 1)
    static = torch.ones(MIB, device="cuda")
    with regraph.torch.region("graphs", backup="none"), torch.cuda.graph(graph):
        output = (static * 2).repeat(32) + 1
    free = []
    for _ in range(50):
        regraph.torch.sleep()
        torch.cuda.empty_cache()
        free.append(free_memory())
        regraph.torch.wake()
        graph.replay()
    assert float(output.min()) == float(output.max()) == 3
    assert holds(weights, 1)
    assert min(free[2:]) >= free[2] - 2 * MIB, [size // MIB for size in free]


def _takes_turns(given, back, share):
    """Has a large cache and some weights, and sleeps whenever it is not its turn."""
    enable(native=None)
    total = torch.cuda.get_device_properties(0).total_memory
    with regraph.torch.region("weights"):
        weights = [tagged(256, number) for number in range(4)]
    with regraph.torch.region("cache", backup="none"):
        size = int(total * share) - 1024 * MIB
        cache = torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1)
    regraph.torch.sleep()
    back.put("asleep")
    while given.get(timeout=PATIENCE) == "wake":
        regraph.torch.wake()
        assert all(holds(weight, number) for number, weight in enumerate(weights))
        cache.fill_(5)
        assert int(cache[-1]) == 5
        torch.cuda.synchronize()
        regraph.torch.sleep()
        back.put("asleep")


def two_processes_take_turns(folder):
    """Two processes with more memory than the device has (`REGRAPH_TURN_SHARE` of it each) use it in turn."""
    share = float(os.environ.get("REGRAPH_TURN_SHARE", "0.6"))
    others = []
    for _ in range(2):
        given, back = SPAWN.Queue(), SPAWN.Queue()
        process = SPAWN.Process(target=_takes_turns, args=(given, back, share))
        process.start()
        # One after the other: each needs its memory when it begins.
        assert back.get(timeout=PATIENCE) == "asleep"
        others.append((given, back, process))
    for _ in range(5):
        for given, back, _ in others:
            given.put("wake")
            assert back.get(timeout=PATIENCE) == "asleep"
    for given, _, process in others:
        given.put("end")
        process.join(PATIENCE)
        assert process.exitcode == 0, process.exitcode


def figures_of_regions(folder):
    """Statistics, the table and snapshots tell of regions."""
    enable()
    with regraph.torch.region("weights"):
        weights = tagged(64, 1)
    size = regraph.torch.sleep()
    stats = regraph.torch.memory_stats()
    assert stats["regions.weights.asleep_bytes"] == size
    assert stats["regions.weights.host_bytes"] >= weights.numel() * 4
    assert stats["regions.weights.awake_bytes"] == 0
    assert "weights" in regraph.torch.memory_summary()
    (row,) = regraph.torch._snapshot()["regions"][0]
    assert row["tag"] == "weights" and row["asleep_bytes"] == size
    regraph.torch.wake()
    assert regraph.torch.memory_stats()["regions.weights.awake_bytes"] == size


def pools_in_regions(folder):
    """A `MemPool` that is made in a region sleeps with it; another one does not."""
    enable(native=True)
    outside = torch.cuda.MemPool()
    with regraph.torch.region("weights"):
        inside = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(outside):
            stays = tagged(16, 1)
    with torch.cuda.use_mem_pool(inside):
        sleeps = tagged(32, 2)
        with regraph.torch.region("cache"):
            later = tagged(8, 3)
    assert [row.awake_bytes // MIB for row in regraph.torch.regions()] == [8, 32]
    assert regraph.torch.sleep("weights") == 32 * MIB
    assert holds(stays, 1) and holds(later, 3)
    regraph.torch.wake()
    assert holds(sleeps, 2)


def memory_saver_pauses_and_resumes(folder):
    """The calls of `torch_memory_saver`, graphs included."""
    memory_saver.install()
    from torch_memory_saver import torch_memory_saver as saver

    saver.hook_mode = "preload"
    with saver.region("weights", enable_cpu_backup=True):
        weights = tagged(128, 1)
    with saver.region("kv_cache"):
        cache = torch.ones(128 * MIB, dtype=torch.uint8, device="cuda")
        with saver.disable():
            stays = tagged(8, 2)
    static = torch.ones(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
        output = static * 3
    place = cache.data_ptr()
    graph.replay()
    before = free_memory()
    saver.pause()
    assert free_memory() >= before + 256 * MIB
    assert holds(stays, 2)
    backup = saver.get_cpu_backup(weights[1000:2000])
    assert backup is not None and saver.get_cpu_backup(cache) is None
    saver.resume("weights")
    assert torch.equal(weights[1000:2000].cpu(), backup)
    assert saver.get_cpu_backup(weights) is None
    assert holds(weights, 1)
    saver.resume()
    assert cache.data_ptr() == place
    cache.fill_(2)
    assert float(output[-1]) == 3
    static.fill_(5)
    graph.replay()
    assert float(output.min()) == float(output.max()) == 15
    # Retained, a backup is what lay there at the latest pause.
    saver.retain_cpu_backup = True
    for number in (3, 4):
        weights.copy_(tagged(128, number))
        expected = weights[1000:2000].cpu()
        saver.pause("weights")
        saver.resume("weights")
        assert holds(weights, number)
        weights.zero_()
        assert torch.equal(saver.get_cpu_backup(weights[1000:2000]), expected)


def _pauses(answers):
    import torch_memory_saver

    # As servers do before they load weights.
    torch.zeros(1, device="cuda")
    saver = torch_memory_saver.torch_memory_saver
    with saver.region("weights", enable_cpu_backup=True):
        weights = tagged(64, 1)
    before = free_memory()
    saver.pause()
    went = free_memory() - before
    saver.resume()
    answers.put((went >= 64 * MIB, holds(weights, 1)))


def spawned_processes_pause_and_resume(folder):
    """A process that was made by spawn has the alias, and regraph, by its environment."""
    answers = SPAWN.SimpleQueue()
    with memory_saver.configure_subprocess():
        process = SPAWN.Process(target=_pauses, args=(answers,))
        process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0, process.exitcode
    assert answers.get() == (True, True)


def vllm_sleeps_by_levels(folder):
    """The allocator that vLLM's workers are given."""
    enable()
    regraph.torch.put_graphs_into(vllm.GRAPHS)
    allocator = vllm.Allocator()
    assert allocator.get_current_usage() == 0
    with allocator.use_memory_pool(tag="weights"):
        weights = tagged(64, 1)
    with allocator.use_memory_pool(tag="kv_cache"):
        cache = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    with allocator.use_memory_pool(tag="runtime"):
        adapters = tagged(8, 2)
    assert allocator.get_current_usage() >= 128 * MIB
    graph = torch.cuda.CUDAGraph()
    with allocator.cudagraph_pool() as pool, torch.cuda.graph(graph, pool=pool):
        output = weights + cache[0]
    assert graph.pool() == pool
    rows = regraph.torch.regions()
    free = free_memory()
    allocator.sleep(offload_tags=("weights",))
    # Weights, cache and the graph's output; locked memory of the host takes a little of the device's.
    assert free_memory() - free >= 190 * MIB, (free_memory() - free, rows)
    allocator.wake_up(tags=["weights"])
    # What vLLM cannot make again is there with any of them.
    assert holds(weights, 1) and holds(adapters, 2)
    allocator.wake_up(tags=["kv_cache"])
    cache.fill_(1)
    graph.replay()
    assert holds(output - 1, 1)
    allocator.sleep(offload_tags=())
    allocator.wake_up()
    assert holds(adapters, 2)
    weights.copy_(tagged(64, 7))
    cache.fill_(0)
    graph.replay()
    assert holds(output, 7)


PROGRAMS = {
    program.__name__: program
    for program in (
        eager_weights_sleep_and_wake,
        files_keep_what_regions_hold,
        processes_share_what_keeps_their_weights,
        graphs_replay_after_waking,
        planned_graphs_replay_after_waking,
        regions_wake_in_any_order,
        what_sleeps_is_named,
        a_hundred_rounds_of_sleep,
        sleep_waits_and_try_sleep_refuses,
        other_threads_go_on,
        nothing_is_left_while_asleep,
        two_processes_take_turns,
        figures_of_regions,
        pools_in_regions,
        memory_saver_pauses_and_resumes,
        spawned_processes_pause_and_resume,
        vllm_sleeps_by_levels,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
