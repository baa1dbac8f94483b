"""`distcore verify`: a run's files against their seals, and the run itself against a replay of it
here.

Nothing is written into the run's folder: the replay has a temporary one.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from distcore.workflow.arguments import told
from distcore.workflow.difference import (
    Cause,
    causes_of,
    first_difference,
    in_lines,
    read_run,
)
from distcore.workflow.receipt import BEGUN_WITH
from distcore.workflow.results import INITIAL, check_weights
from distcore_core.contracts import JSON
from distcore_core.errors import (
    ArtifactError,
    CheckpointError,
    DataError,
    DistcoreError,
    UserError,
)
from distcore_core.io.digest import digest_file
from distcore_data.artifact import model_place
from distcore_data.locks import is_held
from distcore_data.run_files import DESCRIPTION, RECEIPT, TRAINING_LOG
from distcore_data.seals import read_bounded, unsealed
from distcore_data.stores import Credentials, given_credentials
from distcore_data.stores.addresses import folder_or_address
from distcore_data.stores.lease import alive
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL, RUNNING, Mirror
from distcore_data.temporaries import LOCK, temporary_folder
from distcore_torch.training.ledger import LEDGER, read_ledger

SETS = ("dataset", "training_set", "validation_set", "test_set")
OTHER_DATA = "The data are not those that {} was trained on: their digest is another one."
NOT_SAVED = frozenset({"skip_save_report", "skip_save_log", "skip_save_progress"})


@dataclass(frozen=True)
class Verified:
    """What `verify` found.

    Attributes:
        flaws: Files that are not as they were written, in sentences; if there are any, nothing was
            replayed.
        compared: Steps of the ledger that the replay was compared at.
        first_step: The first one at which it came to other weights; None if it never did.
        last_equal: The last one before it; None if there is none.
        other_model: Whether it came to the same weights and yet kept another model.
        causes: What was different here, the most likely cause first.
    """

    flaws: tuple[str, ...] = ()
    compared: tuple[int, ...] = ()
    first_step: int | None = None
    last_equal: int | None = None
    causes: tuple[Cause, ...] = field(default=())
    other_model: bool = False

    @property
    def equal(self) -> bool:
        """Every file is as it was written, and the replay came to the same weights and model."""
        return not self.flaws and self.first_step is None and not self.other_model

    def as_json(self) -> JSON:
        """For `--json`."""
        return {"equal": self.equal, **asdict(self)}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from self.flaws
        if self.flaws:
            return
        if self.equal:
            yield (
                "Equal: every sealed file is as it was written, and a replay came to the same "
                f"weights after each of {len(self.compared)} recorded steps, {self.compared[0]} to "
                f"{self.compared[-1]}."
            )
            return
        yield "Every sealed file is as it was written."
        if self.other_model:
            yield (
                f"A replay came to the same weights after each of {len(self.compared)} recorded "
                "steps, but kept another model: it found another round to be the best, or the "
                "run's model is not what it trained."
            )
        else:
            since = (
                ""
                if self.last_equal is None
                else f"; it came to the same after step {self.last_equal}"
            )
            yield f"A replay came to other weights after step {self.first_step}{since}."
        if self.causes:
            yield "What was different here, the most likely cause first (the run, then the replay):"
            yield from in_lines(self.causes)
        else:
            yield (
                "Nothing that is recorded was different here. Replay it again: if that comes to "
                "the same as this replay, the run or its records are at fault; if not, this "
                "machine is, or a kernel that is not deterministic."
            )


@told
def verify(
    run: str | Path,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    steps: tuple[int, int | None] | None = None,
    backend: str | None = None,
    credentials: Any = None,
    view: str = "none",
) -> Verified:
    """Check a run's files against their seals, then replay it in a temporary folder.

    Args:
        run: The run's folder, or its address in a bucket.
        dataset: Where its data are now; None: where they were.
        training_set, validation_set, test_set: Where those of a given split are now; one that is
            left out is where it was.
        steps: (from, to): replay from the checkpoint of that step, and compare until the other
            (None: the end).
        backend: Where to replay it; None: as the run.
        credentials: Of the bucket, a mapping or the path of a JSON file; None: what the environment
            gives.
        view: How to draw progress, see `train`.

    Returns:
        What was found.

    Raises:
        UserError: The folder holds no receipt or ledger, no checkpoint of that step, or the data
            are not where they were, or a process is at work there.
    """
    sets = {"training_set": training_set, "validation_set": validation_set, "test_set": test_set}
    given = {"dataset": dataset, **sets}
    _refuse_under_way(run, credentials)
    with _here(run, credentials) as folder:
        # Of a run in a bucket this is a copy, which nobody knows by its name.
        flaws = tuple(each.replace(str(folder), str(run)) for each in flaws_of(folder, run))
        if flaws:
            _refuse_under_way(run, credentials)
            return Verified(flaws)
        receipt, ledger = read_run(folder, run)
        _refuse_mixed(receipt, *(steps or (0, None)))
        with temporary_folder("verify") as scratch:
            replayed = _replay(folder, receipt, scratch, given, steps, backend, view, credentials)
            theirs, again = read_run(replayed, "The replay")
            if theirs["data"].get("digest") != receipt["data"].get("digest"):
                return Verified((OTHER_DATA.format(run),))
            first, last = steps or (0, None)
            wanted = {
                step: each
                for step, each in ledger.items()
                if step >= first and (last is None or step <= last)
            }
            step, equal = first_difference(wanted, again)
            compared = tuple(sorted(wanted.keys() & again.keys()))
            if not compared:
                raise UserError(
                    f"The replay has no step in common with {run}/{LEDGER}. Give other --steps."
                )
            # A run that ended by an error has no model.
            to_the_end = step is None and steps is None
            other_model = to_the_end and _best(folder) not in ("", _best(replayed))
            if steps and (starts := _starts_within(receipt, *steps)):
                receipt |= {"starts": starts, "ranks": [*starts.values()][-1]}
            found = () if step is None and not other_model else causes_of(receipt, theirs)
            # The replay has the run's config, but for where it ends.
            causes = tuple(each for each in found if each.what != "trainer.train_steps")
            return Verified((), compared, step, equal, causes, other_model)


def _refuse_under_way(run: str | Path, credentials: Any) -> None:
    """Raise UserError if a process is at work in the run's folder: of what it replaces and removes
    some would be missing, and there is no end to compare with."""
    place = folder_or_address(run, "The run")
    at_work = False
    if isinstance(place, Path):
        with suppress(OSError):  # no locks there: nobody knows
            at_work = is_held(place) or is_held(place / LOCK)  # a run's, a trial's of a search
    else:
        store = Mirror.at(place, given_credentials(credentials)).store
        at_work = bool(alive(store, [RUNNING]))
    if at_work:
        raise UserError(
            f"A process is at work in {run}, so its files change. Verify it when that has ended."
        )


@contextmanager
def _here(run: str | Path, credentials: Any) -> Iterator[Path]:
    """The run's folder, or a copy of it that is in a bucket."""
    place = folder_or_address(run, "The run")
    if isinstance(place, Path):
        yield place
        return
    mirror = Mirror.at(place, given_credentials(credentials))
    with temporary_folder("verified") as folder:
        for name, stat in mirror.store.list().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a process that began meanwhile removed it
                mirror.get_file(name, folder / name, stat.bytes)
        yield folder


