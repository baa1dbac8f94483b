"""What an installer lays down beside code, for code that none has seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def lay_metadata(
    site: Path, name: str, offers: Mapping[str, Mapping[str, str]], version: str = "1.0"
) -> Path:
    """Write the metadata of a distribution into a folder for sys.path; returns where they lie.

    offers: {kind: {entry: module}}, such as {"caches": {"avro": "avro_cache.plugin"}}.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (
        f"[distcore.{kind}]\n" + "".join(f"{entry} = {module}\n" for entry, module in each.items())
        for kind, each in offers.items()
    )
    if offers:
        (info / "entry_points.txt").write_text("".join(groups))
    return info
