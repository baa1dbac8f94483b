"""What the report draws of a test split: confusion matrix, calibration, residuals; memory does not
grow with the rows.

Each drawing's `state` is arrays by name; `add` puts the states of pieces of a dataset together, in
the rows' order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.types as pt

from distcore_core.contracts import JSON
from distcore_data.arrow import flags, to_numpy
from distcore_data.encoding.exactsum import exact_sum
from distcore_data.encoding.hashing import key_of, row_hashes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_core.contracts import Batch
    from distcore_data.features import Features

Arrays = Mapping[str, Any]
"""{name: array}"""

BINS = 10
"""Bins of predicted probability in a calibration curve."""

RESIDUAL_BINS = 41
THRESHOLDS = 200
"""Bins of the probability of the second of two classes, for ROC and precision-recall curves."""

PAIRS = 1000
"""Rows whose truth and prediction are kept for a scatter plot, drawn by chance: rows are often in
an order, such as that of their prices."""

CHANCE = key_of(0, "pairs")

SAMPLE = 1_000_000
"""Residuals kept for the histogram; later ones only count into its range."""


MATRIX_CLASSES = 1000
"""Of more classes only the cells of the confusion matrix that were met are kept and written: the
whole of 20,000 has 400 million."""


class Cells:
    """The cells of a confusion matrix that were met, and how often; no more than there are rows."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._merged = self._waiting = 0

    def add(self, places: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """places: truth * classes + predicted; counts: of each."""
        self._parts.append((places, counts))
        self._waiting += len(places)
        if self._waiting > max(self._merged, 1 << 16):  # each is sorted a few times, not each time
            self.merged()

    def merged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct places in their order, and the counts of each."""
        none = np.zeros(0, np.int64)
        places, inverse = np.unique(
            np.concatenate([none, *(part for part, _ in self._parts)]), return_inverse=True
        )
        counts = np.zeros(len(places), np.int64)
        np.add.at(counts, inverse, np.concatenate([none, *(part for _, part in self._parts)]))
        self._parts, self._merged, self._waiting = [(places, counts)], len(places), 0
        return places, counts


class Classes:
    """Confusion matrix (rows: truth) and calibration of the highest probability."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = list(labels)
        self.cells = Cells() if len(self.labels) > MATRIX_CLASSES else None
        size = 0 if self.cells else len(self.labels)
        self.counts = np.zeros((size, size), np.int64)
        self.bins = np.zeros((3, BINS))
        self.others: list[NDArray[np.float64]] = []
        self.thresholds = np.zeros((2, THRESHOLDS), np.int64)

    def update(
        self,
        output: NDArray[np.float32],
        target: NDArray[np.int64],
        predicted: NDArray[np.integer[Any]],
    ) -> None:
        """output: probabilities [B] of the second of two classes, or [B, classes]; rows in which
        they are not finite are left out. target, predicted: codes [B]."""
        confidence = output if output.ndim == 1 else output.max(1)
        finite = np.isfinite(confidence)
        if not finite.all():
            output, target, predicted = output[finite], target[finite], predicted[finite]
            confidence = confidence[finite]
        if output.ndim == 1:
            right = target.astype(bool)
            score = np.minimum((output * THRESHOLDS).astype(np.int64), THRESHOLDS - 1)
            flat = np.bincount(right * THRESHOLDS + score, minlength=2 * THRESHOLDS)
            self.thresholds += flat.reshape(2, THRESHOLDS)
        else:
            right = predicted == target
        size = len(self.labels)
        places = target * size + predicted
        if self.cells:
            self.cells.add(places, np.ones(len(places), np.int64))
        else:
            flat = np.bincount(places, minlength=size * size)
            self.counts += flat.reshape(size, size)
        place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
        for row, weights in enumerate((None, confidence, right)):
            self.bins[row] += np.bincount(place, weights=weights, minlength=BINS)

    def state(self) -> Arrays:
        state = {"counts": self.counts, "bins": self.bins, "thresholds": self.thresholds}
        if self.cells:
            state["cells"] = np.stack(self.cells.merged())
        return state

    def add(self, state: Arrays) -> None:
        self.counts = self.counts + state["counts"]
        if self.cells:
            self.cells.add(*state["cells"])
        self.others.append(state["bins"])
        self.thresholds = self.thresholds + state["thresholds"]

    def as_json(self) -> JSON:
        bins = exact_sum([self.bins, *self.others])
        counts = np.maximum(bins[0], 1)
        negatives, positives = self.thresholds.tolist()
        scored = (
            {"thresholds": {"negatives": negatives, "positives": positives}}
            if self.thresholds.any()
            else {}
        )
        return {
            **scored,
            "labels": self.labels,
            **self._confusion(),
            "calibration": {
                "expected": (bins[1] / counts).tolist(),
                "observed": (bins[2] / counts).tolist(),
                "counts": bins[0].astype(int).tolist(),
            },
        }

    def _confusion(self) -> JSON:
        if not self.cells:
            return {"confusion": self.counts.tolist()}
        places, counts = self.cells.merged()
        truth, predicted = np.divmod(places, len(self.labels))
        found = {"truth": truth, "predicted": predicted, "rows": counts}
        return {"confusion_cells": {name: each.tolist() for name, each in found.items()}}


class Residuals:
    """Histogram of prediction − truth, in the target's own units, where it is finite."""

    def __init__(self) -> None:
        self.parts: list[NDArray[np.float64]] = []
        self.kept = 0
        self.pairs, self.chances, self.rows = np.zeros((0, 2)), np.zeros(0, np.int64), 0
        self.highest = 0  # of the chances

    def update(self, output: NDArray[np.float64], target: NDArray[np.float64]) -> None:
        """Both [B]."""
        self._keep(output - target)
        if output.ndim == 1:
            places = np.arange(self.rows, self.rows + len(target), dtype=np.uint64)
            self.rows += len(target)
            # A piece counts from 0; with the targets, pieces draw unlike rows.
            mixed = places ^ np.ascontiguousarray(target).view(np.uint64)
            chances = (row_hashes(CHANCE, mixed) >> np.uint64(1)).astype(np.int64)
            self._pair(np.stack([target, output], 1), chances)

    def _pair(self, pairs: NDArray[np.float64], chances: NDArray[np.int64]) -> None:
        """Keep the PAIRS rows with the lowest chances, in the order of the rows."""
        if len(self.pairs) == PAIRS:
            below = chances < self.highest
            pairs, chances = pairs[below], chances[below]
        if not len(chances):  # as in most of many batches
            return
        pairs = np.concatenate([self.pairs, pairs])
        chances = np.concatenate([self.chances, chances])
        lowest = np.sort(np.argsort(chances, kind="stable")[:PAIRS])
        self.pairs, self.chances = pairs[lowest], chances[lowest]
        self.highest = self.chances.max()

    def _keep(self, residuals: NDArray[np.float64]) -> None:
        part = residuals[: max(SAMPLE - self.kept, 0)]
        self.kept += len(part)
        if len(part):
            self.parts.append(part)

    def state(self) -> Arrays:
        return {
            "residuals": np.concatenate(self.parts) if self.parts else np.zeros(0),
            "pairs": self.pairs,
            "chances": self.chances,
        }

    def add(self, state: Arrays) -> None:
        self._keep(state["residuals"])
        self._pair(state["pairs"], state["chances"])

    def as_json(self) -> JSON:
        values = self.state()["residuals"]
        # A prediction may be none: exp of a large logit is infinite.
        counts, edges = _histogram(values[np.isfinite(values)])
        found: JSON = {"residuals": {"edges": edges.tolist(), "counts": counts.tolist()}}
        finite = self.pairs[np.isfinite(self.pairs).all(1)]
        return {**found, "pairs": finite.tolist()} if len(finite) else found


def _histogram(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts and edges of RESIDUAL_BINS bins, or of a single one from the lowest to the highest of
    finite values between which there are no doubles for as many edges."""
    try:
        with np.errstate(all="ignore"):
            return np.histogram(values, RESIDUAL_BINS)
    except ValueError:
        return np.array([len(values)]), np.array([values.min(), values.max()])


class Diagnostics:
    """One drawing for each output feature. A feature whose metadata lists labels (Ludwig's
    `idx2str`, or `bool2str` for false and true) has classes; any other has residuals, in its own
    units."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.networks = {feature.name: feature.network() for feature in features.outputs}
        self.drawings: dict[str, Classes | Residuals] = {}
        for feature in features.outputs:
            metadata = features.metadata[feature.name]
            labels = feature.labels(metadata)
            self.drawings[feature.name] = (
                Residuals() if labels is None else Classes([str(label) for label in labels])
            )

    def update(self, outputs: Mapping[str, NDArray[Any]], batch: Batch) -> None:
        """Add a batch with its targets."""
        for name, drawing in self.drawings.items():
            output, target = np.asarray(outputs[name]), np.asarray(batch[name])
            if isinstance(drawing, Classes):
                known = target >= 0
                output = output[known]
                drawing.update(output, target[known].astype(np.int64), self._told(name, output))
            else:
                drawing.update(self._decoded(name, output), self._decoded(name, target))

    def _told(self, name: str, output: NDArray[Any]) -> NDArray[np.integer[Any]]:
        """The codes [B] of the classes that are predicted. Of two classes the feature says from
        which probability on it is the second, as a certain row is."""
        if output.ndim > 1:
            return output.argmax(1)
        with_certain = np.append(output, output.dtype.type(1))
        predictions = self.networks[name].predictions(with_certain, self.features.metadata[name])
        column = predictions.column(f"{name}_predictions")
        return flags(pc.equal(column, column[len(output)]))[:-1].astype(np.int8)

    def _decoded(self, name: str, codes: NDArray[Any]) -> NDArray[np.float64]:
        """Codes of an output without classes [B] as its predictions are told; as they are, if
        those are no numbers."""
        predictions = self.networks[name].predictions(codes, self.features.metadata[name])
        column = predictions.column(f"{name}_predictions")
        numbers = pt.is_floating(column.type) or pt.is_integer(column.type)
        return (to_numpy(column) if numbers else codes).astype(np.float64)

    def state(self) -> dict[str, Arrays]:
        """{output feature: its drawing's arrays}, of the rows seen so far."""
        return {name: drawing.state() for name, drawing in self.drawings.items()}

    def add(self, state: Mapping[str, Arrays]) -> None:
        """Add what another saw of the rows behind these."""
        for name, arrays in state.items():
            self.drawings[name].add(arrays)

    def as_json(self) -> JSON:
        return {name: drawing.as_json() for name, drawing in self.drawings.items()}
