#!/usr/bin/env python3
"""Runs compiled and generating models under PyTorch's allocator and under regraph.

    python3 compiled_models.py [--only NAME] [--door native|plugin] [--out FILE]

Each program runs once under each allocator, in a process of its own. Their outputs must be equal;
what they reserved and how long captures and replays took is printed side by side. Needs PyTorch, a
GPU and regraph's wheel, and for two programs Hugging Face's transformers; all weights are random.
Exit code 1: outputs differ, or a program failed.
"""

import argparse
import contextlib
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ALLOCATORS = ("pytorch", "regraph")
RESULT = "RESULT "
MIB = 1 << 20
TOLERANCE = 1e-4


class Figures:
    """What a program gives: outputs to compare, and what they took."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.outputs: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}
        self.bytes: dict[str, int] = {}

    def digest(self, name: str, tokens: Any) -> None:
        """Notes tokens, which must be equal."""
        self.outputs[name] = hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:16]

    def numbers(self, name: str, values: list[float]) -> None:
        """Notes numbers, which must be nearly equal."""
        if not all(math.isfinite(value) for value in values):
            raise RuntimeError(f"{name}: {values}")
        self.outputs[name] = values

    def wait(self) -> None:
        """Waits for the GPU."""
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds the time of a block of code to a figure."""
        self.wait()
        began = time.perf_counter()
        yield
        self.wait()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def memory(self, when: str) -> None:
        """Notes what is allocated and reserved."""
        import torch

        if self.device == "cuda":
            self.bytes[f"allocated, {when}"] = torch.cuda.memory_allocated()
            self.bytes[f"reserved, {when}"] = torch.cuda.memory_reserved()
            self.bytes["peak allocated"] = torch.cuda.max_memory_allocated()
            self.bytes["peak reserved"] = torch.cuda.max_memory_reserved()

    def calls(self, call: Callable[[], Any]) -> Any:
        """Calls as graph trees see it: the first warms up, the second captures, others replay."""
        with self.time("first call (compiles)"):
            call()
        with self.time("second call (captures)"):
            call()
        result = call()
        self.wait()
        times = []
        for _ in range(10):
            began = time.perf_counter()
            result = call()
            self.wait()
            times.append(time.perf_counter() - began)
        self.seconds["replay"] = self.seconds.get("replay", 0.0) + statistics.median(times)
        return result


