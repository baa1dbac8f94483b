"""receipt.json: everything that a run's bits may depend on, as far as a machine can tell it.

It is written before training begins, and once more when the results are whole: then it also says
what the workers computed with, and has the digest of every file of the results.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import platform
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow import results
from distcore.workflow.skips import SKIP_TRAINING_DESCRIPTION
from distcore_core.config.issues import dotted
from distcore_core.contracts import JSON, TRAINER
from distcore_core.io.digest import digest_file
from distcore_core.registry.lock import digests_of, files_of
from distcore_data.run_files import (
    DESCRIPTION,
    MODEL_JSON,
    RECEIPT,
    TEST_DIAGNOSTICS,
    TEST_STATISTICS,
    TRAINING_LOG,
    TRAINING_STATISTICS,
)
from distcore_data.seals import read_bounded, refuse_special, unsealed
from distcore_data.stores.run_sync import MODEL
from distcore_search.vouched import DIGESTS
from distcore_torch.processor import processor
from distcore_torch.training.ledger import LEDGER, read_ledger

if TYPE_CHECKING:
    from distcore.workflow.session import Session
    from distcore_data.cache import Cache

log = logging.getLogger("distcore")

VERSION = 1

OWN = re.compile(r"(distcore(?:_[^\W_]+)?)(?:-[^-]+)?\.(?:dist|egg)-info")
"""The folders of metadata of distcore's distributions."""

LIBRARIES = ("torch", "numpy", "pyarrow")
"""Whose versions may change bits, beside distcore's own distributions and the plugins'."""

SWITCHES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
)
"""Environment variables that libraries of numbers look at."""

FILES = (
    DESCRIPTION,
    TRAINING_STATISTICS,
    TEST_STATISTICS,
    TEST_DIAGNOSTICS,
    DIGESTS,
    TRAINING_LOG,
    results.PREDICTIONS,
    LEDGER,
    f"{MODEL}/{MODEL_JSON}",
)
"""What the finished receipt has digests of. model.json holds those of the weights."""

BEGUN_WITH = "initial_weights"
"""Of a receipt that knows it. Those of older versions do not."""


def write(
    session: Session, description: JSON, cache: Cache, skip: Collection[str], initial: JSON
) -> None:
    """Write the receipt of a run that is about to begin.

    description: what description.json says of it. initial: {BEGUN_WITH: the weights that it begins
        with: {"path": of a model or file, or its name in the run's folder, "sha256"}, or None if
        none are given}; {} if that is not known."""
    if SKIP_TRAINING_DESCRIPTION not in skip:
        _told.clear()
        results.write(session, RECEIPT, receipt_of(session, description, cache, initial))


def finish(
    session: Session, description: JSON, cache: Cache, skip: Collection[str], initial: JSON
) -> None:
    """Write it again, of a run whose results are whole; or remove it, of one that goes on without a
    receipt, since it tells of the model before."""
    folder = session.directory
    assert folder is not None
    if SKIP_TRAINING_DESCRIPTION in skip:
        results.remove(session, RECEIPT)
        return
    found = receipt_of(session, description, cache, initial)
    found["ranks"] = _ranks(session, folder)
    found["files"] = {}
    for name in FILES:
        with suppress(FileNotFoundError, ValueError):  # a pipe is none of the run's files
            refuse_special(folder / name)
            each = digest_file(folder / name)
            found["files"][name] = {"bytes": each.bytes, "sha256": each.sha256}
    results.write(session, RECEIPT, found)


def begun_with(session: Session) -> JSON:
    """What the receipt of the run to go on with says of the weights that it began with, as `write`
    takes it."""
    assert session.directory is not None
    with suppress(OSError, ValueError):  # there is none, or nobody's to believe
        if session.mirror is not None:
            content = session.mirror.read(RECEIPT)
        else:
            content = read_bounded(session.directory / RECEIPT)
        found = unsealed(content)
        return {BEGUN_WITH: found[BEGUN_WITH]} if BEGUN_WITH in found else {}
    return {}


