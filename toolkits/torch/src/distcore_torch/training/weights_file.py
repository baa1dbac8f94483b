"""A safetensors file of weights: whether it is whole, without torch and without reading them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distcore_core.errors import ArtifactError


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises ArtifactError for what is raised within if the file cannot be read."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError) as error:
        raise ArtifactError(
            f"{path} cannot be read as safetensors ({error}). Take it from a backup, or train "
            "again."
        ) from error


def check_header(path: Path) -> None:
    """Raise ArtifactError if the file's header is none, or the file is longer or shorter than it
    says."""
    from safetensors import safe_open

    # The library opens no name that is not UTF-8.
    with reading(path), suppress(UnicodeEncodeError), safe_open(path, framework="np"):
        pass
