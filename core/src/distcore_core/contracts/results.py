"""Where the results of a run go that leave its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ResultsStore"]


@runtime_checkable
class ResultsStore(Protocol):
    """The bucket that a run's results are copied to. url: its address, for people. Pickles,
    credentials included.

    Raises StoreError, naming the object and the cause, if the store cannot be asked."""

    url: str

    def where(self, name: str) -> str:
        """The whole address of what has the name, for messages."""
        ...

    def put_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy a folder of plain files, of which `last` says what belongs to it, in place of
        what had the name."""
        ...

    def get_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy it to this machine. Raises FileNotFoundError."""
        ...

    def folders(self, name: str, last: str = "") -> list[str]:
        """Names of the folders in a folder, in order; with `last`, of those that have that file."""
        ...

    def remove_folder(self, name: str, last: str) -> None:
        """Delete a folder, the file that makes it one first."""
        ...

    def put_file(self, name: str, path: Path) -> None:
        """Copy a file, in place of what had the name."""
        ...

    def put_files(self, folder: Path) -> None:
        """Copy the files of a run's folder that were not put yet, but for checkpoints and
        models."""
        ...

    def get_file(self, name: str, path: Path) -> None:
        """Copy a file to this machine. Raises FileNotFoundError."""
        ...
