"""Items made ahead by a thread that ends with whoever asked for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """An iterator over `items` that a thread keeps `depth` items ahead of.

    What `items` raises is raised here, after the items before it. `close` ends the thread at its
    next item and waits for it; so does the end of the items.
    """

    def __init__(self, items: Generator[T, None, None], depth: int) -> None:
        self._ready: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stopped = threading.Event()
        # A daemon, so that a program that ends without closing its loaders does end.
        self._thread = threading.Thread(
            target=self._run, args=(items,), name="distcore-prefetch", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._stopped.is_set():
            raise StopIteration
        found = self._ready.get()
        self._room.release()
        if isinstance(found, tuple):
            return found[0]
        self.close()
        if found is None:
            raise StopIteration
        raise found

    def close(self) -> None:
        """End the thread; items that were made and not taken are dropped."""
        self._stopped.set()
        self._room.release()
        self._ready.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self, items: Generator[T, None, None]) -> None:
        end: BaseException | None = None
        try:
            while not self._stopped.is_set():
                self._room.acquire()
                if self._stopped.is_set():
                    break
                self._ready.put((next(items),))
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again where the items are wanted
            end = error
        finally:
            items.close()
        self._ready.put(end)
