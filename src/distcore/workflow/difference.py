"""Why two runs differ: the first step at which their ledgers do, and what their receipts have
different."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from distcore.workflow.arguments import told
from distcore.workflow.receipt import BEGUN_WITH
from distcore_core.contracts import JSON
from distcore_core.errors import UserError
from distcore_data.flat_config import apart, flattened
from distcore_data.printable import printable
from distcore_data.run_files import RECEIPT
from distcore_data.seals import damaged, read_bounded, unsealed
from distcore_data.stores import given_credentials
from distcore_data.stores.addresses import folder_or_address
from distcore_data.stores.run_sync import Mirror
from distcore_data.temporaries import temporary_folder
from distcore_torch.training.facts import SAID, brief
from distcore_torch.training.ledger import LEDGER, Entry, read_ledger

NO_CAUSE = ("extensions", "hyperopt", "plugins", "random_seed")
"""Sections of the config that change no weights, or that are compared by themselves."""

NO_CAUSE_OPTIONS = (
    "backend.cache_dir",
    "backend.cache_format",
    "backend.loader.fully_executed",
    "backend.loader.prefetch",
    "backend.processor",
    "backend.trainer.logdir",
    "backend.trainer.max_retries",
    "trainer.ledger_steps",
    "trainer.grace_seconds",
    "trainer.hang_seconds",
    "trainer.replay",
)

NOT_IF_EXACT = ("workers", "threads", "backend", "trainer")
"""Kinds of causes that change no bit of an exact run."""

MOST_OPTIONS = 100
"""Options of the config that are told in words."""

ABSENT = (None, 0)

WEIGHTS = "weights that training began with"

ADVICE = "Take it from a backup, or run again."

FAULT = (
    "Nothing that was recorded differs, so it is most likely a fault of the hardware, or a kernel "
    "that gives other bits each time. Run `distcore verify` on both: the one that a replay does "
    "not come to is the wrong one; if it comes to neither, a kernel is not deterministic."
)


@dataclass(frozen=True)
class Cause:
    """Something that two runs have different.

    kind: config, data, seed, plugin, library, exact, parts, workers, threads, instruction_set, …
    what: in words, or the option's path. one, other: the values. line, other_line: of the config's
    text, 0 if it has none."""

    kind: str
    what: str
    one: Any
    other: Any
    line: int = 0
    other_line: int = 0

    def __str__(self) -> str:
        values = _shown(self.one, self.line), _shown(self.other, self.other_line)
        return printable(f"{self.what}: {values[0]} and {values[1]}")


@dataclass(frozen=True)
class Difference:
    """What `diff` found.

    Attributes:
        equal: The same weights after every step that both ledgers have, and the same last step.
        first_step: The first step after which the weights differ; None if they never do.
        last_equal: The last one before it at which they were compared and equal; None if there is
            none.
        steps: The last step of each.
        causes: The most likely one first. Also of runs that are equal: then they changed nothing.
    """

    equal: bool
    first_step: int | None
    last_equal: int | None
    steps: tuple[int, int]
    causes: tuple[Cause, ...] = field(default=())

    def as_json(self) -> JSON:
        """For `--json`."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.first_step is not None:
            since = (
                "" if self.last_equal is None else f"; they are equal after step {self.last_equal}"
            )
            yield f"The weights differ after step {self.first_step}{since}."
        elif self.steps[0] != self.steps[1]:
            ends = f"one has come to step {self.steps[0]}, the other to {self.steps[1]}"
            both = (
                "No step is recorded of both"
                if self.last_equal is None
                else f"The weights are equal after every step recorded of both, up to "
                f"{self.last_equal}"
            )
            yield f"{both}; {ends}."
        else:
            yield f"Equal: the same weights after every recorded step up to {self.steps[0]}."
        if self.causes:
            yield (
                "What the runs have different:"
                if self.equal
                else "Because, the most likely cause first:"
            )
            yield from in_lines(self.causes)
        elif self.first_step is not None:
            yield FAULT


def in_lines(causes: Sequence[Cause]) -> Iterator[str]:
    """A line a cause; of very many options, the first: tables may have thousands of columns."""
    more = sum(each.kind == "config" for each in causes) - MOST_OPTIONS
    options = 0
    for each in causes:
        options += each.kind == "config"
        if each.kind != "config" or options <= MOST_OPTIONS:
            yield f"  {each}"
        elif options == MOST_OPTIONS + 1:
            yield f"  and {more:,} more of the options of the config, which --json names"