# ------------------------------------------------------------------ the files


def flaws_of(folder: Path, run: str | Path) -> Iterator[str]:
    """Every file of a results folder that is not as it was written, in a sentence. Changes
    nothing."""
    try:
        receipt = unsealed(read_bounded(folder / RECEIPT))
        files: Mapping[str, JSON] = receipt.get("files", {})
    except FileNotFoundError:
        raise UserError(
            f"{run} holds no {RECEIPT}. Give the folder of a run that is whole."
        ) from None
    except ValueError as error:
        yield f"{folder / RECEIPT} was changed after it was written ({error})."
        return
    if any(_is_longer(folder / name, files.get(name, {})) for name in (LEDGER, TRAINING_LOG)):
        yield (
            f"{folder} was gone on with after it had ended and has not ended again, so its files "
            f"do not belong together. Go on with it: --model_resume_path {folder}."
        )
    for name, written in files.items():
        try:
            if not (folder / name).resolve().is_relative_to(folder.resolve()):
                yield f"{folder / RECEIPT} names a file outside of its folder, {name!r}."
                continue
            mode = os.stat(folder / name).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                yield f"{folder / name} is a pipe or a device."
                continue
            found = digest_file(folder / name)
        except FileNotFoundError:
            yield f"{folder / name} is missing."
            continue
        except OSError as error:
            yield f"{folder / name} cannot be read ({error.strerror})."
            continue
        except ValueError as error:  # a name that no file can have
            yield f"{folder / RECEIPT} names a file {name!r} ({error})."
            continue
        if written != {"bytes": found.bytes, "sha256": found.sha256}:
            yield (
                f"{folder / name} was changed after it was written: its sha256 is not the one in "
                f"{RECEIPT}."
            )
    with suppress(OSError, ValueError, KeyError):  # told above
        if unsealed(read_bounded(folder / DESCRIPTION))["config"] != receipt["config"]:
            yield f"{folder / DESCRIPTION} and {RECEIPT} have different configs."
    yield from _flaws_of_ledger(folder / LEDGER)
    yield from _flaws_of_folders(folder, f"{MODEL}/model.json" in files)


