"""Where a run stands beside its weights: position, best round, early stopping, statistics; JSON
in every checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON
from distcore_core.errors import ConfigError, DifferentRun
from distcore_core.registry.manager import environment_plugins
from distcore_data.cache.manifest import same_recipe
from distcore_data.flat_config import apart, flattened

if TYPE_CHECKING:
    from distcore_core.contracts import TrainJob

FREE_TO_CHANGE = (
    "epochs",
    "train_steps",
    "early_stop",
    "compile",
    "eval_batch_size",
    "grace_seconds",
    "hang_seconds",
    "ledger_steps",
    "replay",
)
"""Options of `trainer` that a resumed run may have otherwise: they say how long, or how fast,
not what."""

SHARING = (
    "batch_size",
    "effective_batch_size",
    "gradient_accumulation_steps",
    "max_batch_size",
)
"""Options of `trainer` that say how the rows of a step are shared out. A resumed run may have them
otherwise where a step has as many rows; but not an exact one, whose bits they are part of."""

NOT_THE_MODELS = ("backend", "trainer", "extensions", "plugins", "hyperopt", "random_seed")
"""Sections of the config that do not change what is trained, or that are compared by themselves."""

WRITTEN_OUT = ("trainer.", "preprocessing.", "backend.trainer.")
"""Sections that are saved with every option. In the others one that nobody gave is not there, and
has its default: `activation: null` is not as if nothing were said."""

NOT_THERE = object()
"""In place of the value of an option that a config does not name."""

SHOWN = 4
"""Differences that are told one by one where a run is resumed with another config."""


@dataclass
class TrainState:
    """The position is (epoch, step_in_epoch): the next global batch. step counts optimizer steps
    over all epochs.

    round_step: the step of the last evaluation round. rows: rows seen since that round.
    best: {"epoch", "step", "value", "metric", "feature"}, {} before a round had a finite value;
        without validation rows of the last round.
    rounds_without_improvement: since that one.
    statistics: {split: {output feature: {metric: [a value an evaluation]}}}.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    round_step: int = 0
    rows: int = 0
    rounds_without_improvement: int = 0
    best: JSON = field(default_factory=dict)
    statistics: JSON = field(default_factory=dict)

    def as_json(self) -> JSON:
        """JSON of its own."""
        # Lists of numbers are copied whole: every checkpoint has those of all rounds before it.
        statistics = {
            split: {
                output: {metric: [*values] for metric, values in metrics.items()}
                for output, metrics in outputs.items()
            }
            for split, outputs in self.statistics.items()
        }
        return asdict(replace(self, statistics={})) | {"statistics": statistics}

    @classmethod
    def from_json(cls, saved: JSON) -> TrainState:
        return cls(**saved)

    def advance(self, steps_per_epoch: int) -> None:
        """One step was made."""
        self.step += 1
        self.step_in_epoch += 1
        if self.step_in_epoch == steps_per_epoch:
            self.epoch, self.step_in_epoch = self.epoch + 1, 0

    def record(self, split: str, scores: JSON) -> None:
        """Append a round's scores, {output feature: {metric: value}}, to the statistics."""
        for output, metrics in scores.items():
            for metric, value in metrics.items():
                self.statistics.setdefault(split, {}).setdefault(output, {}).setdefault(
                    metric, []
                ).append(value)

    def keep(self, value: float | None, label: JSON) -> None:
        """Take a round's value where nothing judges it: its weights replace those before."""
        self.best, self.rounds_without_improvement = {**label, "value": value}, 0

    def judge(self, value: float | None, higher: bool, label: JSON) -> bool:
        """Take a round's deciding value; True: it is the best so far. One without a finite value
        (None) never is."""
        best = self.best.get("value")
        if value is not None and (best is None or (value > best if higher else value < best)):
            self.best = {**label, "value": value}
            self.rounds_without_improvement = 0
            return True
        self.rounds_without_improvement += 1
        return False


def identity(job: TrainJob, global_batch: int, bound: JSON) -> JSON:
    """What must be the same where a run is resumed: the config section by section, cache, seed,
    batches, order and `BoundTrainer.bound`."""
    config = dict(job.config)
    sections = {name: value for name, value in config.items() if name not in NOT_THE_MODELS}
    return {
        "config": {**sections, "trainer": config.get("trainer", {})},
        "cache": job.cache.key,
        "seed": job.seed,
        "global_batch_rows": global_batch,
        "loader": {"type": job.loader.name, **job.loader.options},
        "options": bound,
        "versions": {each["distribution"]: each["version"] for each in job.plugins},
    }


