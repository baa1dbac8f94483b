"""Distributions of one module, as an installer would lay them down: for the fixture
`distribution`."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from distcore_testing.installed import lay_metadata


def distribution(
    folder: Path,
    name: str,
    source: str,
    *,
    kind: str = "trainers",
    entry: str = "mine",
    offers: Mapping[str, Sequence[str]] | None = None,
    version: str = "1.0",
) -> Path:
    """Lay down metadata and the module; where the metadata lie. offers: {kind: its entries}, of one
    that offers more than an entry of a kind."""
    module = name.replace("-", "_")
    offers = offers or {kind: [entry]}
    every = {each: dict.fromkeys(entries, module) for each, entries in offers.items()}
    info = lay_metadata(folder, name, every, version)
    (folder / f"{module}.py").write_text(textwrap.dedent(source))
    return info
