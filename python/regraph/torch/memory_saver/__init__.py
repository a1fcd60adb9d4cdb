"""What the package `torch_memory_saver` offers, by regions and without a library that is loaded before others.

    from regraph.torch.memory_saver import torch_memory_saver

    with torch_memory_saver.region("weights", enable_cpu_backup=True):
        weights = torch.ones(1 << 20, device="cuda")
    torch_memory_saver.pause("weights")
    torch_memory_saver.resume("weights")

`install()` makes `import torch_memory_saver` find this package, in programs that cannot be changed. So does
`REGRAPH_TORCH_MEMORY_SAVER=1` in a process's environment, for its children too.
"""

from regraph.aliasing import install
from regraph.torch.memory_saver.hooks.mode_preload import configure_subprocess
from regraph.torch.memory_saver.saver import TorchMemorySaver, prepare

__all__ = ["TorchMemorySaver", "configure_subprocess", "install", "prepare", "torch_memory_saver"]

torch_memory_saver = TorchMemorySaver()
