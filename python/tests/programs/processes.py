"""Programs that share tensors between processes, and memory between devices."""

import ctypes
import gc
from multiprocessing import reduction

import torch
import torch.multiprocessing
from common import MIB, enable, expect, main

import regraph.torch
from regraph.torch import exporting

SPAWN = torch.multiprocessing.get_context("spawn")
# Seconds that a process waits for the other one.
PATIENCE = 90


class Other:
    """Another process, with a queue to it and one from it."""

    def __init__(self, body, *arguments):
        self.to, self.back, self.done = SPAWN.Queue(), SPAWN.Queue(), SPAWN.Event()
        arguments = (body, self.to, self.back, self.done, *arguments)
        self.process = SPAWN.Process(target=_run, args=arguments)
        self.process.start()

    def get(self):
        return self.back.get(timeout=PATIENCE)

    def end(self):
        self.done.set()
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0, self.process.exitcode


def _run(body, given, back, done, *arguments):
    body(given, back, *arguments)
    # What was sent must live until the receiver has opened it.
    assert done.wait(PATIENCE)


def _sums(given, back):
    """Adds 1 to each tensor that comes, and answers with its sum before; until `None` comes."""
    enable(native=True)
    while (tensor := given.get(timeout=PATIENCE)) is not None:
        total = tensor.double().sum().item()
        tensor.add_(1)
        torch.cuda.synchronize()
        back.put(total)
        del tensor