@told
def diff(one: str | Path, other: str | Path, *, credentials: Any = None) -> Difference:
    """Why two runs differ.

    Args:
        one: A run's folder, or its address in a bucket.
        other: The other's.
        credentials: Of the buckets, a mapping or the path of a JSON file; None: what the
            environment gives.

    Returns:
        Where they part, and the likely causes.

    Raises:
        UserError: A folder holds no receipt or no ledger, or one that was changed after it was
            written.
    """
    mine, theirs = (_read(each, credentials) for each in (one, other))
    causes = tuple(causes_of(mine[0], theirs[0]))
    first, last_equal = first_difference(mine[1], theirs[1])
    steps = (max(mine[1], default=0), max(theirs[1], default=0))
    return Difference(first is None and steps[0] == steps[1], first, last_equal, steps, causes)


def first_difference(
    one: Mapping[int, str], other: Mapping[int, str]
) -> tuple[int | None, int | None]:
    """The first step that two ledgers say something else of, and the last one before it; None if
    there is none."""
    last = None
    for step in sorted(one.keys() & other.keys()):
        if one[step] != other[step]:
            return step, last
        last = step
    return None, last


# ------------------------------------------------------------------ reading


def _read(where: str | Path, credentials: Any) -> tuple[JSON, dict[int, str]]:
    """(receipt with `ranks` and `starts`, {step: fingerprint of the weights})."""
    place = folder_or_address(where, "The run")
    if isinstance(place, Path):
        return read_run(place, where)
    mirror = Mirror.at(place, given_credentials(credentials))
    with temporary_folder("diff") as folder:
        for name in (RECEIPT, LEDGER):
            with suppress(FileNotFoundError):
                mirror.get_file(name, folder / name)
        return read_run(folder, where)


