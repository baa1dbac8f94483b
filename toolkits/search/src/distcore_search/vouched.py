"""JSON files whose shape is not ours to change, and that therefore hold no digest: `digests.json`
beside them has it.

Scores keep Ludwig's shape, {split or output: …}, in which a key "digest" would look like one more
output. Before such a file is written, its digest is added to the sealed list beside it, and that of
the version before stays there too: a process that is killed in between leaves a file that the list
still knows.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from distcore_core.contracts.values import JSON
from distcore_core.errors import UserError
from distcore_core.io.atomic import write_file
from distcore_data.run_files import TEST_DIAGNOSTICS, TEST_STATISTICS, TRAINING_STATISTICS
from distcore_data.seals import damaged, parse_json, read_bounded, read_sealed, sealed

DIGESTS = "digests.json"
SCORES = (TRAINING_STATISTICS, TEST_STATISTICS, TEST_DIAGNOSTICS)
"""A run's files that it vouches for; all others hold a digest of themselves."""

ADVICE = "Take it from a backup, run the command that wrote it again, or delete it."


def write_vouched(path: Path, document: JSON) -> None:
    """Write a JSON file whole, and its digest into the list beside it; numbers that are not finite
    become null.

    Raises:
        OSError: As the system gave it; then the old file is as it was.
    """
    content = (json.dumps(_finite(document), indent=2, allow_nan=False) + "\n").encode()
    beside = path.with_name(DIGESTS)
    try:
        known = _known(beside)
    except (FileNotFoundError, UserError):
        known = {}  # what it vouched for is written anew, or will be said to be unknown
    mine, there = _digest(content), _digest_of(path)
    digests = [each for each in known.get(path.name, []) if each == there != mine] + [mine]
    write_file(beside, sealed({"files": {**known, path.name: digests}}))
    write_file(path, content)


def read_vouched(path: Path, advice: str = ADVICE) -> Any:
    """The value of a JSON file that the list beside it vouches for.

    Raises:
        FileNotFoundError: There is no such file.
        UserError: It, or the list, was changed after it was written, or is damaged.
    """
    try:
        content = read_bounded(path)
        value = parse_json(content)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(damaged(path, error, advice)) from None
    try:
        known = _known(path.with_name(DIGESTS))
    except FileNotFoundError:
        raise UserError(
            f"{path} cannot be checked: {DIGESTS} beside it is missing. {advice}"
        ) from None
    if _digest(content) not in known.get(path.name, []):
        other = ValueError(f"its digest is not the one in {DIGESTS}")
        raise UserError(damaged(path, other, advice))
    return value


def _known(path: Path) -> dict[str, list[str]]:
    files = read_sealed(path, ADVICE).get("files")
    if not isinstance(files, dict) or not all(isinstance(each, list) for each in files.values()):
        raise UserError(damaged(path, ValueError("it is no list of files"), ADVICE))
    return files


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(path: Path) -> str:
    """Of the file as it is now; "" if it cannot be read."""
    try:
        return _digest(read_bounded(path))
    except (OSError, ValueError):
        return ""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
