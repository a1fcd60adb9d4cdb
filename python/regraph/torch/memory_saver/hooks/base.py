"""The modes of `torch_memory_saver`'s hooks. regraph has no hooks: both modes serve the same."""

from typing import Literal

HookMode = Literal["preload", "torch"]