def receipt_of(session: Session, description: JSON, cache: Cache, initial: JSON) -> JSON:
    """What the receipt says before training begins."""
    config, trainer = session.config, session.reference(TRAINER)
    used = [
        {name: each[name] for name in ("kind", "name", "distribution", "version")}
        for each in description["plugins"]
    ]
    return {
        "version": VERSION,
        "command": session.command,
        "config": config.as_json(),
        "config_file": str(config.source),
        "lines": {
            dotted(*path): place.line
            for path, place in config.source_map.items()
            if place.line and path
        },
        "data": description["data"],
        "cache_key": cache.key,
        **initial,
        "random_seed": config.random_seed,
        "backend": session.backend_name,
        "trainer": trainer.name,
        "workers": session.make(TRAINER).workers(session.backend),
        "exact": config.trainer.exact,
        "parts": config.trainer.parts if config.trainer.exact else None,
        "plugins": used,
        "distributions": distributions(each["distribution"] for each in used),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "switches": {name: os.environ[name] for name in SWITCHES if name in os.environ},
    }


def _ranks(session: Session, folder: Path) -> JSON | None:
    """What the workers computed with, as the ledger says; None for a trainer that keeps none."""
    if session.mirror is not None and not (folder / LEDGER).exists():
        with suppress(FileNotFoundError):
            session.mirror.get_file(LEDGER, folder / LEDGER)
    try:
        entries = read_ledger(folder / LEDGER)[0]
    except FileNotFoundError:
        return None
    return next((each.run for each in reversed(entries) if each.run), None)


# ------------------------------------------------------------------ what is installed


def distributions(beside: Iterable[str]) -> JSON:
    """{distribution: what is installed of it} of distcore's, and of those beside that are there."""
    found = {}
    for name in sorted({*_own_distributions(), *beside}):
        with suppress(metadata.PackageNotFoundError):
            found[name] = installed(name)
            if found[name].get("editable"):
                _tell_if_edited(name)
    return found


def _tell_if_edited(name: str) -> None:
    """Warn of a plugin in the making whose files are others than when this process first looked.
    (By their marks, first: digesting all that is installed was half of what a small experiment
    took.)"""
    with suppress(OSError, ImportError, ValueError):  # it is being written, say
        if name not in _first:
            _first[name] = _marks(files_of(name)), files_of(name)
        marks, first = _first[name]
        if (now := _marks(first)) in (marks, _told.get(name)):
            return
        if digests_of(name) == first:  # the lock goes on with what it found
            _first[name] = now, first
        else:
            _told[name] = now
            log.warning(
                "%s was edited after this process had imported it. This process and the receipt go "
                "by what it was, while new processes (workers, trials) read its files. Start this "
                "process again before you rely on the run.",
                name,
            )


def _marks(files: Iterable[str]) -> Marks:
    """What the file system tells of those of the files whose packages are imported."""
    found = {}
    for file in files:
        place = getattr(sys.modules.get(file.partition("/")[0].removesuffix(".py")), "__file__", "")
        if place:
            path = Path(place).parents[file.count("/") > 0] / file
            with suppress(OSError):  # it is gone
                now = path.stat()
                found[path] = now.st_mtime_ns, now.st_ctime_ns, now.st_ino
    return found


Marks = dict[Path, tuple[int, int, int]]
_first: dict[str, tuple[Marks, dict[str, str]]] = {}
"""The marks and digests of a distribution's files when this process first looked."""

_told: dict[str, Marks] = {}
"""The marks that the run under way was told of: not again as it ends."""


def _own_distributions() -> Iterator[str]:
    """By the names of their folders: to read the metadata of 239 distributions took 0.12 s."""
    for folder in dict.fromkeys(sys.path):
        for path in Path(folder).glob("distcore*-info"):
            if found := OWN.fullmatch(path.name):
                yield found[1].replace("_", "-")


@functools.cache  # whatever is installed later, this process goes on with what it imported
def installed(name: str) -> JSON:
    """Version of a distribution, and the sha256 of what is installed of it.

    Of a wheel that is its RECORD, without what the installer adds; of an editable installation the
    files as they are now, without setuptools' own module, which holds the checkout's path."""
    found = metadata.distribution(name)
    said: JSON = {"version": found.version}
    if _editable(found):
        said["editable"] = True
        lines = [f"{path},{digest}" for path, digest in files_of(name).items()]
        left_out = r"^__editable__"
    else:
        lines = (found.read_text("RECORD") or "").splitlines()
        left_out = r"\.pyc,|\.dist-info/|^\.\./"
    kept = sorted(line for line in lines if not re.search(left_out, line))
    said["files"] = hashlib.sha256("".join(f"{each}\0" for each in kept).encode()).hexdigest()
    return said


def _editable(found: metadata.Distribution) -> bool:
    with suppress(ValueError, TypeError, AttributeError):
        told: Mapping[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
        return bool(told.get("dir_info", {}).get("editable"))
    return False