def _orders(saved: JSON, ours: JSON) -> tuple[JSON, JSON]:
    """What decides the order of rows of two loaders: every option, with the defaults, but those
    that the loader's model says are beside that."""
    if saved == ours or saved["type"] != ours["type"]:
        return saved, ours
    plugins, found = environment_plugins(), list[JSON]()
    for each in (saved, ours):
        options = {name: value for name, value in each.items() if name != "type"}
        try:
            valid = plugins.validate("loaders", each["type"], options)
        except ConfigError:  # saved by a release that had other options
            return saved, ours
        beside = set(getattr(valid, "beside_data", ()))
        found.append({} if valid is None else valid.model_dump(mode="json", exclude=beside))
    return found[0], found[1]


def _bound(config: JSON, exact: bool) -> JSON:
    """The config with those options of `trainer` alone that a resumed run must have as they
    were."""
    free = {*FREE_TO_CHANGE, *(() if exact else SHARING)}
    trainer = config.get("trainer", {})
    return {**config, "trainer": {name: trainer[name] for name in trainer.keys() - free}}


def check_identity(saved: JSON, ours: JSON, where: Any) -> None:
    """Raise DifferentRun naming everything in which the saved run was another one."""
    before, now = saved["config"], ours["config"]
    exact = any(each.get("trainer", {}).get("exact") for each in (before, now))
    other = [*differences(_bound(before, exact), _bound(now, exact))]
    other[SHOWN:] = [f"{len(other) - SHOWN} more options differ"] if len(other) > SHOWN else []
    if saved["cache"] != ours["cache"]:
        other.append(_why_another_cache(saved, ours))
    if saved["seed"] != ours["seed"]:
        other.append(f"random_seed was {saved['seed']} and is {ours['seed']}")
    if saved["global_batch_rows"] != ours["global_batch_rows"]:
        other.append(
            f"a step had {saved['global_batch_rows']} rows over all workers and has "
            f"{ours['global_batch_rows']} (set trainer.effective_batch_size to "
            f"{saved['global_batch_rows']}, and leave out batch_size or "
            "gradient_accumulation_steps, to keep it under another number of workers)"
        )
    loader = [*differences(*_orders(saved["loader"], ours["loader"]), "backend.loader")]
    if loader:
        other.append(f"{' and '.join(loader)}, so rows would come in another order")
    if "options" in saved:  # an older version noted those of trees alone
        other += differences(saved["options"], ours["options"], "backend.trainer")
    if other:
        raise DifferentRun(
            f"The checkpoint {where} is of another run: {'; '.join(other)}. "
            "Resume with the config, data and versions it was started with, or start a new run."
        )


def _why_another_cache(saved: JSON, ours: JSON) -> str:
    if not same_recipe(saved["cache"], ours["cache"]):
        return "the data, their preprocessing or the cache format differ (another cache)"
    known = saved.get("versions") or ours["versions"]  # older checkpoints do not say
    changed = ", ".join(differences(known, ours["versions"]))
    differ = f" (releases that differ: {changed})" if changed else ""
    return f"other versions encode the same data otherwise{differ}"


def differences(saved: Any, ours: Any, where: str = "") -> Iterator[str]:
    """`trainer.learning_rate was 0.001 and is 0.01`, for every option in which two parts of a
    config differ. where: the path of these parts."""
    old, new = (
        {path: value for path, _, value in flattened(each, where)} for each in (saved, ours)
    )
    for path in sorted(old.keys() | new.keys()):
        one, other = old.get(path, NOT_THERE), new.get(path, NOT_THERE)
        brought = NOT_THERE in (one, other) and f"{path}.".startswith(WRITTEN_OUT)
        if _text(one) != _text(other) and not (brought and _is_off({**old, **new}[path])):
            one, other = apart(path, (one, other))
            yield f"{path} was {_shown(one)} and is {_shown(other)}"


def _is_off(value: Any) -> bool:
    """Whether an option that another release does not have says nothing in this one: a release
    that brings it must not end the runs that were begun before."""
    return value is None or value is False or value in ([], {})


def _shown(value: Any) -> str:
    return "not there" if value is NOT_THERE else shorten(_text(value), 60, placeholder=" …")


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
