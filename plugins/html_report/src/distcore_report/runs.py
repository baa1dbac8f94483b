"""What lies in a folder of runs, here or in a bucket: state, time, rounds and scores of each;
nothing is changed there."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_data.run_files import (
    DESCRIPTION,
    ENDED,
    MODEL_JSON,
    RECEIPT,
    SEARCH,
    SEARCH_STATISTICS,
    TEST_STATISTICS,
    TRAINING_LOG,
    TRAINING_STATISTICS,
    TRIAL,
)
from distcore_data.seals import read_lines, read_sealed
from distcore_data.stores.addresses import folder_or_address, is_url
from distcore_search.vouched import DIGESTS, read_vouched

if TYPE_CHECKING:
    from distcore_search.objective import Objective

READ = frozenset(
    {
        DESCRIPTION,
        TRAINING_LOG,
        ENDED,
        RECEIPT,
        SEARCH_STATISTICS,
        SEARCH,
        TRAINING_STATISTICS,
        TEST_STATISTICS,
        TRIAL,
        DIGESTS,
    }
)
"""Files that tell of a run."""

DEPTH = 3
"""So many folders below the one that is named are looked into."""

log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Run:
    """A run's folder, as far as it can be read.

    state: running, waiting (for another training of its process), finished, stopped (by a signal,
        or killed) or failed. error: why it failed.
    log: the rounds, as `distcore_core.progress.Round` has them. seconds: of training, over all its
        starts.
    test: {output feature: {metric: number}}, {} if it has trained on since; config: as resolved;
        rows: of each split. data: the digest of what it was trained and tested on, "" if its folder
        does not say.
    place: its folder's path or address. begun: seconds since 1970.
    objective: what its search is after, if it is a trial; score: by that, once it has ended.
    """

    name: str
    place: str
    state: str
    error: str = ""
    log: list[JSON] = field(default_factory=list)
    seconds: float | None = None
    test: JSON = field(default_factory=dict)
    config: JSON = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    data: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    begun: float | None = None
    objective: Objective | None = None
    score: float | None = None

    @property
    def whole_place(self) -> str:
        """The same for one folder however it was named."""
        return self.place if is_url(self.place) else os.path.realpath(self.place)

    @property
    def last(self) -> JSON:
        """The last round; {} before there is one."""
        return self.log[-1] if self.log else {}

    @property
    def watched(self) -> tuple[str, str, str] | None:
        """(split, output feature, metric) by which the best round is picked: of a trial, its
        search's, whatever its trainer keeps weights by."""
        aim, last = self.objective, self.last
        if aim is not None:
            return aim.told, aim.feature, aim.metric
        return (last["split"], last["feature"], last["metric"]) if last else None

    @property
    def best(self) -> float | None:
        """Its value in the best round."""
        return self._best[0]

    @property
    def best_evaluation(self) -> int | None:
        """Which round that is, counted from 1."""
        return self._best[1]

    @property
    def _best(self) -> tuple[float | None, int | None]:
        if self.objective is None:
            return self.last.get("best"), self.last.get("best_evaluation")
        found = [self.objective.of_round(each["metrics"]) for each in self.log]
        best, place = self.objective.best_of(found)
        return best, None if place is None else _place(self.log[place], place + 1)

    @property
    def tested(self) -> float | None:
        """The same metric on the test split."""
        if self.watched is None:
            return None
        _, feature, metric = self.watched
        value = self.test.get(feature, {}).get(metric)
        return value if isinstance(value, int | float) else None

    def curve(self, split: str, feature: str, metric: str) -> dict[int, float | None]:
        """{number of the evaluation, or of the round of a forest: its value}, in order."""
        found = {
            _place(each, at): each["metrics"].get(split, {}).get(feature, {}).get(metric)
            for at, each in enumerate(self.log, 1)
        }
        return dict(sorted(found.items()))


def _place(told: JSON, at: int) -> int:
    """Which evaluation the scores of a log's line are of, or which round of a forest; at: the
    line's own number."""
    place: int = told.get("scored") or told.get("evaluation", at)
    return place


def find_runs(place: str | Path, credentials: Any = None) -> list[Run]:
    """All of `each_run`, with their logs."""
    return list(each_run(place, credentials))


def each_run(place: str | Path, credentials: Any = None) -> Iterator[Run]:
    """The runs in a folder and in those below it, by name; of a search its trials, best first.
    Whoever keeps none has no more logs in memory than those of one run, or of a search's trials.

    Args:
        place: A path, or an address in a bucket.
        credentials: Of the bucket: a mapping or the path of a JSON file; None: what the
            environment gives.

    Raises:
        UserError: There is no such folder.
        StoreError: The bucket cannot be read.
    """
    from distcore_data.locks import is_held

    root = folder_or_address(place, "DIR")
    if not isinstance(root, Path):
        yield from _in_bucket(root, credentials)
        return
    if not root.is_dir():
        raise UserError(
            f"{root}: there is no such folder. Give the folder of runs (default: results), or a "
            "run's."
        )
    real = Path(os.path.realpath(root))  # what lies above it is looked at, too
    for path, run in _runs(real, is_held):
        yield replace(run, place=str(root / path.relative_to(real)))


def _in_bucket(address: str, credentials: Any) -> Iterator[Run]:
    from distcore_data.stores import given_credentials
    from distcore_report.remote_runs import copied

    with copied(address, given_credentials(credentials), READ, DEPTH) as (root, held):
        for path, run in _runs(root, held):
            yield replace(run, place="/".join([address, *path.relative_to(root).parts]))