def _numbers(given, back):
    """Sends tensors of its own."""
    enable(native=True)
    large = torch.arange(4 * MIB, dtype=torch.int32, device="cuda")
    small = torch.full((100,), 7, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    back.put((large, large[1000:2000], small))
    assert given.get(timeout=PATIENCE) == "read"
    assert large[0].item() == -1 and large[1001].item() == -2 and small[99].item() == -3


def tensors_there(folder):
    """Another process reads and changes tensors and views of this one."""
    enable(native=True)
    other = Other(_sums)
    whole = torch.arange(3 * MIB, dtype=torch.float32, device="cuda")
    small = torch.full((64, 3), 2.0, device="cuda")
    views = [whole, whole[5000:9000], whole.view(-1, 1024)[:, 17], small, small[10:20].t()]
    for tensor in views:
        torch.cuda.synchronize()
        expected = tensor.double().sum().item()
        other.to.put(tensor)
        assert other.get() == expected
        assert tensor.double().sum().item() == expected + tensor.numel()
    other.to.put(None)
    other.end()


def tensors_back(folder):
    """This process reads and changes tensors and views of another one."""
    enable(native=True)
    other = Other(_numbers)
    large, view, small = other.get()
    count = 4 * MIB
    assert large.long().sum().item() == count * (count - 1) // 2
    assert view.long().sum().item() == sum(range(1000, 2000))
    assert small.long().sum().item() == 700
    large[0], view[1], small[99] = -1, -2, -3
    assert large[1001].item() == -2, "the view is of the same memory"
    torch.cuda.synchronize()
    other.to.put("read")
    del large, view, small
    other.end()
    torch.cuda.empty_cache()


def _borrows(given, back):
    """Fills each loan whose handle comes until it is called back, and gives it back; until `None` comes."""
    enable(native=True)
    while (handle := given.get(timeout=PATIENCE)) is not None:
        with regraph.torch.take_loan(handle) as loan:
            numbers = loan.tensor.view(torch.float32)
            back.put(numbers.numel())
            rounds = 0
            while not loan.recalled():
                rounds += 1
                numbers.fill_(rounds)
                assert numbers.min().item() == numbers.max().item() == rounds
            # Tensors in the loan keep it.
            expect(regraph.torch.Error, loan.give_back, "tensors lie in")
            del numbers
        back.put(rounds)


def _writes_on(given, back):
    """Has the device write into a loan for seconds, and says so at once."""
    enable(native=True)
    loan = regraph.torch.take_loan(given.get(timeout=PATIENCE))
    numbers = loan.tensor.view(torch.float32)
    for number in range(100_000):
        numbers.fill_(number)
        if number == 1_000:
            back.put("writes")


class _Lender:
    """A graph whose temporaries are lent."""

    SIZE = 128 * MIB

    def __init__(self):
        self.graph, self.input = torch.cuda.CUDAGraph(), torch.ones(32 * MIB, device="cuda")
        with torch.cuda.graph(self.graph):
            x = self.input
            for _ in range(4):
                x = x * 2 + 1
            self.output = torch.stack([x.min(), x.max()])
            del x
        self.pool = self.graph.pool()

    def lend(self):
        return regraph.torch.lend(self.pool, self.SIZE)

    def is_held_back(self):
        expect(RuntimeError, self.graph.replay, "lent")

    def replay(self, value):
        self.input.fill_(value)
        self.graph.replay()
        assert self.output.tolist() == [16 * value + 15] * 2, self.output


def graphs_lend_another_process(folder):
    """Another process has what graphs leave, as long as no graph runs."""
    enable(native=True)
    lender, other = _Lender(), Other(_borrows)
    held = torch.cuda.memory_reserved()
    for value in range(1, 6):
        lender.replay(value)
        loan = lender.lend()
        assert loan.state == "offered"
        other.to.put(loan.handle)
        assert other.get() == lender.SIZE // 4
        assert loan.state == "taken"
        lender.is_held_back()
        assert loan.recall(timeout=PATIENCE)
        assert other.get() >= 0 and loan.state == "back"
        lender.replay(value)
    assert torch.cuda.memory_reserved() == held
    # What no process has taken is back at once.
    loan = lender.lend()
    lender.is_held_back()
    assert loan.recall(timeout=0) and regraph.torch.lent_bytes(lender.pool) == 0
    lender.replay(7)
    expect(regraph.torch.Error, lambda: regraph.torch.lend(lender.pool, 1 << 36), "lends no")
    expect(regraph.torch.Error, lambda: regraph.torch.take_loan(loan.handle), "called back")
    other.to.put(None)
    other.end()


def a_borrower_is_killed(folder):
    """What a process that was killed had submitted writes no more once the loan is back."""
    enable(native=True)
    lender = _Lender()
    for value in range(1, 4):
        other = Other(_writes_on)
        loan = lender.lend()
        other.to.put(loan.handle)
        assert other.get() == "writes"
        assert not loan.recall(timeout=0.1), "it does not look"
        lender.is_held_back()
        other.process.kill()
        assert loan.recall(timeout=PATIENCE)
        for again in range(50):
            lender.replay(value + again)
        other.process.join()


def a_tensor_sent_twice(folder):
    """What is sent twice, and what lies beside it, is the same memory there."""
    enable(native=True)
    other = Other(_sums)
    first = torch.zeros(1000, device="cuda")
    second = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    for tensor in (first, first, second, first):
        other.to.put(tensor)
    assert [other.get() for _ in range(4)] == [0, 1000, 0, 2000]
    assert first.sum().item() == 3000 and second.sum().item() == 1000
    other.to.put(None)
    other.end()


def the_sender_frees_first(folder):
    """What was sent and freed at once arrives whole, and its memory is used again after that."""
    enable(native=True)
    other = Other(_sums)
    for value in range(1, 9):
        tensor = torch.full((2 * MIB,), float(value), device="cuda")
        torch.cuda.synchronize()
        other.to.put(tensor)
        del tensor
        torch.cuda.empty_cache()
        # Would overwrite it, if its memory were free.
        noise = torch.full((2 * MIB,), -1.0, device="cuda")
        assert other.get() == value * 2 * MIB
        del noise
        torch.cuda.ipc_collect()
    assert torch.cuda.memory_reserved() < 64 * MIB
    other.to.put(None)
    other.end()


def many_pieces(folder):
    """A tensor on many pieces of memory arrives whole."""
    enable(native=True)
    pieces = [torch.empty(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(200)]
    del pieces
    torch.cuda.synchronize()
    tensor = torch.ones(100 * MIB, device="cuda")
    other = Other(_sums)
    other.to.put(tensor)
    assert other.get() == 100 * MIB
    assert tensor.double().sum().item() == 200 * MIB
    other.to.put(None)
    other.end()


def _without(given, back):
    """A process with PyTorch's own allocator."""
    tensor = torch.arange(1000, device="cuda")
    torch.cuda.synchronize()
    back.put((tensor, tensor[500:]))
    expect(Exception, lambda: given.get(timeout=PATIENCE), "future version")
    back.put("refused")


def a_process_without_regraph(folder):
    """Its tensors can be opened here; ours it refuses."""
    enable(native=True)
    other = Other(_without)
    tensor, view = other.get()
    assert tensor.sum().item() == 499500 and view.sum().item() == sum(range(500, 1000))
    del tensor, view
    own = torch.ones(1000, device="cuda")
    other.to.put(own)
    assert other.get() == "refused"
    other.end()


def _opens(given, back):
    """PyTorch's own allocator, and a tensor of another process."""
    tensor = given.get(timeout=PATIENCE)
    back.put(tensor.sum().item())
    tensor.fill_(2)
    torch.cuda.synchronize()
    back.put("written")


def a_process_without_regraph_opens_allocations(folder):
    """Where segments do not grow they are allocations of the driver's, which PyTorch's own allocator opens."""
    enable(native=True, settings="expandable_segments:False")
    other, own = Other(_opens), torch.ones(1000, device="cuda")
    torch.cuda.synchronize()
    other.to.put(own)
    assert other.get() == 1000 and other.get() == "written"
    assert own.sum().item() == 2000
    other.end()


def sharing_that_is_refused(folder):
    """Memory that was not made for other processes says which setting would."""
    enable(settings="exportable:False", native=True)
    tensor = torch.ones(1000, device="cuda")
    expect(Exception, tensor.untyped_storage()._share_cuda_, "exportable:True")
    assert tensor.sum().item() == 1000


def copies_between_devices(folder):
    """Tensors go from device to device, by access or by copies."""
    enable(native=True)
    if torch.cuda.device_count() < 2:
        return
    here = torch.arange(3 * MIB, dtype=torch.int32, device="cuda:0")
    for _ in range(2):
        there = here.to("cuda:1")
        assert torch.equal(there.cpu(), here.cpu())
        # Memory that is mapped after access was given.
        more = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda:1")
        assert torch.equal(more.to("cuda:0").cpu(), more.cpu())
        here = there.to("cuda:0")
        assert torch.equal(there.cpu(), here.cpu())


class Handles:
    """The driver's calls for memory by handles, as a library makes them that knows nothing of regraph."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        assert result == 0, (name, result)

    def piece(self, address):
        """Where the mapping begins that an address lies in, and its size."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        return base.value, size.value

    def export(self, address):
        """A descriptor of the memory behind an address; told to regraph, unless it sees it by itself."""
        try:
            from cuda.bindings import driver
        except ImportError:
            assert regraph._native.keep_exported(address, 1)
            handle, descriptor = ctypes.c_uint64(), ctypes.c_int(-1)
            self.call("cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(address))
            self.call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, 1, ctypes.c_uint64(0))
            self.call("cuMemRelease", handle)
            return descriptor.value
        # As SGLang's custom all-reduce does; imported before the capture in its programs.
        exporting.watch()
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        error, handle = driver.cuMemRetainAllocationHandle(address)
        assert int(error) == 0, error
        error, descriptor = driver.cuMemExportToShareableHandle(handle, kind, 0)
        assert int(error) == 0, error
        driver.cuMemRelease(handle)
        return int(descriptor)

    def map(self, descriptor, size, device):
        """Maps the memory of a descriptor; returns where."""
        handle, place = ctypes.c_uint64(), ctypes.c_uint64()
        self.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), 1)
        zero, length = ctypes.c_uint64(0), ctypes.c_size_t(size)
        self.call("cuMemAddressReserve", ctypes.byref(place), length, ctypes.c_size_t(0), zero, zero)
        self.call("cuMemMap", place, length, ctypes.c_size_t(0), handle, zero)
        # The device's memory, for reading and writing by it.
        access = (ctypes.c_int * 3)(1, device, 3)
        self.call("cuMemSetAccess", place, length, access, ctypes.c_size_t(1))
        self.call("cuMemRelease", handle)
        return place.value

    def read(self, place):
        """A float at an address of the device."""
        value = ctypes.c_float()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), ctypes.c_uint64(place), ctypes.c_size_t(4))
        return value.value

    def close(self, place, size):
        self.call("cuMemUnmap", ctypes.c_uint64(place), ctypes.c_size_t(size))
        self.call("cuMemAddressFree", ctypes.c_uint64(place), ctypes.c_size_t(size))


