"""Which plugin raised an error that nobody expected, and at which column and row: notes on the
error, whose type and text stay as they are.

Only plugins of others are named: of what our own raise unexpectedly, the traceback says enough.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa

from distcore_core.contracts.roles import singular
from distcore_core.errors import DataError, DistcoreError
from distcore_core.registry.index import INSTALL_HINTS, Offer, all_offers
from distcore_core.registry.manager import Plugins, environment_plugins

RAISED, PLACE = "It was raised by ", "It was raised for "
"""What our notes begin with."""
OWN = frozenset({*INSTALL_HINTS.values(), "distcore"})


def notes_of(error: BaseException) -> list[str]:
    """What was noted of an error here: the plugin that raised it, the column and the row."""
    return [
        each for each in getattr(error, "__notes__", ()) if str(each).startswith((RAISED, PLACE))
    ]


def one_line(error: BaseException) -> str:
    """Type and text of an error, and who raised it and for what, for messages of one line."""
    blame(error)
    return " ".join(
        [f"{type(error).__name__}: {error}", *(f"({each})" for each in notes_of(error))]
    )


@contextmanager
def blaming(plugins: Plugins | None = None) -> Iterator[None]:
    """Note on whatever is raised unexpectedly in the block which plugin raised it.

    plugins: those that made what is called in the block; None: the run's."""
    try:
        yield
    except Exception as error:
        blame(error, plugins)
        raise


def blame(error: BaseException, plugins: Plugins | None = None) -> None:
    """Note on an error which plugin raised it, unless that was said, it is one of ours, or no
    plugin had a part in it. A ctrl-C is nobody's."""
    if not isinstance(error, Exception) or isinstance(error, DistcoreError):
        return
    if any(RAISED in each for each in notes_of(error)):
        return
    who = _raised_by(error, plugins or environment_plugins())
    if who is not None:
        error.add_note(f"{RAISED}{who}.")


def blame_row(
    error: BaseException,
    column: str,
    rows: np.ndarray,
    values: pa.Array,
    work: Callable[..., Any],
    part: str,
) -> None:
    """Note on an error at which row of a column it was raised.

    Args:
        error: What `work` raised for all of the values.
        column: Its name in the dataset.
        rows: int64 [n]: the rows' numbers in the dataset.
        values: [n].
        work: What raised; it is called again with fewer and fewer of the values.
        part: Of what the numbers are, if not of the dataset: " of part 3".
    """
    if isinstance(error, DistcoreError) or any(PLACE in each for each in notes_of(error)):
        return
    low, high = _culprits(values, work)
    which = (
        (f"row {rows[low]}" if high - low == 1 else f"rows {rows[low]} to {rows[high - 1]}")
        if high > low
        else "no rows"
    )
    error.add_note(f"{PLACE}column {column!r}, {which}{part} (the first is 0).")


class BadRow(DataError):
    """A value that its feature refuses.

    why: what the feature said. row: the row's number. part: of what, if not of the dataset: " of
    part 3"."""

    def __init__(self, why: str, row: int, part: str = "") -> None:
        super().__init__(why, row, part)
        self.why, self.row, self.part = why, row, part

    def __str__(self) -> str:
        return f"Row {self.row}{self.part} (the first is 0): {self.why}"


def bad_row(
    error: DataError, rows: np.ndarray, values: pa.Array, work: Callable[..., Any], part: str
) -> DataError:
    """What to raise for a feature's DataError: one that names the row, if one row's value alone is
    refused too. The arguments are those of `blame_row`."""
    if type(error) is not DataError:
        return error
    low, high = _culprits(values, work)
    if high - low == 1 and _fails(work, values.slice(low, 1)):
        return BadRow(str(error), int(rows[low]), part)
    return error


def of_column(error: DataError, feature: str, column: str) -> DataError:
    """What to raise for a feature's DataError that begins with `Column NAME`: one that names the
    dataset's column, if it has another name. A feature knows only its own."""
    own, said = f"Column {feature!r}", str(error)
    if type(error) is not DataError or feature == column or not said.startswith(own):
        return error
    return DataError(f"Column {column!r} (feature {feature!r}){said[len(own) :]}")


def _culprits(values: pa.Array, work: Callable[..., Any]) -> tuple[int, int]:
    """From and to which of the values `work` raises: one, if one is enough."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _fails(work, values.slice(low, middle - low)):
            high = middle
        elif _fails(work, values.slice(middle, high - middle)):
            low = middle
        else:
            break  # it takes rows of both halves to fail
    return low, high


def _fails(work: Callable[..., Any], values: pa.Array) -> bool:
    try:
        work(values)
    except Exception:  # noqa: BLE001 - that it raises is what is asked
        return True
    return False


def _raised_by(error: BaseException, plugins: Plugins) -> str | None:
    """The plugin of the innermost frame that is one's, for people."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]
    offers = [each for of_kind in all_offers().values() for each in of_kind]
    modules = _modules([each for each in offers if each.distribution not in OWN])
    for number, frame in enumerate(frames):
        made = _made_by([frame], plugins)
        distribution = made[0].distribution if made else modules.get(_package(frame))
        if distribution is not None:
            theirs = [each for each in offers if each.distribution == distribution]
            return _named(_made_by(frames[number:], plugins) or theirs)
    return None


def _named(offers: list[Offer]) -> str:
    names = [f"{singular(each.kind)} {each.name!r}" for each in offers]
    listed = names[0] if len(names) == 1 else f"a plugin ({', '.join(names)})"
    return f"{listed if len(names) < 6 else 'a plugin'} of {offers[0].who}"


def _made_by(frames: list[FrameType], plugins: Plugins) -> list[Offer]:
    """The offer whose object's method is the innermost of these frames that is such a method."""
    for frame in frames:
        offer = plugins.made.get(type(frame.f_locals.get("self")))
        if offer is not None and offer.distribution not in OWN:
            return [offer]
    return []


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _modules(offers: list[Offer]) -> dict[str, str]:
    """{top-level package or module: the distribution of these that it is of}."""
    wanted = {each.distribution for each in offers}
    if not wanted:
        return {}
    found = {each.value.partition(":")[0].partition(".")[0]: each.distribution for each in offers}
    for package, distributions in metadata.packages_distributions().items():
        theirs = sorted(wanted & set(distributions))
        if theirs:
            found.setdefault(package, theirs[0])
    return found
