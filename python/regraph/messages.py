"""The library's messages: they go to Python's `logging`, to the logger "regraph".

The level of that logger counts for the native half too, which puts into words only what is told.
"""

import atexit
import logging
import os

from regraph import _native

#: The environment variable that gives the logger a level where the program does not.
VARIABLE = "REGRAPH_LOG"

_LEVELS = {
    "off": logging.CRITICAL + 1,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}

logger = logging.getLogger("regraph")
#: What the variable has said that is no level.
_warned: set[str] = set()


class Followed(logging.Logger):
    """A logger whose level the native half follows."""

    def setLevel(self, level: int | str) -> None:
        """Sets the level, and the native half's."""
        super().setLevel(level)
        follow()


def follow() -> None:
    """Has the native half tell what the logger lets through by now; it may inherit its level."""
    _native.set_log_level(logger.getEffectiveLevel())


def begin() -> None:
    """Follows the logger's level from now on. `REGRAPH_LOG` sets it where the program has not."""
    # A class of the program's own stays: its level is followed at the next `begin`.
    if type(logger) is logging.Logger:
        logger.__class__ = Followed
    said = os.environ.get(VARIABLE, "")
    level = _LEVELS.get(said.lower())
    if logger.level == logging.NOTSET and level is not None:
        logger.setLevel(level)
    follow()
    if said and level is None and said not in _warned:
        _warned.add(said)
        logger.warning("%s: expected %s, found %r: no effect", VARIABLE, ", ".join(_LEVELS), said)


# Before the interpreter ends: no thread but its own may enter it then.
atexit.register(_native.end_messages)
