"""How long regions take to sleep and wake on this GPU.

    python waking.py [GiB with contents] [GiB of graphs' memory]

Prints both directions, in seconds and GB a second: eager memory whose contents are kept on the host, first
with pages that have to be locked and then with pages that are; and memory of graphs, whose contents are not
kept. 32 and 8 GiB where nothing is said.
"""

import sys
import time
from collections.abc import Callable

import torch

import regraph.torch

GIB = 1 << 30


def timed(what: str, size: int, call: Callable[[], object]) -> None:
    """Runs a call and prints what it took."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    print(f"{what:<44} {size / GIB:7.1f} GiB {seconds:8.3f} s {size / seconds / 1e9:8.1f} GB/s")


def main() -> None:
    """Measures both kinds."""
    given = [float(text) for text in sys.argv[1:]]
    kept, dropped = (int(size * GIB) for size in (*given, *(32, 8)[len(given) :]))
    regraph.torch.enable()
    print(torch.cuda.get_device_name(0))
    with regraph.torch.region("weights"):
        piece = kept // 64
        weights = [torch.full((piece,), n, dtype=torch.uint8, device="cuda") for n in range(64)]
    graph = torch.cuda.CUDAGraph()
    static = torch.zeros(dropped // 4, dtype=torch.uint8, device="cuda")
    with regraph.torch.region("graphs", backup="none"), torch.cuda.graph(graph):
        # Three temporaries and an output, all as large as the input.
        output = ((static + 1).mul_(3) + (static + 2)) * 2
    graph.replay()
    sizes = {region.tag: region.awake_bytes for region in regraph.torch.regions()}
    for pages in ("pages to be locked", "pages locked", "pages locked"):
        timed(
            f"sleep with contents, {pages}",
            sizes["weights"],
            lambda: regraph.torch.sleep("weights"),
        )
        timed("wake with contents", sizes["weights"], lambda: regraph.torch.wake("weights"))
    assert all(bool((weight == number).all()) for number, weight in enumerate(weights))
    for _ in range(3):
        timed("sleep of graphs' memory", sizes["graphs"], lambda: regraph.torch.sleep("graphs"))
        timed("wake of graphs' memory", sizes["graphs"], lambda: regraph.torch.wake("graphs"))
    graph.replay()
    assert bool((output == 10).all())


if __name__ == "__main__":
    main()
