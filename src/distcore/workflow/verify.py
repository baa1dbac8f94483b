"""`distcore verify`: a run's files against their seals, and the run itself against a replay of it
here.

Nothing is written into the run's folder: the replay has a temporary one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
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
from distcore.workflow.flaws import flaws_of
from distcore.workflow.replay import refuse_mixed, replay, starts_within
from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_data.locks import is_held
from distcore_data.run_files import MODEL_JSON
from distcore_data.seals import unsealed
from distcore_data.stores import given_credentials
from distcore_data.stores.addresses import folder_or_address
from distcore_data.stores.lease import alive
from distcore_data.stores.run_sync import MODEL, RUNNING, Mirror
from distcore_data.temporaries import LOCK, temporary_folder
from distcore_torch.training.ledger import LEDGER

OTHER_DATA = "The data are not those that {} was trained on: their digest is another one."


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
        refuse_mixed(receipt, *(steps or (0, None)))
        with temporary_folder("verify") as scratch:
            replayed = replay(folder, receipt, scratch, given, steps, backend, view, credentials)
            return _compared(run, folder, replayed, receipt, ledger, steps)


def _compared(
    run: str | Path,
    folder: Path,
    replayed: Path,
    receipt: JSON,
    ledger: dict[int, str],
    steps: tuple[int, int | None] | None,
) -> Verified:
    """The run against its replay, a folder each. run: as it was named."""
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
    if steps and (starts := starts_within(receipt, *steps)):
        receipt = receipt | {"starts": starts, "ranks": [*starts.values()][-1]}
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


def _best(folder: Path) -> str:
    """The digests of the model's weights; "" if none were kept."""
    try:
        return json.dumps(
            unsealed((folder / MODEL / MODEL_JSON).read_bytes())["files"], sort_keys=True
        )
    except FileNotFoundError:
        return ""
