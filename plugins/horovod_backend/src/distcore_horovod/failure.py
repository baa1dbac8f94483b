"""What a rank's part of an order raised, as it travels to the leader."""

from __future__ import annotations

import socket
import traceback
from dataclasses import dataclass
from typing import NoReturn

import cloudpickle

from distcore_core.errors import DistcoreError
from distcore_data.os_errors import note_whom
from distcore_data.travelling import portable


@dataclass(frozen=True)
class Failed:
    """rank, host: whose part, and where it ran. text: its traceback."""

    rank: int
    host: str
    error: BaseException
    text: str

    def raised(self) -> NoReturn:
        """Raise it, with the rank's traceback as a note if it is not one of ours."""
        note_whom(self.error, f"rank {self.rank}", self.host)
        if not isinstance(self.error, DistcoreError):
            self.error.add_note(f"In rank {self.rank}:\n{self.text}")
        raise self.error


def failed(rank: int, error: BaseException) -> Failed:
    """The error as it can travel."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return Failed(rank, socket.gethostname(), portable(error, cloudpickle.dumps), text)
