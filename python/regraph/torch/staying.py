"""That a thread is in a region as long as a `with` block runs, or in none."""

import contextlib
from collections.abc import Iterator

from regraph import _native


@contextlib.contextmanager
def stay(tag: str | None) -> Iterator[None]:
    """Within it this thread is in the region `tag`; in none with `None`. It ends on any thread."""
    # Made before anything begins, so that an interrupt finds what has to end.
    entered = _native.Stay()
    try:
        entered.enter(tag)
        yield
    finally:
        entered.leave()
