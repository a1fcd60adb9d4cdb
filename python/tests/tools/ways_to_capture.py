"""What graphs hold by the ways in which programs of PyTorch warm up and capture.

    python ways_to_capture.py WAY ALLOCATOR [TRACE]

ALLOCATOR is `native`, `auto` for regraph as it comes, or settings of it such as `plan:none`. Prints how much memory is
reserved in the end, and how much more than before the captures, in MiB, and for regraph what the pools of graphs hold and
the least that the first captures need. With regraph all requests, also those outside captures, are written to TRACE (format
v1, with a kernel behind each allocation of a capture): `tests/traces/programs` has such.
One way a process. Needs a GPU.
"""

import gc
import itertools
import json
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


class Residual(nn.Module):
    """Two convolutions and what goes around them."""

    def __init__(self, entering, leaving, stride=1):
        super().__init__()
        self.first = nn.Conv2d(entering, leaving, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(leaving, leaving, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(leaving), nn.BatchNorm2d(leaving)])
        around = nn.Sequential(nn.Conv2d(entering, leaving, 1, stride, bias=False), nn.BatchNorm2d(leaving))
        self.around = nn.Identity() if entering == leaving else around

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        return F.relu(self.norms[1](self.second(y)) + self.around(x), inplace=True)


def residuals():
    """A residual network of eight blocks."""
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    pairs = zip(widths, widths[1:], strict=False)
    blocks = [Residual(one, other, 1 if one == other else 2) for one, other in pairs]
    stem = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return nn.Sequential(*stem, *blocks, *head).cuda()


class UNet(nn.Module):
    """Halves an image three times and doubles it again, with what it saw on the way down."""

    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        pairs = list(zip(widths, widths[1:], strict=False))
        self.enter, self.leave = nn.Conv2d(4, widths[0], 3, 1, 1), nn.Conv2d(widths[0], 4, 3, 1, 1)
        self.down = nn.ModuleList([Residual(one, other, 2) for one, other in pairs])
        self.middle = Residual(widths[-1], widths[-1])
        self.up = nn.ModuleList([Residual(other + one, one) for one, other in reversed(pairs)])

    def forward(self, x):
        x, seen = self.enter(x), []
        for down in self.down:
            seen.append(x)
            x = down(x)
        x = self.middle(x)
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2), seen.pop()], 1))
        return self.leave(x)


class Words(nn.Module):
    """A language model."""

    def __init__(self, layers, vocabulary=32_000):
        super().__init__()
        self.enter, self.body = nn.Embedding(vocabulary, 1024), decoder(layers)
        self.leave = nn.Linear(1024, vocabulary)

    def forward(self, numbers):
        return self.leave(self.body(self.enter(numbers)))


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