def _runs(root: Path, held: Callable[[Path], bool]) -> Iterator[tuple[Path, Run]]:
    """(folder, its run), in the order of `each_run`."""
    for search, folders in groupby(sorted(_folders(root, DEPTH)), _search_of):
        aim = _objective_of(search) if search is not None else None
        read = ((each, replace(read_run(each, root, held), objective=aim)) for each in folders)
        if aim is None:
            yield from read
            continue
        runs = dict(read)
        scored = [
            {"score": run.best if run.score is None else run.score, "name": run.name, "at": at}
            for at, run in runs.items()
        ]
        for each in aim.ordered(scored):
            yield each["at"], runs[each["at"]]


def _search_of(folder: Path) -> Path | None:
    """The folder of the search that a run is a trial of."""
    return folder.parent.parent if (folder / TRIAL).exists() else None


def _objective_of(search: Path) -> Objective | None:
    """What a search is after, from what it was begun with; None if that is not there whole."""
    from distcore_search.objective import Objective  # what help need not wait for
    from distcore_search.options import Hyperopt

    section = _read(search / SEARCH).get("config", {}).get("hyperopt")
    try:
        return Objective.of(Hyperopt.model_validate(section)) if section else None
    except ValueError as error:  # of another version
        log.warning("%s: its hyperopt section is not understood: %s", search / SEARCH, error)
        return None


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    if not os.access(folder, os.R_OK | os.X_OK):
        if folder.exists():
            log.warning("%s may not be read by this user. It is left out.", folder)
    elif is_run(folder):
        yield folder
    elif depth:
        try:
            inside = [*folder.iterdir()]
        except FileNotFoundError:  # that of a run which was refused since
            return
        for each in inside:
            if each.is_dir() and not each.name.startswith("."):
                yield from _folders(each, depth - 1)


def is_run(folder: Path) -> bool:
    """Whether a run, rather than a folder of runs or a search, left its files there."""
    names = (DESCRIPTION, TRAINING_LOG, "checkpoints", ENDED)
    return (
        any((folder / name).exists() for name in names)
        and not (folder / SEARCH_STATISTICS).exists()
    )


def read_run(folder: Path, root: Path, held: Callable[[Path], bool]) -> Run:
    """The run in a folder; what is damaged or absent is left out.

    Args:
        folder: Of the run.
        root: What its name is told from.
        held: Whether somebody is at work in a folder.
    """
    state, ended, record = _state(folder, held)
    receipt = _read(folder / RECEIPT)  # {} if it was not to be saved
    trained_on = _trained_on(receipt, folder / TRAINING_LOG)
    if state == "finished" and not record and (trained_on or (receipt and "files" not in receipt)):
        state = "stopped"  # by a kill, while results were made or a finished run was gone on with
    description = _read(folder / DESCRIPTION)
    rounds = read_lines(folder / TRAINING_LOG)
    name = folder.name if folder == root else str(folder.relative_to(root))
    return Run(
        name,
        str(folder),
        state,
        ended.get("error", "") if state == "failed" else "",
        rounds,
        trained_seconds(rounds),
        {} if trained_on else _read(folder / TEST_STATISTICS, read_vouched),
        description.get("config", {}),
        description.get("data", {}).get("rows", {}),
        description.get("data", {}).get("digest", ""),
        record.get("parameters", {}),
        _begun(folder, rounds),
        score=record.get("score"),
    )


def _begun(folder: Path, rounds: list[JSON]) -> float | None:
    """The earliest that its files tell of: a run that was resumed wrote its description anew."""
    times = [each["begun"] for each in rounds if "begun" in each]
    for path in (folder / DESCRIPTION, folder / TRAINING_LOG):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return min(times, default=None)


def _state(folder: Path, held: Callable[[Path], bool]) -> tuple[str, JSON, JSON]:
    """With what ENDED and TRIAL say. Whether somebody is at work is asked first: a run may come to
    its end meanwhile, and what is read after that tells of the end."""
    if (folder / TRIAL).exists():
        under_way = held(folder.parent.parent / ".lock")
        if record := _read(folder / TRIAL):
            state = str(record.get("state", "running"))
            return "stopped" if state == "running" and not under_way else state, {}, record
    if held(folder):
        from distcore_data.stores.run_sync import WAITS

        return "waiting" if (folder / WAITS).exists() else "running", {}, {}
    ended = _read(folder / ENDED)
    if ended:
        return str(ended.get("state", "stopped")), ended, {}
    whole = (
        (folder / TRAINING_STATISTICS).exists()
        or (folder / TEST_STATISTICS).exists()
        or (folder / "model" / MODEL_JSON).exists()
    )
    return "finished" if whole else "stopped", {}, {}


def _trained_on(receipt: JSON, log: Path) -> bool:
    """Whether it has trained since its results were whole: the receipt, which is written last,
    tells of the log as it was then."""
    then = receipt.get("files", {}).get(TRAINING_LOG, {}).get("bytes")
    return then is not None and log.exists() and log.stat().st_size != then


def trained_seconds(log: list[JSON]) -> float | None:
    """Of a run that was resumed, the time of each start together; None before the first round."""
    total, before, start = 0.0, 0.0, None
    for each in log:
        seconds, begun = float(each.get("seconds", 0.0)), each.get("begun")
        if seconds < before or begun != start:  # logs of before have no `begun`
            total += before
        before, start = seconds, begun
    return total + before if log else None


def _read(path: Path, read: Callable[[Path, str], Any] = read_sealed) -> JSON:
    """A file that is vouched for; {} if it is absent, and, with a warning, if it is damaged."""
    try:
        found = read(path, "It is left out.")
    except FileNotFoundError:
        return {}
    except UserError as error:
        log.warning("%s", error)
        return {}
    return found if isinstance(found, dict) else {}
