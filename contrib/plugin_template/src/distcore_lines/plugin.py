"""What distcore-lines offers: the extension lines.

Nothing heavy is imported here."""

from __future__ import annotations

from typing import Any

from distcore_core.plugin import hookimpl

DISTCORE_API = (1, 1)


@hookimpl
def distcore_make_extension(name: str, options: Any) -> Any:
    """The extension, if it is the one that is wanted."""
    if name != "lines":
        return None
    from distcore_lines.extension import Lines

    return Lines(options)


@hookimpl
def distcore_options_model(kind: str, name: str) -> type | None:
    """The model that validates its options."""
    if (kind, name) != ("extensions", "lines"):
        return None
    from distcore_lines.options import LinesOptions

    return LinesOptions
