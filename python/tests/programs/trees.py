"""Programs that go back to the end of an earlier graph and capture another behind it."""

import torch
from common import enable, main

NUMBERS = 1 << 20


def checkpoints(folder):
    """What lived at a checkpoint lives again, and a later graph keeps off its memory."""
    enable(native=True)
    given = torch.ones(NUMBERS, device="cuda")
    device, pool = given.device.index, torch.cuda.graph_pool_handle()
    graphs = []

    def capture(value):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            temporary = given * 2
            output = temporary + value
            del temporary
        graphs.append(graph)
        return output

    live = torch._C._cuda_checkPoolLiveAllocations
    first = capture(1)
    address = first.data_ptr()
    assert live(device, pool, {address})
    state = torch._C._cuda_getCheckpointState(device, pool)
    del first
    assert live(device, pool, set())
    second = capture(2)
    storage = torch._C._construct_storage_from_data_pointer(address, given.device, 4 * NUMBERS)
    torch._C._cuda_setCheckpointPoolState(
        device, state, [second.untyped_storage()._cdata], [storage._cdata]
    )
    assert torch._C._has_Standard_Deleter(storage._cdata)
    assert live(device, pool, {address})
    del second
    third = capture(3)
    assert abs(third.data_ptr() - address) >= 4 * NUMBERS
    assert live(device, pool, {address, third.data_ptr()})
    revived = torch.empty(0, device="cuda").set_(storage)
    graphs[0].replay()
    graphs[2].replay()
    assert torch.equal(revived, torch.full_like(given, 3))
    assert torch.equal(third, torch.full_like(given, 5))
    del revived, storage, third
    assert live(device, pool, set())


def paths_of_a_tree(folder):
    """Functions of a tree of graphs give what they give without, on every path."""
    enable(native=True)
    functions = [
        lambda given: (given * 2).relu() + 1,
        lambda given: (given - 1).sin().sum(dim=0),
        lambda given: given.cos() * 3,
        lambda given: (given + given.t()).tanh(),
    ]
    compiled = [torch.compile(function, backend="cudagraphs") for function in functions]
    for step in range(24):
        torch.compiler.cudagraph_mark_step_begin()
        torch.manual_seed(step)
        given = torch.randn(256, 256, device="cuda")
        # Always the first, then the others from another one on.
        order = [0, 1 + step % 3, 1 + (step // 3) % 3][: 2 + step % 2]
        expected, found = given, given
        for number in order:
            if expected.dim() == 1:
                break
            expected, found = functions[number](expected), compiled[number](found)
            torch.testing.assert_close(found, expected)
    from torch._inductor.cudagraph_trees import get_manager

    manager = get_manager(0, create_if_none_exists=False)
    assert manager is not None and manager.debug_checkpointing_counter > 0


PROGRAMS = {function.__name__: function for function in (checkpoints, paths_of_a_tree)}

if __name__ == "__main__":
    main(PROGRAMS)
