"""Lets `import torch_memory_saver` find `regraph.torch.memory_saver`.

Python runs `regraph-torch.pth` at its start, which calls `install` where `VARIABLE` is 1: processes that were made by
spawn inherit the environment and nothing else. Nothing is imported before the program asks for the package.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

#: The environment variable by which a process and its children get the alias.
VARIABLE = "REGRAPH_TORCH_MEMORY_SAVER"
#: The package that programs ask for, and the one that they get.
NAME = "torch_memory_saver"
REAL = "regraph.torch.memory_saver"


def install() -> None:
    """Has this process find the one package for the other, whether that is installed or was imported before."""
    for name in [name for name in sys.modules if _real(name) is not None]:
        del sys.modules[name]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _real(name: str) -> str | None:
    """What stands for a module of the package; `None` for other modules."""
    if name == NAME or name.startswith(f"{NAME}."):
        return REAL + name[len(NAME) :]
    return None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the package and its modules; each has one module object under both names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A specification without a look at the package itself, which would import PyTorch."""
        real = _real(fullname)
        if real is None or fullname != NAME and importlib.util.find_spec(real) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname == NAME)

    def exec_module(self, module: ModuleType) -> None:
        """Puts regraph's module into the place of the empty one."""
        name = module.__name__
        real = _real(name)
        assert real is not None, name
        sys.modules[name] = found = importlib.import_module(real)
        if name == NAME:
            # Most programs use CUDA before they enter a region.
            found.prepare()
