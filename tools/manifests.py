"""The static manifests of this workspace's own distributions, for their wheels.

`python -m tools.manifests write` lays each beside its code, `remove` takes them away again: in a
working tree they would tell of options as they were before an edit. `check PYTHON` asks another
environment whether every one of ours that is installed there has one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECK = """
from distcore_core.registry.index import all_offers
from distcore_core.registry.manifest import stated
offers = [each for offers in all_offers().values() for each in offers]
bare = sorted({each.distribution for each in offers if stated(each) is None})
raise SystemExit(bare and f"without a manifest: {bare}" or not offers)
"""


def names() -> Iterator[str]:
    """Our distributions that offer plugins."""
    for path in sorted([*ROOT.glob("*/*/pyproject.toml"), ROOT / "pyproject.toml"]):
        project = tomllib.loads(path.read_text("utf-8"))["project"]
        offers = any(group.startswith("distcore.") for group in project.get("entry-points", {}))
        if offers and "contrib" not in path.parts:
            yield project["name"]


def main(words: list[str]) -> int:
    """Do what the first word says; the exit code."""
    if words[:1] == ["check"]:
        return subprocess.run([words[1], "-c", CHECK], check=False).returncode
    from distcore_testing.manifest import manifest_of, place_of

    for name in names():
        path = place_of(name)
        if words == ["write"]:
            path.write_text(json.dumps(manifest_of(name), indent=2) + "\n", "utf-8")
        else:
            path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
