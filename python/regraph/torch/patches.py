"""Names of PyTorch that are replaced, and how to put them back."""

from collections.abc import Callable
from typing import Any

_ABSENT = object()


class Patches:
    """What has been replaced, so that a start that fails halfway leaves PyTorch as it was."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Callable[..., Any]) -> None:
        """Replaces `owner.name`, if this version of PyTorch has it."""
        if not hasattr(owner, name):
            return
        self._undo.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Puts everything back, the latest first."""
        while self._undo:
            owner, name, value = self._undo.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
