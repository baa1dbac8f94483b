"""What this process keeps of open sources between one slice of a large piece of a file and the
next."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

EACH = 4
"""Things that are kept of an open source."""

ALL = 8
"""Of all of them together; EACH where partitions were sent to this process, for it never hears that
their source is closed."""


def new_token() -> str:
    """What tells an open source, and its partitions wherever they go, from all others: passes over
    one file at once must not take what was kept for one another. Begins with this process."""
    return f"{os.getpid()}-{os.urandom(8).hex()}"


class Kept(Generic[T]):
    """Things by (token of the open source, key), those that were asked for last."""

    def __init__(self) -> None:
        self._begin()
        # A thread of the parent may hold the lock, or be at work on a thing: the child has neither.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._found: OrderedDict[tuple[str, Hashable], T] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, source: str, key: Hashable, make: Callable[[], T], fits: Callable[[T], bool]
    ) -> T:
        """What is kept, if it fits, or a new one, which is kept from then on."""
        with self._lock:
            found = self._found.get((source, key))
            if found is None or not fits(found):
                found = self._found[source, key] = make()
            self._found.move_to_end((source, key))
            own = [each for each in self._found if each[0] == source]
            for each in own[:-EACH]:
                del self._found[each]
            most = ALL if source.startswith(f"{os.getpid()}-") else EACH
            while len(self._found) > most:
                self._found.popitem(last=False)
            return found

    def drop(self, source: str, *keys: Hashable) -> None:
        """Let go of these, or of all that is kept of a source."""
        with self._lock:
            for each in [each for each in self._found if each[0] == source]:
                if not keys or each[1] in keys:
                    del self._found[each]
