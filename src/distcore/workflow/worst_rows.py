"""The test rows that a model is furthest from, for summary.json."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from distcore_core.contracts import JSON, Batch

if TYPE_CHECKING:
    import numpy as np

    from distcore_data.artifact import Artifact

WORST = 10
LACKS = "The summary lacks its part %r: %s: %s"

Scored = TypeVar("Scored", bound=tuple[Any, Mapping[str, Any]])
"""A batch, and what the model says of it."""

log = logging.getLogger("distcore")


class Worst:
    """The test rows that the model is furthest from, of each output feature: found while they are
    scored.

    numbers: of the split's rows, int64 [n]."""

    def __init__(self, numbers: np.ndarray, artifact: Artifact) -> None:
        self._numbers, self._features = numbers, artifact.features
        self._found: dict[str, list[JSON]] = {each.name: [] for each in self._features.outputs}

    def seen(self, batches: Iterable[Scored]) -> Iterator[Scored]:
        """The batches of the whole split, in order, each looked at as it passes."""
        for each in batches:
            try:
                self._look(*each)
            except Exception as error:  # noqa: BLE001 - a page less must not cost the test
                log.warning(LACKS, "worst", type(error).__name__, error)
                self._found = {}
            yield each

    def _look(self, batch: Batch, outputs: Mapping[str, Any]) -> None:
        if not self._found:
            return
        numbers, self._numbers = self._numbers[: batch.rows], self._numbers[batch.rows :]
        for feature in self._features.outputs:
            if feature.name not in self._found:
                continue
            metadata = self._features.metadata[feature.name]
            some = _furthest(feature, metadata, batch, outputs, numbers)
            if some is None:
                del self._found[feature.name]
                continue
            worst = sorted([*self._found[feature.name], *some], key=lambda each: -each["error"])
            self._found[feature.name] = worst[:WORST]

    def told(self) -> JSON | None:
        """{output feature: rows, the worst first}; None if there are none."""
        return {name: rows for name, rows in self._found.items() if rows} or None


def _furthest(
    feature: Any, metadata: JSON, batch: Batch, outputs: Mapping[str, Any], numbers: np.ndarray
) -> list[JSON] | None:
    """The rows of a batch that the model is furthest from, of those whose error is finite; None of
    an output whose rows have no one error.

    numbers: of its rows, int64 [n]."""
    import numpy as np

    labels, network = feature.labels(metadata), feature.network()
    target, output = np.asarray(batch[feature.name]), np.asarray(outputs[feature.name])
    if target.ndim != 1 or output.ndim > 2:
        return None

    def told_of(some: np.ndarray) -> list[Any]:
        """What the model says, as people read it."""
        found = network.predictions(some, metadata)
        column: list[Any] = found.column(f"{feature.name}_predictions").to_pylist()
        return column

    if labels is None:
        told = told_of(output)
        if not (told and isinstance(told[0], int | float)):
            return None
        truth = told_of(target.astype(output.dtype))
        errors = np.abs(np.asarray(told, float) - np.asarray(truth, float))
    else:
        codes = np.maximum(target.astype(np.int64), 0)
        right = (
            output[np.arange(len(output)), codes]
            if output.ndim == 2
            else np.where(codes == 1, output, 1 - output)
        )
        errors = np.where(target >= 0, 1.0 - right, np.nan)  # of no class: no error
    places = np.argsort(-errors, kind="stable")[np.isinf(errors).sum() :][:WORST]
    places = places[np.isfinite(errors[places])]
    if labels is None:
        said, true = ([each[place] for place in places] for each in (told, truth))
    else:  # decoded for these alone: of many classes that is a column each
        said = told_of(output[places])
        true = [str(labels[code]) for code in codes[places]]
    return [
        {
            "row": int(numbers[place]),
            "truth": truth,
            "predicted": predicted,
            "error": float(errors[place]),
        }
        for place, truth, predicted in zip(places, true, said, strict=True)
    ]