def _is_longer(path: Path, written: JSON) -> bool:
    """Whether the file goes on after what was written, a digest: lines were added to it."""
    with suppress(OSError, KeyError, TypeError):  # what is odd there is told below
        bytes_then = written["bytes"]
        if path.is_file() and path.stat().st_size > bytes_then:
            with path.open("rb") as file:
                return sha256(file.read(bytes_then)).hexdigest() == written["sha256"]
    return False


def _flaws_of_ledger(path: Path) -> Iterator[str]:
    if path.is_file():
        for flaw in read_ledger(path)[1]:
            yield f"{path}, line {flaw.line}, was changed after it was written ({flaw.why})."


def _flaws_of_folders(folder: Path, with_model: bool) -> Iterator[str]:
    """Of the model and the checkpoints, each of which says what belongs to it."""
    from distcore_data.artifact import read_manifest
    from distcore_torch.training.checkpoint import list_checkpoints, load

    if with_model and (folder / MODEL / "model.json").exists():
        try:
            read_manifest(folder / MODEL)
        except ArtifactError as error:
            yield str(error)
    for each in list_checkpoints(folder / CHECKPOINTS):
        try:
            load(each)
        except CheckpointError as error:
            yield str(error)


# ------------------------------------------------------------------ the replay


def _replay(
    folder: Path,
    receipt: JSON,
    scratch: Path,
    data: Mapping[str, Any],
    steps: tuple[int, int | None] | None,
    backend: str | None,
    view: str,
    credentials: Any,
) -> Path:
    """Train again, from the start or from a checkpoint; the folder of its results."""
    from distcore.interface import train

    start, resume = None, None
    config = _config(receipt, backend, scratch)
    if steps is not None:
        resume = _begun(folder, scratch, steps[0])
        # What a schedule makes of a step depends on how many there are; then the replay goes on to
        # the end.
        if steps[1] is not None and _constant(config):
            config["trainer"]["train_steps"] = steps[1]
    elif initial := receipt.get(BEGUN_WITH):
        opened_with = given_credentials(credentials)
        start = _started_from(initial, folder, opened_with)
        if opened_with is not None:
            config["backend"]["cache_credentials"] = dict(opened_with.options)
    found = train(
        config,
        **_data(receipt, data),
        random_seed=receipt["random_seed"],
        backend=backend,
        output_directory=scratch / "results",
        model_load_path=start,
        model_resume_path=resume,
        skip=NOT_SAVED,
        view=view,
    )
    return Path(found.directory)


def _config(receipt: JSON, backend: str | None, scratch: Path) -> JSON:
    config: JSON = copy.deepcopy(receipt["config"])
    for name in ("extensions", "hyperopt"):
        config.pop(name, None)
    section = config["backend"]
    if not Path(str(receipt["data"].get("cache", ""))).exists():
        section["cache_dir"] = str(scratch / "cache")
    if backend is not None:
        # Options of another backend and its trainer mean nothing here; the loader deals the rows.
        config["backend"] = {
            name: section[name]
            for name in ("cache_dir", "cache_format", "loader")
            if name in section
        }
    elif not receipt["exact"] and receipt["workers"] > 1:
        section["trainer"] = {
            "type": receipt["trainer"],
            **section.get("trainer", {}),
            "num_workers": receipt["workers"],
        }
    return config