def _peer(given, back, pipe):
    """Maps what it is sent, and answers with what it finds where it is asked."""
    torch.zeros(1, device="cuda")
    handles, size = Handles(), given.get(timeout=PATIENCE)
    place = handles.map(reduction.recv_handle(pipe), size, torch.cuda.current_device())
    while (offset := given.get(timeout=PATIENCE)) is not None:
        back.put(handles.read(place + offset))
    handles.close(place, size)
    back.put("closed")


def graphs_memory_is_exported_by_handles(folder):
    """A peer maps the memory of a buffer in a graph after its capture, and sees what each replay writes there."""
    enable(native=True)
    static = torch.zeros(MIB, device="cuda")
    graph, later = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with regraph.torch.region("graphs"), torch.cuda.graph(graph):
        buffer = static * 2
        place = buffer.data_ptr()
        output = buffer + 1
        del buffer
    handles = Handles()
    base, size = handles.piece(place)
    mine, theirs = SPAWN.Pipe()
    other = Other(_peer, theirs)
    other.to.put(size)
    reduction.send_handle(mine, handles.export(place), other.process.pid)

    def replays(number):
        static.fill_(number)
        graph.replay()
        torch.cuda.synchronize()
        for offset in (0, 4 * (MIB - 1)):
            if place + offset < base + size:
                other.to.put(place + offset - base)
                assert other.get() == 2 * number
        assert float(output[0]) == float(output[-1]) == 2 * number + 1

    replays(3)
    torch.cuda.empty_cache()
    # Captures of the same pool, and what grows in them.
    with regraph.torch.region("graphs"), torch.cuda.graph(later, pool=graph.pool()):
        more = [static.repeat(number) for number in range(1, 9)]
        total = sum(each.sum() for each in more)
        del more
    replays(4)
    later.replay()
    torch.cuda.synchronize()
    replays(5)
    expect(regraph.torch.Error, regraph.torch.sleep, "others have memory of")
    replays(6)
    other.to.put(None)
    assert other.get() == "closed"
    other.end()
    # With the graphs the memory goes, and with it what was noted.
    del output, total
    graph.reset()
    later.reset()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    regraph.torch.sleep()
    regraph.torch.wake()


PROGRAMS = {
    function.__name__: function
    for function in (
        tensors_there,
        tensors_back,
        a_tensor_sent_twice,
        graphs_lend_another_process,
        a_borrower_is_killed,
        the_sender_frees_first,
        many_pieces,
        a_process_without_regraph,
        a_process_without_regraph_opens_allocations,
        sharing_that_is_refused,
        copies_between_devices,
        graphs_memory_is_exported_by_handles,
    )
}

if __name__ == "__main__":
    main(PROGRAMS)