def train_images(model):
    x = torch.randn(32, 3, 224, 224, device="cuda")
    classes = torch.randint(0, 100, (32,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return training(model, x, lambda y: F.cross_entropy(y, classes), optimizer)


def make_graphed(models, x):
    """Forward and backward of each model are captured by themselves."""
    before = reserved()
    return before, torch.cuda.make_graphed_callables(tuple(models), tuple((x,) for _ in models))


def train_words():
    model, numbers = Words(4).cuda().bfloat16(), torch.randint(0, 32_000, (4, 256), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    return training(model, numbers, lambda y: F.cross_entropy(y.flatten(0, 1).float(), numbers.flatten()), optimizer)


def train_float_words():
    """In single precision attention asks for seeds in captures alone, and cuBLAS for two workspaces at once."""
    model, numbers = Words(4, 8_000).cuda(), torch.randint(0, 8_000, (4, 128), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    return training(model, numbers, lambda y: F.cross_entropy(y.flatten(0, 1), numbers.flatten()), optimizer)


def train_unet():
    """Autocast begins with a block of the least size, as those are that PyTorch asks for before a capture."""
    model, x = UNet((32, 64, 128, 256)).cuda(), torch.randn(4, 4, 96, 96, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    return training(model, x, lambda y: F.mse_loss(y.float(), x), optimizer, amp=True)


def train_and_evaluate():
    """A step and a run without gradients share a pool; both are warmed up before the first is captured."""
    model, x, pool = decoder(3).bfloat16(), tokens(4, 512), torch.cuda.graph_pool_handle()
    target, optimizer = torch.randn_like(x), torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    evaluate = torch.no_grad()(lambda: model(x))
    beside(step, 3)
    beside(evaluate, 3)
    before = reserved()
    optimizer.zero_grad(set_to_none=True)
    return before, [captured(step, pool), captured(evaluate, pool)]


@torch.no_grad()
def run_words_once():
    """The only warm-up is one run."""
    model, numbers = Words(6).cuda().bfloat16(), torch.randint(0, 32_000, (8, 256), device="cuda")
    beside(lambda: model(numbers), 1)
    return reserved(), captured(lambda: model(numbers))


@torch.no_grad()
def run_transformer_once():
    """A model of the library transformers, which makes its masks in another way in captures; behind one run."""
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8}
    numbers = torch.randint(0, 16_000, (8, 128), device="cuda")
    model = BertForMaskedLM(BertConfig(vocab_size=16_000, **sizes)).cuda().eval()
    beside(lambda: model(numbers), 1)
    return reserved(), captured(lambda: model(numbers))


@torch.no_grad()
def run_two_models():
    """Both are warmed up before the first is captured, each on a stream of its own."""
    works = (decoder(4).bfloat16(), tokens(8, 512)), (residuals().eval(), torch.randn(16, 3, 224, 224, device="cuda"))
    for _ in range(2):
        for model, x in works:
            beside(lambda model=model, x=x: model(x), 1)
    before = reserved()
    return before, [captured(lambda model=model, x=x: model(x)) for model, x in works]


@torch.no_grad()
def serve_images():
    """Batches of four sizes share a pool; all are warmed up, on streams of their own, before the first is captured."""
    model, pool = UNet().cuda().eval(), torch.cuda.graph_pool_handle()
    images = [torch.randn(size, 4, 64, 64, device="cuda") for size in (8, 4, 2, 1)]
    for x in images:
        beside(lambda x=x: model(x), 1)
    before = reserved()
    return before, [captured(lambda x=x: model(x), pool) for x in images]


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
    "train_convolutions": lambda: train_images(convolutions()),
    "train_residuals": lambda: train_images(residuals()),
    "train_words": train_words,
    "train_float_words": train_float_words,
    "train_unet": train_unet,
    "train_and_evaluate": train_and_evaluate,
    "make_graphed_callables": lambda: make_graphed([decoder(4).bfloat16()], tokens(4, 512).requires_grad_()),
    "make_graphed_layers": lambda: make_graphed(decoder(4).bfloat16(), tokens(4, 512).requires_grad_()),
    "make_graphed_residuals": lambda: make_graphed([residuals()], torch.randn(32, 3, 224, 224, device="cuda")),
    "run_on_the_default_stream": run_on_the_default_stream,
    "run_convolutions": run_convolutions,
    "run_words_once": run_words_once,
    "run_transformer_once": run_transformer_once,
    "run_two_models": run_two_models,
    "serve_all": lambda: serve(each=False),
    "serve_each": lambda: serve(each=True),
    "serve_images": serve_images,
}


def history():
    return torch.cuda.memory._snapshot()["device_traces"][0]


def record():
    """Records all requests from now on. Returns how many there were at each capture's begin and end, and its pool."""
    torch.cuda.memory._record_memory_history(stacks="python", context=None, max_entries=1 << 20)
    marks = []

    class Graph(torch.cuda.graph):
        def __enter__(self):
            self.begun = len(history())
            super().__enter__()

        def __exit__(self, *raised):
            super().__exit__(*raised)
            marks.append((self.begun, len(history()), self.cuda_graph.pool()))

    torch.cuda.graph = torch.cuda.graphs.graph = Graph
    return marks


def write(path, marks):
    """Writes the requests since they are recorded as a trace."""
    numbers, streams, pools, blocks = itertools.count(), {}, {}, {}
    lines = [{"format": "regraph trace", "version": 1}]
    captures = iter(marks)
    begin, end, pool = next(captures, (None, None, None))
    is_inside = False
    for number, entry in enumerate(history()):
        if is_inside and number == end:
            lines.append({"op": "end"})
            begin, end, pool = next(captures, (None, None, None))
            is_inside = False
        address = entry.get("addr")
        if entry["action"] == "alloc":
            stream = streams.setdefault(entry["stream"], len(streams))
            # Before a capture PyTorch asks for two blocks of 8 bytes outside it, for the states of random numbers.
            if not is_inside and begin is not None and number >= begin and entry["size"] != 8:
                lines.append({"op": "begin", "stream": stream, "pool": pools.setdefault(pool, len(pools))})
                is_inside = True
            blocks[address] = next(numbers)
            lines.append({"op": "alloc", "id": blocks[address], "bytes": entry["size"], "stream": stream})
            if is_inside:
                lines.append({"op": "kernel", "stream": stream})
        elif entry["action"] == "free_requested" and address in blocks:
            lines.append({"op": "free", "id": blocks.pop(address)})
    if is_inside:
        lines.append({"op": "end"})
    with open(path, "w") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def main(way, allocator, trace=None):
    if allocator != "native":
        regraph.torch.enable(settings=None if allocator == "auto" else allocator)
    marks = record() if trace else []
    torch.manual_seed(0)
    before, graphs = WAYS[way]()
    if trace:
        write(trace, marks)
    now = reserved()
    told = f"{way} {allocator}: {now / MIB:.0f} MiB reserved, {(now - before) / MIB:+.0f} by captures"
    if allocator != "native":
        captures = regraph.torch.captures()
        pools = {capture.pool: capture.reserved_bytes for capture in captures}
        least = ", ".join(f"{capture.minimum_bytes / MIB:.0f}" for capture in captures[:3])
        told += f"; {sum(pools.values()) / MIB:.0f} in pools of graphs, of which captures need {least}"
    print(told)
    del graphs


if __name__ == "__main__":
    main(*sys.argv[1:])
