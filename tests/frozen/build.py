"""Build the frozen plugin's wheel from the sources beside this file: `python tests/frozen/build.py`.

The wheel lies in the tree as bytes, because what is tested is that a plugin which was built once goes on working. It is
built anew only for another major API version, under another version of its own."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
NAME, VERSION = "distcore_frozen", "1.0"
INFO = f"{NAME}-{VERSION}.dist-info"
WHEEL = HERE / f"{NAME}-{VERSION}-py3-none-any.whl"
METADATA = f"""Metadata-Version: 2.1
Name: distcore-frozen
Version: {VERSION}
Summary: A trainer, a cache format and a feature, built against API 1.0 of distcore-core
Requires-Python: >=3.11
Requires-Dist: distcore-core
Requires-Dist: numpy
Requires-Dist: pyarrow
"""
ENTRIES = f"""[distcore.trainers]
frozen_mean = {NAME}.plugin

[distcore.caches]
frozen_ipc = {NAME}.plugin

[distcore.features]
frozen_angle = {NAME}.plugin
"""
TAGS = "Wheel-Version: 1.0\nGenerator: build.py\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def contents() -> dict[str, bytes]:
    """{name in the wheel: bytes}, the record last."""
    files = {
        f"{NAME}/{path.name}": path.read_bytes() for path in sorted((HERE / NAME).glob("*.py"))
    }
    files |= {
        f"{INFO}/METADATA": METADATA.encode(),
        f"{INFO}/WHEEL": TAGS.encode(),
        f"{INFO}/entry_points.txt": ENTRIES.encode(),
    }
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    return {**files, f"{INFO}/RECORD": "\n".join([*rows, f"{INFO}/RECORD,,", ""]).encode()}


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def build(path: Path = WHEEL) -> None:
    """Write the wheel; the same sources give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in contents().items():
            wheel.writestr(
                zipfile.ZipInfo(name, (2026, 11, 22, 0, 0, 0)), content, zipfile.ZIP_DEFLATED
            )


if __name__ == "__main__":
    build()
