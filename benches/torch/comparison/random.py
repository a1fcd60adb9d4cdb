"""The small random generator of `crates/lab/src/random.rs` (splitmix64), the same on every machine."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class Random:
    """The generator, from a seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + 0x9E37_79B9_7F4A_7C15) & _MASK
        value = self._state
        value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
        return value ^ (value >> 31)

    def below(self, limit: int) -> int:
        """From 0 to below `limit`, which is not 0."""
        return (self.next() * limit) >> 64

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return (self.next() >> 11) / (1 << 53) < probability