def read_run(folder: Path, where: object) -> tuple[JSON, dict[int, str]]:
    """The receipt and the ledger of a results folder. where: its name for people. Raises
    UserError."""
    name = RECEIPT
    try:
        receipt = unsealed(read_bounded(folder / RECEIPT))
        name = LEDGER
        entries, flaws = read_ledger(folder / LEDGER)
    except (FileNotFoundError, NotADirectoryError) as error:
        missing = Path(str(error.filename)).name
        kept = "without --skip_save_training_description"
        if missing == LEDGER:
            kept = "with trainer.ledger_steps above 0, without --skip_save_training_statistics, "
            kept += "and that has begun to train. Trainers of trees keep no ledger"
        raise UserError(
            f"{where} holds no {missing}. Give the folder of a run that `distcore train` or "
            f"`experiment` wrote, {kept}."
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(damaged(f"{where}/{name}", error, ADVICE)) from None
    if bad := next((each for each in flaws if not each.torn), None):
        raise UserError(
            damaged(f"{where}/{LEDGER}", ValueError(f"line {bad.line}: {bad.why}"), ADVICE)
        )
    receipt["starts"] = _starts(entries)
    receipt["ranks"] = receipt.get("ranks") or next(reversed(receipt["starts"].values()), {})
    return receipt, {each.step: each.weights for each in entries if each.weights}


def _starts(entries: list[Entry]) -> dict[int, JSON]:
    """{step after which the run began or went on: what it computed with from there}."""
    return {each.step: each.run for each in entries if each.run}


# ------------------------------------------------------------------ causes


def causes_of(one: JSON, other: JSON) -> Iterator[Cause]:
    """What two receipts have different, the most likely cause of other bits first."""
    exact = bool(one.get("exact") and other.get("exact"))
    if (digests := (one["data"].get("digest"), other["data"].get("digest")))[0] != digests[1]:
        yield Cause("data", "digest of the data", *digests)
    if one["random_seed"] != other["random_seed"]:
        yield Cause("seed", "random_seed", one["random_seed"], other["random_seed"])
    weights = Cause("weights", WEIGHTS, _begun_with(one), _begun_with(other))
    recorded = BEGUN_WITH in one and BEGUN_WITH in other
    if recorded and weights.one != weights.other:
        yield weights
    yield from _of_config(one, other, exact)
    if one["exact"] != other["exact"]:
        yield Cause("exact", "trainer.exact", one["exact"], other["exact"])
    elif one["parts"] != other["parts"]:
        yield Cause("parts", "number of parts (trainer.parts)", one["parts"], other["parts"])
    yield from _of_plugins(one, other)
    for name in sorted(one["libraries"].keys() | other["libraries"].keys()):
        mine, theirs = one["libraries"].get(name), other["libraries"].get(name)
        if mine != theirs:
            yield Cause("library", f"version of {name}", mine, theirs)
    yield from _of_ranks(one, other, exact)
    if not recorded and weights.one != weights.other:
        yield weights  # less likely than all that is known


def _begun_with(receipt: JSON) -> str | None:
    """The digest of the first weights, if they were given; an older version did not record it."""
    if BEGUN_WITH not in receipt:
        return "not recorded"
    digest: str | None = (receipt[BEGUN_WITH] or {}).get("sha256")
    return digest


def _of_config(one: JSON, other: JSON, exact: bool) -> Iterator[Cause]:
    mine, theirs = (_options(each) for each in (one, other))
    for path in sorted(mine.keys() | theirs.keys(), key=_features_last):
        (left, line), (right, other_line) = mine.get(path, ABSENT), theirs.get(path, ABSENT)
        if left == right or _section(path) in NO_CAUSE or path.startswith(NO_CAUSE_OPTIONS):
            continue
        if path in ("trainer.exact", "trainer.parts"):
            continue
        # A loader decides the order of the rows.
        if exact and path.startswith("backend.") and not path.startswith("backend.loader."):
            continue
        left, right = apart(path, (left, right))
        yield Cause("config", path, left, right, line, other_line)


def _options(receipt: JSON) -> dict[str, tuple[Any, int]]:
    """{path: (value, line in the text of the config; 0: in none)}."""
    lines = receipt.get("lines", {})
    return {
        path: (value, int(lines.get(place, 0)))
        for path, place, value in flattened(receipt["config"])
    }


def _features_last(path: str) -> tuple[bool, str]:
    return _section(path) in ("input_features", "output_features"), path


def _section(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]


def _of_plugins(one: JSON, other: JSON) -> Iterator[Cause]:
    mine, theirs = (
        {(each["kind"], each["name"]): each for each in run["plugins"]} for run in (one, other)
    )
    for key in sorted(mine.keys() & theirs.keys()):
        left, right = mine[key]["distribution"], theirs[key]["distribution"]
        if left != right:
            yield Cause("plugin", f"who offers {key[1]} ({key[0]})", left, right)
    versions, others = one["distributions"], other["distributions"]
    for name in sorted(versions.keys() & others.keys()):
        if versions[name]["version"] != others[name]["version"]:
            yield Cause(
                "plugin", f"version of {name}", versions[name]["version"], others[name]["version"]
            )
        elif versions[name]["files"] != others[name]["files"]:
            yield Cause(
                "plugin",
                f"installed files of {name}",
                versions[name]["files"],
                others[name]["files"],
            )


def _of_ranks(one: JSON, other: JSON, exact: bool) -> Iterator[Cause]:
    mine, theirs = one["ranks"], other["ranks"]
    compared = [("workers", "number of workers", one["workers"], other["workers"])]
    if mine and theirs:
        said = {**SAID, "workers": "number of workers"}
        compared = [(name, said[name], _course(one, name), _course(other, name)) for name in said]
    compared += [(name, name, one[name], other[name]) for name in ("backend", "trainer")]
    switches = one["switches"].keys() | other["switches"].keys()
    compared += [
        ("switch", name, one["switches"].get(name), other["switches"].get(name))
        for name in sorted(switches)
    ]
    for kind, what, left, right in compared:
        if (
            left != right
            and not (exact and kind in NOT_IF_EXACT)
            and not (kind == "torch" and _told(one, other))
        ):
            yield Cause(kind, what, left, right)


def _course(receipt: JSON, name: str) -> Any:
    """What a run computed with; of one that went on with another, `1, then 2 after step 12`."""
    found: list[tuple[int, Any]] = []
    for step, run in receipt.get("starts", {}).items():
        if not found or found[-1][1] != run.get(name):
            found.append((step, run.get(name)))
    if len(found) < 2:
        return receipt["ranks"].get(name)
    later = (f"then {brief(value)} after step {step}" for step, value in found[1:])
    return ", ".join([brief(found[0][1]), *later])


def _told(one: JSON, other: JSON) -> bool:
    """Whether the version of torch is told as a library's."""
    return bool(one["libraries"].get("torch") != other["libraries"].get("torch"))


def _shown(value: Any, line: int) -> str:
    text = "not there" if value is None else shorten(brief(value), 60, placeholder=" …")
    return f"{text} (line {line})" if line else text