def transformer(device: str, layers: int, width: int) -> Any:
    """A small decoder, the same every time."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.mix(self.before(x)).view(batch, length, 3, -1, 32).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.narrow(functional.gelu(self.wide(self.between(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(1000, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = nn.Linear(width, 1000)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(0)
    return Decoder().to(device)


def tokens(device: str, *shape: int) -> Any:
    """Random tokens, the same for a shape every time."""
    import torch

    given = torch.Generator().manual_seed(sum(shape))
    return torch.randint(1, 1000, shape, generator=given).to(device)


def sizes(device: str) -> tuple[int, int, list[int]]:
    """Layers, width and lengths: few without a GPU, where only the program itself is tried."""
    return (4, 512, [64, 192, 320]) if device == "cuda" else (1, 64, [8])


def inference(figures: Figures) -> None:
    """`reduce-overhead` without gradients; one function's output lives while another runs."""
    import torch

    layers, width, lengths = sizes(figures.device)
    model = transformer(figures.device, layers, width).eval()
    first = torch.compile(model, mode="reduce-overhead", dynamic=False)

    @torch.compile(mode="reduce-overhead", dynamic=False)
    def second(logits: Any) -> Any:
        chances = torch.softmax(logits, -1)
        return chances, (chances * torch.log(chances + 1e-9)).sum(-1)

    def step(given: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        logits = first(given)
        chances, entropy = second(logits)
        return logits, chances, entropy

    with torch.no_grad():
        for length in lengths:
            given = tokens(figures.device, 8, length)
            logits, chances, entropy = figures.calls(lambda given=given: step(given))
            found = [float(one.double().abs().mean()) for one in (logits, chances, entropy)]
            figures.numbers(f"length {length}", found)
            torch.testing.assert_close(logits, model(given), rtol=1e-3, atol=1e-3)
            del logits, chances, entropy
        figures.memory("with graphs")
    torch.compiler.reset()
    if figures.device == "cuda":
        torch.cuda.empty_cache()
    figures.memory("without graphs")


def training(figures: Figures) -> None:
    """`reduce-overhead` with gradients: outputs of one forward pass outlive the next one."""
    import torch
    from torch.nn import functional

    layers, width, lengths = sizes(figures.device)
    model = transformer(figures.device, layers, width)
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(length: int) -> float:
        torch.compiler.cudagraph_mark_step_begin()
        batches = tokens(figures.device, 8, length).chunk(2)
        # Both forward passes come first: the first's outputs and what it saved live on.
        every = [compiled(batch) for batch in batches]
        losses = [
            functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
            for logits, batch in zip(every, batches, strict=True)
        ]
        sum(losses).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(sum(loss.detach() for loss in losses))

    for length in lengths:
        figures.numbers(f"length {length}", [figures.calls(lambda length=length: step(length))])
    for _ in range(2):
        figures.numbers("in turn", [step(length) for length in lengths])
    weights = [float(weight.detach().double().abs().mean()) for weight in model.parameters()]
    figures.numbers("weights", weights)
    figures.memory("with graphs")
    torch.compiler.reset()
    if figures.device == "cuda":
        torch.cuda.empty_cache()
    figures.memory("without graphs")


def llama(device: str) -> Any:
    """A small Llama with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    layers, width, _ = sizes(device)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).to(device).eval()


def generate(figures: Figures) -> None:
    """`generate` with a static cache, its decoding compiled with `reduce-overhead`."""
    import torch

    model = llama(figures.device)
    count = 96 if figures.device == "cuda" else 8
    for length in (17, 40):
        prompt = tokens(figures.device, 4, length)

        def call(prompt: Any = prompt) -> Any:
            with torch.no_grad():
                return model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=count,
                    do_sample=False,
                    cache_implementation="static",
                )

        with figures.time("first call (compiles)"):
            call()
        for _ in range(3):
            with figures.time("three more calls"):
                found = call()
            figures.digest(f"prompts of {length}", found.tolist())
    figures.memory("with graphs")


def continuous_batching(figures: Figures) -> None:
    """`generate_batch`: requests of several lengths share batches, in graphs of their own."""
    import transformers

    model = llama(figures.device)
    if not hasattr(model, "generate_batch"):
        figures.outputs["left out"] = f"transformers {transformers.__version__} has none"
        return
    lengths = (5, 9, 30, 64, 100, 7, 51, 33) if figures.device == "cuda" else (3, 5)
    requests = [tokens("cpu", length).tolist() for length in lengths]
    settings = transformers.GenerationConfig(
        max_new_tokens=48 if figures.device == "cuda" else 4,
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
    )
    more: dict[str, Any] = {"generation_config": settings}
    if hasattr(transformers, "ContinuousBatchingConfig"):
        # Not by what the GPU has free: that differs from run to run.
        more["continuous_batching_config"] = transformers.ContinuousBatchingConfig(
            num_blocks=128, max_batch_tokens=512, use_cuda_graph=figures.device == "cuda"
        )
    for part in ("first call", "second call"):
        with figures.time(part):
            done = model.generate_batch(inputs=requests, **more)
        found = [request.generated_tokens for request in done.values()]
        if len(found) != len(requests) or not all(found):
            raise RuntimeError(f"{part}: {[request.error for request in done.values()]}")
        figures.digest(part, found)
    figures.memory("after both")


PROGRAMS = {
    program.__name__: program for program in (inference, training, generate, continuous_batching)
}


def run(options: argparse.Namespace) -> None:
    """One program under one allocator, in this process."""
    if options.allocator == "regraph":
        import regraph.torch

        regraph.torch.enable(**({"native": options.door == "native"} if options.door else {}))
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    figures = Figures(options.device)
    PROGRAMS[options.program](figures)
    figures.wait()
    print(
        RESULT + json.dumps({name: vars(figures)[name] for name in ("outputs", "seconds", "bytes")})
    )


def start(options: argparse.Namespace, name: str, allocator: str) -> dict[str, Any]:
    """Runs a program in a process of its own; its result, or its failure."""
    command = [sys.executable, __file__, "--program", name, "--allocator", allocator]
    command += ["--device", options.device]
    command += ["--door", options.door] if options.door else []
    configured = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    environment = {key: value for key, value in os.environ.items() if key not in configured}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=options.time_limit,
        )
    except subprocess.TimeoutExpired as error:
        text = error.stdout or b""
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        return {"error": f"no end after {options.time_limit:.0f} s", "text": text[-6000:]}
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    for line in lines:
        if done.returncode == 0 and line.startswith(RESULT):
            return json.loads(line.removeprefix(RESULT))
    last = lines[-1] if lines else "no output"
    return {"error": f"exit code {done.returncode}: {last}"[:400], "text": done.stdout[-6000:]}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The outputs that are not equal."""

    def equal(left: Any, right: Any) -> bool:
        if not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
            return left == right
        return all(
            math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-7)
            for a, b in zip(left, right, strict=True)
        )

    names = one.keys() | other.keys()
    return sorted(name for name in names if not equal(one.get(name), other.get(name)))


def compare(name: str, results: dict[str, dict[str, Any]]) -> bool:
    """Prints a program's results side by side; whether outputs are equal."""
    print(f"\n{name}")
    failed = {allocator: one for allocator, one in results.items() if "error" in one}
    for allocator, one in failed.items():
        print(f"  failed under {allocator}: {one['error']}")
    if failed:
        return False
    pytorch, regraph = (results[allocator] for allocator in ALLOCATORS)
    print(f"  {'':28} {'pytorch':>12} {'regraph':>12}")
    for part, unit, scale in (("bytes", "MiB", 1 / MIB), ("seconds", "ms", 1e3)):
        for figure in pytorch[part]:
            values = (one[part].get(figure, math.nan) * scale for one in (pytorch, regraph))
            print(f"  {figure + ', ' + unit:28} " + " ".join(f"{value:12.2f}" for value in values))
    found = differences(pytorch["outputs"], regraph["outputs"])
    for output in found:
        print(
            f"  DIFFERENT: {output}: {[one['outputs'].get(output) for one in (pytorch, regraph)]}"
        )
    if not found:
        print(f"  equal: {len(pytorch['outputs'])} outputs")
    return not found


def main() -> int:
    """Starts each program under both allocators, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", choices=PROGRAMS, default=[])
    parser.add_argument("--door", choices=("native", "plugin"), help="regraph's door into PyTorch")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--time-limit", type=float, default=180, help="seconds for one process")
    parser.add_argument("--out", type=Path, help="a file for all results, in JSON")
    parser.add_argument("--program", choices=PROGRAMS, help="runs it in this process")
    parser.add_argument("--allocator", choices=ALLOCATORS, default="pytorch")
    options = parser.parse_args()
    if options.program is not None:
        run(options)
        return 0
    every = {
        name: {allocator: start(options, name, allocator) for allocator in ALLOCATORS}
        for name in options.only or PROGRAMS
    }
    if options.out is not None:
        options.out.write_text(json.dumps(every, indent=1))
    equal = [compare(name, results) for name, results in every.items()]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