def _refuse_mixed(receipt: JSON, first: int, last: int | None) -> None:
    """Raise UserError if the steps that are to be replayed were not all computed by the number of
    workers that the receipt tells of: a run that is not exact went on with another one."""
    asked = {run.get("workers") for run in _starts_within(receipt, first, last).values()}
    if not receipt["exact"] and asked - {receipt["workers"]}:
        course = ", ".join(
            f"{run.get('workers')} after step {step}" for step, run in receipt["starts"].items()
        )
        raise UserError(
            "The run cannot be replayed as a whole, because it is not exact and went on with "
            f"another number of workers: {course}. Replay steps that were all computed by "
            f"{receipt['workers']}, from a checkpoint that is still there: --steps FROM:TO."
        )


def _starts_within(receipt: JSON, first: int, last: int | None) -> dict[int, JSON]:
    """What the steps that are replayed were computed with (`read_run`)."""
    starts: dict[int, JSON] = receipt["starts"]
    begun = max((step for step in starts if step <= first), default=first)
    return {
        step: run for step, run in starts.items() if step >= begun and (last is None or step < last)
    }


def _constant(config: JSON) -> bool:
    schedule = config["trainer"].get("learning_rate_scheduler") or {}
    return not schedule.get("decay") and not schedule.get("warmup_fraction")


def _begun(folder: Path, scratch: Path, step: int) -> Path:
    """A copy of the run as it was at a checkpoint."""
    from distcore_torch.training.checkpoint import list_checkpoints, step_of

    there = {step_of(each): each for each in list_checkpoints(folder / CHECKPOINTS)}
    if step not in there:
        known = f"those of steps {', '.join(map(str, sorted(there)))}" if there else "none"
        raise UserError(
            f"The run has no checkpoint of step {step}; it has {known}. Give --steps FROM:TO."
        )
    begun = scratch / "results" / "begun"
    shutil.copytree(there[step], begun / CHECKPOINTS / there[step].name)
    for name in (DESCRIPTION, RECEIPT):
        shutil.copy(folder / name, begun / name)
    return begun


def _started_from(initial: JSON, folder: Path, credentials: Credentials | None) -> str | Path:
    """Where the weights are that the run began with. Raises UserError if they are there no more."""
    place: str | Path = initial["path"]
    if place == INITIAL:
        place = folder / INITIAL
    why = "they are others now."
    try:
        if check_weights(model_place(place, credentials)) == initial["sha256"]:
            return place
    except (DistcoreError, OSError) as error:
        why = f"{str(error).rstrip('.')}."
    raise UserError(
        f"The run cannot be replayed, because it began with the weights of {place}, and those "
        f"cannot be had: {why} Put them back there, or replay from a checkpoint: --steps FROM:TO."
    )


def _data(receipt: JSON, given: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data are, of which those that are given are elsewhere than they were."""
    found = {name: each for name, each in given.items() if each is not None}
    if "dataset" in found:
        return found
    for name in SETS:
        where = receipt["data"].get(name)
        if not where or name in found or (name == "dataset" and found):
            continue
        if not _is_there(where):  # nor is a frame, which is called "… in memory"
            raise UserError(
                f"The run's data, {where}, are not there to be read again. Say where they are: "
                f"--{name} PATH."
            )
        found[name] = where
    return found


def _is_there(where: str) -> bool:
    """Whether a path, or a pattern of paths, leads anywhere; what is remote is asked when it is
    read."""
    from distcore_data.sources.fetch import existing, is_pattern, is_url, local_path
    from distcore_data.sources.parquet_files import parquet_files

    if is_url(where):
        return True
    path = local_path(where)
    try:
        return bool(parquet_files(path, where) if is_pattern(path) else existing(path))
    except DataError:
        return False


def _best(folder: Path) -> str:
    """The digests of the model's weights; "" if none were kept."""
    try:
        return json.dumps(
            unsealed((folder / MODEL / "model.json").read_bytes())["files"], sort_keys=True
        )
    except FileNotFoundError:
        return ""
