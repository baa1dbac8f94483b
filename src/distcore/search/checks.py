"""What is known once the data are: that the metric is there, that its split has rows, that the
goal makes sense."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from distcore_core.config.issues import nearest
from distcore_core.contracts import Feature, Split
from distcore_core.contracts.values import COMBINED
from distcore_data.features import Features
from distcore_data.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from distcore.config import RunConfig
    from distcore.search.section import Section
    from distcore_core.registry.manager import Plugins
    from distcore_data.cache import Cache
    from distcore_search.objective import Objective

log = logging.getLogger("distcore")
CODES: dict[str, Split] = {"training": "train", "validation": "validation", "test": "test"}


def check_objective(
    section: Section, objective: Objective, features: Features, cache: Cache, plugins: Plugins
) -> None:
    """Raises ConfigError, with the section's lines, if no trial could have the score that is
    asked for."""
    from distcore_data.cache import open_cache

    with open_cache(cache, plugins) as reader:
        fitted = features.fitted(reader.metadata)
        for option, split in (("split", objective.split), ("eval_split", objective.evaluated)):
            rows = reader.rows(CODES[split])
            if not rows and (option == "split" or split == "test"):
                message = (
                    f"the {split} split has no rows; name another split, or give "
                    "preprocessing.split a share of it"
                )
                raise section.refuse((option,), message)
        tell_of_validation_rows(objective, reader.rows(CODES["validation"]))
    if objective.metric == "loss":
        higher = False
    else:
        feature = next(each for each in fitted.outputs if each.name == objective.feature)
        higher = _higher_is_better(section, objective, feature, fitted)
    if objective.goal != ("maximize" if higher else "minimize"):
        _say_or_refuse(section, objective, higher)


def check_split(
    section: Section, objective: Objective, evaluates_training: bool, scheduler: str
) -> None:
    """What can be told before there are data."""
    if objective.split == "training" and objective.metric != "loss" and not evaluates_training:
        message = (
            "the training split has the loss alone; set trainer.evaluate_training_set: true for "
            "its other metrics"
        )
        raise section.refuse(("metric",), message)
    if objective.split == "test" and scheduler != "fifo":
        message = (
            f"the test split is evaluated when a trial is over, so the scheduler {scheduler} has "
            "nothing to judge it by; use split: validation, or leave it out"
        )
        raise section.refuse(("split",), message)
    if objective.split == "test":
        log.warning(
            "hyperopt.split is test: the best of many trials on the test split looks better there "
            "than it is. Keep rows aside that no trial sees, or use validation."
        )


def tell_what_is_kept(objective: Objective, trainers: Iterable[Any]) -> None:
    """Warn if trials are ranked by the best round of one metric, and keep the weights of the best
    round of another, as after `distcore init`, whose config names the loss.

    trainers: the section of each config that could be tried."""
    asked = ((each.validation_field, each.validation_metric) for each in trainers)
    other = next((each for each in asked if not objective.agrees(*each)), None)
    if objective.split != "validation" or other is None:
        return
    field, metric = other
    said = [
        f"trainer.{name}: {value}"
        for name, value in (("validation_field", field), ("validation_metric", metric))
        if value is not None
    ]
    log.warning(
        "Trials are ranked by their best %s, but keep the weights of the round that is best by %s. "
        "Leave that out of the config, and the weights are those of the ranked round.",
        objective,
        " and ".join(said),
    )


def tell_of_validation_rows(objective: Objective, rows: int) -> None:
    """Warn if trials are ranked by the training split, and there are rows to validate on, by which
    a trainer chooses the weights that it keeps.

    rows: of the validation split."""
    if objective.split == "training" and rows:
        log.warning(
            "Trials are ranked by their last %s, but keep the weights of the round that is best on "
            "the validation split. Use hyperopt.split: validation, or give preprocessing.split no "
            "share of it, and the weights are those of the ranked round.",
            objective,
        )


def tell_of_other_losses(objective: Objective, configs: Iterable[RunConfig]) -> None:
    """Warn if the loss is what trials are ranked by, and what it is computed from is searched."""
    if objective.metric != "loss":
        return
    found: dict[str, list[Any]] = {}
    for config in configs:
        for each in config.output_features:
            seen = found.setdefault(each.name, [])
            if (loss := each.as_json().get("loss")) not in seen:
                seen.append(loss)
    for name, seen in found.items():
        if len(seen) > 1 and objective.feature in (name, COMBINED):
            log.warning(
                "Trials are ranked by their %s, and the options of %s's loss are searched: those "
                "that make it small win, whatever the model. Name another metric.",
                objective,
                printable(name),
            )


def _higher_is_better(
    section: Section, objective: Objective, feature: Feature, fitted: Features
) -> bool:
    metrics = feature.network().metrics(fitted.metadata[feature.name])
    if objective.metric not in metrics:
        message = (
            f"{feature.name!r} has no metric {objective.metric!r}; "
            f"{nearest(objective.metric, {'loss', *metrics})}"
        )
        raise section.refuse(("metric",), message)
    return bool(metrics[objective.metric].higher_is_better)


def _say_or_refuse(section: Section, objective: Objective, higher: bool) -> None:
    """Ludwig minimises unless told otherwise, so `metric: accuracy` alone would look for the
    worst model."""
    better = "larger" if higher else "smaller"
    if "goal" not in section.written:
        message = (
            f"the goal is minimize if none is given, but a {better} {objective.metric} is better; "
            "write goal: maximize (or goal: minimize, if you mean it)"
        )
        raise section.refuse(("metric",), message)
    log.warning(
        "hyperopt.goal is %s, but a %s %s is better: this looks for the worst.",
        objective.goal,
        better,
        objective.metric,
    )
