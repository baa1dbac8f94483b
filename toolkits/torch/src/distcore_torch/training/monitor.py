"""What a run aims at: the metric that picks the best round, and the one that is watched for a
plateau."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from distcore_core.config.issues import nearest
from distcore_core.contracts import JSON, Feature, FeatureSet
from distcore_core.contracts.values import COMBINED
from distcore_core.errors import ConfigError, ConfigIssue
from distcore_data.printable import printable

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions

log = logging.getLogger("distcore")


def tell_passed_over(metric: str, instead: str) -> None:
    """Warn that a `validation_metric` has no rows. instead: what becomes of the rounds."""
    log.warning(
        "There are no validation rows, so trainer.validation_metric %s picks no round: %s. Give "
        "preprocessing.split a validation part, or a validation_set beside the training_set.",
        printable(metric),
        instead,
    )


class Monitor:
    """field, metric: as Ludwig chooses them (`validation_field`, `validation_metric`).

    Without a validation split nothing decides: rounds tell of the training split. passed_over: the
    metric that was asked for all the same. Raises ConfigError for a field or metric that is not
    there. A feature's own choice of metric is believed: to look would import the
    metrics before the first step.
    """

    def __init__(self, features: FeatureSet, options: TrainerOptions, validates: bool) -> None:
        self.split = "validation" if validates else "training"
        self.weights = {each.name: each.loss_weight for each in features.outputs}
        self._features = features
        asked = options.validation_field, options.validation_metric
        self.field, self.metric = self._choose(*asked)
        self.passed_over = ""
        if not validates and self.metric != "loss" and options.validation_metric is not None:
            self.passed_over = self.metric
        if not validates and not options.evaluate_training_set:
            self.field, self.metric = options.validation_field or COMBINED, "loss"
        scheduler = options.learning_rate_scheduler
        split = scheduler.reduce_eval_split
        self.plateau_split = {"train": "training"}.get(split, split)
        self._plateau_field, self._plateau_metric = self.field, scheduler.reduce_eval_metric
        higher = False
        if scheduler.reduce_on_plateau:
            if self._plateau_metric != "loss":
                # A search sets the field to what it is after, where the config names none.
                having = self._having(self._plateau_metric)
                if self.field not in having:
                    self._plateau_field = next(iter(having), self._features.outputs[0].name)
            self._check_plateau(scheduler, validates, options.evaluate_training_set)
            higher = self._higher(self._plateau_field, self._plateau_metric)
        self.plateau_direction: Literal["min", "max"] = "max" if higher else "min"

    @cached_property
    def higher(self) -> bool:
        """Whether more is better."""
        self._check(self.field, self.metric, "trainer.validation_metric")
        return self._higher(self.field, self.metric)

    def __str__(self) -> str:
        return f"{self.split} {self.metric} of {self.field}"

    def value(self, scores: JSON) -> float | None:
        """The value of a round, which decides if it is of validation rows; None if it has none."""
        return _value(scores, self.split, self.field, self.metric)

    def plateau_value(self, scores: JSON) -> float | None:
        """The value that is watched for a plateau."""
        return _value(scores, self.plateau_split, self._plateau_field, self._plateau_metric)

    def _choose(self, field: str | None, metric: str | None) -> tuple[str, str]:
        outputs = list(self._features.outputs)
        if field is None and metric is not None and metric != "loss":
            having = self._having(metric)
            if not having:
                known = {"loss"}.union(*(self._metrics(each) for each in outputs))
                raise _issue(
                    "trainer.validation_metric",
                    f"no output feature has a metric {metric!r}; {nearest(metric, known)}",
                )
            return having[0], metric
        if field is None and metric == "loss":
            return COMBINED, "loss"
        if field == COMBINED:
            self._check(field, metric or "loss", "trainer.validation_metric")
            return field, "loss"
        name = field or outputs[0].name
        self._check(name, "loss", "trainer.validation_field")
        feature = next(each for each in outputs if each.name == name)
        if metric is None:
            return name, feature.default_metric
        self._check(name, metric, "trainer.validation_metric")
        return name, metric

    def _check(self, field: str, metric: str, path: str) -> None:
        if field == COMBINED:
            if metric != "loss":
                raise _issue(path, f"{COMBINED} has the metric loss alone, not {metric!r}")
            return
        features = {each.name: each for each in self._features.outputs}
        if field not in features:
            known = ", ".join(map(printable, features))
            raise _issue(path, f"{field!r} is no output feature; there are {known} and {COMBINED}")
        if metric != "loss" and metric not in self._metrics(features[field]):
            known = ", ".join(sorted({"loss", *self._metrics(features[field])}))
            raise _issue(path, f"{field!r} has no metric {metric!r}; it has {known}")

    def _check_plateau(self, scheduler: Any, validates: bool, evaluates_training: bool) -> None:
        path = "trainer.learning_rate_scheduler.reduce_eval_metric"
        if self.plateau_split == "test":
            raise _issue(
                "trainer.learning_rate_scheduler.reduce_eval_split",
                "the test split is evaluated after training only; watch training or validation",
            )
        if self.plateau_split == "validation" and not validates:
            raise _issue(
                "trainer.learning_rate_scheduler.reduce_eval_split",
                "there are no validation rows to watch",
            )
        if (
            self.plateau_split == "training"
            and not evaluates_training
            and scheduler.reduce_eval_metric != "loss"
        ):
            raise _issue(
                path,
                "the training split has the loss alone; set trainer.evaluate_training_set for "
                "others",
            )
        self._check(self._plateau_field, scheduler.reduce_eval_metric, path)

    def _having(self, metric: str) -> list[str]:
        """The output features that have a metric."""
        return [each.name for each in self._features.outputs if metric in self._metrics(each)]

    def _metrics(self, feature: Feature) -> Any:
        return feature.network().metrics(self._features.metadata[feature.name])

    def _higher(self, field: str, metric: str) -> bool:
        if metric == "loss":
            return False
        feature = next(each for each in self._features.outputs if each.name == field)
        return bool(self._metrics(feature)[metric].higher_is_better)


def _value(scores: JSON, split: str, field: str, metric: str) -> float | None:
    found = scores.get(split, {}).get(field, {}).get(metric)
    return None if found is None else float(found)


def _issue(path: str, message: str) -> ConfigError:
    return ConfigError([ConfigIssue(0, path, message)])
