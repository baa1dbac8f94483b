"""Write docs/hooks.md and docs/config.md from the code; `--check` only says whether they are up
to date."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from distcore.config.schema import reference_markdown
from distcore_core import hooks
from distcore_core.registry.events import EVENTS
from distcore_core.registry.index import all_offers
from distcore_core.registry.manager import Plugins

HERE = Path(__file__).parent
MEMBERS = (
    "distcore",
    "distcore-data",
    "distcore-torch",
    "distcore-search",
    "distcore-report",
    "distcore-local",
    "distcore-parquet",
    "distcore-tabular",
    "distcore-optuna",
    "distcore-lightgbm",
    "distcore-dask",
    "distcore-ray",
    "distcore-modin",
    "distcore-hdf5",
    "distcore-tfrecord",
    "distcore-horovod",
)
"""Distributions that the references describe; whatever else is installed here is left out."""


def hook_reference() -> str:
    """Every hook with its signature and docstring, in the order of hooks.py."""
    parts = [
        "# Hook reference\n",
        "Written by `make docs` from `distcore_core/hooks.py`.\n",
        inspect.getdoc(hooks) or "",
        "",
    ]
    for name, function in vars(hooks).items():
        if not hasattr(function, f"{hooks.PROJECT}_spec"):
            continue
        kind = (
            "event"
            if name in EVENTS
            else "factory"
            if name.startswith("distcore_make_")
            else "question"
        )
        signature = str(inspect.signature(function)).replace("'", "")
        parts += [
            f"## {name}",
            f"*{kind}*\n",
            f"```python\n{name}{signature}\n```\n",
            inspect.getdoc(function) or "",
            "",
        ]
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    """Write the files, or compare them; returns the exit code."""
    foreign = {offer.distribution for offers in all_offers().values() for offer in offers} - set(
        MEMBERS
    )
    pages = {"hooks.md": hook_reference(), "config.md": reference_markdown(Plugins(foreign))}
    stale = [
        name
        for name, text in pages.items()
        if not (HERE / name).exists() or (HERE / name).read_text() != text
    ]
    if "--check" in sys.argv:
        print("\n".join(f"docs/{name} is out of date; run `make docs`" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (HERE / name).write_text(pages[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
