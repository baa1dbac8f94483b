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

    Every method raises StoreError, naming the object and the cause, if the store cannot be asked.
    `name` is a path below the address, `last` the file of a folder that says what belongs to it.
    """

    url: str

    def where(self, name: str) -> str:
        """The whole address of an object or a folder, for messages."""
        ...

    def put_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy a folder of plain files, `last` after all others, in place of what had the name."""
        ...

    def get_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy a folder to this machine.

        Args:
            folder: Where to, in place of what lies there.

        Raises:
            FileNotFoundError: There is none. StoreError: It changed meanwhile.
        """
        ...

    def folders(self, name: str, last: str = "") -> list[str]:
        """Names of the folders in a folder, in order.

        Args:
            last: Those that have this file alone; "": all.
        """
        ...

    def remove_folder(self, name: str, last: str) -> None:
        """Delete a folder, which may be gone, `last` before all others."""
        ...

    def put_file(self, name: str, path: Path) -> None:
        """Copy a file, in place of what had the name."""
        ...

    def put_files(self, folder: Path) -> None:
        """Copy what was not copied yet of a run's folder, but for checkpoints and models."""
        ...

    def get_file(self, name: str, path: Path) -> None:
        """Copy a file to this machine.

        Raises:
            FileNotFoundError: There is none.
        """
        ...
