"""ctrl-C while training: the first asks for a checkpoint at the next step, the second quits at once."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

SAME_PRESS_SECONDS = 1.0
"""A terminal and a launcher may both pass on one ctrl-C; signals this close together are one."""


class Interrupt:
    """`with Interrupt() as interrupt:` sets `interrupt.asked` on SIGINT instead of raising.

    Works in the main thread of a process; elsewhere it does nothing, and `asked` stays False."""

    def __init__(self) -> None:
        self.asked = False
        self._since = 0.0
        self._before: Any = None
        self._installed = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)
            self._installed = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.asked and time.monotonic() - self._since > SAME_PRESS_SECONDS:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self._since = True, time.monotonic()
