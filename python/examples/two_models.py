#!/usr/bin/env python3
"""A server of two models on one GPU, of which one sleeps: a request wakes its model and puts the other to sleep.

    python two_models.py [--port 8000]
    curl --data '[[0.5, 0.25]]' http://localhost:8000/small    # rows of numbers; what is missing of a row is 0
    python two_models.py --selftest                            # sends itself requests, and compares the answers

Each model has a region of its own, with its weights and graphs for a few batch sizes. Asleep its memory is on the
host, and waking copies it back to the same addresses, so that the graphs are replayed as they are.
"""

import argparse
import json
import random
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch

import regraph.torch

MIB = 1 << 20
SIZES = (64, 16, 4, 1)
WIDTHS = {"small": 2048, "large": 4096}


class Model:
    """Layers with random weights, and a graph of them for each batch size."""

    def __init__(self, name: str, width: int, layers: int = 8) -> None:
        self.name = name
        torch.manual_seed(width)
        with regraph.torch.region(name):
            self.weights = torch.randn(layers, width, width, device="cuda").div_(width**0.5)
            self.input = torch.zeros(max(SIZES), width, device="cuda")
            self.graphs, self.outputs, pool = {}, {}, torch.cuda.graph_pool_handle()
            for size in SIZES:
                self.step(size)  # libraries load their kernels
                self.graphs[size] = graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream()):
                    self.outputs[size] = self.step(size)

    def step(self, size: int) -> torch.Tensor:
        """The first rows of the input, through all layers."""
        x = self.input[:size]
        for weight in self.weights:
            x = torch.nn.functional.gelu(x @ weight)
        return x

    def run(self, rows: list[list[float]], eager: bool = False) -> list[list[float]]:
        """What comes of some rows, by the smallest graph that they fit into."""
        size = min(each for each in SIZES if each >= len(rows))
        self.input.zero_()
        for into, row in zip(self.input, rows, strict=False):
            into[: len(row)].copy_(torch.tensor(row))
        if eager:
            return self.step(size)[: len(rows)].tolist()
        self.graphs[size].replay()
        return self.outputs[size][: len(rows)].tolist()


class Turns:
    """The models, of which one is awake."""

    def __init__(self) -> None:
        # What cuBLAS keeps for a stream is made with its first product, here: it sleeps with no region.
        torch.cuda.set_stream(torch.cuda.Stream())
        torch.mm(torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda"))
        self.models, self.awake = {}, ""
        for name, width in WIDTHS.items():
            if self.awake:
                regraph.torch.sleep(self.awake)
            self.models[name], self.awake = Model(name, width), name

    def turn_to(self, name: str) -> Model:
        """The model of this name, awake."""
        model = self.models[name]
        if name != self.awake:
            begin = time.perf_counter()
            slept = regraph.torch.sleep(self.awake) if self.awake else 0
            self.awake, between = "", time.perf_counter()
            woke = regraph.torch.wake(name)
            self.awake, end = name, time.perf_counter()
            free, total = torch.cuda.mem_get_info()
            print(
                f"sleep: {slept // MIB} MiB in {(between - begin) * 1e3:.1f} ms; {name} wakes: "
                f"{woke // MIB} MiB in {(end - between) * 1e3:.1f} ms; in use: {(total - free) // MIB} "
                f"MiB of the device, {regraph.torch.host_bytes() // MIB} of the host",
                flush=True,
            )
        return model


def server(turns: Turns, port: int) -> HTTPServer:
    """A server that answers one request after the other, in the thread that runs it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model, begin = turns.turn_to(self.path.strip("/")), time.perf_counter()
                status, answer = 200, model.run(rows)
                print(f"{model.name} took {(time.perf_counter() - begin) * 1e3:.1f} ms", flush=True)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                status, answer = 400, {"error": repr(error)}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    return HTTPServer(("127.0.0.1", port), Handler)


def selftest(turns: Turns, requests: int = 24) -> None:
    """Answers are those of eager work, bit for bit."""
    serving, order, answers = server(turns, 0), random.Random(0), []

    def ask() -> None:
        for _ in range(requests):
            name = order.choice(list(WIDTHS))
            size = order.randrange(1, max(SIZES) + 1)
            rows = [[order.uniform(-1, 1) for _ in range(WIDTHS[name])] for _ in range(size)]
            url = f"http://127.0.0.1:{serving.server_port}/{name}"
            with urllib.request.urlopen(url, json.dumps(rows).encode(), timeout=60) as got:
                answers.append((name, rows, json.loads(got.read())))

    client = threading.Thread(target=ask, daemon=True)
    client.start()
    serving.timeout = 0.1
    while client.is_alive():
        serving.handle_request()
        assert all(
            not each.awake_bytes for each in regraph.torch.regions() if each.tag != turns.awake
        )
    assert len(answers) == requests, "a request failed"
    for name, rows, answer in answers:
        assert turns.turn_to(name).run(rows, eager=True) == answer, (name, len(rows))
    print(f"{requests} answers are those of eager work, bit for bit")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A server of two models that sleep in turns.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--selftest", action="store_true")
    options = parser.parse_args()
    regraph.torch.enable()
    with torch.no_grad():
        turns = Turns()
        selftest(turns) if options.selftest else server(turns, options.port).serve_forever()
