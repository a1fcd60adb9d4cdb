"""The sources of engines that regraph serves, out of their wheels: tests run against their own classes.

A wheel is downloaded once, by pip, into `target/engines`; `REGRAPH_ENGINE_WHEELS` names a folder that has them. Where
there is neither, tests say so and are skipped.
"""

import ast
import functools
import gc
import importlib
import logging
import os
import subprocess
import sys
import tempfile
import types
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
#: Seconds that a download may take.
PATIENCE = 300


@functools.cache
def sources(package: str, version: str, *wanted: str) -> Path:
    """A folder with the files of a wheel whose paths begin with one of `wanted`, or equal it."""
    name = f"{package}-{version}"
    folder = TARGET / "engines" / name
    with zipfile.ZipFile(_wheel(package, version)) as wheel:
        for member in wheel.namelist():
            if member.startswith(wanted) and not (folder / member).exists():
                wheel.extract(member, folder)
    return folder


def _wheel(package: str, version: str) -> Path:
    folder = Path(os.environ.get("REGRAPH_ENGINE_WHEELS", TARGET / "engines" / "wheels"))
    found = sorted(folder.glob(f"{package}-{version}-*.whl"))
    if not found and "REGRAPH_ENGINE_WHEELS" not in os.environ:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        # Any platform's does: nothing of it is built or loaded.
        command += ["--platform=manylinux_2_28_x86_64", "--platform=manylinux2014_x86_64"]
        command += ["--platform=manylinux_2_34_x86_64", f"{package}=={version}"]
        folder.mkdir(parents=True, exist_ok=True)
        # Only what came as a whole is taken for a wheel.
        with tempfile.TemporaryDirectory(dir=folder) as part:
            command += ["--dest", part]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                pytest.skip(f"the wheel of {package} {version} did not come in {PATIENCE} s")
            if done.returncode:
                pytest.skip(f"no wheel of {package} {version} can be had: {done.stderr.strip()[-300:]}")
            for wheel in Path(part).glob("*.whl"):
                wheel.replace(folder / wheel.name)
        found = sorted(folder.glob(f"{package}-{version}-*.whl"))
    if not found:
        pytest.skip(f"there is no wheel of {package} {version} in {folder}")
    return found[0]


def functions(path: Path, names: Iterable[str], scope: dict[str, Any]) -> types.SimpleNamespace:
    """Functions and methods of a file by themselves, run with the names in `scope` for all that they call."""
    wanted, found = set(names), {}
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.FunctionDef) and item.name in wanted:
            # What they are annotated with is not imported.
            item.returns = None
            for argument in [*item.args.args, *item.args.kwonlyargs]:
                argument.annotation = None
            module = ast.Module(body=[item], type_ignores=[])
            exec(compile(module, str(path), "exec"), scope)
            found[item.name] = scope[item.name]
    assert set(found) == wanted, f"{path} has no {wanted - set(found)}"
    return types.SimpleNamespace(**found)


class Device:
    """The memory that a stand-in for vLLM's library maps: what each address holds, `None` where nothing is mapped."""

    def __init__(self) -> None:
        self.memory: dict[int, bytes | None] = {}

    def create_and_map(self, device: int, size: int, address: int, handle: int) -> None:
        """New memory holds anything."""
        assert self.memory[address] is None, "it is mapped"
        self.memory[address] = b"anything"

    def unmap_and_release(self, device: int, size: int, address: int, handle: int) -> None:
        """What it held is gone."""
        assert self.memory[address] is not None, "nothing is mapped"
        self.memory[address] = None


def vllm(monkeypatch: pytest.MonkeyPatch, torch: Any) -> tuple[types.ModuleType, Device]:
    """vLLM's own `device_allocator`, with all that it imports but its parts stood in for; and its device."""
    folder = sources(
        "vllm", "0.33.0", "vllm/device_allocator/", "vllm/v1/worker/gpu_worker.py", "vllm/compilation/cudagraph_pool.py"
    )
    device = Device()
    host: dict[int, bytes] = {}

    class Runtime:
        """Copies between what stands for the device and what stands for the host."""

        def cudaMemcpy(self, to: int, source: int, size: int) -> None:
            if to in device.memory:
                device.memory[to] = host[source]
            else:
                held = device.memory[source]
                assert held is not None, "it read what is not mapped"
                host[to] = held

    def module(name: str, **names: Any) -> None:
        made = types.ModuleType(name)
        made.__dict__.update(names)
        made.__path__ = [str(folder.joinpath(*name.split(".")))]
        monkeypatch.setitem(sys.modules, name, made)

    platform = types.SimpleNamespace(
        is_cuda_alike=lambda: True,
        is_rocm=lambda: False,
        is_xpu=lambda: False,
        is_cpu=lambda: False,
        graph_pool_handle=lambda: (0, 77),
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    module("vllm")
    module("vllm.logger", init_logger=logging.getLogger)
    module("vllm.platforms", current_platform=platform)
    module("vllm.utils")
    module("vllm.utils.system_utils", find_loaded_library=lambda name: name)
    module("vllm.utils.torch_utils", PIN_MEMORY=False)
    module("vllm.config", VllmConfig=object)
    module("vllm.compilation")
    module("vllm.distributed")
    module("vllm.distributed.device_communicators")
    module("vllm.distributed.device_communicators.cuda_wrapper", CudaRTLibrary=Runtime)
    module(
        "vllm.distributed.device_communicators.pynccl_allocator",
        set_graph_pool_id=lambda pool: setattr(device, "graph_pool", pool),
    )
    module(
        "vllm.cumem_allocator",
        init_module=lambda malloc, free: None,
        python_create_and_map=device.create_and_map,
        python_unmap_and_release=device.unmap_and_release,
    )
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None, raising=False)
    # Each call of it takes as long as a test.
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    package = importlib.import_module("vllm.device_allocator")
    # Imported by tests, and gone with them.
    for name in ("", ".cumem", ".alloc_conf", ".sleep_mode_backend"):
        name = f"vllm.device_allocator{name}"
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    return package, device
