"""What graphs hold by the ways in which programs of PyTorch warm up and capture.

    python ways_to_capture.py WAY ALLOCATOR

ALLOCATOR is `native`, `auto` for regraph as it comes, or settings of it such as `plan:none`. Prints how much more
memory is reserved in the end than before the captures, in MiB, and for regraph what the pools of graphs hold and the
least that the first captures need. One way a process. Needs a GPU.
"""

import gc
import sys

import torch
import torch.nn.functional as F
from torch import nn

import regraph.torch

MIB = 1 << 20


class Layer(nn.Module):
    """A layer of a decoder, with gated units."""

    def __init__(self, width=1024, heads=16):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norms[0](x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(x.shape))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def decoder(layers):
    return nn.Sequential(*[Layer() for _ in range(layers)]).cuda()


def convolutions():
    """Four stages of two convolutions, and classes."""
    widths = [3, 64, 128, 256, 512]
    pairs = list(zip(widths, widths[1:], strict=False))

    def half(entering, leaving, stride):
        return nn.Conv2d(entering, leaving, 3, stride, 1), nn.BatchNorm2d(leaving), nn.ReLU()

    stages = [part for one, other in pairs for part in (*half(one, other, 2), *half(other, other, 1))]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)).cuda()


def beside(work, times):
    """Runs work on a stream of its own, as PyTorch's page has programs warm up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(stream)


def reserved():
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def captured(work, pool=None):
    """A graph of work, and what that returns."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


def training(model, inputs, loss, optimizer, amp=False):
    """The whole of a step is captured, behind three on another stream."""

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp, cache_enabled=False):
            total = loss(model(inputs))
        total.backward()
        optimizer.step()
        return total

    beside(step, 3)
    before = reserved()
    optimizer.zero_grad(set_to_none=True)
    return before, captured(step)


def tokens(batch, length, dtype=torch.bfloat16):
    return torch.randn(batch, length, 1024, device="cuda", dtype=dtype)


def train_decoder():
    model, x = decoder(6).bfloat16(), tokens(4, 512)
    target = torch.randn_like(x)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True, foreach=True)
    return training(model, x, lambda y: F.mse_loss(y, target), optimizer)


def train_decoder_with_autocast():
    model, x = decoder(4), tokens(4, 512, torch.float32)
    target = torch.randn_like(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return training(model, x, lambda y: F.mse_loss(y, target), optimizer, amp=True)


def train_convolutions():
    model, x = convolutions(), torch.randn(32, 3, 224, 224, device="cuda")
    classes = torch.randint(0, 100, (32,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return training(model, x, lambda y: F.cross_entropy(y, classes), optimizer)


def make_graphed_callables():
    model, x = decoder(4).bfloat16(), tokens(4, 512).requires_grad_()
    before = reserved()
    return before, torch.cuda.make_graphed_callables(model, (x,))


@torch.no_grad()
def run_on_the_default_stream():
    """As programs warm up that know of no page."""
    model, x = decoder(6).bfloat16(), tokens(16, 256)
    for _ in range(2):
        model(x)
    return reserved(), captured(lambda: model(x))


@torch.no_grad()
def run_convolutions():
    torch.backends.cudnn.benchmark = True
    model, x = convolutions().eval(), torch.randn(32, 3, 224, 224, device="cuda")
    beside(lambda: model(x), 3)
    return reserved(), captured(lambda: model(x))


@torch.no_grad()
def serve(each):
    """Batches of seven sizes share a pool; all are warmed up before the first is captured, or each before it is."""
    model, x, pool = decoder(6).bfloat16(), tokens(64, 64), torch.cuda.graph_pool_handle()
    results, sizes, graphs = torch.empty_like(x), (64, 32, 16, 8, 4, 2, 1), []

    def run(size):
        results[:size].copy_(model(x[:size]))

    for size in () if each else sizes:
        run(size)
    before = reserved()
    for size in sizes:
        for _ in range(2 if each else 0):
            run(size)
        torch.cuda.synchronize()
        graphs.append(captured(lambda size=size: run(size), pool))
    return before, graphs


WAYS = {
    "train_decoder": train_decoder,
    "train_decoder_with_autocast": train_decoder_with_autocast,
    "train_convolutions": train_convolutions,
    "make_graphed_callables": make_graphed_callables,
    "run_on_the_default_stream": run_on_the_default_stream,
    "run_convolutions": run_convolutions,
    "serve_all": lambda: serve(each=False),
    "serve_each": lambda: serve(each=True),
}


def main(way, allocator):
    if allocator != "native":
        regraph.torch.enable(settings=None if allocator == "auto" else allocator)
    torch.manual_seed(0)
    before, graphs = WAYS[way]()
    told = f"{way} {allocator}: {(reserved() - before) / MIB:.0f} MiB reserved"
    if allocator != "native":
        captures = regraph.torch.captures()
        pools = {capture.pool: capture.reserved_bytes for capture in captures}
        least = ", ".join(f"{capture.minimum_bytes / MIB:.0f}" for capture in captures[:3])
        told += f"; {sum(pools.values()) / MIB:.0f} in pools of graphs, of which captures need {least}"
    print(told)
    del graphs


if __name__ == "__main__":
    main(*sys.argv[1:])
