"""The constants of this machine: what `distcore doctor --calibrate` measured, in a sealed file."""

from __future__ import annotations

import errno
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_core.io.atomic import write_file
from distcore_data.cache.manifest import SHARD_ROWS
from distcore_data.home import cache_home
from distcore_data.seals import read_sealed, sealed
from distcore_data.threads import processors

NAME = "calibration.json"
VERSION = 7
AGAIN = "Measure again: distcore doctor --calibrate"


CALLED = {
    "node": "host",
    "machine": "kind of processor",
    "processors": "number of processors",
    "torch": "version of torch",
    "distcore": "version of distcore",
}
"""What the constants hold for, in words."""


PREDICTED_AT_ONCE = 200_000
"""Rows of a prediction; more of them take hardly more memory."""


RANKED = 1 << 14
"""Values that are kept of a column for its quantiles, at most."""


def rows_under_way() -> int:
    """Rows that preprocessing has in memory at most: a shard's on each processor."""
    return processors() * SHARD_ROWS


@dataclass(frozen=True)
class StepRates:
    """Seconds of a step: a call of an operator, a multiplication or addition, a byte moved, and one
    moved from far (`distcore_torch.training.counted.Work`)."""

    call: float
    flop: float
    byte: float
    far: float


@dataclass(frozen=True)
class Constants:
    """Seconds, and bytes of memory. Those of preprocessing and prediction are of one processor.

    csv_byte: reading a byte of csv. csv_value, parquet_value: reading, fitting and encoding a
        value, beside that, by kind ("number", "category", "date"). text_byte: all of it for a byte
        of text, by format ("csv", "parquet"). distinct: a distinct text of a category or date.
        ranked: a number's, if its column's quantiles are needed, beside the rest.
        column: of a table. file: a column of each Parquet file beyond the first.
    parallel: the share of each processor that preprocessing uses.
    step: a training step's, by torch's threads ("1", and as many as there are by default).
    score_row: metrics of a row of an output. predict_row: decoding and writing one. saved_byte:
        writing a byte of a checkpoint.
    start: of a command that has nothing to do, by command. memory: the same, bytes at the peak.
    held: bytes of memory of what is under way in preprocessing: a byte of numbers and categories as
        Arrow has them ("byte"), one of text ("text"), a distinct value of a category
        ("distinct"), one of the first RANKED rows of a column whose quantiles are needed
        ("ranked").
    predicted: bytes of memory a row that is predicted, of the first PREDICTED_AT_ONCE.
    message, sent_byte: a collective's, between two processes over the loopback.
    """

    csv_byte: float
    csv_value: Mapping[str, float]
    parquet_value: Mapping[str, float]
    text_byte: Mapping[str, float]
    distinct: float
    ranked: float
    column: float
    file: float
    parallel: float
    step: Mapping[str, StepRates]
    score_row: float
    predict_row: float
    saved_byte: float
    start: Mapping[str, float]
    memory: Mapping[str, float]
    held: Mapping[str, float]
    predicted: float
    message: float
    sent_byte: float

    @classmethod
    def from_json(cls, found: JSON) -> Constants:
        """The constants of `as_json`. Raises TypeError, KeyError if it is none of ours."""
        step = {name: StepRates(**each) for name, each in found["step"].items()}
        return cls(**{**found, "step": step})

    def rates(self, threads: int) -> StepRates:
        """Of a step by so many threads, or by the number nearest to it that was measured."""
        return self.step[min(self.step, key=lambda each: abs(int(each) - threads))]


def path() -> Path:
    """Where they are kept: in the user's cache folder."""
    return Path(cache_home(), "distcore", NAME)


def machine() -> JSON:
    """What the constants hold for."""
    return {
        "node": platform.node(),
        "machine": platform.machine(),
        "processors": processors(),
        "torch": metadata.version("torch"),
        "distcore": metadata.version("distcore"),
    }


def check_place() -> None:
    """Raise UserError if constants could not be kept: not only after a minute of measuring."""
    where = path()
    with _writing(where), tempfile.TemporaryFile(dir=where.parent):
        if where.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def save(constants: Constants) -> Path:
    """Keep them in place of those that were there. Raises UserError if they cannot be written."""
    where = path()
    document = {"version": VERSION, "machine": machine(), "constants": asdict(constants)}
    with _writing(where):
        write_file(where, sealed(document))
    return where


@contextmanager
def _writing(where: Path) -> Iterator[None]:
    """With the file's folder; what goes wrong is a UserError."""
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(
            f"The constants cannot be written to {where}: {error.strerror}. Name a folder that can "
            "be written with the environment variable XDG_CACHE_HOME."
        ) from error


def load() -> Constants | str:
    """The constants, or in words why there are none that hold here."""
    where = path()
    try:
        where.stat()  # a place that cannot be looked at holds nothing that is damaged
        document = read_sealed(where, f"{AGAIN}.")
    except FileNotFoundError:
        return "not calibrated: run `distcore doctor --calibrate`"
    except OSError as error:
        return (
            f"not calibrated: {where} cannot be read ({error.strerror}). Name a folder with the "
            "environment variable XDG_CACHE_HOME, then run `distcore doctor --calibrate`"
        )
    except UserError as error:
        return str(error)
    here = machine()
    if document.get("version") != VERSION or document.get("machine") != here:
        then = document.get("machine", {})
        differ = [CALLED[name] for name in here if then.get(name) != here[name]]
        which = " and ".join(differ) or "version of the constants"
        return f"calibrated for another {which}: run `distcore doctor --calibrate` again"
    return Constants.from_json(document["constants"])
